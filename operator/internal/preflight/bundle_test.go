package preflight

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

func platforms(t *testing.T, texts ...string) []image.Platform {
	var all []image.Platform
	for _, s := range texts {
		p, err := image.ParsePlatform(s)
		require.NoError(t, err)
		all = append(all, p)
	}
	return all
}

func node(name, platform string, more ...string) *corev1.Node {
	os, arch, _ := strings.Cut(platform, "/")
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Labels = map[string]string{corev1.LabelOSStable: os, corev1.LabelArchStable: arch}
	for i := 0; i+1 < len(more); i += 2 {
		n.Labels[more[i]] = more[i+1]
	}
	return n
}

// plugin is a DaemonSet of the storage driver for an operating system, of images that are named
// by the texts that their digests are of.
func plugin(name, os string, images ...string) render.Workload {
	w := render.Workload{Driver: matrix.CSI, Release: "csi@3.5.1", Kind: "DaemonSet", Name: name, Pods: corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelOSStable: os}}}
	for _, i := range images {
		w.Images = append(w.Images, render.Image{Upstream: "up.example/" + i, Digest: image.DigestOf([]byte(i))})
	}
	return w
}

func TestThePlatformsOfImagesAreHeldAgainstTheNodesThatPodsComeTo(t *testing.T) {
	digest := func(s string) image.Digest { return image.DigestOf([]byte(s)) }
	amd, both, windows := platforms(t, "linux/amd64"), platforms(t, "linux/amd64", "linux/arm64/v8"), platforms(t, "linux/amd64", "windows/amd64")
	known := map[image.Digest][]image.Platform{digest("driver"): amd, digest("sidecar"): both, digest("tool"): amd, digest("probe"): amd, digest("mixed"): windows}
	controller := plugin("vsphere-csi-controller", "linux", "driver", "sidecar")
	controller.Kind = "Deployment"
	selected := plugin("vsphere-csi-node", "linux", "driver")
	selected.Pods.NodeSelector[corev1.LabelArchStable] = "amd64"
	snapshots := plugin("snapshot-controller", "linux", "driver")
	snapshots.Driver, snapshots.Release, snapshots.Kind = matrix.SnapshotController, "snapshot-controller@8.2.0", "Deployment"
	network := plugin("antrea-agent", "linux", "driver")
	network.Driver, network.Release = matrix.CNI, "cni@2.4.0"
	tainted := node("n2", "linux/arm64")
	tainted.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	cordoned := node("n2", "linux/arm64")
	cordoned.Spec.Unschedulable = true
	amdNode, armNode := node("n1", "linux/amd64"), node("n2", "linux/arm64")
	for name, c := range map[string]struct {
		workload render.Workload
		nodes    []*corev1.Node
		action   Action
		objects  string
		found    []string
		remedy   []string
		drivers  []matrix.Driver
	}{
		"one platform, all for it":          {workload: plugin("n", "linux", "driver"), nodes: []*corev1.Node{amdNode}},
		"an image for both, with a variant": {workload: plugin("n", "linux", "sidecar"), nodes: []*corev1.Node{amdNode, armNode}},
		"a daemon on another processor": {
			workload: plugin("vsphere-csi-node", "linux", "driver", "sidecar"), nodes: []*corev1.Node{amdNode, armNode}, action: BlockInstall, objects: "n2", drivers: []matrix.Driver{matrix.CSI},
			found:  []string{"csi@3.5.1: DaemonSet vsphere-csi-node would run on nodes of linux/arm64, which these images are not for: up.example/driver"},
			remedy: []string{"vdo-bundle lock --platform=all", "nodeSelector in spec.drivers[csi].workloads[vsphere-csi-node]", "spec.excludedNodes"},
		},
		"several images": {
			workload: plugin("vsphere-csi-node", "linux", "driver", "tool", "probe"), nodes: []*corev1.Node{amdNode, armNode}, action: BlockInstall, objects: "n2", drivers: []matrix.Driver{matrix.CSI},
			found: []string{"up.example/driver, up.example/tool and 1 more"},
		},
		"Windows nodes and a Linux bundle": {
			workload: plugin("vsphere-csi-node-windows", "windows", "driver"), nodes: []*corev1.Node{amdNode, node("w1", "windows/amd64")}, action: BlockInstall, objects: "w1", drivers: []matrix.Driver{matrix.CSI},
			found: []string{"nodes of windows/amd64"},
		},
		"Windows nodes and an image for both":  {workload: plugin("vsphere-csi-node-windows", "windows", "mixed"), nodes: []*corev1.Node{amdNode, node("w1", "windows/amd64")}},
		"no Windows node":                      {workload: plugin("vsphere-csi-node-windows", "windows", "driver"), nodes: []*corev1.Node{amdNode}},
		"kept away by a node selector":         {workload: selected, nodes: []*corev1.Node{amdNode, armNode}},
		"kept away by a taint":                 {workload: plugin("n", "linux", "driver"), nodes: []*corev1.Node{amdNode, tainted}},
		"a cordoned node has daemons too":      {workload: plugin("n", "linux", "driver"), nodes: []*corev1.Node{amdNode, cordoned}, action: BlockInstall, objects: "n2", drivers: []matrix.Driver{matrix.CSI}},
		"a controller that finds a node":       {workload: controller, nodes: []*corev1.Node{amdNode, armNode}, action: Warn, objects: "n2", drivers: []matrix.Driver{matrix.CSI}},
		"a controller that finds none":         {workload: controller, nodes: []*corev1.Node{armNode}, action: BlockInstall, objects: "n2", drivers: []matrix.Driver{matrix.CSI}},
		"a controller beside a cordoned node":  {workload: controller, nodes: []*corev1.Node{amdNode, cordoned}},
		"the snapshot-controller's holds both": {workload: snapshots, nodes: []*corev1.Node{armNode}, action: BlockInstall, objects: "n2", drivers: []matrix.Driver{matrix.SnapshotController, matrix.CSI}},
		"the network":                          {workload: network, nodes: []*corev1.Node{armNode}, action: BlockInstall, objects: "n2", drivers: []matrix.Driver{matrix.CNI}},
		"an image of which it is not known":    {workload: plugin("n", "linux", "old", "sidecar"), nodes: []*corev1.Node{amdNode, armNode}},
		"a node without labels":                {workload: plugin("n", "linux", "driver"), nodes: []*corev1.Node{amdNode, {ObjectMeta: metav1.ObjectMeta{Name: "n3", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			results := CheckImages(&Images{Workloads: []render.Workload{c.workload}, Platforms: known, Nodes: c.nodes})
			require.Len(t, results, 1)
			r := results[0]
			require.Equal(t, ID("image-platform"), r.ID)
			require.Equal(t, c.action.String(), r.Action.String(), "%+v", r)
			require.Equal(t, c.objects, strings.Join(r.Objects, " "))
			require.Equal(t, c.drivers, r.Drivers)
			require.False(t, r.Stops, "what runs is configured on")
			for _, want := range c.found {
				require.Contains(t, r.Found, want)
			}
			for _, want := range c.remedy {
				require.Contains(t, r.Remedy, want)
			}
		})
	}
}

func TestWhatIsNotKnownOfImagesBlocksNothing(t *testing.T) {
	results := CheckImages(&Images{Err: errors.New("not accepted yet")})
	require.Equal(t, Warn, results[0].Action)
	require.Empty(t, Gate(results))
}

// What the checks of the bundle found before makes place for what they find now, and what cluster
// and vCenters were found to have stays.
func TestFindingsOfTheBundleReplaceThoseOfBefore(t *testing.T) {
	i := &Images{Workloads: []render.Workload{plugin("vsphere-csi-node", "linux", "driver")}, Nodes: []*corev1.Node{node("n2", "linux/arm64")},
		Platforms: map[image.Digest][]image.Platform{image.DigestOf([]byte("driver")): platforms(t, "linux/amd64")}}
	var requested []Result
	for n := range maxListed + 3 {
		requested = append(requested, Result{ID: "vm-scsi", Action: Warn, Found: fmt.Sprint(n), Drivers: []matrix.Driver{matrix.CSI}})
	}
	was := Status(append(requested, Result{ID: "node-vm"}))
	require.Equal(t, 3, was.Omitted)
	now := Merged(was, CheckImages(i))
	require.Equal(t, "BlockInstall", now.Verdict)
	require.Equal(t, "image-platform", now.Results[0].ID, "the gravest comes first")
	require.Len(t, now.Results, maxListed)
	require.Equal(t, 4, now.Omitted)
	again := Merged(now, CheckImages(i))
	require.Equal(t, 4, again.Omitted, "another pass that finds the same has the same to say")
	require.Equal(t, now.Results, again.Results)
	require.Equal(t, was.Passed, now.Passed)
	require.Len(t, was.Results, maxListed, "it is not changed")
	require.Equal(t, "vm-scsi", was.Results[0].ID)

	light := Turned(CheckImages(i), &v1alpha1.PreflightPolicy{Checks: []v1alpha1.PreflightCheck{{ID: "image-platform", Action: v1alpha1.PreflightWarn, Reason: "emulated"}}})
	once := Merged(was, light)
	require.Equal(t, once, Merged(once, light), "though nothing it finds is graver than what was there")

	i.Nodes = nil
	now = Merged(now, CheckImages(i))
	require.Equal(t, "Warn", now.Verdict)
	for _, r := range now.Results {
		require.Equal(t, "vm-scsi", r.ID)
	}
	require.Nil(t, Merged(nil, CheckImages(i)))
}

func rule(set, source string, mirrors ...string) MirrorRule {
	return MirrorRule{Set: set, Entry: mirrorset.Entry{Source: source, Mirrors: mirrors}}
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
			l := leading(c.rules, of)
			require.Equal(t, c.want, l.sets()+" -> "+strings.Join(l.mirrors(), " "))
		})
	}
}

func TestRepositoriesThatNothingLeadsToTheBundleAreNamed(t *testing.T) {
	w := plugin("vsphere-csi-node", "linux", "driver", "sidecar")
	cloud := plugin("manager", "linux", "manager", "sidecar")
	cloud.Driver = matrix.CPI
	digest := image.DigestOf([]byte("x")).String()
	i := &Images{Workloads: []render.Workload{w, cloud}, Mirrors: &Mirrors{Repository: "m.site/vdo", Bundle: "m.site/vdo@" + digest}}
	const b, own = "ImageDigestMirrorSet b", "ImageDigestMirrorSet own"
	led := func(set, name string) MirrorRule { return rule(set, "up.example/"+name, "m.site/vdo/up.example/"+name) }
	tags := led("ImageTagMirrorSet t", "manager")
	tags.Tags = true
	for _, c := range []struct {
		rules []MirrorRule
		want  string // drivers and repositories; "" where it passes
	}{
		{nil, "[cpi csi] up.example/driver (no set has it), up.example/manager (no set has it), up.example/sidecar (no set has it)"},
		{[]MirrorRule{rule("a", "up.example/driver", "m.site/vdo/up.example/driver", "m.site/other/driver"), rule(b, "up.example", "old.site/up")},
			"[cpi csi] up.example/manager (ImageDigestMirrorSet b leads elsewhere), up.example/sidecar (ImageDigestMirrorSet b leads elsewhere)"},
		{[]MirrorRule{led(own, "driver"), led(own, "sidecar")}, "[cpi] up.example/manager (no set has it)"},
		{[]MirrorRule{rule(b, "up.example", "old.site/up", "m.site/vdo/up.example")}, ""}, // one mirror of several is enough
		{[]MirrorRule{rule(b, "up.example", "m.site/vdo/up.example"), tags}, "[cpi] up.example/manager (ImageTagMirrorSet t leads elsewhere)"},
	} {
		i.Mirrors.Rules = c.rules
		r := CheckImages(i)[1]
		require.Equal(t, ID("image-mirror-set"), r.ID)
		require.Equal(t, c.want == "", r.Action == Pass, "%+v", r)
		if c.want != "" {
			require.Equal(t, BlockInstall, r.Action)
			require.Equal(t, c.want, fmt.Sprint(r.Drivers)+" "+r.Named())
			require.Contains(t, r.Remedy, "vdo-bundle mirror-config m.site/vdo@"+digest+" m.site/vdo --runtime openshift | oc apply -f -")
		}
	}
	// Where the operator cannot write its set, that is said, with what to do.
	i.Mirrors.Rules = nil
	i.Mirrors.Unwritten = &fault.Error{Reason: fault.Forbidden, Op: "read", Subject: "x", Err: errors.New("no"), Hint: "give it the rights"}
	cannot := CheckImages(i)[1]
	require.Contains(t, cannot.Found, "; the operator cannot lead them there: read x: no")
	require.Equal(t, "give it the rights", cannot.Remedy)

	i.Mirrors.Err = errors.New("forbidden")
	results := CheckImages(i)
	require.Equal(t, Warn, results[1].Action)
	require.Contains(t, results[1].Remedy, "vdoctl deploy")
	require.Empty(t, Gate(results))
}

// What other sets say of a source is not hidden by the operator's, nor contradicted, and nothing
// that the set has or had is taken away.
func TestTheOperatorsSetHidesNothingOfOthers(t *testing.T) {
	const source, mirror = "up.example/k8s/driver", "m.site/vdo/up.example/k8s/driver"
	const hides = "left: an entry of the operator would hide what "
	is := func(policy mirrorset.Policy, mirrors ...string) mirrorset.Entries {
		return mirrorset.Entries{{Source: source, Mirrors: mirrors, Policy: policy}}
	}
	as := func(r MirrorRule, policy mirrorset.Policy) MirrorRule { r.Policy = policy; return r }
	const never = mirrorset.NeverContactSource
	for name, c := range map[string]struct {
		desired, live mirrorset.Entries
		others        []MirrorRule
		want          string
	}{
		"alone":                        {is("", mirror), nil, nil, mirror},
		"the longest counts":           {is("", mirror), nil, []MirrorRule{rule("a", "up.example", "one.site"), rule("b", "up.example/k8s", "general.site/k8s")}, hides + "b says of up.example/k8s"},
		"to itself":                    {is("", mirror), nil, []MirrorRule{rule("a", "*.example", "up.example")}, hides + "a says of *.example"},
		"a set has just that":          {is("", mirror), nil, []MirrorRule{rule("a", "up.example", "one.site"), rule("b", source, "two.site")}, mirror},
		"it has had more":              {is("", mirror), is("", "older.site", "old.site"), nil, mirror + " older.site old.site"},
		"another source is not asked":  {is("", mirror), nil, []MirrorRule{as(rule("b", source, "two.site"), never)}, mirror + " never"},
		"an entry that is there stays": {is("", mirror), is("", mirror), []MirrorRule{as(rule("b", source, "two.site"), never)}, mirror},
		"as it is":                     {is("", mirror), is(never, mirror), []MirrorRule{rule("a", "up.example", "one.site")}, mirror + " never"},
	} {
		t.Run(name, func(t *testing.T) {
			entries, left := Beside(c.desired, c.live, c.others)
			got := "left: " + left[source]
			if e, exists := entries.Get(source); exists {
				got = strings.Join(e.Mirrors, " ")
				if e.Policy == never {
					got += " never"
				}
			}
			require.Equal(t, c.want, got)
			again, _ := Beside(c.desired, entries, c.others)
			require.Equal(t, entries, again, "it stays as it is")
		})
	}
}
