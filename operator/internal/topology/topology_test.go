package topology_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/topology"
)

func TestAPlanIsWhatIsLeftToDo(t *testing.T) {
	kinds := map[string]string{"/dc": "Datacenter", "/dc/host/c": "ClusterComputeResource", "/dc/vm/x": "VirtualMachine"}
	zone := topology.Assignment{Category: "zone", Tag: "a", Path: "/dc/host/c"}
	for name, c := range map[string]struct {
		want     []topology.Assignment
		has      topology.Existing
		replace  bool
		steps    []string
		problems []string
	}{
		"nothing there": {want: []topology.Assignment{zone}, has: topology.Existing{Kinds: kinds}, steps: []string{
			"make category region (ClusterComputeResource, Datacenter, Folder, HostSystem)", "make category zone (ClusterComputeResource, Datacenter, Folder, HostSystem)",
			"make tag a of zone", "attach zone:a to /dc/host/c"}},
		"asked for twice": {want: []topology.Assignment{zone, zone}, replace: true, has: topology.Existing{Kinds: kinds,
			Categories: map[string]topology.Category{
				"region": {Single: true}, "zone": {Single: true, Tags: []string{"a", "b"}},
			},
			Attached: map[string]map[string][]string{"/dc/host/c": {"zone": {"b"}}}},
			steps: []string{"detach zone:b from /dc/host/c", "attach zone:a to /dc/host/c"}},
		"stopped after the tag": {want: []topology.Assignment{zone}, has: topology.Existing{Kinds: kinds, Categories: map[string]topology.Category{
			"region": {Single: true}, "zone": {Single: true, Tags: []string{"a"}, Types: []string{"urn:vim25:ClusterComputeResource"}}}},
			steps: []string{"attach zone:a to /dc/host/c"}},
		"all there": {want: []topology.Assignment{zone}, has: topology.Existing{Kinds: kinds, Categories: map[string]topology.Category{"region": {Single: true}, "zone": {Single: true, Tags: []string{"a"}}},
			Attached: map[string]map[string][]string{"/dc/host/c": {"zone": {"a"}}}}},
		"another tag": {want: []topology.Assignment{zone}, has: topology.Existing{Kinds: kinds, Categories: map[string]topology.Category{"region": {Single: true}, "zone": {Single: true, Tags: []string{"a", "b"}}},
			Attached: map[string]map[string][]string{"/dc/host/c": {"zone": {"b"}}}},
			problems: []string{"/dc/host/c has the tag b of zone, not a: --replace takes it off"}},
		"another tag, replaced": {want: []topology.Assignment{zone}, replace: true, has: topology.Existing{Kinds: kinds, Categories: map[string]topology.Category{"region": {Single: true}, "zone": {Single: true, Tags: []string{"a", "b"}}},
			Attached: map[string]map[string][]string{"/dc/host/c": {"zone": {"b"}}}},
			steps: []string{"detach zone:b from /dc/host/c", "attach zone:a to /dc/host/c"}},
		"a category of hosts": {want: []topology.Assignment{zone}, has: topology.Existing{Kinds: kinds, Categories: map[string]topology.Category{"region": {Single: true}, "zone": {Single: true, Types: []string{"HostSystem"}}}},
			problems: []string{"category zone is not for a ClusterComputeResource, as /dc/host/c is one: associate it with that kind of object first"}},
		"what cannot be": {want: []topology.Assignment{zone, {"zone", "b", "/dc/host/c"}, {"zone", "a", "/nowhere"}, {"zone", "a", "/dc/vm/x"}},
			has:      topology.Existing{Kinds: kinds, Categories: map[string]topology.Category{"region": {}, "zone": {Single: true, Tags: []string{"a"}}}, Attached: map[string]map[string][]string{"/dc/host/c": {"zone": {"a"}}}},
			problems: []string{"/dc/host/c is given two tags of zone: a and b", "/dc/vm/x is a VirtualMachine: tags of zones are on a datacenter, folder, cluster or host", "there is no object /nowhere"}},
	} {
		t.Run(name, func(t *testing.T) {
			steps, problems, notes := topology.Plan([]string{"region", "zone"}, c.want, c.has, c.replace)
			var got []string
			for _, s := range steps {
				got = append(got, s.String())
			}
			require.Equal(t, c.steps, got)
			var amiss []string
			for _, p := range problems {
				amiss = append(amiss, p.Text)
				require.Equal(t, strings.HasPrefix(p.Text, "there is no object"), p.Absent, p.Text)
				require.Equal(t, strings.HasSuffix(p.Text, "--replace takes it off"), p.Replaceable, p.Text)
			}
			require.Equal(t, c.problems, amiss)
			require.Equal(t, name == "what cannot be", len(notes) == 1, "%v", notes)
		})
	}
}

func TestAssignmentsAreRead(t *testing.T) {
	a, err := topology.ParseAssignment("k8s-zone:a=/dc/host/c=1")
	require.NoError(t, err)
	require.Equal(t, topology.Assignment{Category: "k8s-zone", Tag: "a", Path: "/dc/host/c=1"}, a)
	for _, s := range []string{"", "a", "a=/dc", "a:b", ":b=/dc", "a:=/dc", "a:b=dc"} {
		_, err := topology.ParseAssignment(s)
		require.Error(t, err, s)
	}
}
