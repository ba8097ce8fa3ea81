package vdoctl_test

import (
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// byAuthority are the flags that answer all questions about a vCenter that is not tried, whose
// certificate is checked by its authority.
func byAuthority(t *testing.T, v *vcsim.VCenter, more ...string) []string {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, v.CA, 0o600))
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

// The help says: run it once for each vCenter, with --write site.yaml. All of them are in the file
// then, without a cluster too, and what a person has put into it besides.
func TestConfigureAddsEachVCenterToAFile(t *testing.T) {
	t.Parallel()
	east, west := vcenters(t)
	file := filepath.Join(t.TempDir(), "site.yaml")
	home := append(os.Environ(), "HOME="+t.TempDir(), "KUBECONFIG=", "KUBERNETES_SERVICE_HOST=")
	ok := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "vdoctl", append(args, "--write", file)...)
		cmd.Env = home
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	toWest := byAuthority(t, west, "--vcenter", "west")

	// The file is for many: of the authority it takes certificates, and nothing else.
	key := "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----\n"
	der, _ := pem.Decode(east.CA)
	for text, says := range map[string]string{string(east.CA) + key: "there is a private key in it", string(east.CA) + key[:50]: "there is a private key in it",
		string(der.Bytes): "there is no PEM certificate in it", "": "there is no PEM certificate in it", strings.Replace(string(east.CA), "CERTIFICATE", "PUBLIC KEY", 2): "there is a PUBLIC KEY among the certificates"} {
		all := byAuthority(t, east, "--write", file)
		ca := all[slices.Index(all, "--vcenter-ca-file")+1]
		require.NoError(t, os.WriteFile(ca, []byte(text), 0o600))
		cmd := exec.CommandContext(t.Context(), "vdoctl", all...)
		cmd.Env = home
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Equal(t, 2, cmd.ProcessState.ExitCode(), string(out))
		require.Contains(t, string(out), "--vcenter-ca-file "+strconv.Quote(ca)+": "+says)
		require.Contains(t, string(out), "hint: name a PEM file with the authority's certificates")
		require.NotContains(t, string(out), "Y2FuYXJ5")
		require.NoFileExists(t, file)
	}
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

// Where the cluster has vCenters, a new file has them too, with the CAs that were made for them.
func TestConfigureWritesAllVCentersOfTheClusterToAFile(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, west := vcenters(t)
	s.ok(byAuthority(t, east, "--vcenter", "east", "--region-category", "k8s-region", "--zone-category", "k8s-zone", "--yes")...)
	of := s.vcenter("east")
	of.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "canary"}
	require.NoError(t, s.k.Update(t.Context(), of))
	file := filepath.Join(t.TempDir(), "site.yaml")
	s.ok(append(byAuthority(t, west, "--vcenter", "west"), "--write", file)...)
	out := s.ok("configure", "--vcenter", "east", "--no-check", "--write", "-")
	require.Contains(t, out, "The file begins with the resources of context test (")
	in := resources(t, file)
	require.Len(t, in, 6, in)
	require.Equal(t, of.Spec, as[v1alpha1.VsphereCloudConfig](t, in["VsphereCloudConfig east"]).Spec)
	require.Equal(t, string(east.CA), as[corev1.ConfigMap](t, in["ConfigMap east-ca"]).Data["ca.crt"])
	require.Equal(t, []string{"east", "west"}, as[v1alpha1.VDOConfig](t, in["VDOConfig vdo"]).Spec.CloudProvider.VsphereCloudConfigs)
	text := readFile(t, file)
	for _, ofServer := range []string{"status", "uid", "resourceVersion", "canary"} {
		require.NotContains(t, text, ofServer)
	}
	require.Contains(t, s.ok("configure", "--from-file", file, "--vcenter", "east", "--no-check", "--dry-run"), "VsphereCloudConfig "+s.ns+"/west (new)")
}

// A site may delete what is no longer in its file: the rest of the file stays.
func TestConfigureKeepsTheRestOfAFile(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	dir := t.TempDir()
	file, other := filepath.Join(dir, "site.yaml"), filepath.Join(dir, "other.yaml")
	all := byAuthority(t, east, "--vcenter", "east", "--write", file)
	s.ok(all...)
	text := readFile(t, file)
	require.NoError(t, os.WriteFile(other, []byte(text), 0o600))
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
	s.ok(byAuthority(t, east, "--vcenter", "east", "--write", file)...)

	// As `kubectl create configmap --from-file` makes it, with labels and keys of others, which stay.
	text := readFile(t, file)
	of := resources(t, file)["ConfigMap east-ca"]
	_, rest, _ := strings.Cut(text, "---\napiVersion: vdo")
	of["binaryData"], of["data"] = map[string][]byte{"ca.crt": east.CA}, map[string]string{"further": "a"}
	of["metadata"].(map[string]any)["labels"] = map[string]string{"app": "vdo"}
	data, err := yaml.Marshal(of)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(string(data)+"---\napiVersion: vdo"+rest), 0o600))
	s.ok(byAuthority(t, west, "--vcenter", "east", "--write", file, "--yes")...)
	ca := as[corev1.ConfigMap](t, resources(t, file)["ConfigMap east-ca"])
	require.Equal(t, map[string]string{"ca.crt": string(west.CA), "further": "a"}, ca.Data)
	require.Equal(t, map[string]string{"app": "vdo"}, ca.Labels)

	// A vCenter that was to accept any certificate does so until something else is asked for.
	s.ok(append(answersFor(t, east, vcsim.Admin.Password), "--vcenter", "east", "--no-check", "--write", file, "--yes")...)
	anyOne := regexp.MustCompile(`(?m)^  thumbprint: .*\n`).ReplaceAllString(readFile(t, file), "")
	anyOne = strings.Replace(anyOne, "  vcIp:", "  insecure: true\n  vcIp:", 1)
	pinned := strings.Replace(anyOne, "  vcIp:", "  thumbprint: "+east.SHA256+"\n  vcIp:", 1)
	for _, c := range []struct {
		text, flag, value string
		accepts           bool
	}{
		{anyOne, "--upgrade", "Manual", true}, {anyOne, "--certificate", "system", false},
		{pinned, "--certificate", "system", false},
	} {
		require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
		s.ok("configure", "--username", vcsim.Admin.Username, "--no-check", "--write", file, "--yes", c.flag, c.value)
		spec := as[v1alpha1.VsphereCloudConfig](t, resources(t, file)["VsphereCloudConfig east"]).Spec
		require.Equal(t, c.accepts, spec.AnyCertificate(), "%s\n%s", c.flag, c.text)
		require.Empty(t, spec.Thumbprint)
	}
}

// An export of the cluster has what the operator and the API server put on resources.
func TestConfigureBeginsWithAnExportOfTheCluster(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	s.ok(byAuthority(t, east, "--vcenter", "east", "--yes")...)
	config, bundle, vcenter := s.config(), s.bundle(), s.vcenter("east")
	ca := &corev1.ConfigMap{ObjectMeta: s.meta("east-ca")}
	require.True(t, s.there(ca))
	config.Finalizers = []string{"vdo.vmware.com/drivers"}
	bundle.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "compat", UID: "a"}}
	ca.OwnerReferences, ca.Labels = bundle.OwnerReferences, map[string]string{"app": "vdo"}
	var items []client.Object
	for _, x := range []client.Object{config, bundle, vcenter, ca} {
		require.NotEmpty(t, x.GetUID())
		gvk, err := apiutil.GVKForObject(x, s.k.Scheme())
		require.NoError(t, err)
		x.GetObjectKind().SetGroupVersionKind(gvk)
		items = append(items, x)
	}
	data, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "site.yaml")
	require.NoError(t, os.WriteFile(file, data, 0o600))

	// Another cluster takes of it what it says, and not whose it was.
	other := newShop(t)
	otherFile := filepath.Join(t.TempDir(), "other.yaml")
	require.NoError(t, os.WriteFile(otherFile, []byte(strings.ReplaceAll(string(data), s.ns, other.ns)), 0o600))
	again := byAuthority(t, east, "--vcenter", "east", "--from-file", otherFile, "--yes")
	other.ok(again...)
	otherCA := &corev1.ConfigMap{ObjectMeta: other.meta("east-ca")}
	require.True(t, other.there(otherCA))
	for _, x := range []client.Object{other.config(), other.bundle(), other.vcenter("east"), otherCA} {
		require.Empty(t, x.GetOwnerReferences(), x.GetName())
		require.Empty(t, x.GetFinalizers(), x.GetName())
	}
	require.Equal(t, "vdo", otherCA.Labels["app"])

	s.ok("configure", "--vcenter", "east", "--no-check", "--upgrade", "Manual", "--write", file, "--yes")
	in := resources(t, file)
	require.Len(t, in, 4, in)
	require.Equal(t, v1alpha1.UpgradeManual, as[v1alpha1.VDOConfig](t, in["VDOConfig vdo"]).Spec.Upgrade)
	require.NotContains(t, readFile(t, file), "uid:")
}

// A file that somebody else wrote may name the Secret for an address of theirs.
func TestConfigureTriesAPasswordAtItsVCenterAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	file := filepath.Join(t.TempDir(), "site.yaml")
	s.ok(byAuthority(t, east, "--vcenter", "east", "--datacenters", "/elsewhere", "--yes")...)
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: vdo.vmware.com/v1alpha1\nkind: VsphereCloudConfig\n"+
		"metadata: {name: other}\nspec: {vcIp: localhost, credentials: east-account, datacenters: [/lab]}\n"), 0o600))
	for _, args := range [][]string{
		{"--vcenter", "east", "--server", "localhost"},
		{"--vcenter", "other", "--from-file", file, "--region-category", "k8s-region", "--zone-category", "k8s-zone"},
	} {
		out, code := s.run(append([]string{"configure", "--yes"}, args...)...)
		require.Equal(t, 2, code, out)
		require.Contains(t, out, "there is no password for localhost: the one in Secret east-account is for "+east.Host+"\n")
	}
	require.Contains(t, s.ok("configure", "--vcenter", "east", "--datacenters", "/lab", "--dry-run"), "spec.datacenters")
}
