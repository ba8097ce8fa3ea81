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
	"k8s.io/client-go/tools/clientcmd"
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
	cfg, err := clientcmd.LoadFromFile(s.conf)
	require.NoError(t, err)
	require.Contains(t, out, "Begun with what the cluster at "+cfg.Clusters[cfg.Contexts[cfg.CurrentContext].Cluster].Server+" has.\n")
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

// What configure does not write would be deleted from a site that applies the file, and deletes
// what is no longer in it.
func TestConfigureDoesNotReplaceAFileThatHasMore(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	dir := t.TempDir()
	file, other := filepath.Join(dir, "site.yaml"), filepath.Join(dir, "other.yaml")
	all := byAuthority(t, east, "--vcenter", "east")
	s.ok(append(all, "--write", file)...)
	text := readFile(t, file)
	require.NoError(t, os.WriteFile(other, []byte(text), 0o600))
	for more, names := range map[string]string{
		"---\napiVersion: v1\nkind: Secret\nmetadata: {name: vdo-registry}\ntype: Opaque\nstringData: {a: canary}\n":                                                                                   "Secret vdo-registry",
		"---\napiVersion: v1\nkind: Secret\nmetadata: {name: east-account, namespace: NS}\ntype: kubernetes.io/basic-auth\nstringData: {username: a@b, password: canary}\n":                            "Secret NS/east-account",
		"---\napiVersion: example.com/v1\nkind: Thing\nmetadata: {name: one}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine, namespace: NS}\n":                                           "Thing one, ConfigMap NS/mine",
		"---\napiVersion: vdo.vmware.com/v1alpha1\nkind: DriverBundle\nmetadata: {name: services, namespace: vmware-system-sip}\nspec: {reference: registry.site/sip:1}\n":                             "DriverBundle vmware-system-sip/services",
		"---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: NS}}\n":                 "ConfigMap b, ConfigMap NS/c",
		"---\r\napiVersion: v1\r\nkind: ConfigMap\r\nmetadata: {name: one}\r\n---\r\napiVersion: v1\r\nkind: ConfigMap\r\nmetadata: {name: two}\r\n":                                                   "ConfigMap one, ConfigMap two",
		"---\napiVersion: vdo.vmware.com/v1alpha1\nkind: VsphereCloudConfig\nmetadata: {name: north}\nspec: {vcIp: vc, credentials: north-account, ca: {configMap: east-ca}, datacenters: [/other]}\n": "VsphereCloudConfig north",
	} {
		more, names := strings.ReplaceAll(more, "NS", s.ns), strings.ReplaceAll(names, "NS", s.ns)
		require.NoError(t, os.WriteFile(file, []byte(text+more), 0o600))
		args := [][]string{{}, {"--from-file", other}}
		if strings.HasPrefix(names, "VsphereCloudConfig") {
			args = args[1:] // the first keeps it
		}
		for _, from := range args {
			out, code := s.run(append(append(all[:len(all):len(all)], "--upgrade", "Manual", "--write", file, "--yes"), from...)...)
			require.Equal(t, 8, code, out)
			require.Contains(t, out, "write "+file+": what configure does not write would be lost: "+names+"\n")
			require.Contains(t, out, "hint: put that into a file of its own; or write to another file")
			require.NotContains(t, out, "canary")
			require.Equal(t, text+more, readFile(t, file))
		}
	}
	text = strings.Replace(text, "  name: east\n", "  name: east\n  labels: {app: vdo, site: one}\n  finalizers: [a.b/c]\n", 1)
	text = strings.Replace(text, "data:\n", "data:\n  further: a\n", 1)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	out, code := s.run(append(all[:len(all):len(all)], "--write", file, "--from-file", other, "--yes")...)
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "would be lost: data.further of ConfigMap "+s.ns+"/east-ca, metadata.finalizers and metadata.labels.app and metadata.labels.site of VsphereCloudConfig "+s.ns+"/east\n")
	require.Equal(t, text, readFile(t, file))
}

// What configure itself made, and what others put on it, does not keep it from running again.
func TestConfigureRunsAgainOnItsFile(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, west := vcenters(t)
	file := filepath.Join(t.TempDir(), "site.yaml")
	byCA := byAuthority(t, east, "--vcenter", "east", "--write", file, "--yes")
	byThumbprint := append(answersFor(t, east, vcsim.Admin.Password), "--vcenter", "east", "--no-check", "--write", file, "--yes")
	s.ok(byCA...)
	text := readFile(t, file)
	write := func(text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	first, rest, ok := strings.Cut(text, "---\napiVersion: vdo")
	require.True(t, ok)
	last := "---\napiVersion: vdo" + rest + first
	for name, again := range map[string]struct {
		text string
		args []string
	}{
		"by its thumbprint": {text, byThumbprint}, "by public authorities": {text, []string{"configure", "--vcenter", "east", "--certificate", "system", "--username", vcsim.Admin.Username, "--no-check", "--write", file, "--yes"}},
		"the ConfigMap comes last": {last, byThumbprint},
	} {
		write(again.text)
		require.Contains(t, s.ok(again.args...), "ConfigMap "+s.ns+"/east-ca goes out of the file", name)
		in := resources(t, file)
		require.Len(t, in, 3, "%s: %v", name, in)
		require.Nil(t, as[v1alpha1.VsphereCloudConfig](t, in["VsphereCloudConfig east"]).Spec.CA, name)
	}

	// With labels of others, or in place of the CA a key of theirs, it is not configure's own.
	for _, theirs := range []string{strings.Replace(text, "  name: east-ca\n", "  name: east-ca\n  labels: {app: theirs}\n", 1),
		strings.Replace(text, "  name: east-ca\n", "  name: east-ca\n  annotations: {keep: this}\n", 1), strings.Replace(text, "  ca.crt: |\n", "  theirs.crt: |\n", 1)} {
		require.NotEqual(t, text, theirs)
		write(theirs)
		out, code := s.run(byThumbprint...)
		require.Equal(t, 8, code, out)
		require.Contains(t, out, "would be lost: ConfigMap "+s.ns+"/east-ca\n")
		require.Equal(t, theirs, readFile(t, file))
	}

	// As `kubectl create configmap --from-file` makes it, it is configure's all the same.
	of := resources(t, file)["ConfigMap east-ca"]
	delete(of, "data")
	of["binaryData"] = map[string][]byte{"ca.crt": east.CA}
	data, err := yaml.Marshal(of)
	require.NoError(t, err)
	write(string(data) + "---\napiVersion: vdo" + rest)
	s.ok(byAuthority(t, west, "--vcenter", "east", "--write", file, "--yes")...)
	require.Equal(t, map[string]string{"ca.crt": string(west.CA)}, as[corev1.ConfigMap](t, resources(t, file)["ConfigMap east-ca"]).Data)
	applied := "  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}'}\n  name: east-ca\n"
	write(strings.Replace(string(data), "  name: east-ca\n", applied, 1) + "---\napiVersion: vdo" + rest)
	require.Contains(t, readFile(t, file), applied)
	s.ok(byThumbprint...)

	// A vCenter that was to accept any certificate does so until something else is asked for.
	anyOne := regexp.MustCompile(`(?m)^  thumbprint: .*\n`).ReplaceAllString(readFile(t, file), "")
	anyOne = strings.Replace(anyOne, "  vcIp:", "  insecure: true\n  vcIp:", 1)
	pinned := strings.Replace(anyOne, "  vcIp:", "  thumbprint: "+east.SHA256+"\n  vcIp:", 1)
	for _, c := range []struct {
		text, flag, value string
		accepts           bool
	}{{anyOne, "--upgrade", "Manual", true}, {anyOne, "--certificate", "system", false}, {pinned, "--certificate", "system", false}} {
		write(c.text)
		s.ok("configure", "--username", vcsim.Admin.Username, "--no-check", "--write", file, "--yes", c.flag, c.value)
		spec := as[v1alpha1.VsphereCloudConfig](t, resources(t, file)["VsphereCloudConfig east"]).Spec
		require.Equal(t, c.accepts, spec.AnyCertificate(), "%s\n%s", c.flag, c.text)
		require.Empty(t, spec.Thumbprint)
	}

	// Labels, annotations and keys stay. With a key of somebody's, it is no more configure's own.
	more := strings.Replace(text, "data:\n", "immutable: true\nbinaryData: {der: YQ==}\ndata:\n  further: a\n", 1)
	more = strings.Replace(more, "  name: east-ca\n", "  name: east-ca\n  labels: {app: vdo}\n  annotations: {a: b}\n", 1)
	write(more)
	s.ok(byCA...)
	s.ok(byAuthority(t, west, "--vcenter", "east", "--write", file, "--yes")...)
	ca := as[corev1.ConfigMap](t, resources(t, file)["ConfigMap east-ca"])
	require.Equal(t, map[string]string{"ca.crt": string(west.CA), "further": "a"}, ca.Data)
	require.Equal(t, []byte("a"), ca.BinaryData["der"])
	require.Equal(t, map[string]string{"app": "vdo"}, ca.Labels)
	require.Equal(t, map[string]string{"a": "b"}, ca.Annotations)
	require.True(t, *ca.Immutable)
	out, code := s.run(byThumbprint...)
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "would be lost: ConfigMap "+s.ns+"/east-ca\n")
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

	// Whoever keeps the ConfigMap in a file of its own does not get it back from the cluster.
	text := readFile(t, file)
	at := strings.Index(text, "---\napiVersion: vdo")
	require.Contains(t, text[:at], "kind: ConfigMap")
	require.NoError(t, os.WriteFile(file, []byte(text[at:]), 0o600))
	s.ok("configure", "--vcenter", "east", "--no-check", "--upgrade", "Automatic", "--write", file, "--yes")
	require.Equal(t, strings.Replace(text[at:], "upgrade: Manual", "upgrade: Automatic", 1), readFile(t, file))
}

// The kubeconfig that is set may be of another site than the file.
func TestConfigureWritesTheFileOfAnotherSiteThanTheClusters(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, west := vcenters(t)
	file := filepath.Join(t.TempDir(), "site-b.yaml")
	s.ok(append(byAuthority(t, west, "--vcenter", "east"), "--write", file)...)
	text := strings.Replace(readFile(t, file), "  name: vdo\n", "  name: site-b\n", 1)
	_, text, _ = strings.Cut(text, "---\napiVersion: vdo") // its CA is written by somebody else
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: vdo"+text), 0o600))
	s.ok(byAuthority(t, east, "--vcenter", "east", "--datacenters", "/elsewhere", "--yes")...)

	change := []string{"configure", "--vcenter", "east", "--username", vcsim.Admin.Username, "--no-check", "--upgrade", "Manual", "--yes"}
	out := s.ok(append(change, "--write", file)...)
	require.Contains(t, out, "The cluster has another VDOConfig than site-b: nothing is taken of it.\n")
	in := resources(t, file)
	require.Len(t, in, 3, in)
	require.Equal(t, v1alpha1.UpgradeManual, as[v1alpha1.VDOConfig](t, in["VDOConfig site-b"]).Spec.Upgrade)
	require.Equal(t, int32(west.Port), as[v1alpha1.VsphereCloudConfig](t, in["VsphereCloudConfig east"]).Spec.Port)
	out, code := s.run(append(change, "--from-file", file)...)
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "the cluster has another one, vdo, and the operator takes no second")

	// Most sites have the names that configure gives: then the addresses tell them apart.
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: vdo"+strings.Replace(text, "name: site-b", "name: vdo", 1)), 0o600))
	before := readFile(t, file)
	out = s.ok(append(change, "--write", file)...)
	require.Contains(t, out, "The cluster is another site's, where VsphereCloudConfig east has another address there, "+east.Address()+" and not "+west.Address()+": nothing is taken of it.\n")
	require.Len(t, resources(t, file), 3, "without the cluster's authority")
	require.NoError(t, os.WriteFile(file, []byte(before), 0o600))
	out, code = s.run("configure", "--vcenter", "east", "--username", vcsim.Admin.Username, "--write", file, "--yes")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "there is no password", "the cluster's goes to no other vCenter")
	out = s.ok(append(change, "--write", file, "--port", portOf(east))...)
	require.NotContains(t, out, "nothing is taken", "the file is moved to where the cluster's is")

	out, code = s.run("configure", "--vcenter", "east", "--server", "localhost", "--yes")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "there is no password for localhost: the one in Secret east-account is for "+east.Host+"\n")
	// So it is where another resource names the Secret.
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: vdo.vmware.com/v1alpha1\nkind: VsphereCloudConfig\nmetadata: {name: other}\n"+
		"spec: {vcIp: localhost, credentials: east-account, datacenters: [/lab]}\n"), 0o600))
	out, code = s.run("configure", "--vcenter", "other", "--from-file", file, "--region-category", "k8s-region", "--zone-category", "k8s-zone", "--yes")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "there is no password for localhost: the one in Secret east-account is for "+east.Host+"\n")
	out = s.ok("configure", "--vcenter", "east", "--datacenters", "/lab", "--dry-run")
	require.Contains(t, out, "spec.datacenters")
}
