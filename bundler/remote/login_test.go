package remote_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

func loginClient(t *testing.T, reg *registry.Registry) *remote.Client {
	t.Helper()
	o := remote.Options{CA: reg.CA(), Attempts: 1}
	if !reg.TLS() {
		o.PlainHTTP = []string{reg.Host}
	}
	c, err := remote.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// A login is kept once the registry has let it in, beside what else the file holds, and
// is found afterwards by what looks for logins.
func TestALoginIsCheckedKeptFoundAndForgotten(t *testing.T) {
	for name, how := range map[string]registry.Auth{"basic": registry.Basic, "token": registry.Token} {
		t.Run(name, func(t *testing.T) {
			reg := registry.Start(t, registry.Options{TLS: true, Auth: how})
			c := loginClient(t, reg)
			file := filepath.Join(t.TempDir(), "new", "auth.json")
			t.Setenv("REGISTRY_AUTH_FILE", file)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
			other := `{"auths":{"other.site":{"auth":"` + auth("o", "p") + `"}},"HttpHeaders":{"X":"y"}}`
			require.NoError(t, os.WriteFile(file, []byte(other), 0o600))

			_, err := c.Login(t.Context(), reg.Host, remote.Credential{Username: reg.Username, Password: "wrong-canary"}, file)
			wantFault(t, err, fault.Unauthorized, reg.Host)
			require.NotContains(t, fault.Text(err), "canary")
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, other, string(data), "what was refused is not kept")

			login := remote.Credential{Username: reg.Username, Password: reg.Password}
			in, err := c.Login(t.Context(), reg.Host, login, file)
			require.NoError(t, err)
			require.Equal(t, remote.LoggedIn{Where: file, Checked: true}, in)
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.EqualValues(t, 0o600, info.Mode().Perm())
			found, err := remote.DefaultCredentials(t.Context(), reg.Host, "a/b")
			require.NoError(t, err)
			require.Equal(t, login, found)
			found, err = remote.DefaultCredentials(t.Context(), "other.site", "x")
			require.NoError(t, err)
			require.Equal(t, "o", found.Username)
			var whole map[string]json.RawMessage
			data, err = os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(data, &whole))
			require.JSONEq(t, `{"X":"y"}`, string(whole["HttpHeaders"]))

			_, err = remote.Logout(t.Context(), reg.Host, file)
			require.NoError(t, err)
			_, err = remote.Logout(t.Context(), reg.Host, file)
			wantFault(t, err, fault.NotFound, "has no login for it")
			found, err = remote.DefaultCredentials(t.Context(), reg.Host, "a/b")
			require.NoError(t, err)
			require.Equal(t, remote.Credential{}, found)
		})
	}
}

// What the file says of helpers holds for a login too: it is kept by the helper, and
// the file is left alone. A link stays a link.
func TestALoginIsKeptWhereTheConfigurationSays(t *testing.T) {
	reg := registry.Start(t, registry.Options{TLS: true, Auth: registry.Basic})
	c := loginClient(t, reg)
	login := remote.Credential{Username: reg.Username, Password: reg.Password}
	dir := t.TempDir()
	script := `#!/bin/sh
case "$1" in
store) cat > "` + dir + `/kept" ;;
get) test -f "` + dir + `/kept" && cat "` + dir + `/kept" || { echo 'credentials not found in native keychain'; exit 1; } ;;
erase) rm "` + dir + `/kept" ;;
esac`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker-credential-drawer"), []byte(script), 0o700)) //nolint:gosec // a program
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	file := filepath.Join(dir, "config.json")
	text := `{"credHelpers":{"` + reg.Host + `":"drawer"}}`
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	in, err := c.Login(t.Context(), reg.Host, login, file)
	require.NoError(t, err)
	require.Equal(t, "docker-credential-drawer", in.Where)
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, text, string(data))
	data, err = os.ReadFile(filepath.Join(dir, "kept"))
	require.NoError(t, err)
	require.JSONEq(t, `{"ServerURL":"`+reg.Host+`","Username":"`+reg.Username+`","Secret":"`+reg.Password+`"}`, string(data))
	_, err = remote.Logout(t.Context(), reg.Host, file)
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(dir, "kept"))

	require.NoError(t, os.WriteFile(file, []byte("{}"), 0o600))
	link := filepath.Join(dir, "link.json")
	require.NoError(t, os.Symlink(file, link))
	for _, led := range []string{"to a file", "to nothing yet"} {
		in, err = c.Login(t.Context(), reg.Host, login, link)
		require.NoError(t, err, led)
		require.Equal(t, file, in.Where, led)
		info, err := os.Lstat(link)
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&os.ModeSymlink, led)
		data, err = os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(data), reg.Host)
		require.NoError(t, os.Remove(file))
	}

	circle := filepath.Join(dir, "circle.json")
	require.NoError(t, os.Symlink("circle.json", circle))
	_, err = c.Login(t.Context(), reg.Host, login, circle)
	wantFault(t, err, fault.InvalidInput, circle)
}

// What a file holds of an older login for a host is not in force beside its helper, which
// has the new one, and is gone with it.
func TestAnOlderLoginInTheFileIsNotInForceBesideAHelper(t *testing.T) {
	reg := registry.Start(t, registry.Options{TLS: true, Auth: registry.Basic})
	c := loginClient(t, reg)
	login := remote.Credential{Username: reg.Username, Password: reg.Password}
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	script := `#!/bin/sh
case "$1" in
store) cat > "` + kept + `" ;;
get) cat "` + kept + `" 2>/dev/null || { echo 'credentials not found in native keychain'; exit 1; } ;;
erase) rm "` + kept + `" ;;
esac`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker-credential-drawer"), []byte(script), 0o700)) //nolint:gosec // a program
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	file := filepath.Join(dir, "config.json")
	t.Setenv("REGISTRY_AUTH_FILE", file)
	t.Setenv("HOME", dir)
	entry := `{"auth":"` + auth("old", "older") + `"}`
	for _, helpers := range []string{`"credsStore":"drawer"`, `"credHelpers":{"` + reg.Host + `":"drawer"}`} {
		write := func() {
			text := `{"auths":{"` + reg.Host + `":` + entry + `,"https://` + reg.Host + `/v1/":` + entry + `,"` + reg.Host + `/team":` + entry + `},` + helpers + `}`
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		}
		user := func(path string) string {
			found, err := remote.DefaultCredentials(t.Context(), reg.Host, path)
			require.NoError(t, err)
			return found.Username
		}
		write()
		require.Equal(t, "old", user("x"), "the helper has none")
		in, err := c.Login(t.Context(), reg.Host, login, "")
		require.NoError(t, err)
		require.Equal(t, "docker-credential-drawer", in.Where)
		require.Equal(t, reg.Username, user("x"))
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(data), auth("old", "older")), "that of one repository is another login")
		write()
		require.Equal(t, reg.Username, user("x"), "docker asks the helper first")
		require.Equal(t, "old", user("team/x"))
		_, err = remote.Logout(t.Context(), reg.Host, "")
		require.NoError(t, err)
		require.Empty(t, user("x"))

		write()
		where, err := remote.Logout(t.Context(), reg.Host, "")
		require.NoError(t, err)
		require.Equal(t, file, where, "the helper had none")
		require.Empty(t, user("x"))
		_, err = remote.Logout(t.Context(), reg.Host, "")
		wantFault(t, err, fault.NotFound, "has no login for it")
	}
}

// A host may be in the file under an older name, as a URL, and a repository of it under
// its own: the first is the host's login, the second is not.
func TestOlderNamesOfAHostAreItsLoginAndRepositoriesAreNot(t *testing.T) {
	reg := registry.Start(t, registry.Options{TLS: true, Auth: registry.Basic})
	c := loginClient(t, reg)
	file := filepath.Join(t.TempDir(), "config.json")
	entry := `{"auth":"` + auth("old", "p") + `"}`
	t.Setenv("REGISTRY_AUTH_FILE", file)
	user := func(path string) string {
		found, err := remote.DefaultCredentials(t.Context(), reg.Host, path)
		require.NoError(t, err)
		return found.Username
	}
	require.NoError(t, os.WriteFile(file, []byte(`{"auths":{"https://`+reg.Host+`/v1/":`+entry+`,"`+reg.Host+`/team":`+entry+`}}`), 0o600))
	_, err := c.Login(t.Context(), reg.Host, remote.Credential{Username: reg.Username, Password: reg.Password}, file)
	require.NoError(t, err)
	require.Equal(t, reg.Username, user("x"), "the new login, not the older one")
	require.Equal(t, "old", user("team/x"))

	require.NoError(t, os.WriteFile(file, []byte(`{"auths":{"https://`+reg.Host+`/v1/":`+entry+`,"`+reg.Host+`/team":`+entry+`}}`), 0o600))
	_, err = remote.Logout(t.Context(), reg.Host, file)
	require.NoError(t, err)
	require.Empty(t, user("x"))
	_, err = remote.Logout(t.Context(), reg.Host, file)
	wantFault(t, err, fault.NotFound)
	require.Equal(t, "old", user("team/x"), "which is another login")
}

func TestLoginsThatCannotBeAreRefused(t *testing.T) {
	reg := registry.Start(t, registry.Options{TLS: true, Auth: registry.Basic})
	c := loginClient(t, reg)
	login := remote.Credential{Username: reg.Username, Password: reg.Password}
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.json")
	require.NoError(t, os.WriteFile(bad, []byte(`{"auths":canary`), 0o600))
	for name, do := range map[string]func() error{
		"no host":        func() error { _, err := c.Login(t.Context(), "https://"+reg.Host, login, ""); return err },
		"nothing":        func() error { _, err := c.Login(t.Context(), reg.Host, remote.Credential{}, ""); return err },
		"damaged file":   func() error { _, err := c.Login(t.Context(), reg.Host, login, bad); return err },
		"logout no host": func() error { _, err := remote.Logout(t.Context(), "a/b", ""); return err },
		"logout damaged": func() error { _, err := remote.Logout(t.Context(), reg.Host, bad); return err },
	} {
		err := do()
		wantFault(t, err, fault.InvalidInput)
		require.NotContains(t, fault.Text(err), "canary", name)
	}
	_, err := c.Login(t.Context(), reg.Host, login, filepath.Join(bad, "below"))
	require.Error(t, err)
}

// A registry that asks nobody for a login takes any: none is called checked.
func TestALoginThatNobodyAsksForIsNotChecked(t *testing.T) {
	reg := registry.Start(t, registry.Options{TLS: true})
	file, login := filepath.Join(t.TempDir(), "auth.json"), remote.Credential{Username: "anna", Password: "wrong"}
	in, err := loginClient(t, reg).Login(t.Context(), reg.Host, login, file)
	require.NoError(t, err)
	require.Equal(t, remote.LoggedIn{Where: file}, in)
}
