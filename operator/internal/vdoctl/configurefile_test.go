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

// The help says: run it once for each vCenter, with -o site.yaml. All of them are in the file then, without a cluster
// too, and what a person has put into it besides: a site may delete what is no longer in its file.
func TestConfigureAddsEachVCenterToAFile(t *testing.T) {
	t.Parallel()
	east, west := vcenters(t)
	file := filepath.Join(t.TempDir(), "site.yaml")
	ok := func(args ...string) string {
		t.Helper()
		env := []string{"HOME=" + t.TempDir(), "KUBECONFIG=", "KUBERNETES_SERVICE_HOST="}
		out := vdoctl(t, env, append(args, "-o", file)...).is(0)
		require.NotContains(t, out, "canary")
		return out
	}
	toWest := byAuthority(t, west, "--vcenter", "west")

	ok(byAuthority(t, east, "--vcenter", "east", "--region-category", "k8s-region", "--zone-category", "k8s-zone")...)
	ok(append(toWest, "--yes")...)
	whole := func(count int) {
		t.Helper()
		in := resources(t, file)
		require.Len(t, in, count, in)
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
	whole(6)
	ok(toWest...) // it says the same: nothing to consent to

	text := readFile(t, file)
	text = regexp.MustCompile(`(kind: ConfigMap\nmetadata:\n  name: west-ca)`).ReplaceAllString(text, "immutable: true\nbinaryData: {der: YQ==}\n$1\n  annotations: {a: "+strings.Repeat("b", 200)+"}")
	text = regexp.MustCompile(`(kind: VDOConfig\nmetadata:\n)`).ReplaceAllString(text, "$1  labels: {app: vdo}\n")
	text = regexp.MustCompile(`(storageProvider:\n)`).ReplaceAllString(text, "$1    webhook: true\n")
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
	require.NoError(t, os.WriteFile(file, []byte(text+strings.ReplaceAll(rest, "\n", "\r\n")), 0o600))
	require.NoError(t, os.Chmod(file, 0o600))
	ok("configure", "--vcenter", "west", "--no-check", "--upgrade", "Manual", "--yes") // no account goes into it
	toEast := []string{"configure", "--vcenter", "east", "--username", vcsim.Admin.Username, "--no-check", "--yes"}
	ok(append(toEast, "--upgrade", "Manual")...)
	ok(append(toEast, "--upgrade", "Manual", "--from-file", fileOf(t, "other.yaml", text))...)
	whole(11)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it has a password")
	in := resources(t, file)
	config := as[v1alpha1.VDOConfig](t, in["VDOConfig vdo"])
	require.Equal(t, v1alpha1.UpgradeManual, config.Spec.Upgrade)
	require.True(t, config.Spec.StorageProvider.Webhook)
	require.Equal(t, map[string]string{"app": "vdo"}, config.Labels)
	ca := as[corev1.ConfigMap](t, in["ConfigMap west-ca"])
	require.Equal(t, strings.Repeat("b", 200), ca.Annotations["a"])
	require.Equal(t, []byte("a"), ca.BinaryData["der"])
	require.True(t, *ca.Immutable)
	require.Equal(t, "canary", as[corev1.Secret](t, in["Secret east-account"]).StringData["password"])
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

	// A vCenter that was to accept any certificate does so until something else is requested.
	s.ok(append(answersFor(t, east, vcsim.Admin.Password), "--vcenter", "east", "--no-check", "-o", file, "--yes")...)
	anyOne := regexp.MustCompile(`(?m)^  thumbprint: .*\n`).ReplaceAllString(readFile(t, file), "")
	anyOne = strings.Replace(anyOne, "  vcIp:", "  insecure: true\n  vcIp:", 1)
	pinned := strings.Replace(anyOne, "  vcIp:", "  thumbprint: "+east.SHA256+"\n  vcIp:", 1)
	for _, c := range []struct {
		text, flag, value string
		accepts           bool
	}{
		{anyOne, "--upgrade", "Manual", true}, {anyOne, "--server", "other.site", false}, {pinned, "--server", "other.site", false},
		{anyOne, "--thumbprint", "", false}, {pinned, "--thumbprint", "", false},
	} {
		require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
		s.ok("configure", "--username", vcsim.Admin.Username, "--no-check", "-o", file, "--yes", c.flag, c.value)
		spec := as[v1alpha1.VsphereCloudConfig](t, resources(t, file)["VsphereCloudConfig east"]).Spec
		require.Equal(t, c.accepts, spec.AnyCertificate(), "%s\n%s", c.flag, c.text)
		require.Empty(t, spec.Thumbprint)
	}
}

// What a site has withdrawn from its file is trusted no more. Other ConfigMaps keep keys that the file does not
// have. The operator reads binaryData too, as `kubectl create configmap --from-file` makes it; a key is in one of both.
func TestConfigureWritesConfigMapsAsTheFileHasThem(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	file := filepath.Join(t.TempDir(), "site.yaml")
	all := byAuthority(t, east, "--vcenter", "east")
	s.ok(append(all, "-o", file)...)
	s.ok(append(all, "--yes")...) // the cluster has what the file has
	site := readFile(t, file)
	policy := "threshold: 1 # " + strings.Repeat("-", 100) + "\n"
	long := strings.ReplaceAll(policy, "\n", `\n`)
	binary := []byte("\x00\x01\x02")
	type data = map[string]string
	const trust, ca = "vdo-trust", "vdo-registry-ca"
	for _, c := range []struct {
		name, says string // a ConfigMap, and what the file says of it
		has        data   // set by someone else before; nil: it is as it was left
		shows      []string
		data       data
		binary     map[string][]byte
	}{
		{trust, `data: {new.pub: "n"}`, data{"old.pub": "o", "new.pub": "n"}, []string{"data.old.pub: o -> none"}, data{"new.pub": "n"}, nil},
		{trust, "data: {cosign.pub: c}", data{"policy.yaml": "p", "vdo.pub": "v"},
			[]string{"data.policy.yaml: p -> none", "data.vdo.pub: v -> none", "data.cosign.pub: c"}, data{"cosign.pub": "c"}, nil},
		{trust, `data: {policy.yaml: "` + long + `keys: [a]\n"}`, data{"policy.yaml": policy + "keys: [a, b]\n"},
			[]string{"data.policy.yaml: threshold: 1 # ---", "-> (differs in what is not shown)"}, data{"policy.yaml": policy + "keys: [a]\n"}, nil},
		{trust, "data:", data{"a.pub": "a"}, []string{"data.a.pub: a -> none"}, nil, nil},
		{trust, "binaryData: {old.pub: AAEC}", nil, []string{"binaryData.old.pub: AAEC\n"}, nil, map[string][]byte{"old.pub": binary}},
		{trust, "data: {new.pub: key}", nil, []string{"binaryData.old.pub: AAEC -> none"}, data{"new.pub": "key"}, nil},
		{ca, "binaryData: {ca.crt: AAEC}", data{"theirs": "d"}, []string{"binaryData.ca.crt: AAEC\n"}, data{"theirs": "d"}, map[string][]byte{"ca.crt": binary}},
		{ca, "data: {ca.crt: text}", nil, []string{"data.ca.crt: text"}, data{"ca.crt": "text", "theirs": "d"}, nil},
		{ca, "binaryData: {ca.crt: AAEC}", nil, []string{"data.ca.crt: text -> none"}, data{"theirs": "d"}, map[string][]byte{"ca.crt": binary}},
	} {
		is := &corev1.ConfigMap{ObjectMeta: s.meta(c.name)}
		s.create(is.DeepCopy())
		if got(s, is); c.has != nil {
			is.Data = c.has
			require.NoError(t, s.k.Update(t.Context(), is))
		}
		text := site + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + c.name + "}\n" + c.says + "\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		s.run("configure", "--from-file", file, "--no-check", "--dry-run").is(0, c.shows...)
		require.Equal(t, is.ResourceVersion, got(s, is).ResourceVersion, "--dry-run: %s", c.says)
		s.run("configure", "--from-file", file, "--no-check", "--yes").is(0, "changed    ConfigMap "+s.ns+"/"+c.name)
		got(s, is)
		require.Equal(t, c.data, is.Data, c.says)
		require.Equal(t, c.binary, is.BinaryData, c.says)
		s.run("configure", "--from-file", file, "--no-check", "--yes").is(0, "all is as asked already")
	}
}
