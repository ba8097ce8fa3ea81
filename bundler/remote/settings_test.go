package remote_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

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
