package remote_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

func auth(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}

func TestLongestKeyOfTheConfigurationWins(t *testing.T) {
	find, err := remote.ConfigCredentials("config.json", fmt.Appendf(nil, `{
		"auths": {
			"mirror.site": {"auth": %q},
			"mirror.site/team": {"auth": %q},
			"mirror.site/team/a/b": {"username": "exact", "password": "p:w"},
			"other.site/only": {"auth": %q},
			"https://old.site:5000/v1/": {"auth": %q},
			"https://index.docker.io/v1/": {"auth": %q},
			"token.site": {"identitytoken": "refresh", "registrytoken": "bearer"}
		}
	}`, auth("host", "1"), auth("team", "2:3"), auth("only", "4"), auth("old", "5"), auth("hub", "6")))
	require.NoError(t, err)
	entries := map[string]string{"team": "mirror.site/team", "exact": "mirror.site/team/a/b", "only": "other.site/only"}
	for at, want := range map[[2]string]remote.Credential{
		{"mirror.site", "x"}:              {Username: "host", Password: "1"},
		{"mirror.site", "teams/a"}:        {Username: "host", Password: "1"},
		{"mirror.site", "team/a"}:         {Username: "team", Password: "2:3"},
		{"mirror.site", "team/a/b"}:       {Username: "exact", Password: "p:w"},
		{"mirror.site", "team/a/b/c"}:     {Username: "exact", Password: "p:w"},
		{"other.site", "only/x"}:          {Username: "only", Password: "4"},
		{"other.site", "x"}:               {},
		{"mirror.site:5000", "team/a"}:    {},
		{"old.site:5000", "x"}:            {Username: "old", Password: "5"},
		{"docker.io", "library/busybox"}:  {Username: "hub", Password: "6"},
		{"token.site", "x"}:               {RefreshToken: "refresh", AccessToken: "bearer"},
		{"mirror.site.evil.example", "x"}: {},
	} {
		got, err := find(t.Context(), at[0], at[1])
		require.NoError(t, err)
		if want != (remote.Credential{}) {
			want.Source = "config.json"
			if entry := entries[want.Username]; entry != "" {
				want.Source = "the entry " + entry + " of config.json"
			}
		}
		require.Equal(t, want, got, "%v", at)
	}
}

// Which of several entries for one host counts is not left to chance: the one that docker
// writes today, else the first by name. One without a login hides none.
func TestOneOfSeveralEntriesForAHostCountsAlways(t *testing.T) {
	a, b := auth("a", "1"), auth("b", "2")
	for text, want := range map[string]string{
		fmt.Sprintf(`{"r.site":{"auth":%q},"https://r.site/v1/":{"auth":%q},"https://r.site":{}}`, a, b):     "a",
		fmt.Sprintf(`{"r.site":{},"https://r.site/v1/":{"auth":%q},"https://r.site/v2/":{"auth":%q}}`, a, b): "a",
		fmt.Sprintf(`{"r.site":{},"http://r.site":{},"https://r.site/v2/":{"auth":%q}}`, b):                  "b",
		fmt.Sprintf(`{"https://r.site":{"auth":%q},"r.site/":{"auth":%q},"r.site":{"auth":%q}}`, a, a, b):    "b",
	} {
		for range 20 { // maps have no order
			find, err := remote.ConfigCredentials("config.json", []byte(`{"auths":`+text+`}`))
			require.NoError(t, err)
			c, err := find(t.Context(), "r.site", "x")
			require.NoError(t, err)
			require.Equal(t, want, c.Username, text)
		}
	}
	hub := fmt.Appendf(nil, `{"auths":{"docker.io":{"auth":%q},"https://index.docker.io/v1/":{"auth":%q}}}`, a, b)
	find, err := remote.ConfigCredentials("config.json", hub)
	require.NoError(t, err)
	c, err := find(t.Context(), "docker.io", "library/x")
	require.NoError(t, err)
	require.Equal(t, "b", c.Username, "where docker keeps it")
}

func TestBadConfigurationsNameTheFileAndNoSecret(t *testing.T) {
	for _, data := range []string{
		`{`, `[]`, `{"auths":{"a.b":{"auth":"canary!"}}}`, `{"auths":{"a.b":{"auth":"Y2FuYXJ5"}}}`,
		`{"auths":{"a.b":{"auth":["canary"]}}}`,
	} {
		_, err := remote.ConfigCredentials("some/config.json", []byte(data))
		wantFault(t, err, fault.InvalidInput, "some/config.json")
		require.NotContains(t, fault.Text(err), "canary")
	}
	for _, data := range []string{``, `{}`, `{"auths":null}`} {
		find, err := remote.ConfigCredentials("config.json", []byte(data))
		require.NoError(t, err)
		c, err := find(t.Context(), "a.b", "c")
		require.NoError(t, err)
		require.Equal(t, remote.Credential{}, c)
	}
}

func TestHelpersAreAsked(t *testing.T) {
	bin := t.TempDir()
	script := func(name, text string) {
		path := filepath.Join(bin, "docker-credential-"+name)
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700)) //nolint:gosec // a program
	}
	script("one", `read -r server; test "$1" = get && echo '{"ServerURL":"'$server'","Username":"helped","Secret":"for '$server'"}'`)
	script("token", `echo '{"Username":"<token>","Secret":"refresh"}'`)
	script("none", `read -r server; test "$server" = file.site && exit 3; echo 'credentials not found in native keychain'; exit 1`)
	script("broken", `echo '{"Secret":"canary"}'; exit 3`)
	script("odd", `echo canary`)
	script("locked", `printf 'the keychain\nis locked\033'; exit 1`)
	script("hanging", `read h; sleep 9`)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	find, err := remote.ConfigCredentials("config.json", []byte(`{
		"credsStore": "none",
		"credHelpers": {"one.site": "one", "file.site": "", "two.site/team": "token", "bad.site": "broken", "odd.site": "odd",
			"gone.site": "absent", "evil.site": "../../x", "locked.site": "locked", "hanging.site": "hanging"}
	}`))
	require.NoError(t, err)
	for at, want := range map[[2]string]remote.Credential{
		{"one.site", "x/y"}:    {Username: "helped", Password: "for one.site", Source: "docker-credential-one"},
		{"two.site", "team/x"}: {RefreshToken: "refresh", Source: "docker-credential-token"},
		{"two.site", "x"}:      {},
		{"file.site", "x"}:     {}, // credsStore is not asked
		{"docker.io", "x/y"}:   {},
	} {
		got, err := find(t.Context(), at[0], at[1])
		require.NoError(t, err)
		require.Equal(t, want, got, "%v", at)
	}
	const see = "see what `echo "
	for host, texts := range map[string][]string{
		"bad.site": {"exit status 3", see}, "odd.site": {"its answer is not a login in JSON", see},
		"gone.site": {"install docker-credential-absent"}, "evil.site": {"no such file"},
		"locked.site": {"the keychain is locked: exit status 1", see}, "hanging.site": {"it hangs"},
	} {
		ctx := t.Context()
		if host == "hanging.site" {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeoutCause(ctx, 50*time.Millisecond, errors.New("it hangs"))
			defer stop()
		}
		started := time.Now()
		_, err := find(ctx, host, "x")
		wantFault(t, err, fault.Unauthorized, append(texts, "docker-credential-")...)
		require.NotContains(t, fault.Text(err), "canary")
		require.Less(t, time.Since(started), 8*time.Second)
	}
}

func TestDefaultCredentialsLookWhereDockerAndPodmanDo(t *testing.T) {
	dir := t.TempDir()
	write := func(name, host, user string) {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{"auths":{%q:{"auth":%q},"all.site":{"auth":%q}}}`, host, auth(user, "p"), auth(user, "p")), 0o600))
	}
	for _, v := range []string{"REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "XDG_CONFIG_HOME"} {
		t.Setenv(v, "")
	}
	t.Setenv("HOME", dir)
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "run"))
	write(".config/containers/auth.json", "podman.site", "config")
	write(".docker/config.json", "docker.site", "docker")
	user := func(host string) string {
		c, err := remote.DefaultCredentials(t.Context(), host, "x/y")
		require.NoError(t, err)
		return c.Username
	}
	require.Equal(t, "docker", user("docker.site"))
	require.Equal(t, "config", user("podman.site"), "a docker configuration does not hide podman's")
	require.Equal(t, "docker", user("all.site"))
	require.Empty(t, user("other.site"))

	write("run/containers/auth.json", "run.site", "runtime")
	require.Equal(t, "runtime", user("run.site"))
	write("elsewhere/config.json", "elsewhere.site", "elsewhere")
	t.Setenv("DOCKER_CONFIG", filepath.Join(dir, "elsewhere"))
	require.Equal(t, "elsewhere", user("all.site"))
	require.Empty(t, user("docker.site"))
	write("auth.json", "x.site", "explicit")
	t.Setenv("REGISTRY_AUTH_FILE", filepath.Join(dir, "auth.json"))
	require.Equal(t, "explicit", user("all.site"))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "auth.json"), []byte("{"), 0o600))
	_, err := remote.DefaultCredentials(t.Context(), "all.site", "x")
	wantFault(t, err, fault.InvalidInput, filepath.Join(dir, "auth.json"))
}

func loginClient(t *testing.T, reg *real.Registry) (*remote.Client, remote.Credential) {
	t.Helper()
	c, _ := client(t, remote.Options{Attempts: 1}, reg)
	return c, remote.Credential{Username: reg.Username, Password: reg.Password}
}

// A login is kept once the registry has let it in, beside what else the file holds, and
// is found afterwards by what looks for logins.
func TestALoginIsCheckedAndKeptBesideTheOthers(t *testing.T) {
	for name, how := range map[string]real.Auth{"basic": real.Basic, "token": real.Token} {
		t.Run(name, func(t *testing.T) {
			reg := real.Start(t, real.Options{TLS: true, Auth: how})
			c, login := loginClient(t, reg)
			file := filepath.Join(t.TempDir(), "auth.json")
			t.Setenv("REGISTRY_AUTH_FILE", file)
			other := `{"auths":{"other.site":{"auth":"` + auth("o", "p") + `"}},"HttpHeaders":{"X":"y"}}`
			require.NoError(t, os.WriteFile(file, []byte(other), 0o600))

			wrong := remote.Credential{Username: reg.Username, Password: "wrong-canary"}
			_, _, err := c.Login(t.Context(), reg.Host, wrong, file)
			wantFault(t, err, fault.Unauthorized, reg.Host)
			require.NotContains(t, fault.Text(err), "canary")
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, other, string(data), "what was refused is not kept")

			where, old, err := c.Login(t.Context(), reg.Host, login, "")
			require.NoError(t, err)
			require.Zero(t, old)
			require.Equal(t, file, where)
			for host, want := range map[string]string{reg.Host: reg.Username, "other.site": "o"} {
				found, err := remote.DefaultCredentials(t.Context(), host, "a/b")
				require.NoError(t, err)
				require.Equal(t, want, found.Username)
			}
			var whole map[string]json.RawMessage
			data, err = os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(data, &whole))
			require.JSONEq(t, `{"X":"y"}`, string(whole["HttpHeaders"]))
		})
	}
}

// What the file says of helpers holds for a login too. A host may be in the file under an
// older name, as a URL, and a repository of it under its own: after a login the new one
// counts, and after a logout none is left, but that of the repository, which is another.
func TestALoginIsKeptWhereTheConfigurationSaysAndForgottenEverywhere(t *testing.T) {
	reg := real.Start(t, real.Options{TLS: true, Auth: real.Basic})
	c, login := loginClient(t, reg)
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	script := `#!/bin/sh
case "$1" in
store) cat > "` + kept + `" ;;
get) cat "` + kept + `" 2>/dev/null || { echo 'credentials not found in native keychain'; exit 1; } ;;
erase) rm "` + kept + `" ;;
esac`
	const program = "docker-credential-drawer"
	require.NoError(t, os.WriteFile(filepath.Join(dir, program), []byte(script), 0o700)) //nolint:gosec // a program
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	file := filepath.Join(dir, "config.json")
	t.Setenv("REGISTRY_AUTH_FILE", file)
	t.Setenv("HOME", dir)
	entry := `{"auth":"` + auth("old", "older") + `"}`
	user := func(path string) string {
		found, err := remote.DefaultCredentials(t.Context(), reg.Host, path)
		require.NoError(t, err)
		return found.Username
	}
	for helpers, where := range map[string]string{
		`"x":0`: file, `"credsStore":"drawer"`: program, `"credHelpers":{"` + reg.Host + `":"drawer"}`: program,
	} {
		write := func() {
			text := fmt.Appendf(nil, `{"auths":{%q:%s,"https://%s/v1/":%s,%q:%s},%s}`,
				reg.Host, entry, reg.Host, entry, reg.Host+"/team", entry, helpers)
			require.NoError(t, os.WriteFile(file, text, 0o600))
		}
		write()
		require.Equal(t, "old", user("x"))
		in, replaced, err := c.Login(t.Context(), reg.Host, login, "")
		require.NoError(t, err)
		require.Equal(t, "old", replaced.Username)
		require.Equal(t, where, in)
		require.Equal(t, reg.Username, user("x"))
		if where == program {
			data, err := os.ReadFile(kept)
			require.NoError(t, err)
			want := fmt.Sprintf(`{"ServerURL":%q,"Username":%q,"Secret":%q}`, reg.Host, reg.Username, reg.Password)
			require.JSONEq(t, want, string(data))
		}
		_, err = remote.Logout(t.Context(), reg.Host, "")
		require.NoError(t, err)
		require.Empty(t, user("x"))
		require.NoFileExists(t, kept)
		require.Equal(t, "old", user("team/x"))

		write()
		_, err = remote.Logout(t.Context(), reg.Host, "")
		require.NoError(t, err, "the helper had none")
		require.Empty(t, user("x"))
		_, err = remote.Logout(t.Context(), reg.Host, "")
		wantFault(t, err, fault.NotFound, "has no login for it")
	}
}

func TestLoginsThatCannotBeAreRefused(t *testing.T) {
	reg := real.Start(t, real.Options{TLS: true, Auth: real.Basic})
	c, login := loginClient(t, reg)
	bad := filepath.Join(t.TempDir(), "bad.json")
	require.NoError(t, os.WriteFile(bad, []byte(`{"auths":canary`), 0o600))
	for name, do := range map[string]func() error{
		"no host":        func() error { _, _, err := c.Login(t.Context(), "https://"+reg.Host, login, ""); return err },
		"nothing":        func() error { _, _, err := c.Login(t.Context(), reg.Host, remote.Credential{}, ""); return err },
		"damaged file":   func() error { _, _, err := c.Login(t.Context(), reg.Host, login, bad); return err },
		"logout no host": func() error { _, err := remote.Logout(t.Context(), "a/b", ""); return err },
		"logout damaged": func() error { _, err := remote.Logout(t.Context(), reg.Host, bad); return err },
	} {
		err := do()
		wantFault(t, err, fault.InvalidInput)
		require.NotContains(t, fault.Text(err), "canary", name)
	}
	_, _, err := c.Login(t.Context(), reg.Host, login, filepath.Join(bad, "below"))
	require.Error(t, err)
}
