package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/readme"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// The operator's image, which travels in the bundle. Nothing runs it here: the cluster's
// nodes only answer, so the program runs beside the cluster, with its account's rights.
const operatorImage = "registry.k8s.io/vdo/vdo-operator:v1.0.0"

// followTheGuide installs the operator and points it at the site by the commands of
// deploy/docs/install.md, "Step by step", word by word, with deploy/samples/site.yaml. Only what
// they call yours is the site's: lines of site.yaml, and the address of the mirror.
func (l *job) followTheGuide(releases ...string) {
	l.t.Helper()
	l.bundleWithOperator(releases...)
	require.NoError(l.t, os.WriteFile(l.path("site/vcenter-password"), []byte(vcenter.Admin.Password), 0o600))
	sample, err := os.ReadFile(filepath.Join(toolchain.Root(), "deploy", "samples", "site.yaml"))
	require.NoError(l.t, err)
	require.NoError(l.t, os.WriteFile(l.path("site/site.yaml"), l.yours(string(sample), map[string]string{
		"  reference: ":   l.reference("stable"),
		"  vcIp: ":        l.site.VCenter.Host,
		"  port: ":        fmt.Sprint(l.site.VCenter.Port),
		"  datacenters: ": "[site/prod/east]",
	}), 0o600))

	sh := l.kubectl()
	for _, c := range l.guide("deploy/docs/install.md", "Step by step") {
		if strings.Contains(c.Text, "kubectl apply -f site.yaml") {
			l.beside()
		}
		l.typed(sh, c)
	}
}

// kubectl is a shell with the administrator's kubeconfig.
func (l *job) kubectl() *shell.Shell {
	kubectl := toolchain.Path(l.t, "kubectl")
	return &shell.Shell{Dir: l.isolated.Dir, Env: append(slices.Clone(l.isolated.Env),
		"KUBECONFIG="+l.site.Cluster.Kubeconfig(), "PATH="+bin+":"+filepath.Dir(kubectl)+":"+os.Getenv("PATH"))}
}

// typed runs a command of a guide as it is, but for the mirror's name. A variable that
// it sets stays set.
func (l *job) typed(sh *shell.Shell, c readme.Command) {
	l.t.Helper()
	words := strings.ReplaceAll(c.Text, "registry.site.example", l.site.Mirror.Host)
	if name, value, ok := strings.Cut(words, "="); ok && !strings.Contains(name, " ") {
		sh.Env = append(sh.Env, name+"="+value)
		return
	}
	out, err := sh.Run(l.ctx, "bash", "-o", "pipefail", "-ec", words)
	require.NoError(l.t, err, "%s\n%s", c, out)
}

// guide returns the commands of a section of a page.
func (l *job) guide(page, section string) (out []readme.Command) {
	l.t.Helper()
	blocks, err := readme.Blocks(filepath.Join(toolchain.Root(), page), "kubectl")
	require.NoError(l.t, err)
	for _, b := range blocks {
		if b.Section == section {
			out = append(out, b.Commands...)
		}
	}
	require.NotEmpty(l.t, out, section)
	return out
}

// yours fills in the lines of a sample that are marked so, and no others.
func (l *job) yours(sample string, values map[string]string) []byte {
	l.t.Helper()
	lines := strings.Split(sample, "\n")
	for i, text := range lines {
		if !strings.Contains(text, "# yours") {
			continue
		}
		key, _, _ := strings.Cut(text, ": ")
		value, ok := values[key+": "]
		require.True(l.t, ok, "the sample's line %q is marked and has no value here", text)
		lines[i] = key + ": " + value
		delete(values, key+": ")
	}
	require.Empty(l.t, values, "not marked in the sample")
	return []byte(strings.Join(lines, "\n"))
}

// bundleWithOperator carries drivers.tar and vdo.pub across the gap.
func (l *job) bundleWithOperator(releases ...string) {
	l.t.Helper()
	image, err := images.Build(images.Spec{Seed: 7, Platforms: images.Linux, Layers: []int64{4 << 10}})
	require.NoError(l.t, err)
	_, err = image.Push(l.ctx, l.upstream.Registry, operatorImage)
	require.NoError(l.t, err)
	chosen := []string{"--operator", operatorImage}
	for _, r := range releases {
		chosen = append(chosen, "--release", r)
	}
	l.run(l.connected, "vdo-bundle lock -o lock.yaml", append(chosen, l.upstream.Flags()...)...)
	l.run(l.connected, "vdo-bundle pull --lock lock.yaml --sign-key vdo.key -o drivers.tar", l.upstream.Flags()...)
	l.carry("drivers.tar")
	require.NoError(l.t, os.Remove(l.path("connected/drivers.tar")))
}

// beside runs the program that the guide's Deployment would run, once its account is there.
func (l *job) beside() {
	l.t.Helper()
	require.NoError(l.t, l.site.WriteKubeconfigOf(l.ctx, namespace, "vdo-operator", l.path("site/operator.kubeconfig")))
	l.startOperator()
}
