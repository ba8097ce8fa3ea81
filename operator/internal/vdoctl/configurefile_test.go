package vdoctl_test

import (
	"encoding/json"
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
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// byAuthority are the flags that answer all questions about a vCenter that is not tried, whose
// certificate is checked by its authority.
func byAuthority(t *testing.T, v *vcsim.VCenter, more ...string) []string {
	t.Helper()
	ca := fileOf(t, "ca.pem", string(v.CA))
	all := answersFor(t, v, vcsim.Admin.Password)
	i := slices.Index(all, "--thumbprint")
	return append(slices.Replace(all, i, i+2, "--vcenter-ca-file", ca), append([]string{"--no-check"}, more...)...)
}

// resources are what a file has, by kind and name.
func resources(t *testing.T, file string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for doc := range strings.SplitSeq("\n"+readFile(t, file), "\n---\n") {
		var x map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(doc), &x), doc)
		if x != nil {
			out[x["kind"].(string)+" "+x["metadata"].(map[string]any)["name"].(string)] = x
		}
	}
	return out
}

// as reads a resource of a file into its type.
func as[T any](t *testing.T, x map[string]any) (out T) {
	t.Helper()
	require.NotNil(t, x)
	data, err := json.Marshal(x)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &out))
	return out
}

// The help says: run it once for each vCenter, with -o site.yaml. All of them are in the file
// then, without a cluster too, and what a person has put into it besides.
func TestConfigureAddsEachVCenterToAFile(t *testing.T) {
	t.Parallel()
	east, west := vcenters(t)
	file := filepath.Join(t.TempDir(), "site.yaml")
	ok := func(args ...string) string {
		t.Helper()
		env := []string{"HOME=" + t.TempDir(), "KUBECONFIG=", "KUBERNETES_SERVICE_HOST="}
		out := vdoctl(t, env, append(args, "-o", file)...).is(0)
		return out
	}
	toWest := byAuthority(t, west, "--vcenter", "west")

	ok(byAuthority(t, east, "--vcenter", "east", "--region-category", "k8s-region", "--zone-category", "k8s-zone")...)
	ok(append(toWest, "--yes")...)
	whole := func() {
		t.Helper()
		in := resources(t, file)
		require.Len(t, in, 6, in)
		require.Equal(t, int32(east.Port), as[v1alpha1.VsphereCloudConfig](t, in["VsphereCloudConfig east"]).Spec.Port)
		require.Equal(t, int32(west.Port), as[v1alpha1.VsphereCloudConfig](t, in["VsphereCloudConfig west"]).Spec.Port)
		require.Equal(t, string(east.CA), as[corev1.ConfigMap](t, in["ConfigMap east-ca"]).Data["ca.crt"])
		require.Equal(t, string(west.CA), as[corev1.ConfigMap](t, in["ConfigMap west-ca"]).Data["ca.crt"])
		require.Equal(t, "registry.site/vdo/drivers:1", as[v1alpha1.DriverBundle](t, in["DriverBundle drivers"]).Spec.Reference)
		spec := as[v1alpha1.VDOConfig](t, in["VDOConfig vdo"]).Spec
		require.Equal(t, []string{"east", "west"}, spec.CloudProvider.VsphereCloudConfigs)
		require.Equal(t, []string{"west"}, spec.StorageProvider.VsphereCloudConfigs)
		require.Equal(t, "east", spec.StorageProvider.VsphereCloudConfig)
	}
	whole()
	ok(toWest...) // it says the same: nothing to consent to

	text := readFile(t, file)
	text = regexp.MustCompile(`(kind: ConfigMap\nmetadata:\n  name: west-ca)`).ReplaceAllString(text, "immutable: true\nbinaryData: {der: YQ==}\n$1\n  annotations: {a: "+strings.Repeat("b", 200)+"}")
	text = regexp.MustCompile(`(kind: VDOConfig\nmetadata:\n)`).ReplaceAllString(text, "$1  labels: {app: vdo}\n")
	text = regexp.MustCompile(`(storageProvider:\n)`).ReplaceAllString(text, "$1    webhook: true\n")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	ok("configure", "--vcenter", "west", "--no-check", "--upgrade", "Manual", "--yes") // no account goes into it
	ok("configure", "--vcenter", "east", "--username", vcsim.Admin.Username, "--no-check", "--upgrade", "Manual", "--yes")
	whole()
	in := resources(t, file)
	config := as[v1alpha1.VDOConfig](t, in["VDOConfig vdo"])
	require.Equal(t, v1alpha1.UpgradeManual, config.Spec.Upgrade)
	require.True(t, config.Spec.StorageProvider.Webhook)
	require.Equal(t, map[string]string{"app": "vdo"}, config.Labels)
	ca := as[corev1.ConfigMap](t, in["ConfigMap west-ca"])
	require.Equal(t, strings.Repeat("b", 200), ca.Annotations["a"])
	require.Equal(t, []byte("a"), ca.BinaryData["der"])
	require.True(t, *ca.Immutable)
}

// A site may delete what is no longer in its file: the rest of the file stays.
func TestConfigureKeepsTheRestOfAFile(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	file := filepath.Join(t.TempDir(), "site.yaml")
	all := byAuthority(t, east, "--vcenter", "east", "-o", file)
	s.ok(all...)
	text := readFile(t, file)
	other := fileOf(t, "other.yaml", text)
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
	for _, more := range [][]string{{}, {"--from-file", other}} {
		require.NoError(t, os.WriteFile(file, []byte(text+strings.ReplaceAll(rest, "\n", "\r\n")), 0o600))
		require.NoError(t, os.Chmod(file, 0o600))
		out := s.ok(append(append(all[:len(all):len(all)], "--upgrade", "Manual", "--yes"), more...)...)
		require.NotContains(t, out, "canary")
		in := resources(t, file)
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it has a password")
		require.Len(t, in, 9, in)
		require.Equal(t, "canary", as[corev1.Secret](t, in["Secret east-account"]).StringData["password"])
		require.Equal(t, v1alpha1.UpgradeManual, as[v1alpha1.VDOConfig](t, in["VDOConfig vdo"]).Spec.Upgrade)
	}
}

func TestConfigureRunsAgainOnItsFile(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, west := vcenters(t)
	file := filepath.Join(t.TempDir(), "site.yaml")
	s.ok(byAuthority(t, east, "--vcenter", "east", "-o", file)...)

	// As `kubectl create configmap --from-file` makes it, with labels and keys of others, which stay.
	text := readFile(t, file)
	of := resources(t, file)["ConfigMap east-ca"]
	_, rest, _ := strings.Cut(text, "---\napiVersion: vdo")
	of["binaryData"], of["data"] = map[string][]byte{"ca.crt": east.CA}, map[string]string{"further": "a"}
	of["metadata"].(map[string]any)["labels"] = map[string]string{"app": "vdo"}
	data, err := yaml.Marshal(of)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(string(data)+"---\napiVersion: vdo"+rest), 0o600))
	s.ok(byAuthority(t, west, "--vcenter", "east", "-o", file, "--yes")...)
	ca := as[corev1.ConfigMap](t, resources(t, file)["ConfigMap east-ca"])
	require.Equal(t, map[string]string{"ca.crt": string(west.CA), "further": "a"}, ca.Data)
	require.Equal(t, map[string]string{"app": "vdo"}, ca.Labels)

	// A vCenter that was to accept any certificate does so until something else is asked for.
	s.ok(append(answersFor(t, east, vcsim.Admin.Password), "--vcenter", "east", "--no-check", "-o", file, "--yes")...)
	anyOne := regexp.MustCompile(`(?m)^  thumbprint: .*\n`).ReplaceAllString(readFile(t, file), "")
	anyOne = strings.Replace(anyOne, "  vcIp:", "  insecure: true\n  vcIp:", 1)
	pinned := strings.Replace(anyOne, "  vcIp:", "  thumbprint: "+east.SHA256+"\n  vcIp:", 1)
	for _, c := range []struct {
		text, flag, value string
		accepts           bool
	}{
		{anyOne, "--upgrade", "Manual", true}, {anyOne, "--thumbprint", "", false}, {pinned, "--thumbprint", "", false},
	} {
		require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
		s.ok("configure", "--username", vcsim.Admin.Username, "--no-check", "-o", file, "--yes", c.flag, c.value)
		spec := as[v1alpha1.VsphereCloudConfig](t, resources(t, file)["VsphereCloudConfig east"]).Spec
		require.Equal(t, c.accepts, spec.AnyCertificate(), "%s\n%s", c.flag, c.text)
		require.Empty(t, spec.Thumbprint)
	}
}

// shopOfAFile has a vCenter in the cluster as it is in a file, which is returned with its text.
func shopOfAFile(t *testing.T) (s *shop, file, site string) {
	t.Helper()
	s = newShop(t)
	east, _ := vcenters(t)
	file = filepath.Join(t.TempDir(), "site.yaml")
	all := byAuthority(t, east, "--vcenter", "east")
	s.ok(append(all, "-o", file)...)
	s.ok(append(all, "--yes")...)
	return s, file, readFile(t, file)
}

// What a site has withdrawn from its file is trusted no more. Other ConfigMaps keep keys that the
// file does not have.
func TestConfigureWithdrawsTrustThatTheFileDoesNotHave(t *testing.T) {
	t.Parallel()
	s, file, site := shopOfAFile(t)
	policy := "threshold: 1 # " + strings.Repeat("-", 100) + "\n"
	require.NoError(t, s.k.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: s.meta("vdo-trust")}))
	trusted := func() *corev1.ConfigMap { return got(s, &corev1.ConfigMap{ObjectMeta: s.meta("vdo-trust")}) }
	ca := &corev1.ConfigMap{ObjectMeta: s.meta("vdo-registry-ca"), Data: map[string]string{"ca.crt": "c", "theirs": "d"}}
	require.NoError(t, s.k.Create(t.Context(), ca))
	for name, c := range map[string]struct {
		has, says map[string]string
		shows     []string
	}{
		"a key":               {map[string]string{"old.pub": "o", "new.pub": "n"}, map[string]string{"new.pub": "n"}, []string{"data.old.pub: o -> none"}},
		"a policy, for a key": {map[string]string{"policy.yaml": "p", "vdo.pub": "v"}, map[string]string{"cosign.pub": "c"}, []string{"data.policy.yaml: p -> none", "data.vdo.pub: v -> none", "data.cosign.pub: c"}},
		"a key of a policy":   {map[string]string{"policy.yaml": policy + "keys: [a, b]\n"}, map[string]string{"policy.yaml": policy + "keys: [a]\n"}, []string{"data.policy.yaml: threshold: 1 # ---", "-> (differs in what is not shown)"}},
		"all":                 {map[string]string{"a.pub": "a"}, nil, []string{"data.a.pub: a -> none"}},
	} {
		config := trusted()
		config.Data = c.has
		require.NoError(t, s.k.Update(t.Context(), config))
		text := site + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: vdo-registry-ca}\ndata: {ca.crt: c}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: vdo-trust}\ndata:\n"
		for key, value := range c.says {
			text += "  " + key + ": " + `"` + strings.ReplaceAll(value, "\n", `\n`) + "\"\n"
		}
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		out := s.ok("configure", "--from-file", file, "--no-check", "--dry-run")
		for _, line := range c.shows {
			require.Contains(t, out, line, name)
		}
		require.Equal(t, c.has, trusted().Data, "%s: --dry-run", name)
		out = s.ok("configure", "--from-file", file, "--no-check", "--yes")
		require.Contains(t, out, "changed    ConfigMap "+s.ns+"/vdo-trust\n", name)
		require.NotContains(t, out, "vdo-registry-ca", name)
		require.Equal(t, c.says, trusted().Data, name)
		require.Contains(t, s.ok("configure", "--from-file", file, "--no-check", "--yes"), "all is as asked already", name)
	}
	ca = got(s, &corev1.ConfigMap{ObjectMeta: s.meta("vdo-registry-ca")})
	require.Equal(t, map[string]string{"ca.crt": "c", "theirs": "d"}, ca.Data)
}

// The operator reads binaryData too, as `kubectl create configmap --from-file` makes it.
func TestConfigureWritesBinaryDataOfAFile(t *testing.T) {
	t.Parallel()
	s, file, site := shopOfAFile(t)
	says := func(name, data string) string {
		t.Helper()
		text := site + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n" + data + "\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		out := s.ok("configure", "--from-file", file, "--no-check", "--yes")
		require.Contains(t, s.ok("configure", "--from-file", file, "--no-check", "--yes"), "all is as asked already", text)
		return out
	}
	has := func(name string) *corev1.ConfigMap { return got(s, &corev1.ConfigMap{ObjectMeta: s.meta(name)}) }
	out := says("vdo-registry-ca", "binaryData: {ca.crt: AAECbmV3}")
	require.Contains(t, out, "created    ConfigMap "+s.ns+"/vdo-registry-ca\n             binaryData.ca.crt: AAECbmV3\n")
	require.Equal(t, []byte("\x00\x01\x02new"), has("vdo-registry-ca").BinaryData["ca.crt"])
	out = says("vdo-registry-ca", "data: {ca.crt: text}")
	require.Contains(t, out, "data.ca.crt: text")
	require.Empty(t, has("vdo-registry-ca").BinaryData, "a key is in one of both")
	out = says("vdo-registry-ca", "binaryData: {ca.crt: AAEC}")
	require.Contains(t, out, "data.ca.crt: text -> none")
	require.Empty(t, has("vdo-registry-ca").Data)

	says("vdo-trust", "binaryData: {old.pub: AAEC}")
	out = says("vdo-trust", "data: {new.pub: key}")
	require.Contains(t, out, "binaryData.old.pub: AAEC -> none")
	require.Empty(t, has("vdo-trust").BinaryData)
	require.Equal(t, map[string]string{"new.pub": "key"}, has("vdo-trust").Data)
}
