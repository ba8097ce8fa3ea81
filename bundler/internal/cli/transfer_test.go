package cli_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// proxy is an HTTP proxy that leads every CONNECT to one registry.
type proxy struct {
	to    string
	fails string // the answer without a connection to it

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
		w.Header().Set("Proxy-Authenticate", "NTLM")
		http.Error(w, "log in", http.StatusProxyAuthRequired)
		return
	}
	if req.Method != http.MethodConnect {
		http.Error(w, "CONNECT only", http.StatusMethodNotAllowed)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close() //nolint:errcheck // the tunnel has ended
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		_, _ = io.WriteString(conn, p.fails)
		return
	}
	defer server.Close() //nolint:errcheck // the tunnel has ended
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
		w.vars = []string{"HTTPS_PROXY=" + proxy}
		text := w.ends(t, code, push...)
		require.NotContains(t, text, "proxy-secret")
		return text
	}
	run(0, address)
	require.Contains(t, p.asked, "CONNECT registry.proxied.test:443")
	require.True(t, p.password)
	require.Contains(t, run(6, server.URL), "407 Proxy Authentication Required: NTLM\n"+
		"hint: give the login of the proxy: HTTPS_PROXY=http://USER:PASSWORD@PROXY:PORT")
	for _, rest := range []string{"@[", "%ZZ@host:1", "#@host:1", " @host:1"} {
		require.Contains(t, run(2, "http://user:proxy-secret"+rest), "error: read HTTPS_PROXY: it is not the URL of a proxy\nhint: write http")
	}
	w.must(t, "push", "a.tar", w.mirror.Host+"/vdo/drivers:2", "--ca-file", "ca.crt") // needs no proxy
	w.vars = []string{"https_proxy=http://@["}
	require.Contains(t, w.ends(t, 2, push...), "error: read https_proxy: it is not the URL of a proxy\n")
	require.NoError(t, w.mirror.Close())
	require.Contains(t, run(5, address), "\nhint: check the proxy", "it cuts the connection")
	p.fails = "HTTP/1.1 502 no user:proxy-secret\r\n\r\n"
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

// about attaches a manifest to a subject: under the tag with this end, or without one as
// a referrer.
func (f forge) about(subject ocispec.Descriptor, end string) ocispec.Descriptor {
	f.t.Helper()
	return f.attach(subject, end, f.put("application/x", []byte("about "+subject.Digest.String()+end)))
}

// What is attached to the manifest of a platform, and to what is attached, goes from
// medium to medium with the rest, also through a registry and with a served delta.
func TestWhatIsAttachedAnywhereTravels(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.key(t, "k")
	w.must(t, "lock", "@up", "-q", "--release", "csi@3.5.1", "-o", "old.yaml")
	w.must(t, "pull", "@up", "-q", "--lock", "old.yaml", "-o", "old.tar")
	login := must(remote.ConfigCredentials("login", w.mirror.DockerConfig()))(t)
	client, err := remote.NewClient(remote.Options{CA: w.mirror.CA(), PlainHTTP: []string{w.upstream.Host}, Credentials: login})
	require.NoError(t, err)

	for name, pull := range map[string][]string{"whole": nil, "delta": {"--base", "old.tar"}} {
		t.Run(name, func(t *testing.T) {
			w.must(t, append([]string{"pull", "@up", "-q", "--sign-key", "k.key", "--provenance", "-o", "oci:" + name}, pull...)...)
			f := forge{t, filepath.Join(w.dir, name)}
			var root, driver ocispec.Index
			require.NoError(t, json.Unmarshal(f.read(f.named("bundle")), &root))
			at := slices.IndexFunc(root.Manifests, func(d ocispec.Descriptor) bool {
				return strings.HasSuffix(d.Annotations["vdo.vmware.com/reference"], "csi/driver:v3.5.1")
			})
			require.NoError(t, json.Unmarshal(f.read(root.Manifests[at]), &driver))
			platform := driver.Manifests[0]
			signature, referrer := f.about(platform, ".sig"), f.about(platform, "")
			attested := f.about(referrer, ".att")
			referrers := map[string]int{
				f.named("bundle").Digest.String(): 4, // signature and provenance, each in both forms
				platform.Digest.String():          2, referrer.Digest.String(): 1,
				signature.Digest.String(): 1, attested.Digest.String(): 1,
			}
			f.about(signature, "")
			f.about(attested, ".sig")

			requireAttached := func(reference string) {
				ref := must(image.ParseReference(reference))(t)
				got := map[string]int{}
				for subject := range referrers {
					digest := must(image.ParseDigest(subject))(t)
					list, err := client.Repository(ref).Attachments(t.Context(), digest)
					if err == nil {
						got[subject] = len(list)
					}
				}
				require.Equal(t, referrers, got, reference)
			}
			src := "oci:" + name
			if pull != nil {
				s := w.serve(t, src, "--base", "old.tar", "--key", "k.pub", "--as", "site/boot:7")
				defer s.end(t)
				require.Equal(t, s.Address+"/site/boot@"+s.Root, s.Reference)
				require.False(t, s.TLS || s.Login)
				require.Contains(t, s.Repositories, "site/boot/registry.test/csi/driver")
				w.must(t, "verify", s.Address+"/site/boot:7", "--key", "k.pub", "--plain-http", s.Address)
				require.NotContains(t, w.must(t, "inspect", s.Reference, "--plain-http", s.Address), "delta")
				src = s.Reference
			}
			plain := []string{"--plain-http", w.upstream.Host, "-q", "--ca-file", "ca.crt"}
			if host, _, ok := strings.Cut(src, "/site"); ok {
				plain = append(plain, "--plain-http", host)
			}
			for n, to := range []string{w.upstream.Host, w.mirror.Host} { // from a registry to the next
				to = fmt.Sprintf("%s/vdo/%s:%d", to, name, n)
				w.must(t, append([]string{"push", src, to, "--key", "k.pub", "--layout", "paths"}, plain...)...)
				requireAttached(to)
				src = to
				beside := strings.Split(to, ":")
				ref := must(image.ParseReference(strings.Join(beside[:2], ":") + "/registry.test/csi/driver:v3.5.1"))(t)
				digest := must(image.ParseDigest(attested.Digest.String()))(t)
				list := must(client.Repository(ref).Attachments(t.Context(), digest))(t)
				require.Len(t, list, 1)
			}
		})
	}
}

// Where the registry mounts, no byte of the base goes over the line: neither out of
// the named repository, nor out of those that --layout paths made.
func TestBaseOfADeltaIsMounted(t *testing.T) {
	stored := t.TempDir()
	w := newWorldOf(t, t.TempDir(), registry.Options{}, registry.Options{Dir: stored, TLS: true, Auth: registry.Token})
	w.must(t, "lock", "@up", "-q", "--release", "csi@3.5.1", "-o", "old.yaml")
	w.must(t, "lock", "@up", "-q", "--release", "csi@3.5.1", "--release", "cpi@1.34.0", "-o", "new.yaml")
	w.key(t, "k")
	w.must(t, "pull", "@up", "-q", "--lock", "old.yaml", "-o", "old.tar")
	w.must(t, "pull", "@up", "-q", "--lock", "new.yaml", "--base", "old.tar", "--sign-key", "k.key", "-o", "delta.tar")
	drivers := w.mirror.Host + "/vdo/drivers"
	w.must(t, "push", "old.tar", drivers+":1", "--ca-file", "ca.crt", "-q", "--layout", "paths")

	push := func(to string, more ...string) {
		w.mirror.ForgetRequests()
		args := []string{"push", "delta.tar", to, "--ca-file", "ca.crt", "-q", "--format", "json"}
		out := w.must(t, append(args, more...)...)
		info := must(os.Stat(filepath.Join(w.dir, "delta.tar")))(t)
		var sent int64
		for _, q := range w.mirror.Requests() {
			require.False(t, q.Method == http.MethodGet && strings.Contains(q.Path, "/blobs/"), "%s is read", q.Path)
			sent += q.Received
		}
		require.Less(t, sent, info.Size()+10_000, "only the delta is sent") // and the note that all arrived
		var told struct{ Moved int64 }
		require.NoError(t, json.Unmarshal([]byte(out), &told))
		require.Less(t, told.Moved, info.Size())
		w.must(t, "verify", to, "--key", "k.pub", "--ca-file", "ca.crt", "-q")
	}
	push(w.mirror.Host+"/vdo/next:2", "--mount-from", drivers)

	// The bundle's own repository has lost its layers; the images beside it have them.
	require.NoError(t, os.RemoveAll(filepath.Join(stored, "docker/registry/v2/repositories/vdo/drivers/_layers")))
	push(drivers + ":2")
}
