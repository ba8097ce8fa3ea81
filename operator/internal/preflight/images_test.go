package preflight

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

func platforms(t *testing.T, texts ...string) []image.Platform {
	t.Helper()
	var all []image.Platform
	for _, s := range texts {
		p, err := image.ParsePlatform(s)
		require.NoError(t, err)
		all = append(all, p)
	}
	return all
}

func node(name, platform string, more ...string) render.Node {
	os, arch, _ := strings.Cut(platform, "/")
	n := render.Node{Name: name, Labels: map[string]string{corev1.LabelOSStable: os, corev1.LabelArchStable: arch}}
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
	tainted.Taints = []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	cordoned := node("n2", "linux/arm64")
	cordoned.Unschedulable = true
	amdNode, armNode := node("n1", "linux/amd64"), node("n2", "linux/arm64")
	for name, c := range map[string]struct {
		workload render.Workload
		nodes    []render.Node
		kept     image.Platform
		action   Action
		objects  string
		found    []string
		remedy   []string
		drivers  []matrix.Driver
	}{
		"one platform, all for it":          {workload: plugin("n", "linux", "driver"), nodes: []render.Node{amdNode}, found: []string{"all images are for the nodes that they come to: linux/amd64"}},
		"an image for both, with a variant": {workload: plugin("n", "linux", "sidecar"), nodes: []render.Node{amdNode, armNode}},
		"a daemon on another processor": {
			workload: plugin("vsphere-csi-node", "linux", "driver", "sidecar"), nodes: []render.Node{amdNode, armNode}, action: BlockInstall, objects: "n2", drivers: []matrix.Driver{matrix.CSI},
			found:  []string{"csi@3.5.1: DaemonSet vsphere-csi-node would run on nodes of linux/arm64, which these images are not for: up.example/driver (linux/amd64)"},
			remedy: []string{"upstream has none for linux/arm64", "nodeSelector: {kubernetes.io/arch: amd64} in spec.drivers[csi].workloads[vsphere-csi-node]", "spec.excludedNodes"},
		},
		"a bundle of one platform": {
			workload: plugin("vsphere-csi-node", "linux", "driver", "tool", "probe"), nodes: []render.Node{amdNode, armNode}, kept: amd[0], action: BlockInstall, objects: "n2", drivers: []matrix.Driver{matrix.CSI},
			found:  []string{"up.example/driver (linux/amd64), up.example/tool (linux/amd64) and 1 more"},
			remedy: []string{"the bundle is of linux/amd64 alone: make one by `vdo-bundle lock --platform all`, pull and push it"},
		},
		"Windows nodes and a Linux bundle": {
			workload: plugin("vsphere-csi-node-windows", "windows", "driver"), nodes: []render.Node{amdNode, node("w1", "windows/amd64")}, kept: amd[0], action: BlockInstall, objects: "w1", drivers: []matrix.Driver{matrix.CSI},
			found: []string{"nodes of windows/amd64"}, remedy: []string{"nodeSelector: {LABEL: VALUE}"},
		},
		"Windows nodes and an image for both":  {workload: plugin("vsphere-csi-node-windows", "windows", "mixed"), nodes: []render.Node{amdNode, node("w1", "windows/amd64")}},
		"no Windows node":                      {workload: plugin("vsphere-csi-node-windows", "windows", "driver"), nodes: []render.Node{amdNode}},
		"kept away by a node selector":         {workload: selected, nodes: []render.Node{amdNode, armNode}},
		"kept away by a taint":                 {workload: plugin("n", "linux", "driver"), nodes: []render.Node{amdNode, tainted}},
		"a cordoned node has daemons too":      {workload: plugin("n", "linux", "driver"), nodes: []render.Node{amdNode, cordoned}, action: BlockInstall, objects: "n2", drivers: []matrix.Driver{matrix.CSI}},
		"a controller that finds a node":       {workload: controller, nodes: []render.Node{amdNode, armNode}, action: Warn, objects: "n2", drivers: []matrix.Driver{matrix.CSI}},
		"a controller that finds none":         {workload: controller, nodes: []render.Node{armNode}, action: BlockInstall, objects: "n2", drivers: []matrix.Driver{matrix.CSI}},
		"a controller beside a cordoned node":  {workload: controller, nodes: []render.Node{amdNode, cordoned}},
		"the snapshot-controller's holds both": {workload: snapshots, nodes: []render.Node{armNode}, action: BlockInstall, objects: "n2", drivers: []matrix.Driver{matrix.SnapshotController, matrix.CSI}},
		"the network":                          {workload: network, nodes: []render.Node{armNode}, action: BlockInstall, objects: "n2", drivers: []matrix.Driver{matrix.CNI}},
		"an image of which it is not known":    {workload: plugin("n", "linux", "old", "sidecar"), nodes: []render.Node{amdNode, armNode}, found: []string{"of 1 images the platforms are not known"}},
		"a node without labels":                {workload: plugin("n", "linux", "driver"), nodes: []render.Node{amdNode, {Name: "n3", Labels: map[string]string{corev1.LabelOSStable: "linux"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			results := CheckImages(&Images{Workloads: []render.Workload{c.workload}, Platforms: known, Kept: c.kept, Nodes: c.nodes})
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

func TestFirstNodesOfAPlatformAreNamedAndTheOthersCounted(t *testing.T) {
	i := &Images{Workloads: []render.Workload{plugin("vsphere-csi-node", "linux", "driver")}, Platforms: map[image.Digest][]image.Platform{image.DigestOf([]byte("driver")): platforms(t, "linux/amd64")}}
	for n := range 5000 {
		i.Nodes = append(i.Nodes, node(fmt.Sprintf("node-%04d", n), []string{"linux/amd64", "linux/arm64"}[n%2]))
	}
	results := CheckImages(i)
	require.Len(t, results, 1)
	require.Equal(t, 2500, results[0].Count)
	require.Equal(t, "node-0001, node-0003, node-0005, node-0007, node-0009 and 2495 more", results[0].Named())
	holds := Gate(results)
	require.Len(t, holds, 1)
	require.True(t, holds[matrix.CSI].Install && holds[matrix.CSI].Upgrade && !holds[matrix.CSI].Configuration, "%+v", holds)
	require.ErrorContains(t, holds[matrix.CSI].Err, "node-0001")

	i = &Images{Err: errors.New("not accepted yet")}
	results = CheckImages(i)
	require.Equal(t, Warn, results[0].Action)
	require.Empty(t, Gate(results))
}

// What the checks of the bundle found before makes place for what they find now, and what cluster
// and vCenters were found to have stays.
func TestFindingsOfTheBundleReplaceThoseOfBefore(t *testing.T) {
	i := &Images{Workloads: []render.Workload{plugin("vsphere-csi-node", "linux", "driver")}, Nodes: []render.Node{node("n2", "linux/arm64")},
		Platforms: map[image.Digest][]image.Platform{image.DigestOf([]byte("driver")): platforms(t, "linux/amd64")}}
	var asked []Result
	for n := range maxListed + 3 {
		asked = append(asked, Result{ID: "vm-scsi", Action: Warn, Found: fmt.Sprint(n), Drivers: []matrix.Driver{matrix.CSI}})
	}
	was := Status(append(asked, Result{ID: "node-vm"}))
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
	i.Nodes = []render.Node{node("n2", "linux/arm64")}
	policy := &v1alpha1.PreflightPolicy{Checks: []v1alpha1.PreflightCheck{{ID: "image-platform", Action: v1alpha1.PreflightWarn, Reason: "emulated"}}}
	require.NoError(t, Valid(policy))
	turned := Merged(Status(nil), Turned(CheckImages(i), policy))
	require.Equal(t, "Warn", turned.Verdict)
	require.Equal(t, "BlockInstall", turned.Results[0].Override.Was)
	require.Nil(t, Merged(nil, CheckImages(i)))
}
