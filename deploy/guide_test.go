package deploy_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/readme"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// guide is the page whose commands are typed.
const guide = "deploy/docs/install.md"

// admin types kubectl as an administrator, in the project's folder.
type admin struct {
	t   *testing.T
	dir string
	env []string
}

func newAdmin(t *testing.T) *admin {
	t.Helper()
	cfg := cluster.Config(t)
	kubeconfig := cluster.Kubeconfig(t, cfg, cfg.BearerToken, "")
	return &admin{t, t.TempDir(), append(os.Environ(), "KUBECONFIG="+kubeconfig,
		"PATH="+filepath.Dir(toolchain.Path(t, "kubectl"))+":"+os.Getenv("PATH"))}
}

// types runs commands of docs/install.md, word by word but for what they call yours.
func (d *admin) types(commands []readme.Command, yours ...string) {
	script := ""
	for _, c := range commands {
		script += strings.NewReplacer(yours...).Replace(c.Text) + "\n"
	}
	cmd := exec.CommandContext(d.t.Context(), "bash", "-e", "-o", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = toolchain.Root(), d.env
	out, err := cmd.CombinedOutput()
	require.NoError(d.t, err, "%s\n%s", script, out)
}

// The commands of docs/install.md, "From these files", word by word but for the mirror's name,
// and those for a cluster that has no network yet. "Step by step" and "Remove" are what
// the end-to-end test installs and removes by.
func TestTheFilesAreInstalledAsTheGuideSays(t *testing.T) {
	toolchain.Installed(t, "skopeo")
	mirror := registry.Start(t, registry.Options{TLS: true, Auth: registry.Basic})
	d := newAdmin(t)
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "ca.crt"), mirror.CA(), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "auth.json"), mirror.DockerConfig(), 0o600))
	d.env = append(d.env, "PLATFORMS=linux/amd64",
		"REGISTRY_AUTH_FILE="+filepath.Join(d.dir, "auth.json"), "SSL_CERT_FILE="+filepath.Join(d.dir, "ca.crt"))
	d.types(readme.Section(t, guide, "From these files"), "registry.site.example", mirror.Host)

	admin := cluster.Client(t, cluster.Config(t))
	operator := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vdo-operator"}}
	require.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(operator), operator))
	t.Cleanup(func() { require.NoError(t, admin.Delete(context.Background(), operator)) })
	image := operator.Spec.Template.Spec.Containers[0].Image
	require.Contains(t, image, mirror.Host+"/vdo/operator@sha256:")
	require.NoError(t, mirror.Serves(image), "the image is in the mirror as the manifests name it")
	require.False(t, operator.Spec.Template.Spec.HostNetwork)

	d.types(readme.Section(t, guide, "Antrea"))
	require.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(operator), operator))
	require.True(t, operator.Spec.Template.Spec.HostNetwork)
	require.Equal(t, image, operator.Spec.Template.Spec.Containers[0].Image, "the rest is as it was")
	var ns corev1.Namespace
	require.NoError(t, admin.Get(t.Context(), client.ObjectKey{Name: namespace}, &ns))
	require.Equal(t, "privileged", ns.Labels["pod-security.kubernetes.io/enforce"])
}

// Where the namespace goes first no one acts on the finalizer; the guide's way out is
// to take it away.
func TestAVDOConfigWhoseOperatorIsGoneCanBeLetGo(t *testing.T) {
	admin, _ := install(t)
	v := &v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "left", Finalizers: []string{"vdo.vmware.com/drivers"}},
		Spec: v1alpha1.VDOConfigSpec{CloudProvider: &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"a"}}}}
	require.NoError(t, admin.Create(t.Context(), v))
	require.NoError(t, admin.Delete(t.Context(), v))
	require.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(v), v), "the finalizer holds it")
	commands := readme.Section(t, guide, "Remove")
	newAdmin(t).types(commands[len(commands)-1:], "NAME", v.Name)
	require.True(t, apierrors.IsNotFound(admin.Get(t.Context(), client.ObjectKeyFromObject(v), v)))
}

// person returns a client of someone who may write VDOConfigs.
func person(t *testing.T, admin client.Client, name string) client.Client {
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "vdoconfigs-of-" + name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"vdoconfigs"}, Verbs: []string{"create", "get", "update"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}}}
	for _, o := range []client.Object{role, binding} {
		require.NoError(t, admin.Create(t.Context(), o))
	}
	as := rest.CopyConfig(cluster.Config(t))
	as.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	return cluster.Client(t, as)
}

// No one consents to an upgrade in someone else's name; what was consented to stays
// while others, the operator among them, change the rest.
func TestWhoConsentsToAnUpgradeDoesSoInTheirOwnName(t *testing.T) {
	admin, operator := install(t)
	for _, u := range read(t, "approval.yaml") {
		require.NoError(t, apply(t.Context(), admin, u))
	}
	alice, bob := person(t, admin, "alice"), person(t, admin, "bob")
	consenting := func(by string) *v1alpha1.VDOConfig {
		return &v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "approved"}, Spec: v1alpha1.VDOConfigSpec{
			StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "vc"},
			UpgradePolicy:   &v1alpha1.UpgradePolicy{Approval: &v1alpha1.UpgradeApproval{Revision: "r2-00000000", By: by}}}}
	}
	v := consenting("alice")
	require.NoError(t, admin.Create(t.Context(), v))
	require.Eventually(t, func() bool { // the policy, and the rights, come into force in a while
		renamed := v.DeepCopy()
		renamed.Spec.UpgradePolicy.Approval.By = "carol"
		err := bob.Update(t.Context(), renamed, client.DryRunAll)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "has to be your own name, bob")
	}, 2*time.Minute, 200*time.Millisecond)
	require.Eventually(t, func() bool {
		return alice.Update(t.Context(), v, client.DryRunAll) == nil
	}, time.Minute, 200*time.Millisecond)
	restored := consenting("alice")
	restored.Name = "restored"
	require.NoError(t, bob.Create(t.Context(), restored, client.DryRunAll), "Velero and GitOps restore what was approved")

	update := func(c client.Client, edit func()) error {
		require.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(v), v))
		edit()
		return c.Update(t.Context(), v)
	}
	require.NoError(t, update(bob, func() { v.Spec.Suspend = true }), "the rest is anybody's who may")
	require.NoError(t, update(operator, func() { v.Finalizers = []string{"vdo.vmware.com/drivers"} }))
	require.NoError(t, update(operator, func() { v.Finalizers = nil }))
	require.ErrorContains(t, update(bob, func() { v.Spec.UpgradePolicy.Approval.Revision = "r3-00000000" }), "has to be your own name, bob")
	require.ErrorContains(t, update(operator, func() { v.Spec.UpgradePolicy.Approval.Revision = "r3-00000000" }), "has to be your own name")
	require.NoError(t, update(bob, func() { v.Spec.UpgradePolicy.Approval = &v1alpha1.UpgradeApproval{Revision: "r3-00000000", By: "bob"} }))
	require.NoError(t, update(alice, func() { v.Spec.UpgradePolicy.Approval = nil }))
}
