package vdoctl_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// The whole life of an account by the command line: planned, made, verified, refused while
// it is in use, taken away. The administrator's password is in no output and in no object.
func TestUsersAreMadeVerifiedAndTakenAway(t *testing.T) {
	c := control(t)
	k := clientOf(t, c)
	ctx := t.Context()
	v := vcsim.Start(t, vcsim.Options{})
	vms, err := v.VMs(ctx, "/site/west")
	require.NoError(t, err)
	withNodes(t, k, vms)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "users-"}}
	require.NoError(t, k.Create(ctx, namespace))
	ns := namespace.Name
	require.NoError(t, k.Create(ctx, &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "west"}, Spec: v1alpha1.VsphereCloudConfigSpec{
		VcIP: v.Host, Port: int32(v.Port), Credentials: "vc", Thumbprint: v.SHA256, Datacenters: []string{"site/west"}}}))
	admin := filepath.Join(t.TempDir(), "admin")
	require.NoError(t, os.WriteFile(admin, []byte(vcsim.Administrator.Password+"\n"), 0o600))
	run := func(args ...string) (string, int) {
		cmd := exec.CommandContext(ctx, "vdoctl", append(args, "-n", ns)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
		out, err := cmd.CombinedOutput()
		require.NotContains(t, string(out), vcsim.Administrator.Password)
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return string(out), exit.ExitCode()
		}
		require.NoError(t, err)
		return string(out), 0
	}
	asAdmin := []string{"--username", vcsim.Administrator.Username, "--password-file", admin}
	asked := func(args ...string) (string, int) {
		return run(append(append([]string{"users"}, args...), asAdmin...)...)
	}
	users := func(args ...string) (string, int) { return asked(append(args, "--yes")...) }
	var system corev1.Namespace
	require.NoError(t, k.Get(ctx, client.ObjectKey{Name: "kube-system"}, &system))
	account := "vdo-" + string(system.UID)[:8] + "@vsphere.local"
	secret := func() (corev1.Secret, error) {
		var s corev1.Secret
		err := k.Get(ctx, client.ObjectKey{Namespace: ns, Name: "vc"}, &s)
		return s, err
	}

	out, code := run("users", "create")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "--username administrator@vsphere.local")
	out, code = users("create", "--dry-run")
	require.Zero(t, code, out)
	require.Contains(t, out, "would make account "+account+" in west (its password expires after 90 days: vdoctl users rotate --username ADMIN before)")
	require.Contains(t, out, "would set permission vdo-csi-search on / in west")
	_, err = secret()
	require.True(t, client.IgnoreNotFound(err) == nil && err != nil, "a dry run writes nothing")
	require.Zero(t, v.Logins(account))

	out, code = asked("create")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "would make account "+account)
	require.Contains(t, out, "there is no terminal to ask for consent")
	require.Zero(t, v.Logins(account))

	out, code = users("create")
	require.Zero(t, code, out)
	require.Contains(t, out, "make     role vdo-csi-vm in west for "+account+" (VirtualMachine.Config.AddExistingDisk VirtualMachine.Config.AddRemoveDevice)")
	s, err := secret()
	require.NoError(t, err)
	require.Equal(t, corev1.SecretTypeBasicAuth, s.Type)
	require.Equal(t, account, string(s.Data["username"]))
	require.Equal(t, []string{string(s.Data["password"])}, v.Accepted(account))
	out, code = run("users", "verify")
	require.Zero(t, code, out)
	require.Contains(t, out, "has what the drivers need, and no more than that")
	out, code = users("create")
	require.Zero(t, code, out)
	require.Contains(t, out, "nothing to do")
	out, code = users("create", "--principal", "other@vsphere.local")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "vdoctl users rotate --username ADMIN --principal other@vsphere.local")

	// Without an operator and drivers there is nobody to wait for.
	out, code = users("rotate", "-o", "json")
	require.Zero(t, code, out)
	var changes []struct {
		Changes []struct{ Do, Kind, Name string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &changes))
	require.Contains(t, changes[0].Changes, struct{ Do, Kind, Name string }{"remove", "account", account})
	s, err = secret()
	require.NoError(t, err)
	next := string(s.Data["username"])
	require.NotEqual(t, account, next)
	require.NotContains(t, out, string(s.Data["password"]))

	// A driver that uses it keeps it.
	require.NoError(t, client.IgnoreAlreadyExists(k.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: drivers.CSINamespace}})))
	config := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: drivers.CSINamespace, Name: render.CSISecret},
		StringData: map[string]string{render.CSIConfigKey: fmt.Sprintf("user = %q\n", next)}}
	require.NoError(t, k.Create(ctx, config))
	controller := csiController()
	require.NoError(t, k.Create(ctx, controller))
	out, code = users("delete")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "vmware-system-csi/vsphere-csi-controller uses it")
	for _, o := range []client.Object{controller, config} {
		require.NoError(t, k.Delete(context.Background(), o))
	}
	out, code = users("delete", "--dry-run")
	require.Zero(t, code, out)
	require.Contains(t, out, "would remove account "+next)
	out, code = users("delete")
	require.Zero(t, code, out)
	_, err = secret()
	require.True(t, client.IgnoreNotFound(err) == nil && err != nil)
	out, code = users("delete")
	require.Equal(t, 4, code, out)
	out, code = run("users", "plan", "-o", "json", "--principal", next, asAdmin[0], asAdmin[1], asAdmin[2], asAdmin[3])
	require.Zero(t, code, out)
	require.NotContains(t, out, `"state": "keep"`, "no role and no permission is left")

	// An account of another directory is made there, and given its roles here.
	v.SetPassword("k8s@corp.example", "Corp-Pass word#1")
	require.NoError(t, v.Grant(ctx, "k8s@corp.example", "seeing", "/lab", false))
	mine := filepath.Join(t.TempDir(), "account")
	require.NoError(t, os.WriteFile(mine, []byte("Corp-Pass word#1"), 0o600))
	out, code = users("create", "--principal", "k8s@corp.example")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "--account-password-file")
	out, code = users("create", "--principal", "k8s@corp.example", "--account-password-file", mine)
	require.Zero(t, code, out)
	require.NotContains(t, out, "make account")
	out, code = users("delete")
	require.Zero(t, code, out)
	require.Contains(t, out, "leave    account k8s@corp.example in west (it was not made here)")

	// Who is no administrator is told so.
	out, code = run("users", "create", "--username", vcsim.Admin.Username, "--password-file", mine)
	require.Equal(t, 6, code, out)
	require.Contains(t, out, "refuses the user name or password")
	left, err := v.SessionCount(ctx)
	require.NoError(t, err)
	require.Zero(t, left)
}

func csiController() *appsv1.Deployment {
	labels := map[string]string{"app": "csi"}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: drivers.CSINamespace, Name: drivers.Controller}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}
}
