package preflight

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

func rule(set, source string, mirrors ...string) MirrorRule {
	return MirrorRule{Set: set, Source: source, Mirrors: mirrors}
}

// Sets are understood as the nodes' registries.conf that is made of them (containers-registries.conf(5)).
func TestMirrorSetsAreUnderstoodAsTheNodesUnderstandThem(t *testing.T) {
	const driver = "registry.k8s.io/csi-vsphere/driver"
	tags := rule("tags", "registry.k8s.io/csi-vsphere", "elsewhere.site/x")
	tags.Tags = true
	for name, c := range map[string]struct {
		rules []MirrorRule
		of    string
		want  string
	}{
		"none":                                       {want: " -> "},
		"the repository":                             {rules: []MirrorRule{rule("a", driver, "m.site/vdo/registry.k8s.io/csi-vsphere/driver")}, want: "a -> m.site/vdo/registry.k8s.io/csi-vsphere/driver"},
		"a host, the path appended":                  {rules: []MirrorRule{rule("a", "registry.k8s.io", "m.site/vdo/registry.k8s.io")}, want: "a -> m.site/vdo/registry.k8s.io/csi-vsphere/driver"},
		"a folder":                                   {rules: []MirrorRule{rule("a", "registry.k8s.io/csi-vsphere", "m.site/x")}, want: "a -> m.site/x/driver"},
		"half a word is no folder":                   {rules: []MirrorRule{rule("a", "registry.k8s.io/csi-vs", "m.site/x"), rule("b", "registry.k8s", "m.site/y")}, want: " -> "},
		"the longest counts alone":                   {rules: []MirrorRule{rule("a", "registry.k8s.io/csi-vsphere", "m.site/x"), rule("b", "registry.k8s.io", "m.site/vdo")}, want: "a -> m.site/x/driver"},
		"several sets of one source":                 {rules: []MirrorRule{rule("b", "registry.k8s.io", "m.site/b"), rule("a", "registry.k8s.io", "m.site/a", "m.site/c")}, want: "a, b -> m.site/b/csi-vsphere/driver m.site/a/csi-vsphere/driver m.site/c/csi-vsphere/driver"},
		"any host below a domain":                    {rules: []MirrorRule{rule("a", "*.k8s.io", "m.site/w")}, want: "a -> m.site/w/csi-vsphere/driver"},
		"the domain is no host of it":                {rules: []MirrorRule{rule("a", "*.k8s.io", "m.site/w")}, of: "k8s.io/x", want: " -> "},
		"a domain is no part of a path":              {rules: []MirrorRule{rule("a", "*.k8s.io", "m.site/w")}, of: "other.site/x.k8s.io/y", want: " -> "},
		"a host is longer than its domain":           {rules: []MirrorRule{rule("a", "*.k8s.io", "m.site/w"), rule("b", "registry.k8s.io", "m.site/h")}, want: "b -> m.site/h/csi-vsphere/driver"},
		"tags hide what is shorter and lead nowhere": {rules: []MirrorRule{rule("a", "registry.k8s.io", "m.site/vdo"), tags}, want: "tags -> "},
		"the source itself is no mirror":             {rules: []MirrorRule{rule("self", driver, driver), rule("a", "registry.k8s.io", "m.site/vdo")}, want: "a -> m.site/vdo/csi-vsphere/driver"},
		"another port is another host":               {rules: []MirrorRule{rule("a", "registry.k8s.io:5000", "m.site/vdo")}, want: " -> "},
	} {
		t.Run(name, func(t *testing.T) {
			of := driver
			if c.of != "" {
				of = c.of
			}
			m := &Mirrors{Rules: c.rules}
			sets, mirrors := m.lead(of)
			require.Equal(t, c.want, sets+" -> "+strings.Join(mirrors, " "))
		})
	}
}

func TestRepositoriesThatNothingLeadsToTheBundleAreNamedByDriver(t *testing.T) {
	w := plugin("vsphere-csi-node", "linux", "driver", "sidecar")
	cloud := plugin("manager", "linux", "manager", "sidecar")
	cloud.Driver = matrix.CPI
	digest := image.DigestOf([]byte("x")).String()
	i := &Images{Workloads: []render.Workload{w, cloud}, Mirrors: &Mirrors{Repository: "m.site/vdo", Bundle: "m.site/vdo@" + digest}}
	byDriver := func() map[string]string {
		all := map[string]string{}
		for _, r := range CheckImages(i) {
			if r.ID != "image-mirror-set" || r.Action == Pass {
				continue
			}
			require.Equal(t, BlockInstall, r.Action)
			require.Contains(t, r.Remedy, "vdo-bundle mirror-config m.site/vdo@"+digest+" m.site/vdo --runtime openshift | oc apply -f -")
			key := ""
			for _, d := range r.Drivers {
				key += string(d) + " "
			}
			all[key] = r.Named()
		}
		return all
	}
	require.Equal(t, map[string]string{"cpi ": "up.example/manager (no set has it)", "csi ": "up.example/driver (no set has it)", "cpi csi ": "up.example/sidecar (no set has it)"}, byDriver())
	i.Mirrors.Rules = []MirrorRule{rule("ImageDigestMirrorSet a", "up.example/driver", "m.site/vdo/up.example/driver", "old.site/up/driver", "m.site/other/driver"), rule("ImageDigestMirrorSet b", "up.example", "old.site/up", "m.site/other")}
	require.Equal(t, map[string]string{
		"cpi ": "up.example/manager (ImageDigestMirrorSet b leads elsewhere)", "cpi csi ": "up.example/sidecar (ImageDigestMirrorSet b leads elsewhere)"}, byDriver())
	i.Mirrors.Rules = []MirrorRule{rule("ImageDigestMirrorSet b", "up.example", "old.site/up", "m.site/vdo/up.example")}
	require.Empty(t, byDriver(), "one mirror of several is enough")
	i.Workloads = i.Workloads[1:]
	i.Mirrors.Rules = append(i.Mirrors.Rules, MirrorRule{Set: "ImageTagMirrorSet t", Source: "up.example/manager", Mirrors: []string{"m.site/vdo/up.example/manager"}, Tags: true})
	require.Equal(t, map[string]string{"cpi ": "up.example/manager (ImageTagMirrorSet t leads no digests)"}, byDriver())

	// What the operator itself is going to write counts; where it cannot, that is said, with what to do.
	i.Mirrors.Own, i.Mirrors.Rules = "ImageDigestMirrorSet own", []MirrorRule{rule("ImageDigestMirrorSet own", "up.example/manager", "m.site/vdo/up.example/manager"), rule("ImageDigestMirrorSet own", "up.example/sidecar", "m.site/vdo/up.example/sidecar")}
	passed := CheckImages(i)
	require.Equal(t, Pass, passed[len(passed)-1].Action)
	require.Equal(t, "sets lead all repositories to m.site/vdo, counting ImageDigestMirrorSet own, which the operator writes; whether each node has taken them up: oc get machineconfigpool", passed[len(passed)-1].Found)
	i.Mirrors.Own, i.Mirrors.Rules = "", nil
	i.Mirrors.Unwritten = &fault.Error{Reason: fault.Forbidden, Op: "read", Subject: "x", Err: errors.New("no"), Hint: "give it the rights"}
	cannot := CheckImages(i)
	require.Contains(t, cannot[len(cannot)-1].Found, "; the operator cannot lead them there: read x: no")
	require.Equal(t, "give it the rights", cannot[len(cannot)-1].Remedy)

	i.Mirrors.Err = errors.New("forbidden")
	results := CheckImages(i)
	require.Equal(t, Warn, results[len(results)-1].Action)
	require.Contains(t, results[len(results)-1].Remedy, "vdoctl deploy")
	require.Empty(t, Gate(results))
}
