package vdoctl_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// shopOfAFile has a vCenter in the cluster as it is in a file, which is returned with its text.
func shopOfAFile(t *testing.T) (s *shop, file, site string) {
	t.Helper()
	s = newShop(t)
	east, _ := vcenters(t)
	file = filepath.Join(t.TempDir(), "site.yaml")
	all := byAuthority(t, east, "--vcenter", "east")
	s.ok(append(all, "--write", file)...)
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
	trusted := func() *corev1.ConfigMap {
		t.Helper()
		out := &corev1.ConfigMap{ObjectMeta: s.meta("vdo-trust")}
		require.True(t, s.there(out))
		return out
	}
	ca := &corev1.ConfigMap{ObjectMeta: s.meta("vdo-registry-ca"), Data: map[string]string{"ca.crt": "c", "theirs": "d"}}
	require.NoError(t, s.k.Create(t.Context(), ca))
	for name, c := range map[string]struct {
		has, says map[string]string
		shows     []string
	}{
		"a key":               {map[string]string{"old.pub": "o", "new.pub": "n"}, map[string]string{"new.pub": "n"}, []string{"data.old.pub: o -> none"}},
		"a policy, for a key": {map[string]string{"policy.yaml": "p", "vdo.pub": "v"}, map[string]string{"cosign.pub": "c"}, []string{"data.policy.yaml: p -> none", "data.vdo.pub: v -> none", "data.cosign.pub: c"}},
		"a key of a policy":   {map[string]string{"policy.yaml": policy + "keys: [a, b]\n"}, map[string]string{"policy.yaml": policy + "keys: [a]\n"}, []string{"data.policy.yaml: 129 bytes, sha256:", "-> 126 bytes, sha256:"}},
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
		require.Contains(t, out, "ConfigMap "+s.ns+"/vdo-trust (changed)", name)
		require.NotContains(t, out, "vdo-registry-ca", name)
		require.Equal(t, c.says, trusted().Data, name)
		require.Contains(t, s.ok("configure", "--from-file", file, "--no-check", "--yes"), "all is as asked already", name)
	}
	ca = &corev1.ConfigMap{ObjectMeta: s.meta("vdo-registry-ca")}
	require.True(t, s.there(ca))
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
	has := func(name string) *corev1.ConfigMap {
		t.Helper()
		out := &corev1.ConfigMap{ObjectMeta: s.meta(name)}
		require.True(t, s.there(out))
		return out
	}
	out := says("vdo-registry-ca", "binaryData: {ca.crt: AAECbmV3}")
	require.Contains(t, out, "ConfigMap "+s.ns+"/vdo-registry-ca (new)\n  binaryData.ca.crt: 6 bytes, sha256:")
	require.NotContains(t, out, "AAEC")
	require.Equal(t, []byte("\x00\x01\x02new"), has("vdo-registry-ca").BinaryData["ca.crt"])
	out = says("vdo-registry-ca", "data: {ca.crt: text}")
	require.Contains(t, out, "data.ca.crt: text")
	require.Empty(t, has("vdo-registry-ca").BinaryData, "a key is in one of both")
	out = says("vdo-registry-ca", "binaryData: {ca.crt: AAEC, theirs: AA==}")
	require.Contains(t, out, "data.ca.crt: text -> none")
	says("vdo-registry-ca", "binaryData: {ca.crt: AAED}")
	require.Empty(t, has("vdo-registry-ca").Data)
	require.Equal(t, map[string][]byte{"ca.crt": {0, 1, 3}, "theirs": {0}}, has("vdo-registry-ca").BinaryData)

	says("vdo-trust", "binaryData: {old.pub: AAEC}")
	out = says("vdo-trust", "data: {new.pub: key}")
	require.Contains(t, out, "binaryData.old.pub: 3 bytes, sha256:")
	require.Empty(t, has("vdo-trust").BinaryData)
	require.Equal(t, map[string]string{"new.pub": "key"}, has("vdo-trust").Data)
}
