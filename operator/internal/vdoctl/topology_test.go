package vdoctl_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// A vCenter without categories gets them, with tags that a node's host inherits; what is
// there stays, and what contradicts it is named before anything is changed.
func TestTopologyIsTaggedAndChecked(t *testing.T) {
	c := control(t)
	v := vcsim.Start(t, vcsim.Options{})
	ctx := t.Context()
	vms, err := v.VMs(ctx, "/site/west")
	require.NoError(t, err)
	withNodes(t, clientOf(t, c), vms)
	dir := t.TempDir()
	file, admin := filepath.Join(dir, "site.yaml"), filepath.Join(dir, "admin")
	require.NoError(t, os.WriteFile(admin, []byte(vcsim.Administrator.Password), 0o600))
	require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: vc}
stringData: {username: %s, password: %q}
---
apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: west}
spec: {vcIp: %s, port: %d, credentials: vc, thumbprint: "%s", datacenters: [site/west]}
---
apiVersion: vdo.vmware.com/v1alpha1
kind: VDOConfig
metadata: {name: vdo}
spec:
  cloudProvider: {vsphereCloudConfigs: [west], topology: {zone: k8s-zone, region: k8s-region}}
  storageProvider: {vsphereCloudConfig: west, topologyCategories: [k8s-region, k8s-zone]}
`, vcsim.Admin.Username, vcsim.Admin.Password, v.Host, v.Port, v.SHA256)), 0o600))
	run := func(args ...string) (string, int) {
		cmd := exec.CommandContext(ctx, "vdoctl", append(append([]string{"topology"}, args...), "-f", file, "--kubeconfig", c.Kubeconfig())...)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return string(out), exit.ExitCode()
		}
		require.NoError(t, err)
		return string(out), 0
	}
	tag := func(args ...string) (string, int) {
		return run(append([]string{"tag", "--username", vcsim.Administrator.Username, "--password-file", admin}, args...)...)
	}
	north, zone := "--attach=k8s-region:north=/site/west", "--attach=k8s-zone:a=/site/west/host/DC1_C0"

	out, code := run("check")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "topology-category in west: the vCenter has no tag category of this name")
	out, code = run("tag")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "who may change tags is not given")
	for flag, why := range map[string]string{"--attach=k8s-zone": "CATEGORY:TAG=PATH", "--attach=k8s-zone:a=west": "it begins with /", "--attach=rack:a=/site/west": "does not name this category", "--vcenter=east": "no VsphereCloudConfig"} {
		out, code = tag(flag)
		require.Equal(t, 2, code, out)
		require.Contains(t, out, why)
	}
	out, code = tag("--attach=k8s-zone:a=/site/west/host/none", "--yes")
	require.Equal(t, 4, code, out)
	require.Contains(t, out, "there is no object /site/west/host/none")
	require.NotContains(t, out, "--replace", "it does not make one")

	out, code = tag(north, zone, "--dry-run")
	require.Zero(t, code, out)
	require.Contains(t, out, "west: make category k8s-zone (ClusterComputeResource, Datacenter, Folder, HostSystem)\n")
	require.Contains(t, out, "west: attach k8s-zone:a to /site/west/host/DC1_C0\n")
	out, code = tag(north, zone)
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "there is no terminal to ask for consent")
	out, code = run("check")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "k8s-zone: none", "nothing was changed yet")

	out, code = tag(zone, "--yes") // the region is left out: one run does a part
	require.Zero(t, code, out)
	out, code = run("check")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "no tag of k8s-region on the node's host, nor on what it is in")
	out, code = tag(north, zone, "--yes")
	require.Zero(t, code, out)
	require.NotContains(t, out, "k8s-zone", "that is there already")
	out, code = tag(north, zone)
	require.Zero(t, code, out)
	require.Contains(t, out, "west: nothing to do")

	out, code = run("check")
	require.Contains(t, out, "k8s-region: north (on /site/west), k8s-zone: a (on /site/west/host/DC1_C0)")
	require.Contains(t, out, "north/a in west: 2 nodes, shared datastores: LocalDS_0")
	require.NotContains(t, out, "topology-tag in")
	_ = code

	// Another tag of the category is taken off only when that is asked for.
	out, code = tag("--attach=k8s-zone:b=/site/west/host/DC1_C0", "--yes")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "has the tag a of k8s-zone, not b: --replace takes it off")

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
	out, code = tag(replace...)
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "the tag a of k8s-zone is used by node node-0")
	out, code = tag("--attach=k8s-zone:b=/site/west/host", "--yes") // it would take the place of a
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "the tag a of k8s-zone is used by node node-0")
	label("topology.csi.vmware.com/k8s-zone", "z") // as another category's
	volumes := []*corev1.PersistentVolume{
		bound("bound", "topology.csi.vmware.com/k8s-zone", "a"), bound("bound-ga", "topology.kubernetes.io/zone", "a"),
		bound("free", "topology.csi.vmware.com/k8s-region", "a")}
	out, code = tag(replace...)
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "the tag a of k8s-zone is used by PersistentVolume bound, PersistentVolume bound-ga\"")
	for _, pv := range volumes {
		pv.Finalizers = nil
		require.NoError(t, k.Update(ctx, pv))
		require.NoError(t, k.Delete(ctx, pv))
	}
	alone := exec.CommandContext(ctx, "vdoctl", append([]string{"topology", "tag", "-f", file, "--dry-run",
		"--username", vcsim.Administrator.Username, "--password-file", admin}, replace...)...)
	alone.Env = append(os.Environ(), "HOME="+dir, "KUBECONFIG=", "KUBERNETES_SERVICE_HOST=")
	text, err := alone.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(text), "the cluster does not say whether nodes or volumes use them")
	out, code = tag(append(replace, "--no-cluster", "--dry-run")...)
	require.Zero(t, code, out)
	out, code = tag(replace...)
	require.Zero(t, code, out)
	require.Contains(t, out, `"do": "detach"`)
	require.NoError(t, v.Tag(ctx, "k8s-zone", "c", "/site/west/host"))
	out, _ = run("check")
	require.Contains(t, out, "k8s-zone: c (on /site/west/host); overruled: b on /site/west/host/DC1_C0")

	// The drivers' own account may not.
	require.NoError(t, os.WriteFile(admin, []byte("wrong"), 0o600))
	out, code = tag(north, "--yes")
	require.Equal(t, 6, code, out)
	require.False(t, strings.Contains(out, "wrong\""), out)
	left, err := v.SessionCount(ctx)
	require.NoError(t, err)
	require.Zero(t, left)
}
