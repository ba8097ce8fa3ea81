package cli_test

import (
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// proxy is an HTTP proxy that leads every CONNECT to one registry.
type proxy struct {
	to string

	mu       sync.Mutex
	asked    []string
	password bool
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, req.Method+" "+req.Host)
	p.password = req.Header.Get("Proxy-Authorization") == "Basic "+base64.StdEncoding.EncodeToString([]byte("user:proxy-secret"))
	known := p.password
	p.mu.Unlock()
	if !known {
		http.Error(w, "log in", http.StatusProxyAuthRequired)
		return
	}
	if req.Method != http.MethodConnect {
		http.Error(w, "CONNECT only", http.StatusMethodNotAllowed)
		return
	}
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer server.Close() //nolint:errcheck // the tunnel has ended
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // the tunnel has ended
	_, _ = io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() { _, _ = io.Copy(server, buffered) }()
	_, _ = io.Copy(conn, server)
}

// Registries are reached through the proxy of the environment, whose password is
// shown to no one.
func TestProxyOfTheEnvironment(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.mirror = registry.Start(t, registry.Options{TLS: true, Names: []string{"registry.proxied.test"}})
	w.write(t, "ca.crt", w.mirror.CA())
	w.must(t, "pull", "@up", "-o", "a.tar")
	p := &proxy{to: w.mirror.Host}
	server := httptest.NewServer(p)
	defer server.Close()
	address := strings.Replace(server.URL, "http://", "http://user:proxy-secret@", 1)
	push := []string{"push", "a.tar", "registry.proxied.test/vdo/drivers:1", "--ca-file", "ca.crt", "--retries", "0"}
	run := func(code int, proxy string) string {
		t.Helper()
		w.vars = []string{"HTTPS_PROXY=" + proxy}
		text := w.ends(t, code, push...)
		require.NotContains(t, text, "proxy-secret")
		return text
	}
	run(0, address)
	require.Contains(t, p.asked, "CONNECT registry.proxied.test:443")
	require.True(t, p.password)
	require.Contains(t, run(6, server.URL), "hint: give the login of the proxy: HTTPS_PROXY=http://USER:PASSWORD@PROXY:PORT")
	for _, rest := range []string{"@[", "%ZZ@host:1", "#@host:1", " @host:1"} {
		require.Contains(t, run(2, "http://user:proxy-secret"+rest), "error: read HTTPS_PROXY: it is not the URL of a proxy\nhint: write http")
	}
	w.must(t, "push", "a.tar", w.mirror.Host+"/vdo/drivers:2", "--ca-file", "ca.crt") // needs no proxy
	w.vars = []string{"https_proxy=http://@["}
	require.Contains(t, w.ends(t, 2, push...), "error: read https_proxy: it is not the URL of a proxy\n")
	require.NoError(t, w.mirror.Close())
	require.Contains(t, run(5, address), ": proxyconnect: 502 Bad Gateway\nhint: check the proxy")
	server.Close()
	run(5, address)
}

// A client certificate is named by flags.
func TestClientCertificateOfTheCommandLine(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.mirror = registry.Start(t, registry.Options{TLS: true, ClientCertificates: true})
	w.write(t, "ca.crt", w.mirror.CA())
	cert, key := w.mirror.ClientCertificate(t)
	for name, from := range map[string]string{"client.crt": cert, "client.key": key} {
		data := must(os.ReadFile(from))(t)
		w.write(t, name, data)
	}
	w.must(t, "pull", "@up", "-o", filepath.Join(w.dir, "a.tar"))
	w.must(t, "push", "a.tar", w.mirror.Host+"/vdo/drivers:1", "--ca-file", "ca.crt", "--client-cert", "client.crt", "--client-key", "client.key")
	require.Contains(t, w.ends(t, 5, "inspect", w.mirror.Host+"/vdo/drivers:1", "--ca-file", "ca.crt"), "--client-cert")
}
