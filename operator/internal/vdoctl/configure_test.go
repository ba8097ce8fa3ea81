package vdoctl_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// answersFor are the flags that answer all questions about a vCenter.
func answersFor(t *testing.T, v *vcsim.VCenter, password string) []string {
	t.Helper()
	file := fileOf(t, "password", password+"\n")
	return []string{"configure", "--bundle", "registry.site/vdo/drivers:1", "--server", v.Host, "--port", portOf(v), "--thumbprint", v.SHA256,
		"--username", vcsim.Admin.Username, "--password-file", file, "--datacenters", "/site/prod/east,/lab"}
}

func (s *shop) vcenter(name string) *v1alpha1.VsphereCloudConfig {
	return got(s, &v1alpha1.VsphereCloudConfig{ObjectMeta: s.meta(name)})
}

func TestConfigureByFlags(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, west := vcenters(t)
	all := answersFor(t, east, vcsim.Admin.Password)

	s.run("configure", "--server", "https://vc/", "--yes").is(2, `--server "https://vc/": `, `--bundle "": `) // all at once
	for _, want := range []struct {
		flag, value string
		code        int
		text        string
	}{
		{"--datacenters", "/no/such", 4, "hint: correct --datacenters"},
		{"--thumbprint", west.SHA256, 5, "set --thumbprint to the new one"},
		{"--port", "1", 5, "hint: correct --server and --port"},
	} {
		args := slices.Concat(all, []string{want.flag, want.value, "--yes", "--dry-run"})
		s.run(args...).is(want.code, want.text)
	}
	out := s.run(append(answersFor(t, east, "canary-wrong"), "--yes")...).is(6)
	require.NotContains(t, out, "canary")
	require.Contains(t, out, "hint: correct --username, or its password: --password-file")
	require.False(t, s.there(&v1alpha1.VDOConfig{ObjectMeta: s.meta("vdo")}), "nothing was written")

	s.run(all...).is(8, "there is no terminal")
	require.Contains(t, s.ok(append(all[:len(all):len(all)], "--dry-run")...), "Nothing was changed")
	out = s.run(append(all[:len(all):len(all)], "--yes")...).is(0, "password: (hidden)")
	require.NotContains(t, out, vcsim.Admin.Password)
	require.Equal(t, "registry.site/vdo/drivers:1", s.bundle().Spec.Reference)
	require.Equal(t, []string{"/site/prod/east", "/lab"}, s.vcenter("vcenter").Spec.Datacenters)
	require.Equal(t, []string{"vcenter"}, s.config().Spec.CloudProvider.VsphereCloudConfigs)
	require.Equal(t, "vcenter", s.config().Spec.StorageProvider.VsphereCloudConfig)
	secret := got(s, &corev1.Secret{ObjectMeta: s.meta("vcenter-account")})
	require.Equal(t, vcsim.Admin.Password, string(secret.Data["password"]))

	// The account of one vCenter goes to no other one.
	s.run("configure", "--server", "vc.site", "--yes").is(2, "--username", "is of "+east.Host)

	// A second run has nothing to do; one with other answers changes those alone.
	require.Contains(t, s.ok("configure", "--yes"), "all is as asked already")
	v := s.config()
	v.Spec.StorageProvider.Webhook = true
	require.NoError(t, s.k.Update(t.Context(), v))
	out = s.run("configure", "--upgrade", "Manual", "--yes").is(0, "spec.upgrade: Automatic -> Manual")
	require.NotContains(t, out, "Secret")
	require.True(t, s.config().Spec.StorageProvider.Webhook, "what is not asked for stays")
	s.ok(append(answersFor(t, west, vcsim.Admin.Password), "--vcenter", "west", "--region-category", "r", "--zone-category", "z", "--yes")...)
	require.Equal(t, []string{"vcenter", "west"}, s.config().Spec.CloudProvider.VsphereCloudConfigs)
	require.Equal(t, []string{"west"}, s.config().Spec.StorageProvider.VsphereCloudConfigs)
	require.Equal(t, []string{"r", "z"}, s.config().Spec.StorageProvider.TopologyCategories)
	require.Equal(t, "west-account", s.vcenter("west").Spec.Credentials, "an account of its own")
	require.Equal(t, "vcenter-account", s.vcenter("vcenter").Spec.Credentials)
}

func TestConfigureWritesFilesForGitOpsAndReadsThem(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	file := filepath.Join(t.TempDir(), "site.yaml")
	all := append(answersFor(t, east, vcsim.Admin.Password), "-o", file)
	out := s.ok(all...)
	require.Contains(t, out, "Written: "+file+"\n")
	require.Contains(t, out, "The account goes to the Secret vcenter-account in namespace "+s.ns+". Its type is kubernetes.io/basic-auth")
	text := readFile(t, file)
	for _, kind := range []string{"kind: DriverBundle", "kind: VsphereCloudConfig", "kind: VDOConfig"} {
		require.Contains(t, text, kind)
	}
	require.NotContains(t, text, vcsim.Admin.Password)
	require.NotContains(t, text, "kind: Secret")

	// A file that is there is replaced with consent alone, and by no dry run.
	s.ok(all...)
	require.NoError(t, os.WriteFile(file, []byte(text+"# kept\n"), 0o600))
	out = s.run(all...).is(8, file)
	require.NotContains(t, out, "The account goes", "nothing was written")
	s.run(append(all[:len(all):len(all)], "--dry-run")...).is(2)
	require.Equal(t, text+"# kept\n", readFile(t, file))
	s.ok(append(all[:len(all):len(all)], "--yes")...)
	require.Equal(t, text, readFile(t, file))

	require.NoError(t, os.WriteFile(file, nil, 0o600))
	s.ok(append(all[:len(all):len(all)], "--yes")...)
	require.Equal(t, text, readFile(t, file))

	require.False(t, s.there(&v1alpha1.VDOConfig{ObjectMeta: s.meta("vdo")}), "nothing was written to the cluster")
	password := all[12]
	require.Equal(t, "--password-file", all[11])
	s.run("configure", "--from-file", file, "--username", vcsim.Admin.Username, "--password-file", password, "--upgrade", "Manual", "--yes", "-o", "json").is(0,
		"spec.upgrade")
	require.Equal(t, v1alpha1.UpgradeManual, s.config().Spec.Upgrade)
	require.Equal(t, east.SHA256, s.vcenter("vcenter").Spec.Thumbprint)
	s.run("configure", "--from-file", filepath.Join(t.TempDir(), "none.yaml"), "--yes").is(4)
}

// A file may hold all that a site applies: no one is asked what is in it, and nothing that its
// vCenters need is left out.
func TestConfigureTakesAllOfAFile(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, west := vcenters(t)
	both := strings.Replace(bothVCenters, ", namespace: vmware-system-vdo", "", 1) + `---
apiVersion: vdo.vmware.com/v1alpha1
kind: DriverBundle
metadata: {name: drivers}
spec: {reference: "registry.site/vdo/drivers:1"}
`
	whole := strings.ReplaceAll(site(east, west, vcsim.Admin.Password), ", namespace: vmware-system-vdo", "")
	whole = strings.Replace(whole, fmt.Sprintf("thumbprint: %q", west.SHA256), "ca: {configMap: authority}", 1) + both + `---
apiVersion: v1
kind: ConfigMap
metadata: {name: authority}
data: {ca.crt: "` + strings.ReplaceAll(string(west.CA), "\n", "\\n") + `"}
`
	file := filepath.Join(t.TempDir(), "site.yaml")
	write := func(text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write(whole)
	out := s.ok("configure", "--from-file", file, "--yes")
	require.NotContains(t, out, vcsim.Admin.Password)
	secret := &corev1.Secret{ObjectMeta: s.meta("vc")}
	require.True(t, s.there(secret) && s.there(&corev1.ConfigMap{ObjectMeta: s.meta("authority")}), out)
	require.Equal(t, vcsim.Admin.Password, string(secret.Data["password"]))
	require.Equal(t, east.SHA256, s.vcenter("east").Spec.Thumbprint)
	require.Equal(t, "authority", s.vcenter("west").Spec.CA.ConfigMap)
	require.Equal(t, []string{"east"}, s.config().Spec.CloudProvider.VsphereCloudConfigs, "as the file has it")

	// Once more: defaults of the API server are no change, and the Secret may be in the cluster alone.
	require.Contains(t, s.ok("configure", "--from-file", file, "--yes"), "all is as asked already")
	_, rest, _ := strings.Cut(whole, "---\n")
	write(rest)
	require.Contains(t, s.ok("configure", "--from-file", file, "--yes"), "all is as asked already")
	write(strings.Replace(rest, "spec: {reference", "spec: {interval: 20m, reference", 1))
	out = s.run("configure", "--from-file", file, "--dry-run").is(0, "spec.interval: 10m -> 20m0s")
	require.NotContains(t, out, "onDelete")

	// All that is wrong, at once: with the flags, the file, and what the API server says.
	refused := func(text string, code int, args []string, says ...string) {
		t.Helper()
		write(text)
		s.run(append([]string{"configure", "--from-file", file, "--yes"}, args...)...).is(code, says...)
	}
	refused(strings.Replace(rest, "spec: {reference", "spec: {referense", 1), 2, []string{"--port", "a", "--username", "vdo"},
		`unknown field "spec.referense"`, "--port", "--username")
	refused(strings.Replace(rest, "spec: {reference", "spec: {versions: never, reference", 1), 2, nil,
		"apply DriverBundle "+s.ns+"/drivers", "spec.versions")
	s.create(&v1alpha1.VDOConfig{ObjectMeta: s.meta("a-second"), Spec: s.config().Spec}) // the operator refuses it
	refused(rest, 8, nil, "there are 2")
	served := s.config()
	served.Finalizers = []string{v1alpha1.FinalizerDrivers}
	require.NoError(t, s.k.Update(t.Context(), served))
	refused(rest, 0, nil, "all is as asked already")
	refused(strings.Replace(rest, "{name: vdo}", "{name: a-second}", 1), 8, nil, "the cluster has another one, vdo")
}

// What a file names is written with it; what the cluster has beside is kept, and what is not
// asked for is not made.
func TestConfigureWritesWhatAFileNamesAndNoMore(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, west := vcenters(t)
	whole := strings.ReplaceAll(site(east, west, vcsim.Admin.Password), ", namespace: vmware-system-vdo", "")
	before, of, _ := strings.Cut(whole, "metadata: {name: west}")
	of = strings.Replace(of, "credentials: vc", "credentials: west-login", 1)
	of = strings.Replace(of, fmt.Sprintf("thumbprint: %q", west.SHA256), "ca: {secret: west-login}", 1)
	whole = before + "metadata: {name: west}" + of + `---
apiVersion: vdo.vmware.com/v1alpha1
kind: VDOConfig
metadata: {name: vdo}
spec:
  cloudProvider: {vsphereCloudConfigs: [east, west]}
  storageProvider: {vsphereCloudConfigs: [east, west], topologyCategories: [k8s-region, k8s-zone]}
---
apiVersion: vdo.vmware.com/v1alpha1
kind: DriverBundle
metadata: {name: drivers}
spec:
  reference: registry.site/vdo/drivers:1
  ca: {configMap: registry-ca}
  pullSecret: {name: mirror}
  trust: {keys: [{id: a, from: {configMap: keys, key: a.pub}}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: registry-ca}
data: {ca.crt: "x"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: keys}
data: {a.pub: "x"}
---
apiVersion: v1
kind: Secret
metadata: {name: mirror}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: '{"auths":{"mirror.site":{"auth":"Y2FuYXJ5"}}}'}
---
apiVersion: v1
kind: Secret
metadata: {name: west-login}
type: kubernetes.io/basic-auth
stringData: {username: u, password: new}
`
	login := &corev1.Secret{ObjectMeta: s.meta("west-login"), Type: corev1.SecretTypeBasicAuth, Data: map[string][]byte{"username": []byte("u"), "password": []byte("old"), "ca.crt": west.CA}}
	require.NoError(t, s.k.Create(t.Context(), login))
	file := fileOf(t, "site.yaml", whole)
	out := s.run("configure", "--from-file", file, "--yes", "--vcenter", "east").is(8)
	require.Contains(t, out, "take them over with --force-conflicts", "somebody else set the password")
	out = s.ok("configure", "--from-file", file, "--yes", "--vcenter", "east", "--force-conflicts")
	require.NotContains(t, out, "Y2FuYXJ5")
	for _, x := range []client.Object{&corev1.ConfigMap{ObjectMeta: s.meta("registry-ca")}, &corev1.ConfigMap{ObjectMeta: s.meta("keys")}, &corev1.Secret{ObjectMeta: s.meta("mirror")}} {
		require.True(t, s.there(x), "the bundle names %s\n%s", x.GetName(), out)
	}
	require.True(t, s.there(login))
	require.Equal(t, "new", string(login.Data["password"]))
	require.Equal(t, west.CA, login.Data["ca.crt"], "the file does not have it")
	require.Nil(t, s.config().Spec.CloudProvider.Topology, "the file has categories for storage alone")
	require.Len(t, s.config().Spec.StorageProvider.TopologyCategories, 2)

	s.ok("configure", "--from-file", file, "--yes", "--vcenter", "east", "--region-category", "k8s-region", "--zone-category", "k8s-zone")
	require.Equal(t, "k8s-zone", s.config().Spec.CloudProvider.Topology.Zone, "it is asked for")
}

// What a site has withdrawn from its file is trusted no more. Other ConfigMaps keep keys that the file does not
// have. The operator reads binaryData too, as `kubectl create configmap --from-file` makes it; a key is in one of both.
func TestConfigureWritesConfigMapsAsTheFileHasThem(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	file := filepath.Join(t.TempDir(), "site.yaml")
	all := append(answersFor(t, east, vcsim.Admin.Password), "--no-check")
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
