package vdoctl_test

import (
	"os"
	"path/filepath"
	"regexp"
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
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
	return []string{"configure", "--bundle", "registry.site/vdo/drivers:1", "--server", v.Host, "--port", portOf(v), "--thumbprint", v.SHA256,
		"--username", vcsim.Admin.Username, "--password-file", file, "--datacenters", "/site/prod/east,/lab"}
}

func (s *shop) vcenter(name string) *v1alpha1.VsphereCloudConfig {
	s.t.Helper()
	var v v1alpha1.VsphereCloudConfig
	require.NoError(s.t, s.k.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &v))
	return &v
}

func TestConfigureByFlags(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, west := vcenters(t)
	all := answersFor(t, east, vcsim.Admin.Password)

	out, code := s.run("configure", "--server", "https://vc/", "--yes")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, `--server "https://vc/": a host name or IP address alone`)
	require.Contains(t, out, `--bundle "": it is needed`, "all that is wrong at once")
	for flag, want := range map[string]struct {
		value string
		code  int
		text  string
	}{
		"--datacenters": {"/no/such", 4, "hint: correct --datacenters"}, "--thumbprint": {"AA:" + east.SHA256[3:], 5, "set --thumbprint to the new one"}, "--port": {"1", 5, "hint: correct --server and --port"},
		"--vcenter":         {"A B", 2, "not a name of a resource"},
		"--region-category": {"k8s-region", 2, `--zone-category "": it is needed`}, "--zone-category": {"k8s-zone", 2, "zones need regions"}, "--drivers": {"none", 2, "not one of both, csi, cpi"},
	} {
		out, code = s.run(append(all[:len(all):len(all)], flag, want.value, "--yes", "--dry-run")...)
		require.Equal(t, want.code, code, "%s\n%s", flag, out)
		require.Contains(t, out, want.text)
	}
	for _, pair := range [][]string{{"--vcenter-ca-file", all[12]}, {"--certificate", "system"}, {"--certificate", "ca-file", "--vcenter-ca-file", all[12]}} {
		out, code = s.run(append(all[:len(all):len(all)], append(pair, "--yes", "--dry-run")...)...)
		require.Equal(t, 2, code, out)
		require.Contains(t, out, "give one of --thumbprint and --vcenter-ca-file")
	}
	out, code = s.run(append(answersFor(t, east, "canary-wrong"), "--yes")...)
	require.Equal(t, 6, code, out)
	require.NotContains(t, out, "canary")
	require.Contains(t, out, "hint: correct --username, or its password: --password-file")
	var none v1alpha1.VDOConfigList
	require.NoError(t, s.k.List(t.Context(), &none, client.InNamespace(s.ns)))
	require.Empty(t, none.Items, "nothing was written")

	out, code = s.run(all...)
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "there is no terminal")
	require.Contains(t, s.ok(append(all[:len(all):len(all)], "--dry-run")...), "Nothing was changed")
	out = s.ok(append(all[:len(all):len(all)], "--yes")...)
	require.Contains(t, out, "password: (hidden)")
	require.NotContains(t, out, vcsim.Admin.Password)
	require.Equal(t, "registry.site/vdo/drivers:1", s.bundle().Spec.Reference)
	require.Equal(t, []string{"/site/prod/east", "/lab"}, s.vcenter("vcenter").Spec.Datacenters)
	require.Equal(t, []string{"vcenter"}, s.config().Spec.CloudProvider.VsphereCloudConfigs)
	require.Equal(t, "vcenter", s.config().Spec.StorageProvider.VsphereCloudConfig)
	secret := &corev1.Secret{ObjectMeta: s.meta("vcenter-account")}
	require.True(t, s.there(secret))
	require.Equal(t, vcsim.Admin.Password, string(secret.Data["password"]))

	// A second run has nothing to do; one with other answers changes those alone.
	require.Contains(t, s.ok("configure", "--yes"), "all is as asked already")
	v := s.config()
	v.Spec.StorageProvider.Webhook = true
	require.NoError(t, s.k.Update(t.Context(), v))
	out = s.ok("configure", "--upgrade", "Manual", "--yes")
	require.Contains(t, out, "spec.upgrade: Automatic -> Manual")
	require.NotContains(t, out, "Secret")
	require.True(t, s.config().Spec.StorageProvider.Webhook, "what is not asked for stays")
	s.ok(append(answersFor(t, west, vcsim.Admin.Password), "--vcenter", "west", "--region-category", "r", "--zone-category", "z", "--yes")...)
	require.Equal(t, []string{"vcenter", "west"}, s.config().Spec.CloudProvider.VsphereCloudConfigs)
	require.Equal(t, []string{"west"}, s.config().Spec.StorageProvider.VsphereCloudConfigs)
	require.Equal(t, []string{"r", "z"}, s.config().Spec.StorageProvider.TopologyCategories)
}

func TestConfigureWritesFilesForGitOpsAndReadsThem(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	file := filepath.Join(t.TempDir(), "site.yaml")
	all := append(answersFor(t, east, vcsim.Admin.Password), "--write", file)
	out := s.ok(all...)
	require.Contains(t, out, "Secret vcenter-account")
	text := readFile(t, file)
	for _, kind := range []string{"kind: DriverBundle", "kind: VsphereCloudConfig", "kind: VDOConfig"} {
		require.Contains(t, text, kind)
	}
	require.NotContains(t, text, vcsim.Admin.Password)
	require.NotContains(t, text, "kind: Secret")

	// A file that is there is replaced with consent alone, and by no dry run.
	s.ok(all...)
	require.NoError(t, os.WriteFile(file, []byte("kept"), 0o600))
	out, code := s.run(all...)
	require.Equal(t, 8, code, out)
	require.Contains(t, out, file)
	out, code = s.run(append(all[:len(all):len(all)], "--dry-run")...)
	require.Equal(t, 2, code, out)
	require.Equal(t, "kept", readFile(t, file))
	s.ok(append(all[:len(all):len(all)], "--yes")...)
	require.Equal(t, text, readFile(t, file))

	var none v1alpha1.VDOConfigList
	require.NoError(t, s.k.List(t.Context(), &none, client.InNamespace(s.ns)))
	require.Empty(t, none.Items, "nothing was written to the cluster")
	password := all[12]
	require.Equal(t, "--password-file", all[11])
	out = s.ok("configure", "--from-file", file, "--username", vcsim.Admin.Username, "--password-file", password, "--upgrade", "Manual", "--yes", "-o", "json")
	require.Contains(t, out, "spec.upgrade")
	require.Equal(t, v1alpha1.UpgradeManual, s.config().Spec.Upgrade)
	require.Equal(t, east.SHA256, s.vcenter("vcenter").Spec.Thumbprint)
	out, code = s.run("configure", "--from-file", filepath.Join(t.TempDir(), "none.yaml"), "--yes")
	require.Equal(t, 4, code, out)

	// What the operator would not read, and what it would look for at Docker Hub, is refused.
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	refused := func(text string, says ...string) {
		t.Helper()
		require.NoError(t, os.WriteFile(wrong, []byte(text), 0o600))
		out, code := s.run("configure", "--from-file", wrong, "--username", vcsim.Admin.Username, "--password-file", password, "--yes")
		require.Equal(t, 2, code, out)
		for _, word := range says {
			require.Contains(t, out, word)
		}
	}
	refused(strings.ReplaceAll(text, "namespace: "+s.ns, "namespace: default"), "namespace default", s.ns, "VDOConfig default/", "DriverBundle default/")
	refused(regexp.MustCompile(`reference: .*`).ReplaceAllString(text, "reference: vdo/drivers:1"), "vdo/drivers:1", "names no registry")
	out, code = s.run(append(slices.Clone(all), "--bundle", "vdo/drivers:1")...)
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "names no registry")
}
