package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/readme"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// The commands of README.md, "From these files", word by word but for the mirror's name.
// "Step by step" is what the end-to-end test installs by.
func TestTheFilesAreInstalledAsTheGuideSays(t *testing.T) {
	toolchain.Installed(t, "skopeo")
	mirror := registry.Start(t, registry.Options{TLS: true, Auth: registry.Basic})
	cfg := cluster.Config(t)
	dir := t.TempDir()
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	kubeconfig.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kubeconfig.CurrentContext = "x"
	require.NoError(t, clientcmd.WriteToFile(*kubeconfig, filepath.Join(dir, "kubeconfig")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), mirror.CA(), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "auth.json"), mirror.DockerConfig(), 0o600))

	blocks, err := readme.Blocks("README.md", "kubectl")
	require.NoError(t, err)
	script := ""
	for _, b := range blocks {
		for _, c := range b.Commands {
			if b.Section == "From these files" {
				script += strings.ReplaceAll(c.Text, "registry.site.example", mirror.Host) + "\n"
			}
		}
	}
	require.Contains(t, script, "kubectl apply")
	cmd := exec.CommandContext(t.Context(), "bash", "-e", "-o", "pipefail", "-c", script)
	cmd.Dir = toolchain.Root()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"), "PLATFORMS=linux/amd64",
		"REGISTRY_AUTH_FILE="+filepath.Join(dir, "auth.json"), "SSL_CERT_FILE="+filepath.Join(dir, "ca.crt"),
		"PATH="+filepath.Dir(toolchain.Path(t, "kubectl"))+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", script, out)

	var d appsv1.Deployment
	require.NoError(t, connect(t, cfg).Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "vdo-operator"}, &d))
	image := d.Spec.Template.Spec.Containers[0].Image
	require.Contains(t, image, mirror.Host+"/vdo/operator@sha256:")
	require.NoError(t, mirror.Serves(t.Context(), image), "the image is in the mirror as the manifests name it")
}
