package vdoctl

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

type (
	category   = preflight.TagCategory
	categories = map[string]category
	tagged     = map[preflight.Ref][]preflight.Category
)

var (
	root    = preflight.Ref{Type: "Folder", Value: "root"}
	aSite   = preflight.Ref{Type: "Datacenter", Value: "site"}
	aPool   = preflight.Ref{Type: "ResourcePool", Value: "p"}
	aHosts  = preflight.Ref{Type: "Folder", Value: "h"}
	cluster = preflight.Ref{Type: "ClusterComputeResource", Value: "c"}
	beside  = preflight.Ref{Type: "ClusterComputeResource", Value: "d"}
)

func withTags(has categories, on tagged) *preflight.VCenter {
	return &preflight.VCenter{Contents: preflight.Contents{Categories: has, Tagged: on,
		Objects: map[preflight.Ref]preflight.Object{
			root: {}, aSite: {Name: "dc", Parent: root}, aPool: {Name: "p", Parent: aSite},
			aHosts: {Name: "host", Parent: aSite}, cluster: {Name: "c", Parent: aHosts},
			beside: {Name: "d", Parent: aHosts}}}}
}

func TestATagPlanIsWhatIsLeftToDo(t *testing.T) {
	const zone, types = "zone:a=/dc/host/c", "(ClusterComputeResource, Datacenter, Folder, HostSystem)"
	both := func(zone category) categories {
		zone.Single = true
		return categories{"region": {Single: true}, "zone": zone}
	}
	having := func(tag string) tagged { return tagged{cluster: {{Name: "zone", Tag: tag}}} }
	for name, c := range map[string]struct {
		want     []string
		has      categories
		on       tagged
		replace  bool
		steps    []string
		problems []string
		hint     string
		reason   fault.Reason
		hasANote bool
	}{
		"nothing there": {want: []string{zone}, steps: []string{"make category region " + types,
			"make category zone " + types, "make tag a of zone", "attach zone:a to /dc/host/c"}},
		"one tag on two objects": {want: []string{zone, "zone:a=/dc"}, has: both(category{}), steps: []string{
			"make tag a of zone", "attach zone:a to /dc", "attach zone:a to /dc/host/c"}},
		"asked for twice": {want: []string{zone, zone}, replace: true,
			has: both(category{Tags: []string{"a", "b"}}), on: having("b"),
			steps: []string{"detach zone:b from /dc/host/c", "attach zone:a to /dc/host/c"}},
		"stopped after the tag": {want: []string{zone},
			has:   both(category{Tags: []string{"a"}, Types: []string{"urn:vim25:ClusterComputeResource"}}),
			steps: []string{"attach zone:a to /dc/host/c"}},
		"all there": {want: []string{zone}, has: both(category{Tags: []string{"a"}}), on: having("a")},
		"another tag": {want: []string{zone}, has: both(category{Tags: []string{"a", "b"}}), on: having("b"),
			problems: []string{"/dc/host/c has the tag b of zone, not a: --replace takes it off"},
			hint:     "correct --attach, or add --replace", reason: fault.Refused},
		"a category of hosts": {want: []string{zone}, has: both(category{Types: []string{"HostSystem"}}),
			problems: []string{"category zone is not for a ClusterComputeResource, as /dc/host/c is one: associate it with that kind of object first"},
			hint:     "correct --attach", reason: fault.Refused},
		"no object": {want: []string{"zone:a=/nowhere"}, has: both(category{}),
			problems: []string{"there is no object /nowhere"}, hint: "correct the path in --attach", reason: fault.NotFound},
		"what cannot be": {want: []string{zone, "zone:b=/dc/host/c", "zone:a=/dc/p", "region:b=/dc/p"},
			has: categories{"region": {}, "zone": {Single: true, Tags: []string{"a"}}}, on: having("a"), hasANote: true,
			problems: []string{"/dc/host/c is given two tags of zone: a and b",
				"/dc/p is a ResourcePool: tags of zones are on a datacenter, folder, cluster or host"},
			hint: "correct --attach", reason: fault.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			want := must.Have(assignments(c.want))(t)
			p := planTags(withTags(c.has, c.on), []string{"region", "zone"}, want, c.replace)
			var got []string
			for _, s := range p.Steps {
				got = append(got, s.String())
			}
			require.Equal(t, c.steps, got)
			require.Equal(t, c.problems, p.Problems)
			require.Equal(t, c.reason, fault.ReasonOf(p.wrong))
			require.Contains(t, fault.HintOf(p.wrong), c.hint)
			require.Equal(t, c.hasANote, len(p.Notes) == 1, "%v", p.Notes)
		})
	}
}

func TestAssignmentsAreRead(t *testing.T) {
	want := []assignment{{category: "k8s-zone", tag: "a", path: "/dc/host/c=1"}}
	require.Equal(t, want, must.Have(assignments([]string{"k8s-zone:a=/dc/host/c=1"}))(t))
	for _, s := range []string{"", "a", "a=/dc", "a:b", ":b=/dc", "a:=/dc", "a:b=dc"} {
		require.Error(t, must.Err(assignments([]string{s})), s)
	}
}

// a zone is not moved while a node uses it, or the cluster does not say who does. A tag on a VM or a resource pool says
// nothing of a zone; one on what the zone is in does.
func TestNoZoneMovesWhileItIsUsed(t *testing.T) {
	vm := preflight.Ref{Type: "VirtualMachine", Value: "vm"}
	node := func(key, value string) []preflight.Node {
		return []preflight.Node{{Name: "one", Zones: map[string]string{key: value}}}
	}
	nodes := node("topology.csi.vmware.com/k8s-zone", "a")
	want := must.Have(assignments([]string{"k8s-zone:b=/dc/host/c"}))(t)
	defining := map[preflight.Ref]bool{root: true, aSite: true, cluster: true, beside: false, aPool: false, vm: false}
	for _, x := range []preflight.Cluster{
		{Skipped: true, Nodes: nodes}, {Err: errors.New("connection refused")},
	} {
		for on, refused := range defining {
			v := withTags(nil, tagged{on: {{Name: "k8s-zone", Tag: "a"}}})
			err := planTags(v, nil, want, true).movesUsed(t.Context(), nil, x)
			require.Equal(t, refused, err != nil, "%v: %v", on, err)
		}
		above := must.Have(assignments([]string{"k8s-zone:b=/dc/host"}))(t)
		v := withTags(nil, tagged{cluster: {{Name: "k8s-zone", Tag: "a"}}})
		require.Error(t, planTags(v, nil, above, true).movesUsed(t.Context(), nil, x), "a tag above one that is used")
	}

	c := fake.NewClientBuilder()
	for name, key := range map[string]string{
		"bound": "topology.csi.vmware.com/k8s-zone", "bound-ga": "topology.kubernetes.io/zone",
		"free": "topology.csi.vmware.com/k8s-region"} {
		in := []corev1.NodeSelectorRequirement{{Key: key, Operator: "In", Values: []string{"a"}}}
		required := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: in}}}
		pv := &corev1.PersistentVolume{ObjectMeta: metaOf("", name)}
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: required}
		c.WithObjects(pv)
	}
	p := planTags(withTags(nil, tagged{cluster: {{Name: "k8s-zone", Tag: "a"}}}), nil, want, true)
	other := preflight.Cluster{Nodes: node("topology.csi.vmware.com/k8s-zone", "z")} // as another category's
	must.Fail(t, p.movesUsed(t.Context(), c.Build(), other), fault.Refused,
		"the tag a of k8s-zone is used by PersistentVolume bound, PersistentVolume bound-ga")
}
