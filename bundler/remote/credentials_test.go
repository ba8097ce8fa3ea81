package remote_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
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

const configHead = "apiVersion: vdo.vmware.com/hosts/v1\nkind: HostsConfig\n"

func TestSettingsOfHosts(t *testing.T) {
	hosts, err := remote.ParseConfig("/etc/vdo/registries.yaml", []byte(configHead+`hosts:
  registry.site:5000: {ca: ca.crt, clientCert: /c.crt, clientKey: k/c.key, concurrency: 3, chunkSize: 50MB}
  registry.k8s.io: {mirror: mirror.corp/k8s}
  plain.site: {plainHTTP: true}
  self.site: {insecureSkipTLSVerify: true}
`))
	require.NoError(t, err)
	require.Equal(t, map[string]remote.HostOptions{
		"registry.site:5000": {CAFile: "/etc/vdo/ca.crt", ClientCert: "/c.crt", ClientKey: "/etc/vdo/k/c.key", Concurrency: 3, ChunkSize: 50_000_000},
		"registry.k8s.io":    {Mirror: "mirror.corp/k8s"}, "plain.site": {PlainHTTP: true}, "self.site": {SkipTLSVerify: true},
	}, hosts)
}

func TestBadSettingsOfHosts(t *testing.T) {
	for text, want := range map[string][]string{
		"":                             {"it is empty"},
		"a: [b":                        {"did not find"},
		"apiVersion: v1\nkind: Secret": {`kind: "Secret" is not HostsConfig`},
		configHead + "host: {}":        {"the key host is not known"},
		configHead + "hosts: {a.b: {password: x}}":                     {"the key password is not known"},
		configHead + "hosts: {a.b: {concurrency: many}}":               {"concurrency", "many"},
		configHead + "hosts: {a.b: {concurrency: -1}}":                 {"hosts.a.b: concurrency -1 is not between 1 and 64"},
		configHead + "hosts: {a.b: {concurrency: 0}}":                  {"hosts.a.b: concurrency 0 is not between 1 and 64"},
		configHead + "hosts: {a.b: {chunkSize: ''}}":                   {`hosts.a.b: chunkSize "": not a size`},
		configHead + "hosts: {a.b: {chunkSize: big}}":                  {`hosts.a.b: chunkSize "big": not a size such as 4GB, 16MiB or 1048576`},
		configHead + "hosts: {a.b: {chunkSize: 1kB}}":                  {"less than 262144 bytes"},
		configHead + "hosts: {a.b: {clientKey: x}}":                    {"clientCert and clientKey come together"},
		configHead + "hosts: {https://a.b: {}}":                        {"it is not a registry host"},
		configHead + "hosts:\n  a.b: {chunkSize: 99999999999999999TB}": {"not a size such as 4GB, 16MiB or 1048576"},
		configHead + "hosts:\n  a.b: {plainHTTP: perhaps}":             {"perhaps"},
	} {
		_, err := remote.ParseConfig("r.yaml", []byte(text))
		require.Error(t, err, text)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), text)
		require.NotEmpty(t, fault.HintOf(err))
		for _, w := range want {
			require.Contains(t, fault.Text(err), w)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(configHead + "hosts: {a.b: {ca: x, concurrency: 1, chunkSize: 1MB}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		hosts, err := remote.ParseConfig("r.yaml", data)
		if err != nil {
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
			return
		}
		for host := range hosts {
			_, err := image.ParseReference(host + "/x")
			require.NoError(t, err)
		}
	})
}

// The certificate is shown to the host that it is for, whether for all or for one.
func TestClientCertificates(t *testing.T) {
	secure := real.Start(t, real.Options{TLS: true, ClientCertificates: true})
	cert, key := secure.ClientCertificate(t)
	resolve := func(o remote.Options) error {
		_, err := at(t, o, secure, "a/b:1").Root(t.Context())
		return err
	}
	wantFault(t, resolve(remote.Options{}), fault.CertificateInvalid, "--client-cert")
	wantFault(t, resolve(remote.Options{ClientCert: cert, ClientKey: key}), fault.NotFound)
	wantFault(t, resolve(remote.Options{Hosts: map[string]remote.HostOptions{secure.Host: {ClientCert: cert, ClientKey: key}}}), fault.NotFound)
	wantFault(t, resolve(remote.Options{Hosts: map[string]remote.HostOptions{"other.site": {ClientCert: cert, ClientKey: key}}}), fault.CertificateInvalid)

	reg := real.Start(t, real.Options{TLS: true})
	plain := real.Start(t, real.Options{})
	for hint, c := range map[string]struct {
		to string
		ca []byte
	}{
		"signed for": {secure.Host, nil}, "about " + secure.Host: {secure.Host, secure.CA()}, "about " + plain.Host: {plain.Host, nil},
	} {
		reg.Fail(real.Fault{Match: real.Match{Path: "/manifests/"}, RedirectTo: "https://" + c.to})
		_, err := at(t, remote.Options{CA: c.ca, ClientCert: cert, ClientKey: key}, reg, "a/b:1").Root(t.Context())
		wantFault(t, err, fault.CertificateInvalid, `"`+c.to+`": `, hint)
		reg.Heal()
	}

	bad := filepath.Join(t.TempDir(), "bad")
	require.NoError(t, os.WriteFile(bad, []byte("no PEM"), 0o600))
	for _, o := range []remote.Options{
		{ClientCert: cert}, {ClientKey: key}, {ClientCert: cert, ClientKey: bad}, {ClientCert: cert, ClientKey: cert},
		{Hosts: map[string]remote.HostOptions{"a.b": {CAFile: bad}}},
	} {
		_, err := remote.NewClient(o)
		wantFault(t, err, fault.InvalidInput)
	}
	_, err := remote.NewClient(remote.Options{ClientCert: cert + ".absent", ClientKey: key})
	wantFault(t, err, fault.NotFound, "client.crt.absent")
}

// One host may have its own authority, scheme, parts and number of transfers.
func TestSettingsOfOneHostAreItsOwn(t *testing.T) {
	one, two := real.Start(t, real.Options{TLS: true}), real.Start(t, real.Options{TLS: true})
	plain := real.Start(t, real.Options{})
	n := &naps{}
	c, err := remote.NewClient(remote.Options{Sleep: n.sleep, Attempts: 1, Hosts: map[string]remote.HostOptions{
		one.Host: {CAFile: one.CAFile(t), ChunkSize: 1_000_000}, plain.Host: {PlainHTTP: true},
	}})
	require.NoError(t, err)
	defer c.Close() //nolint:errcheck // idle connections only
	d, open := randomBlob(1_500_000)
	require.NoError(t, repository(c, one, "a/b:1").Put(t.Context(), d, open))
	require.Len(t, sizes(one, "PATCH"), 2)
	require.NoError(t, repository(c, plain, "a/b:1").Put(t.Context(), d, open))
	require.Empty(t, sizes(plain, "PATCH"))
	_, err = repository(c, two, "a/b:1").Root(t.Context())
	wantFault(t, err, fault.CertificateInvalid, "--ca-file")
}

// A server that points elsewhere cannot have this client act in its place with the
// certificate that another host has in the settings.
func TestACertificateOfOneHostIsNotShownWhereAnotherPointsToIt(t *testing.T) {
	secure := real.Start(t, real.Options{TLS: true, ClientCertificates: true})
	cert, key := secure.ClientCertificate(t)
	own := remote.HostOptions{CAFile: secure.CAFile(t), ClientCert: cert, ClientKey: key}
	d, open := randomBlob(1000)
	realm := `Bearer realm="` + secure.URL() + `/auth/token",service="x"`
	root := func(_ *remote.Client, r *remote.Repository) error { _, err := r.Root(t.Context()); return err }
	web := func(c *remote.Client, r *remote.Repository) error {
		q := remote.Request{Method: http.MethodGet, URL: r.Address("x")}
		_, err := c.Web(t.Context(), "fetch", q, 100, "")
		return err
	}
	for name, c := range map[string]struct {
		fault real.Fault
		do    func(*remote.Client, *remote.Repository) error
	}{
		"redirect":      {real.Fault{RedirectTo: secure.URL()}, root},
		"token service": {real.Fault{Status: 401, Header: map[string]string{"WWW-Authenticate": realm}}, root},
		"upload": {real.Fault{LocationBase: secure.URL()}, func(_ *remote.Client, r *remote.Repository) error {
			return r.Put(t.Context(), d, open)
		}},
		"server that is no registry": {real.Fault{RedirectTo: secure.URL()}, web},
	} {
		t.Run(name, func(t *testing.T) {
			other := real.Start(t, real.Options{TLS: true})
			other.Fail(c.fault)
			cl, _ := client(t, remote.Options{Attempts: 1, Hosts: map[string]remote.HostOptions{secure.Host: own}}, other)
			secure.ForgetRequests()
			require.Error(t, c.do(cl, repository(cl, other, "a/b:1")))
			require.Empty(t, secure.Requests())
			at := repository(cl, secure, "a/b:1") // and it is shown where the user names the host
			wantFault(t, root(cl, at), fault.NotFound)
			require.Equal(t, fault.NotFound, fault.ReasonOf(web(cl, at)))
		})
	}
}
