package nodeconfig_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/nodeconfig"
)

func input(names ...string) nodeconfig.Input {
	in := nodeconfig.Input{Mirror: image.MustReference("registry.site/vdo/drivers:1")}
	for _, n := range names {
		in.Images = append(in.Images, image.MustReference(n))
	}
	return in
}

func write(t *testing.T, f string, in nodeconfig.Input) map[string]string {
	files, err := nodeconfig.Write(nodeconfig.Runtime(f), in)
	require.NoError(t, err)
	out := map[string]string{}
	for _, file := range files {
		out[file.Name] = string(file.Data)
	}
	return out
}

func TestContainerdHasAFolderForEachHost(t *testing.T) {
	in := input("nginx:1", "registry.k8s.io/a:1", "registry.k8s.io/b:1", "host.corp:8443/c:1")
	files := write(t, "containerd", in)
	require.Len(t, files, 3)
	require.Contains(t, files["docker.io/hosts.toml"], `server = "https://registry-1.docker.io"`)
	require.Contains(t, files["docker.io/hosts.toml"], `[host."https://registry.site/v2/vdo/drivers/docker.io"]`)
	require.Contains(t, files["host.corp_8443_/hosts.toml"], `server = "https://host.corp:8443"`)
	require.Contains(t, files["host.corp_8443_/hosts.toml"], `[host."https://registry.site/v2/vdo/drivers/host.corp_8443"]`)
}

func TestPlainHTTPHasNoAuthority(t *testing.T) {
	in := input("registry.k8s.io/a:1")
	in.PlainHTTP, in.CA = true, "/etc/site.crt"
	require.Contains(t, write(t, "containerd", in)["registry.k8s.io/hosts.toml"], `[host."http://registry.site/v2/`)
	require.NotContains(t, write(t, "containerd", in)["registry.k8s.io/hosts.toml"], "site.crt")
	require.Contains(t, write(t, "crio", in)["50-vdo.conf"], "\ninsecure = true\n")
	require.Contains(t, write(t, "k3s", in)["registries.yaml"], `"http://registry.site"`)
	require.Contains(t, write(t, "openshift", in)["mirror-set.yaml"], "insecureRegistries")
}

func TestOnlyFilesWithALoginAreSecret(t *testing.T) {
	in := input("registry.k8s.io/a:1")
	in.Login = nodeconfig.Login{Username: "anna", Password: `p"\` + "\n'"}
	for format, holds := range map[nodeconfig.Runtime]bool{"containerd": true, "k3s": true, "crio": false, "openshift": false} {
		files, err := nodeconfig.Write(format, in)
		require.NoError(t, err)
		for _, f := range files {
			require.Equal(t, holds, f.Secret, format)
			require.Equal(t, holds, strings.Contains(string(f.Data), "anna") || strings.Contains(string(f.Data), "Basic "), format)
		}
	}
	var doc struct {
		Configs map[string]struct{ Auth nodeconfig.Login }
	}
	require.NoError(t, yaml.Unmarshal([]byte(write(t, "k3s", in)["registries.yaml"]), &doc))
	require.Equal(t, in.Login, doc.Configs["registry.site"].Auth)
}

// k3s rewrites the path with its regular expression, and nothing else of that host.
func TestK3sRewritesThePathsOfTheBundle(t *testing.T) {
	in := input("registry.test/csi/driver:1", "registry.test/csi/sidecar:1")
	in.CA = "/etc/site.crt"
	var doc struct {
		Mirrors map[string]struct {
			Endpoint []string
			Rewrite  map[string]string
		}
		Configs map[string]struct {
			TLS struct {
				CAFile string `yaml:"ca_file"`
			}
		}
	}
	dec := yaml.NewDecoder(strings.NewReader(write(t, "k3s", in)["registries.yaml"]))
	dec.KnownFields(true)
	require.NoError(t, dec.Decode(&doc))
	m := doc.Mirrors["registry.test"]
	require.Equal(t, []string{"https://registry.site"}, m.Endpoint)
	require.Len(t, m.Rewrite, 1)
	for pattern, to := range m.Rewrite {
		rule := regexp.MustCompile(pattern)
		require.Equal(t, "vdo/drivers/registry.test/csi/driver", rule.ReplaceAllString("csi/driver", to))
		require.Equal(t, "csi/driver/other", rule.ReplaceAllString("csi/driver/other", to))
		require.Equal(t, "other", rule.ReplaceAllString("other", to))
	}
	require.Equal(t, "/etc/site.crt", doc.Configs["registry.site"].TLS.CAFile)
}

func TestOpenShiftSets(t *testing.T) {
	in := input("registry.k8s.io/a:1", "registry.k8s.io/a:2", "registry.k8s.io/b:1")
	sets := write(t, "openshift", in)["mirror-set.yaml"]
	require.NotContains(t, sets, "ImageTagMirrorSet", "that reboots nodes")
	require.Equal(t, 2, strings.Count(sets, "mirrorSourcePolicy: AllowContactingSource\n"), "one of each repository")
}
