package cli_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// upstreamFiles serves the manifest files of the world's matrix at the paths that
// their URLs have, and counts how many requests are under way at most.
type upstreamFiles struct{ now, most, all atomic.Int32 }

func (u *upstreamFiles) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	u.all.Add(1)
	for n := u.now.Add(1); ; {
		if most := u.most.Load(); n <= most || u.most.CompareAndSwap(most, n) {
			break
		}
	}
	defer u.now.Add(-1)
	release, name, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/"), "/")
	if files[release][name] == "" {
		http.NotFound(w, req)
		return
	}
	_, _ = io.WriteString(w, files[release][name])
}

// The settings of --hosts-config hold for the hosts of upstream manifests, too.
func TestManifestsAreDownloadedWithTheSettingsOfTheirHost(t *testing.T) {
	w := newWorld(t, t.TempDir())
	// A server with a certificate of an authority of its own, which wants one of the
	// same authority; both are of a registry that nobody asks.
	pki := registry.Start(t, registry.Options{TLS: true, ClientCertificates: true})
	cert, key := pki.ClientCertificate(t)
	served := &upstreamFiles{}
	server := httptest.NewUnstartedServer(served)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pki.CA()))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "https://")

	w.write(t, "web.yaml", bytes.ReplaceAll(matrixDocument(t, 7, distant), []byte("127.0.0.1:1/"), []byte(host+"/")))
	w.write(t, "server.crt", certificatePEM(server.Certificate()))
	for name, from := range map[string]string{"client.crt": cert, "client.key": key} {
		data, err := os.ReadFile(from)
		require.NoError(t, err)
		w.write(t, name, data)
	}
	lock := func(settings string) (code int, stderr string) {
		t.Helper()
		w.write(t, "hosts.yaml", fmt.Appendf(nil, "apiVersion: vdo.vmware.com/hosts/v1\nkind: HostsConfig\nhosts:\n  %q: %s\n", host, settings))
		cmd, _, errs := w.command(t.Context(), "lock", "--matrix", "web.yaml", "-q", "-o", "web.lock", "--retries", "0", "--plain-http", w.upstream.Host,
			"--source-map", "registry.test="+w.upstream.Host+"/x", "--source-map", "registry.k8s.io="+w.upstream.Host+"/x", "--hosts-config", "hosts.yaml")
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode(), errs.String()
	}

	code, stderr := lock("{}")
	require.Equal(t, 5, code, stderr)
	require.Contains(t, stderr, "--ca-file")
	code, stderr = lock("{ca: server.crt}")
	require.Equal(t, 5, code, stderr)
	require.Contains(t, stderr, "certificate required")
	require.Contains(t, stderr, "hint: name the certificate that this host wants, and its key, in the file of --hosts-config")
	require.Zero(t, served.all.Load())
	code, stderr = lock("{ca: server.crt, clientCert: client.crt, clientKey: client.key, concurrency: 1}")
	require.Equal(t, 0, code, stderr)
	require.EqualValues(t, 5, served.all.Load())
	require.EqualValues(t, 1, served.most.Load(), "one request at a time was allowed")

	// The certificate for all registries is not shown to a host that only the matrix names.
	cmd, _, errs := w.command(t.Context(), "lock", "@up", "--matrix", "web.yaml", "--manifest-dir", "", "-q", "-o", "web.lock", "--retries", "0",
		"--ca-file", "server.crt", "--client-cert", "client.crt", "--client-key", "client.key")
	require.Error(t, cmd.Run())
	require.Contains(t, errs.String(), "certificate required")

	// Plain HTTP, where the settings of the host allow it.
	plain := httptest.NewServer(served)
	t.Cleanup(plain.Close)
	host = strings.TrimPrefix(plain.URL, "http://")
	w.write(t, "web.yaml", bytes.ReplaceAll(matrixDocument(t, 7, distant), []byte("https://127.0.0.1:1/"), []byte(plain.URL+"/")))
	code, stderr = lock("{}")
	require.Equal(t, 8, code, stderr)
	require.Contains(t, stderr, "http: is not used")
	code, stderr = lock("{plainHTTP: true}")
	require.Equal(t, 0, code, stderr)
}

func certificatePEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
