package choose_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

var me = choose.Cluster{
	NamespacedName: types.NamespacedName{Namespace: "tenants", Name: "a"}, UID: "mine",
}

const worker = airship.RoleWorker

type edit = func(*choose.Host)

func label(key, value string) edit {
	return func(h *choose.Host) { h.Labels[key] = value }
}

func note(key, value string) edit {
	return func(h *choose.Host) { h.Annotations[key] = value }
}

func claim(text string) edit { return note(airship.AnnotationClaim, text) }

func labelled(name string) edit {
	return func(h *choose.Host) {
		h.Labels[airship.LabelClusterNamespace], h.Labels[airship.LabelClusterName] = "tenants", name
		h.Labels[airship.LabelNodeType] = string(worker)
	}
}

func nodes(active, standby int32, topology string) map[airship.Role]airship.NodeSet {
	return map[airship.Role]airship.NodeSet{worker: {
		LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"flavor": "w"}}, TopologyKey: topology,
		Count: &airship.NodeCount{Active: active, Standby: standby},
	}}
}

func names(hosts []*choose.Host) string {
	var all []string
	for _, h := range hosts {
		all = append(all, h.Name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// edits are what the words of hosts stand for.
var edits = map[string]edit{
	"mine": claim(me.Claim(worker)), "other": claim("Worker tenants/b other"), "nonsense": claim("nonsense"), "misspelt": claim("worker tenants/a"),
	"labelled": labelled("a"), "labelledOther": labelled("b"),
	"gone": claim("Worker tenants/a gone"), "adopted": claim("Worker tenants/a"), "adoptedOther": claim("Worker tenants/b"),
	"x": label("flavor", "x"), "earlier": label(airship.LabelNodeType, "worker"),
	"1": label("rack", "1"), "2": label("rack", "2"), "3": label("rack", "3"),
	"paused": note(choose.AnnotationPaused, ""), "detached": note("baremetalhost.metal3.io/detached", ""),
	"unhealthy": note(choose.AnnotationUnhealthy, ""),
	"failed": func(h *choose.Host) {
		h.Status.OperationalStatus, h.Status.ErrorType = "error", "power management error"
	},
	"used": func(h *choose.Host) {
		h.Spec.ConsumerRef = corev1.ObjectReference{Kind: "Metal3Machine", Namespace: "tenants", Name: "m"}
	},
	"reserved":  label("infrastructure.cluster.x-k8s.io/node-reuse", "kcp"),
	"unwiped":   func(h *choose.Host) { h.Spec.AutomatedCleaningMode = "disabled" },
	"earlier's": func(h *choose.Host) { h.Status.Provisioning.State = "ready" },
	"new":       func(h *choose.Host) { h.Status.Provisioning.State = "" },
	"busy":      func(h *choose.Host) { h.Status.Provisioning.State = "provisioned" },
	"deployed":  func(h *choose.Host) { h.Spec.Image.URL = "http://image" },
	"deleting":  func(h *choose.Host) { h.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} },
	"forbidden": func(h *choose.Host) { h.Permitted = false },
	"delayed":   func(h *choose.Host) { h.Status.OperationalStatus = "delayed" },
}

// hosts are those of words such as a=mine,used: else free and fit ones of flavor w.
func hosts(text string) (all []*choose.Host) {
	for _, word := range strings.Fields(text) {
		name, is, _ := strings.Cut(word, "=")
		h := &choose.Host{BareMetalHost: &choose.BareMetalHost{}, Permitted: true}
		h.Namespace, h.Name = "hosts", name
		h.Labels, h.Annotations = map[string]string{"flavor": "w"}, map[string]string{}
		h.Status.Provisioning.State, h.Status.OperationalStatus, h.Spec.Online = "available", "OK", true
		for _, edit := range strings.FieldsFunc(is, func(r rune) bool { return r == ',' }) {
			edits[edit](h)
		}
		all = append(all, h)
	}
	return all
}

// The order of hosts does not matter, and repeating a choice that was carried out changes nothing.
func TestChoose(t *testing.T) {
	type refused = map[choose.Reason]int
	for name, c := range map[string]struct {
		nodes             map[airship.Role]airship.NodeSet
		hosts             string
		keep, take, leave string
		missing           int
		force             bool
		refused           refused
	}{
		"active and standby, in order":    {nodes: nodes(2, 1, ""), hosts: "d c b a", take: "a b c"},
		"earlier versions of Metal3":      {nodes: nodes(1, 0, ""), hosts: "a=earlier's", take: "a"},
		"no count is none":                {nodes: map[airship.Role]airship.NodeSet{worker: {}}, hosts: "a"},
		"satisfied without a free host":   {nodes: nodes(2, 0, ""), hosts: "a=mine b=mine c=other", keep: "a b"},
		"only the missing ones are taken": {nodes: nodes(3, 0, ""), hosts: "a b c y=mine z=mine", keep: "y z", take: "a"},
		"what the original labelled is adopted by a claim, whatever its role was": {
			nodes: nodes(2, 0, ""), hosts: "a=labelled b=labelled,earlier,adopted c=labelledOther z=adoptedOther",
			keep: "b", missing: 1, refused: refused{choose.ReasonAdopt: 1, choose.ReasonTaken: 2},
		},
		"neither one of the same name nor one of another role inherits any": {
			nodes: nodes(2, 0, ""), hosts: "a=gone b=misspelt c=mine", keep: "c", missing: 1,
			refused: refused{choose.ReasonAdopt: 1, choose.ReasonTaken: 1},
		},
		"what its owner does not permit is neither taken nor adopted": {
			nodes: nodes(2, 0, ""), hosts: "a=forbidden b=labelled,adopted,forbidden",
			missing: 2, refused: refused{choose.ReasonNamespace: 2},
		},
		"what is no longer permitted leaves, unless it is in use": {
			nodes: nodes(3, 0, ""), hosts: "a=mine,forbidden b=mine,forbidden,used c=mine x",
			keep: "b c", take: "x", leave: "a",
		},
		"the claim decides against labels": {
			nodes: nodes(2, 0, ""), hosts: "a=labelled,other b=labelledOther,mine",
			keep: "b", missing: 1, refused: refused{choose.ReasonTaken: 1},
		},
		"topology of hosts that are held counts": {
			nodes: nodes(3, 0, "rack"), hosts: "a=1 b=2 c=2 d=3 z=mine,1", keep: "z", take: "b d",
		},
		"hosts without the topology label are not restricted": {
			nodes: nodes(3, 0, "rack"), hosts: "a b c=1 d=1", take: "a b c",
		},
		"too few: what is held stays": {
			nodes: nodes(3, 0, ""), keep: "a", missing: 2,
			hosts: "a=mine b=other c=used d=x e=busy f=failed g=paused h=detached i=deleting k=new l=nonsense m=delayed n=unhealthy",
			refused: refused{
				choose.ReasonTaken: 2, choose.ReasonSelector: 1, choose.ReasonInUse: 3, choose.ReasonUnfit: 6,
			},
		},
		"fewer: the unhealthy first, then what no longer matches, then the last; never one in use": {
			nodes: nodes(2, 0, ""), hosts: "a=mine b=mine,failed c=mine,x d=mine e=mine,used", keep: "a e", leave: "b c d",
		},
		"fewer, and the others have an image or are not available": {
			nodes: nodes(0, 0, ""), hosts: "a=mine,deployed b=mine,busy c=mine d=mine,deleting,new", keep: "a b", leave: "c d",
		},
		"an annotation forces all of that": {
			force: true, nodes: nodes(1, 0, ""), hosts: "a=mine,used b=mine,deployed c=mine,busy", keep: "a", leave: "b c",
		},
		"what Cluster API reserves is in use": {
			nodes: nodes(2, 0, ""), hosts: "a=reserved b=mine,forbidden,reserved", keep: "b",
			missing: 1, refused: refused{choose.ReasonInUse: 1},
		},
		"a role that is gone is given back": {hosts: "a=mine b=mine,used", keep: "b", leave: "a"},
		"a failed host is replaced where standby allows": {
			nodes: nodes(1, 2, ""), hosts: "a=mine,failed b=mine,failed c=mine x y", keep: "c", take: "x y", leave: "a b",
		},
		"not where more failed than standby": {
			nodes: nodes(2, 1, ""), hosts: "a=mine,failed b=mine,failed c=mine x y", keep: "a b c",
		},
		"in use it stays": {nodes: nodes(1, 1, ""), hosts: "a=mine,failed,deployed b=mine x", keep: "a b"},
		"and in its own rack": {
			nodes: nodes(1, 1, "rack"), hosts: "a=mine,failed,1 b=mine,2 x=1", keep: "b", take: "x", leave: "a",
		},
		"with nothing to replace it, it stays": {nodes: nodes(1, 1, ""), hosts: "a=mine,failed b=mine x=used", keep: "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, all := me, hosts(c.hosts)
			cluster.ReleaseInUse = c.force
			got := must.Have(choose.Choose(cluster, c.nodes, all))(t)
			require.Len(t, got.Roles, 1)
			r := got.Roles[0]
			require.Equal(t, c.keep, names(r.Keep), "kept")
			require.Equal(t, c.take, names(r.Take), "taken")
			require.Equal(t, c.leave, names(r.Leave), "leaving")
			require.EqualValues(t, c.missing, r.Missing.Count)
			require.Len(t, r.Missing.Refused, len(c.refused))
			for _, x := range r.Missing.Refused {
				require.EqualValues(t, c.refused[choose.Reason(x.Reason)], x.Count, x.Reason)
			}

			for _, h := range r.Held() {
				h.Annotations[airship.AnnotationClaim] = me.Claim(r.Role)
			}
			for _, h := range r.Leave {
				delete(h.Annotations, airship.AnnotationClaim)
			}
			slices.Reverse(all)
			again := must.Have(choose.Choose(cluster, c.nodes, all))(t)
			for _, r := range again.Roles {
				require.Empty(t, names(r.Take)+names(r.Leave), "it is settled")
			}
		})
	}
}

// A restored SIPCluster would leave the hosts that its machines run on.
func TestNoneIsTakenBesideHostsOfAnEarlierOne(t *testing.T) {
	for _, text := range []string{"a=gone b", "a=labelled b"} {
		_, err := choose.Choose(me, nodes(1, 0, ""), hosts(text))
		require.Equal(t, `choose hosts for SIPCluster tenants/a: 1 hosts are for an earlier one of this name: hosts/a (`+
			`annotate them with sip.airshipit.org/claimed-by="ROLE tenants/a", or remove claims and labels)`,
			fault.Text(err))
		deleted := me
		deleted.Deleting = true
		got := must.Have(choose.Choose(deleted, nil, hosts(text)))(t)
		require.Empty(t, got.Roles)
	}
}

func TestProblemsOfHostsThatStay(t *testing.T) {
	got, err := choose.Choose(me, nodes(1, 0, ""), hosts("a=mine,used b=mine,used,failed,x,forbidden c=mine,used,unwiped"))
	require.NoError(t, err)
	const tooMany = "it is one too many, and Metal3Machine tenants/m uses it"
	for i, want := range []string{
		tooMany, tooMany +
			"; its owner does not permit it to this namespace; power management error; labelSelector no longer matches it",
		tooMany + "; automatedCleaningMode is disabled: the next tenant gets its disks unwiped",
	} {
		require.Equal(t, want, got.Roles[0].Problem(got.Roles[0].Keep[i]))
	}
}

func TestAHostIsTakenForOneRole(t *testing.T) {
	spec := nodes(1, 0, "")
	spec[airship.RoleControlPlane] = spec[worker]
	got := must.Have(choose.Choose(me, spec, hosts("a b")))(t)
	require.Equal(t, airship.RoleControlPlane, got.Roles[0].Role)
	require.Equal(t, "a", names(got.Roles[0].Take))
	require.Equal(t, "b", names(got.Roles[1].Take))
}

func TestRefusalsAreBounded(t *testing.T) {
	var all []byte
	for i := range 2000 {
		all = fmt.Appendf(all, " h%04d=used", i)
	}
	got := must.Have(choose.Choose(me, nodes(1, 0, ""), hosts(string(all))))(t)
	require.Equal(t, []airship.RefusedHosts{{
		Reason: string(choose.ReasonInUse), Count: 2000,
		Hosts: []string{"hosts/h0000", "hosts/h0001", "hosts/h0002", "hosts/h0003", "hosts/h0004"},
	}}, got.Roles[0].Missing.Refused)
}
