package choose_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

var (
	mine  = types.NamespacedName{Namespace: "tenants", Name: "a"}
	me    = choose.Cluster{NamespacedName: mine, UID: "mine"}
	other = types.NamespacedName{Namespace: "tenants", Name: "b"}
)

const worker = airship.RoleWorker

// host is a free and fit one of flavor w, changed by edits.
func host(name string, edits ...func(*choose.Host)) *choose.Host {
	h := &choose.Host{BareMetalHost: &choose.BareMetalHost{}, Permitted: true}
	h.Namespace, h.Name, h.Labels, h.Annotations = "hosts", name, map[string]string{"flavor": "w"}, map[string]string{}
	h.Status.Provisioning.State, h.Status.OperationalStatus = "available", "OK"
	for _, edit := range edits {
		edit(h)
	}
	return h
}

func label(key, value string) func(*choose.Host) {
	return func(h *choose.Host) { h.Labels[key] = value }
}

func note(key, value string) func(*choose.Host) {
	return func(h *choose.Host) { h.Annotations[key] = value }
}

func claimed(by types.NamespacedName) func(*choose.Host) {
	c := choose.Cluster{NamespacedName: by, UID: "other"}
	if by == mine {
		c = me
	}
	return note(airship.AnnotationClaim, c.Claim(worker))
}

func labelled(by types.NamespacedName) func(*choose.Host) {
	return func(h *choose.Host) {
		h.Labels[airship.LabelClusterNamespace], h.Labels[airship.LabelClusterName] = by.Namespace, by.Name
		h.Labels[airship.LabelNodeType] = string(worker)
	}
}

func used(h *choose.Host) {
	h.Spec.ConsumerRef = corev1.ObjectReference{Kind: "Metal3Machine", Namespace: "tenants", Name: "m"}
}
func adopted(h *choose.Host)              { h.Annotations[airship.AnnotationAdopt] = "true" }
func forbidden(h *choose.Host)            { h.Permitted = false }
func earlier(c string) func(*choose.Host) { return note(airship.AnnotationClaim, c) }
func deployed(h *choose.Host)             { h.Spec.Image.URL = "http://image" }
func busy(h *choose.Host)                 { h.Status.Provisioning.State = "provisioned" }
func deleting(h *choose.Host)             { h.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
func failed(h *choose.Host) {
	h.Status.OperationalStatus, h.Status.ErrorType = "error", "power management error"
}

func nodes(active, standby int32, topology string) map[airship.Role]airship.NodeSet {
	return map[airship.Role]airship.NodeSet{worker: {
		LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"flavor": "w"}}, TopologyKey: topology,
		Count: &airship.NodeCount{Active: active, Standby: standby},
	}}
}

func names(hosts []*choose.Host) []string {
	out := []string{}
	for _, h := range hosts {
		out = append(out, h.Name)
	}
	return out
}

func leaving(all []choose.Leaving) []string {
	out := []string{}
	for _, l := range all {
		out = append(out, l.Name)
	}
	return out
}

func TestChoose(t *testing.T) {
	rack := func(v string) func(*choose.Host) { return label("rack", v) }
	none := []string{}
	for name, c := range map[string]struct {
		nodes             map[airship.Role]airship.NodeSet
		hosts             []*choose.Host
		keep, take, leave []string
		missing           int
		force             bool
		refused           map[choose.Reason]int
	}{
		"active and standby, in order": {
			nodes: nodes(2, 1, ""), hosts: []*choose.Host{host("d"), host("c"), host("b"), host("a")},
			keep: none, take: []string{"a", "b", "c"}, leave: none,
		},
		"no count is none": {
			nodes: map[airship.Role]airship.NodeSet{worker: {}}, hosts: []*choose.Host{host("a")},
			keep: none, take: none, leave: none,
		},
		"satisfied without a free host": {
			nodes: nodes(2, 0, ""), hosts: []*choose.Host{host("a", claimed(mine)), host("b", claimed(mine)), host("c", claimed(other))},
			keep: []string{"a", "b"}, take: none, leave: none,
		},
		"only the missing ones are taken": {
			nodes: nodes(3, 0, ""), hosts: []*choose.Host{host("a"), host("b"), host("c"), host("y", claimed(mine)), host("z", claimed(mine))},
			keep: []string{"y", "z"}, take: []string{"a"}, leave: none,
		},
		"what the original labelled is adopted where its owner says so": {
			nodes: nodes(2, 0, ""), hosts: []*choose.Host{host("a", labelled(mine)), host("b", labelled(mine), adopted)},
			keep: []string{"b"}, take: none, leave: none, missing: 1, refused: map[choose.Reason]int{choose.ReasonAdopt: 1},
		},
		"one of the same name inherits nothing, unless its owner says so": {
			nodes: nodes(2, 0, ""), hosts: []*choose.Host{host("a", earlier("Worker tenants/a gone")), host("b", earlier("Worker tenants/a gone"), adopted)},
			keep: []string{"b"}, take: none, leave: none, missing: 1, refused: map[choose.Reason]int{choose.ReasonAdopt: 1},
		},
		"claims of an earlier version are the SIPCluster's whose status lists the host": {
			nodes: nodes(2, 0, ""), hosts: []*choose.Host{host("a", earlier("Worker tenants/a")), host("listed", earlier("Worker tenants/a")),
				host("z", earlier("Worker tenants/b"))},
			keep: []string{"listed"}, take: none, leave: none, missing: 1, refused: map[choose.Reason]int{choose.ReasonAdopt: 1, choose.ReasonTaken: 1},
		},
		"what its owner does not permit is neither taken nor adopted": {
			nodes: nodes(2, 0, ""), hosts: []*choose.Host{host("a", forbidden), host("b", labelled(mine), adopted, forbidden)},
			keep: none, take: none, leave: none, missing: 2, refused: map[choose.Reason]int{choose.ReasonNamespace: 1, choose.ReasonAdopt: 1},
		},
		"what is no longer permitted leaves, unless it is in use": {
			nodes: nodes(3, 0, ""), hosts: []*choose.Host{host("a", claimed(mine), forbidden), host("b", claimed(mine), forbidden, used), host("c", claimed(mine)), host("x")},
			keep: []string{"b", "c"}, take: []string{"x"}, leave: []string{"a"},
		},
		"the claim decides against labels": {
			nodes: nodes(2, 0, ""), hosts: []*choose.Host{host("a", labelled(mine), claimed(other)), host("b", labelled(other), claimed(mine))},
			keep: []string{"b"}, take: none, leave: none, missing: 1, refused: map[choose.Reason]int{choose.ReasonTaken: 1},
		},
		"topology of hosts that are held counts": {
			nodes: nodes(3, 0, "rack"), hosts: []*choose.Host{
				host("a", rack("1")), host("b", rack("2")), host("c", rack("2")), host("d", rack("3")), host("z", claimed(mine), rack("1"))},
			keep: []string{"z"}, take: []string{"b", "d"}, leave: none,
		},
		"hosts without the topology label are not restricted": {
			nodes: nodes(3, 0, "rack"), hosts: []*choose.Host{host("a"), host("b"), host("c", rack("1")), host("d", rack("1"))},
			keep: none, take: []string{"a", "b", "c"}, leave: none,
		},
		"too few: what is held stays": {
			nodes: nodes(3, 0, ""), hosts: []*choose.Host{host("a", claimed(mine)), host("b", claimed(other)), host("c", used), host("d", label("flavor", "x")),
				host("e", busy), host("f", failed), host("g", note(choose.AnnotationPaused, "")),
				host("h", note("baremetalhost.metal3.io/detached", "")), host("i", deleting),
				host("k", func(h *choose.Host) { h.Status.Provisioning.State = "" }), host("l", earlier("nonsense")),
				host("m", func(h *choose.Host) { h.Status.OperationalStatus = "delayed" }), host("n", note(choose.AnnotationUnhealthy, ""))},
			keep: []string{"a"}, take: none, leave: none, missing: 2,
			refused: map[choose.Reason]int{choose.ReasonTaken: 2, choose.ReasonSelector: 1, choose.ReasonInUse: 3, choose.ReasonUnfit: 6},
		},
		"fewer: the unhealthy first, then what no longer matches, then the last; never one in use": {
			nodes: nodes(2, 0, ""), hosts: []*choose.Host{host("a", claimed(mine)), host("b", claimed(mine), failed), host("c", claimed(mine), label("flavor", "x")),
				host("d", claimed(mine)), host("e", claimed(mine), used)},
			keep: []string{"a", "e"}, take: none, leave: []string{"b", "c", "d"},
		},
		"fewer, and the others have an image or are not available": {
			nodes: nodes(0, 0, ""), hosts: []*choose.Host{host("a", claimed(mine), deployed), host("b", claimed(mine), busy),
				host("c", claimed(mine)), host("d", claimed(mine), deleting, func(h *choose.Host) { h.Status.Provisioning.State = "deleting" })},
			keep: []string{"a", "b"}, take: none, leave: []string{"c", "d"},
		},
		"an annotation forces all of that": {
			force: true,
			nodes: nodes(1, 0, ""), hosts: []*choose.Host{host("a", claimed(mine), used), host("b", claimed(mine), deployed), host("c", claimed(mine), busy)},
			keep: []string{"a"}, take: none, leave: []string{"b", "c"},
		},
		"a role that is gone is given back": {
			nodes: nil, hosts: []*choose.Host{host("a", claimed(mine)), host("b", claimed(mine), used)},
			keep: []string{"b"}, take: none, leave: []string{"a"},
		},
		"a failed host is replaced where standby allows": {
			nodes: nodes(1, 2, ""), hosts: []*choose.Host{host("a", claimed(mine), failed), host("b", claimed(mine), failed), host("c", claimed(mine)), host("x"), host("y")},
			keep: []string{"c"}, take: []string{"x", "y"}, leave: []string{"a", "b"},
		},
		"not where more failed than standby": {
			nodes: nodes(2, 1, ""), hosts: []*choose.Host{host("a", claimed(mine), failed), host("b", claimed(mine), failed), host("c", claimed(mine)), host("x"), host("y")},
			keep: []string{"a", "b", "c"}, take: none, leave: none,
		},
		"in use it stays": {
			nodes: nodes(1, 1, ""), hosts: []*choose.Host{host("a", claimed(mine), failed, deployed), host("b", claimed(mine)), host("x")},
			keep: []string{"a", "b"}, take: none, leave: none,
		},
		"and in its own rack": {
			nodes: nodes(1, 1, "rack"), hosts: []*choose.Host{host("a", claimed(mine), failed, rack("1")), host("b", claimed(mine), rack("2")), host("x", rack("1"))},
			keep: []string{"b"}, take: []string{"x"}, leave: []string{"a"},
		},
		"with nothing to replace it, it stays": {
			nodes: nodes(1, 1, ""), hosts: []*choose.Host{host("a", claimed(mine), failed), host("b", claimed(mine)), host("x", used)},
			keep: []string{"a", "b"}, take: none, leave: none,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := choose.Choose(choose.Cluster{
				NamespacedName: mine, UID: "mine", ReleaseInUse: c.force,
				Listed: map[types.NamespacedName]bool{{Namespace: "hosts", Name: "listed"}: true},
			}, c.nodes, c.hosts)
			require.NoError(t, err)
			require.Len(t, got.Roles, 1)
			r := got.Roles[0]
			require.Equal(t, c.keep, names(r.Keep), "kept")
			require.Equal(t, c.take, names(r.Take), "taken")
			require.Equal(t, c.leave, leaving(r.Leave), "leaving")
			require.EqualValues(t, c.missing, r.Missing.Count)
			var refused map[choose.Reason]int
			for _, x := range r.Missing.Refused {
				if refused == nil {
					refused = map[choose.Reason]int{}
				}
				refused[choose.Reason(x.Reason)] = int(x.Count)
			}
			require.Equal(t, c.refused, refused)
		})
	}
}

func TestProblemsOfHostsThatStay(t *testing.T) {
	got, err := choose.Choose(me, nodes(1, 0, ""), []*choose.Host{
		host("a", claimed(mine), used), host("b", claimed(mine), used, failed, label("flavor", "x")),
		host("c", claimed(mine), used, func(h *choose.Host) { h.Spec.AutomatedCleaningMode = "disabled" }),
	})
	require.NoError(t, err)
	const tooMany = "it is one too many, and Metal3Machine tenants/m uses it"
	for i, want := range []string{
		tooMany, tooMany + "; power management error; labelSelector no longer matches it",
		tooMany + "; automatedCleaningMode is disabled: the next tenant gets its disks unwiped",
	} {
		require.Equal(t, want, got.Roles[0].Problem(got.Roles[0].Keep[i]))
	}
}

func TestAHostIsTakenForOneRole(t *testing.T) {
	spec := nodes(1, 0, "")
	spec[airship.RoleControlPlane] = spec[worker]
	got, err := choose.Choose(me, spec, []*choose.Host{host("a"), host("b")})
	require.NoError(t, err)
	require.Equal(t, airship.RoleControlPlane, got.Roles[0].Role)
	require.Equal(t, []string{"a"}, names(got.Roles[0].Take))
	require.Equal(t, []string{"b"}, names(got.Roles[1].Take))
}

func TestASelectorThatCannotBeUnderstood(t *testing.T) {
	_, err := choose.Choose(me, map[airship.Role]airship.NodeSet{worker: {LabelSelector: metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}}}, nil)
	require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
	require.ErrorContains(t, err, "spec.nodes.Worker.labelSelector")
	require.NotEmpty(t, fault.HintOf(err))
}

func TestRefusalsAreBounded(t *testing.T) {
	var hosts []*choose.Host
	for i := range 2000 {
		hosts = append(hosts, host(fmt.Sprintf("h%04d", i), used))
	}
	got, err := choose.Choose(me, nodes(1, 0, ""), hosts)
	require.NoError(t, err)
	require.Equal(t, []airship.RefusedHosts{{
		Reason: string(choose.ReasonInUse), Count: 2000,
		Hosts: []string{"hosts/h0000", "hosts/h0001", "hosts/h0002", "hosts/h0003", "hosts/h0004"},
	}}, got.Roles[0].Missing.Refused)
}

// Whatever the hosts are like: nothing of others is taken, nothing in use leaves, the
// target is not exceeded, a topology has one host of those taken, and carrying a choice
// out leaves nothing to change.
func TestChoicesOfRandomHosts(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // of a test
		var hosts []*choose.Host
		for i := range r.IntN(12) {
			hosts = append(hosts, host(fmt.Sprintf("h%02d", i)))
			for _, edit := range []func(*choose.Host){
				claimed(mine), claimed(other), labelled(mine), used, failed, label("rack", "1"), label("rack", "2"), label("flavor", "x"),
			} {
				if r.IntN(4) == 0 {
					edit(hosts[i])
				}
			}
		}
		spec := nodes(int32(r.IntN(4)), int32(r.IntN(3)), []string{"", "rack"}[r.IntN(2)])
		choice, err := choose.Choose(me, spec, slices.Clone(hosts))
		require.NoError(t, err)
		for _, role := range choice.Roles {
			checkRole(t, seed, spec[worker], role)
		}
		again := slices.Clone(hosts)
		r.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		same, err := choose.Choose(me, spec, again)
		require.NoError(t, err)
		require.Equal(t, choice, same, "seed %d: the order of hosts does not matter", seed)
		for _, role := range choice.Roles { // what leaves because it failed stays failed
			for i := range hosts {
				if slices.Contains(role.Take, hosts[i]) {
					hosts[i].Annotations[airship.AnnotationClaim] = me.Claim(role.Role)
				}
				if slices.ContainsFunc(role.Leave, func(l choose.Leaving) bool { return l.Name == hosts[i].Name }) {
					hosts[i].Annotations, hosts[i].Labels = nil, map[string]string{"flavor": "given back"}
				}
			}
		}
		settled, err := choose.Choose(me, spec, hosts)
		require.NoError(t, err)
		for _, role := range settled.Roles {
			require.Empty(t, role.Take, "seed %d", seed)
			require.Empty(t, role.Leave, "seed %d", seed)
		}
	}
}

func checkRole(t *testing.T, seed uint64, set airship.NodeSet, role choose.Role) {
	t.Helper()
	if role.Role != worker {
		return
	}
	total, standby := set.Wanted()
	values := map[string]bool{}
	for _, h := range role.Keep {
		values[h.Labels[set.TopologyKey]] = true
	}
	for _, h := range role.Take {
		by, _ := h.Holder()
		require.Empty(t, by, "seed %d: %s is another's", seed, h)
		require.Empty(t, h.Consumer()+h.Failed(), "seed %d: %s", seed, h)
		if v, has := h.Labels[set.TopologyKey]; has {
			require.False(t, values[v], "seed %d: two of rack %s", seed, v)
			values[v] = true
		}
	}
	require.True(t, len(role.Take) == 0 || len(role.Keep)+len(role.Take) <= total, "seed %d: too many", seed)
	replaced := 0
	for _, l := range role.Leave {
		require.Empty(t, l.Consumer(), "seed %d: %s is in use", seed, l)
		if l.Why != "fewer hosts are wanted" {
			replaced++
		}
	}
	require.LessOrEqual(t, replaced, standby, "seed %d", seed)
	require.Equal(t, max(0, total-len(role.Keep)-len(role.Take)), int(role.Missing.Count))
}
