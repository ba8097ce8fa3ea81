package manifests_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/manifests"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

const content = "kind: Namespace\n"

func manifest(url, content string) matrix.Manifest {
	return matrix.Manifest{Name: "a.yaml", URL: url, Size: int64(len(content)), SHA256: image.DigestOf([]byte(content)).Hex()}
}

// upstream serves over TLS; its client trusts it.
func upstream(t *testing.T, handler http.HandlerFunc) (*httptest.Server, manifests.Options) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	return server, options(t, remote.Options{CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})})
}

func options(t *testing.T, o remote.Options) manifests.Options {
	o.Attempts, o.Sleep = 3, func(context.Context, time.Duration) error { return nil }
	c := must.Have(remote.NewClient(o))(t)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return manifests.Options{Client: c}
}

// get fetches one file with a store of its own.
func get(t *testing.T, o manifests.Options, m matrix.Manifest) ([]byte, error) {
	t.Helper()
	store, err := manifests.New(o)
	if err != nil {
		return nil, err
	}
	return store.Get(t.Context(), m)
}

func TestFolderIsAskedFirstWhateverTheName(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "x/y"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "same-size"), []byte(strings.ToUpper(content)), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x/y/other.name"), []byte(content), 0o600))
	o := manifests.Options{Dirs: []string{t.TempDir(), dir, t.TempDir()}}
	got := must.Have(get(t, o, manifest("https://127.0.0.1:1/a.yaml", content)))(t)
	require.Equal(t, content, string(got))
}

func TestWhatTheFolderLacksIsDownloadedAndTriedAgain(t *testing.T) {
	var calls atomic.Int32
	server, o := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		switch calls.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "cut")
		default:
			fmt.Fprint(w, content)
		}
	})
	o.Dirs = []string{t.TempDir()}
	got := must.Have(get(t, o, manifest(server.URL, content)))(t)
	require.Equal(t, content, string(got))
	require.EqualValues(t, 3, calls.Load())
}

func TestFaultsAreToldApart(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	const plainly = "vdo-bundle does not download over \"http\""
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		url     string // in place of the server's
		change  func(*manifests.Options, *matrix.Manifest)
		reason  fault.Reason
		want    string
		hint    string
	}{
		"not there": {handler: http.NotFound, reason: fault.NotFound, want: "404 Not Found", hint: "--manifest-dir"},
		"other bytes": {
			handler: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.ToUpper(content)) },
			reason:  fault.Corrupt, want: "is not the file that the matrix names: expected sha256:", hint: "--manifest-dir",
		},
		"endless": {
			handler: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", 1<<20)) },
			reason:  fault.Corrupt, want: "there is more than its 16 bytes", hint: "--manifest-dir",
		},
		"plain HTTP":               {url: plain.URL, reason: fault.Refused, want: plainly, hint: "--plain-http 127.0.0.1:"},
		"plain HTTP, a short name": {url: "http://files/a.yaml", reason: fault.Refused, want: plainly, hint: "with its domain or port"},
		"a redirect to plain HTTP": {
			handler: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, plain.URL, http.StatusFound) },
			reason:  fault.Refused, want: "not HTTPS", hint: "127.0.0.1:",
		},
		"no URL": {url: "nothing", reason: fault.InvalidInput, want: "is not a URL", hint: "in the matrix"},
		"a size beyond reason": {
			change: func(_ *manifests.Options, m *matrix.Manifest) { m.Size = 1 << 40 },
			reason: fault.InvalidInput, want: "is not between", hint: "in the matrix",
		},
		"no folder": {
			change: func(o *manifests.Options, _ *matrix.Manifest) { o.Dirs = []string{"/does/not/exist"} },
			reason: fault.NotFound, want: "read /does/not/exist: no such file or directory", hint: "--manifest-dir",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, o := upstream(t, c.handler)
			m := manifest(cmp.Or(c.url, server.URL+"/a.yaml"), content)
			if c.change != nil {
				c.change(&o, &m)
			}
			_, err := get(t, o, m)
			must.Fail(t, err, c.reason, c.want, c.hint)
		})
	}
}

// The settings of a host hold for its manifests too. The certificate for all registries is not shown
// to a host that only the matrix names.
func TestSettingsOfTheHostHold(t *testing.T) {
	pki := registry.Start(t, registry.Options{TLS: true, ClientCertificates: true})
	cert, key := pki.ClientCertificate(t)
	var now, most atomic.Int32
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		time.Sleep(10 * time.Millisecond) // others would come meanwhile
		fmt.Fprint(w, content)
	})
	server, plain := httptest.NewUnstartedServer(handler), httptest.NewServer(handler)
	t.Cleanup(plain.Close)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pki.CA()))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	of := func(o remote.HostOptions) remote.Options {
		return remote.Options{Hosts: map[string]remote.HostOptions{
			server.Listener.Addr().String(): o, plain.Listener.Addr().String(): o,
		}}
	}
	for name, c := range map[string]struct {
		url    string
		o      remote.Options
		reason fault.Reason
		want   string
		hint   string
	}{
		"none":               {server.URL, remote.Options{}, fault.CertificateInvalid, "certificate", "--ca-file"},
		"of all registries":  {server.URL, remote.Options{CAFiles: []string{ca}, ClientCert: cert, ClientKey: key}, fault.CertificateInvalid, "certificate required", "--hosts-config"},
		"plain HTTP":         {plain.URL, of(remote.HostOptions{PlainHTTP: true}), "", "", ""},
		"plain HTTP by flag": {plain.URL, remote.Options{PlainHTTP: []string{plain.Listener.Addr().String()}}, "", "", ""},
		"all of it":          {server.URL, of(remote.HostOptions{CAFile: ca, ClientCert: cert, ClientKey: key, Concurrency: 1}), "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			most.Store(0)
			store := must.Have(manifests.New(options(t, c.o)))(t)
			var group errgroup.Group
			for range 5 {
				group.Go(func() error {
					_, err := store.Get(t.Context(), manifest(c.url, content))
					return err
				})
			}
			err := group.Wait()
			require.Equal(t, c.reason, fault.ReasonOf(err), "%v", err)
			require.Contains(t, fmt.Sprint(err), c.want)
			require.Contains(t, fault.HintOf(err), c.hint)
			if name == "all of it" {
				require.EqualValues(t, 1, most.Load(), "one request at a time was allowed")
			}
		})
	}
}

// A file of the folder that cannot be read is reported: to fetch it instead would hide that
// the folder is not what the user thinks.
func TestAnUnreadableLocalManifestIsNotFetchedInstead(t *testing.T) {
	o := options(t, remote.Options{})
	o.Dirs = []string{t.TempDir()}
	file := filepath.Join(o.Dirs[0], "a.yaml")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	store := must.Have(manifests.New(o))(t)
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.Mkdir(file, 0o700))
	_, err := store.Get(t.Context(), manifest("https://127.0.0.1:1/a.yaml", content))
	must.Fail(t, err, fault.Storage, file)
}
