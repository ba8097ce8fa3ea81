package remote_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
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
	find, err := remote.ConfigCredentials("config.json", fmt.Appendf(nil, `{"auths":{"docker.io":{"auth":%q},"https://index.docker.io/v1/":{"auth":%q}}}`, a, b))
	require.NoError(t, err)
	c, err := find(t.Context(), "docker.io", "library/x")
	require.NoError(t, err)
	require.Equal(t, "b", c.Username, "where docker keeps it")
}

func TestBadConfigurationsNameTheFileAndNoSecret(t *testing.T) {
	for _, data := range []string{`{`, `[]`, `{"auths":{"a.b":{"auth":"canary!"}}}`, `{"auths":{"a.b":{"auth":"Y2FuYXJ5"}}}`, `{"auths":{"a.b":{"auth":["canary"]}}}`} {
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
		require.NoError(t, os.WriteFile(filepath.Join(bin, "docker-credential-"+name), []byte("#!/bin/sh\n"+text), 0o700)) //nolint:gosec // a program
	}
	script("one", `read -r server; test "$1" = get && echo '{"ServerURL":"'$server'","Username":"helped","Secret":"for '$server'"}'`)
	script("token", `echo '{"Username":"<token>","Secret":"refresh"}'`)
	script("none", `echo 'credentials not found in native keychain'; exit 1`)
	script("broken", `echo canary; exit 3`)
	script("odd", `echo canary`)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	find, err := remote.ConfigCredentials("config.json", []byte(`{
		"credsStore": "none",
		"credHelpers": {"one.site": "one", "two.site/team": "token", "bad.site": "broken", "odd.site": "odd", "gone.site": "absent", "evil.site": "../../x"}
	}`))
	require.NoError(t, err)
	for at, want := range map[[2]string]remote.Credential{
		{"one.site", "x/y"}:    {Username: "helped", Password: "for one.site"},
		{"two.site", "team/x"}: {RefreshToken: "refresh"},
		{"two.site", "x"}:      {},
		{"docker.io", "x/y"}:   {},
	} {
		got, err := find(t.Context(), at[0], at[1])
		require.NoError(t, err)
		require.Equal(t, want, got, "%v", at)
	}
	for _, host := range []string{"bad.site", "odd.site", "gone.site", "evil.site"} {
		_, err := find(t.Context(), host, "x")
		wantFault(t, err, fault.Unauthorized, "docker-credential-")
		require.NotContains(t, fault.Text(err), "canary")
	}
}

func TestDefaultCredentialsLookWhereDockerAndPodmanDo(t *testing.T) {
	dir := t.TempDir()
	write := func(name, host, user string) {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `{"auths":{%q:{"auth":%q},"all.site":{"auth":%q}}}`, host, auth(user, "p"), auth(user, "p")), 0o600))
	}
	for _, v := range []string{"REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"} {
		t.Setenv(v, "")
	}
	t.Setenv("HOME", dir)
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
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(dir, "run"))
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
