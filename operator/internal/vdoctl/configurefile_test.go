package vdoctl

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

// siteFile is a file that configure writes, without a cluster and a vCenter.
type siteFile struct {
	t    *testing.T
	name string
}

func (f siteFile) put(text string) {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(f.name, []byte(text), 0o600))
}

func (f siteFile) text() string {
	f.t.Helper()
	data := must.Have(os.ReadFile(f.name))(f.t)
	return string(data)
}

func (f siteFile) configure(args ...string) *objects {
	f.t.Helper()
	var out bytes.Buffer
	a := &app{out: &out, err: &out, getenv: func(string) (string, bool) { return "", false }}
	code := a.run(f.t.Context(), append([]string{"configure", "--no-check", "-o", f.name}, args...))
	require.Zero(f.t, code, out.String())
	require.NotContains(f.t, out.String(), "canary")
	read := must.Have(parseSite(f.name, []byte(f.text()), operatorNamespace))(f.t)
	return read
}

func (o *objects) configMap(name string) *corev1.ConfigMap {
	return o.all["ConfigMap "+operatorNamespace+"/"+name].(*corev1.ConfigMap)
}

// byAuthority are the flags that answer all questions about a vCenter whose certificate is checked by an authority.
func byAuthority(t *testing.T, name, ca string, more ...string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, []byte(ca), 0o600))
	return append([]string{"--bundle", "registry.site/vdo/drivers:1", "--vcenter", name, "--server", name + ".site",
		"--username", "vdo@vsphere.local", "--vcenter-ca-file", file}, more...)
}

// The help says: run it once for each vCenter, with -o site.yaml. All of them are in the file then, without a cluster
// too, and what a person has put into it besides: a site may delete what is no longer in its file.
func TestConfigureAddsEachVCenterToAFile(t *testing.T) {
	east, west := string(pki.Root(t, "east").PEM()), string(pki.Root(t, "west").PEM())
	file := siteFile{t, filepath.Join(t.TempDir(), "site.yaml")}
	toWest := byAuthority(t, "west", west)
	has := func(in *objects, objects int) {
		t.Helper()
		require.Len(t, in.all, objects)
		for i, name := range []string{"east", "west"} {
			require.Equal(t, name+".site", in.vcenters[i].Spec.VcIP)
			require.Equal(t, []string{east, west}[i], in.configMap(name + "-ca").Data["ca.crt"])
		}
		require.Equal(t, "registry.site/vdo/drivers:1", in.bundle.Spec.Reference)
		require.Equal(t, []string{"east", "west"}, in.config.Spec.CloudProvider.VsphereCloudConfigs)
		require.Equal(t, []string{"west"}, in.config.Spec.StorageProvider.VsphereCloudConfigs)
		require.Equal(t, "east", in.config.Spec.StorageProvider.VsphereCloudConfig)
	}
	file.configure(byAuthority(t, "east", east, "--region-category", "k8s-region", "--zone-category", "k8s-zone")...)
	file.configure("--vcenter", "east", "--server", "mistyped.site", "--yes") // it has no account yet
	file.configure("--vcenter", "east", "--server", "east.site", "--yes")
	has(file.configure(append(toWest, "--yes")...), 6)
	file.configure(toWest...) // it says the same: nothing to consent to

	text := file.text()
	for of, with := range map[string]string{
		`(kind: ConfigMap\nmetadata:\n  name: west-ca)`: "immutable: true\nbinaryData: {der: YQ==}\n$1\n  annotations: {a: " +
			strings.Repeat("b", 200) + "}",
		`(kind: VDOConfig\nmetadata:\n)`: "$1  labels: {app: vdo}\n",
		`(storageProvider:\n)`:           "$1    webhook: true\n",
	} {
		text = regexp.MustCompile(of).ReplaceAllString(text, with)
	}
	rest := `---
apiVersion: v1
kind: Secret
metadata: {name: east-account}
stringData: {username: a@b, password: canary}
---
apiVersion: example.com/v1
kind: Thing
metadata: {name: one}
---
apiVersion: vdo.vmware.com/v1alpha1
kind: DriverBundle
metadata: {name: services, namespace: vmware-system-sip}
spec: {reference: registry.site/sip:1}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
---
apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: north}
spec: {vcIp: vc, credentials: north-account, datacenters: [/other]}
`
	file.put(text + strings.ReplaceAll(rest, "\n", "\r\n"))
	require.NoError(t, os.Chmod(file.name, 0o600))
	other := siteFile{t, filepath.Join(t.TempDir(), "other.yaml")}
	other.put(text)
	file.configure("--vcenter", "west", "--upgrade", "Manual", "--yes") // no account goes into it
	toEast := []string{"--vcenter", "east", "--username", "vdo@vsphere.local", "--upgrade", "Manual", "--yes"}
	file.configure(toEast...)
	in := file.configure(append(toEast, "--from-file", other.name)...)
	has(in, 10)
	require.Contains(t, file.text(), "kind: Thing")
	info := must.Have(os.Stat(file.name))(t)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it has a password")
	require.Equal(t, v1alpha1.UpgradeManual, in.config.Spec.Upgrade)
	require.True(t, in.config.Spec.StorageProvider.Webhook)
	require.Equal(t, map[string]string{"app": "vdo"}, in.config.Labels)
	ca := in.configMap("west-ca")
	require.Equal(t, strings.Repeat("b", 200), ca.Annotations["a"])
	require.Equal(t, []byte("a"), ca.BinaryData["der"])
	require.True(t, *ca.Immutable)
	account := in.all["Secret "+operatorNamespace+"/east-account"].(*corev1.Secret)
	require.Equal(t, "canary", string(account.Data["password"]))
}

func TestConfigureRunsAgainOnItsFile(t *testing.T) {
	east, west := pki.Root(t, "east").PEM(), string(pki.Root(t, "west").PEM())
	file := siteFile{t, filepath.Join(t.TempDir(), "site.yaml")}
	of := file.configure(byAuthority(t, "east", string(east))...).configMap("east-ca")

	// As `kubectl create configmap --from-file` makes it, with labels and keys of others, which stay.
	_, rest, _ := strings.Cut(file.text(), "---\napiVersion: vdo")
	of.BinaryData, of.Data = map[string][]byte{"ca.crt": east}, map[string]string{"further": "a"}
	of.Labels = map[string]string{"app": "vdo"}
	data := must.Have(yaml.Marshal(of))(t)
	file.put(string(data) + "---\napiVersion: vdo" + rest)
	ca := file.configure(byAuthority(t, "east", west, "--yes")...).configMap("east-ca")
	require.Equal(t, map[string]string{"ca.crt": west, "further": "a"}, ca.Data)
	require.Empty(t, ca.BinaryData)
	require.Equal(t, map[string]string{"app": "vdo"}, ca.Labels)

	// A thumbprint is of one certificate. A vCenter that was to accept any one does so until something else is requested.
	all := byAuthority(t, "east", west, "--yes")
	thumbprint := strings.Repeat("AA:", 31) + "AA"
	all[slices.Index(all, "--vcenter-ca-file")], all[len(all)-2] = "--thumbprint", thumbprint
	file.configure(all...)
	alone := file.text()
	both := strings.Replace(alone, "  vcIp:", "  ca: {configMap: east-ca}\n  vcIp:", 1)
	pinned := strings.Replace(alone, "  vcIp:", "  insecure: true\n  vcIp:", 1)
	anyOne := regexp.MustCompile(`(?m)^  thumbprint: .*\n`).ReplaceAllString(pinned, "")
	for _, c := range []struct {
		text, flag, value string
		accepts           bool
		thumbprint        string
	}{
		{both, "--upgrade", "Manual", false, thumbprint},
		{alone, "--upgrade", "Manual", false, thumbprint}, {alone, "--server", "other.site", false, ""},
		{anyOne, "--upgrade", "Manual", true, ""}, {anyOne, "--server", "other.site", false, ""},
		{pinned, "--server", "other.site", false, ""},
		{anyOne, "--thumbprint", "", false, ""}, {pinned, "--thumbprint", "", false, ""},
	} {
		file.put(c.text)
		spec := file.configure("--username", "vdo@vsphere.local", "--yes", c.flag, c.value).vcenters[0].Spec
		require.Equal(t, c.accepts, spec.AnyCertificate(), "%s\n%s", c.flag, c.text)
		require.Equal(t, c.thumbprint, spec.Thumbprint)
		require.Equal(t, c.text == both, spec.CA != nil)
	}
}
