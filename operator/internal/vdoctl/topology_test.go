package vdoctl_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// A vCenter without categories gets them, with tags that a node's host inherits; what is
// there stays, and what contradicts it is named before anything is changed.
func TestTopologyIsTaggedAndChecked(t *testing.T) {
	c := control(t)
	v := vcsim.Start(t, vcsim.Options{})
	ctx := t.Context()
	vms := must.Have(v.VMs(ctx, "/site/west"))(t)
	withNodes(t, clientOf(t, c), vms)
	admin := asAdministrator(t)
	file := onlyWest(t, v, vcsim.Admin, strings.ReplaceAll(eastAlone, "east", "west"))
	run := func(args ...string) result {
		return vdoctl(t, nil, append(append([]string{"topology"}, args...), "-f", file, "--kubeconfig", c.Kubeconfig())...)
	}
	tag := func(args ...string) result {
		return run(slices.Concat([]string{"tag"}, admin, args)...)
	}
	north, zone := "--attach=k8s-region:north=/site/west", "--attach=k8s-zone:a=/site/west/host/DC1_C0"

	run("check").is(8, "topology-category in west: the vCenter has no tag category of this name")
	run("tag").is(2, "who may change tags is not given")
	for flag, why := range map[string]string{"--attach=k8s-zone": "CATEGORY:TAG=PATH", "--attach=k8s-zone:a=west": "it begins with /", "--attach=k8s-zone:Nörd 1=/site/west": "no value of a node's label", "--attach=rack:a=/site/west": "does not name this category", "--vcenter=east": "no VsphereCloudConfig"} {
		tag(flag).is(2, why)
	}
	out := tag("--attach=k8s-zone:a=/site/west/host/none", "--yes").is(4, "there is no object /site/west/host/none")
	require.NotContains(t, out, "--replace", "it does not make one")
	require.NotContains(t, out, "make category", "nothing is made")

	tag(north, zone, "--dry-run").is(0,
		"west: make category k8s-zone (ClusterComputeResource, Datacenter, Folder, HostSystem)\n",
		"west: attach k8s-zone:a to /site/west/host/DC1_C0\nNothing was changed: --dry-run.\n")
	tag("--attach=k8s-region:north=/lab", "--dry-run").is(0, "west: note: /lab is outside of the configured datacenters")
	tag(north, zone).is(8, "no terminal to ask for confirmation")
	run("check").is(8, "topology-category in west") // nothing was changed yet

	tag(zone, "--yes").is(0) // the region is left out: one run does a part
	run("check").is(8, "no tag of k8s-region on the node's host, nor on what it is in")
	out = tag(north, zone, "--yes").is(0)
	require.NotContains(t, out, "k8s-zone", "that is there already")
	tag(north, zone).is(0, "west: nothing to do")

	out = run("check", "-o", "json").has(
		`"tag": "north"`, `"on": "/site/west"`, `"on": "/site/west/host/DC1_C0"`, `"LocalDS_0"`)
	require.NotContains(t, out, "no tag of k8s")

	// Another tag of the category is taken off only when that is requested.
	tag("--attach=k8s-zone:b=/site/west/host/DC1_C0", "--yes").is(8,
		"has the tag a of k8s-zone, not b: --replace takes it off")

	// A zone does not move while a node or a volume of the cluster uses it.
	k := clientOf(t, c)
	var node corev1.Node
	require.NoError(t, k.Get(ctx, client.ObjectKey{Name: "node-0"}, &node))
	label := func(key, value string) {
		node.Labels[key] = value
		require.NoError(t, k.Update(ctx, &node))
	}
	bound := func(name, key, value string) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		require.NoError(t, json.Unmarshal(fmt.Appendf(nil, `{"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
			"csi": {"driver": "csi.vsphere.vmware.com", "volumeHandle": %q}, "nodeAffinity": {"required": {"nodeSelectorTerms": [
			{"matchExpressions": [{"key": %q, "operator": "In", "values": [%q]}]}]}}}`, name, key, value), &pv.Spec))
		require.NoError(t, k.Create(ctx, pv))
		return pv
	}
	replace := []string{"--attach=k8s-zone:b=/site/west/host/DC1_C0", "--replace", "--yes", "-o", "json"}
	label("topology.csi.vmware.com/k8s-zone", "a")
	tag(replace...).is(8, "the tag a of k8s-zone is used by node node-0")
	tag("--attach=k8s-zone:b=/site/west/host", "--yes").is(8, "the tag a of k8s-zone is used by node node-0")
	label("topology.csi.vmware.com/k8s-zone", "z") // as another category's
	volumes := []*corev1.PersistentVolume{
		bound("bound", "topology.csi.vmware.com/k8s-zone", "a"), bound("bound-ga", "topology.kubernetes.io/zone", "a"),
		bound("free", "topology.csi.vmware.com/k8s-region", "a")}
	tag(replace...).is(8, "the tag a of k8s-zone is used by PersistentVolume bound, PersistentVolume bound-ga\"")
	for _, pv := range volumes {
		pv.Finalizers = nil
		require.NoError(t, k.Update(ctx, pv))
		require.NoError(t, k.Delete(ctx, pv))
	}
	r := vdoctl(t, []string{"HOME=" + t.TempDir(), "KUBECONFIG=", "KUBERNETES_SERVICE_HOST="},
		slices.Concat([]string{"topology", "tag", "-f", file, "--dry-run"}, admin, replace)...)
	require.NotZero(t, r.code)
	r.has("the cluster does not say whether nodes or volumes use its tags")
	tag(append(replace, "--no-cluster", "--dry-run")...).is(0)
	tag(replace...).is(0, `"do": "detach"`)
	require.NoError(t, v.Tag(ctx, "k8s-zone", "c", "/site/west/host"))
	run("check", "-o", "json").has(`"tag": "c"`, `"overruled": [`, `"b on /site/west/host/DC1_C0"`)

	// The drivers' own account may not.
	require.NoError(t, os.WriteFile(admin[len(admin)-1], []byte("wrong"), 0o600))
	out = tag(north, "--yes").is(6)
	require.False(t, strings.Contains(out, "wrong\""), out)
	left := must.Have(v.SessionCount(ctx))(t)
	require.Zero(t, left)
}
