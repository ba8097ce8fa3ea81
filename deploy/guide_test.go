package deploy_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	d.t.Helper()
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
