// Package registry runs real registries in process, for tests and for the demo.
//
//	reg := registry.Start(t, registry.Options{TLS: true, Auth: registry.Token})
//	reg.Host              // 127.0.0.1:40123, as a reference writes it
//	reg.CAFile(t)         // the private CA to trust
//	reg.DockerConfig()    // config.json with the login
//	reg.Fail(registry.Fault{Match: registry.Match{Method: "PUT"}, Status: 503, Times: 2})
//	reg.Count("POST", "/blobs/uploads/")
//
// Kinds: the reference implementation (github.com/distribution/distribution), and go-containerregistry's registry
// with and without the referrers API. In front of each are a recorder of requests and, nearer to the client, the
// faults of the test.
package registry

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/token" // the login "token"
	"github.com/distribution/distribution/v3/registry/handlers"
	storagedriver "github.com/distribution/distribution/v3/registry/storage/driver"
	"github.com/distribution/distribution/v3/registry/storage/driver/factory"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // the storage "filesystem"
	"github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/sirupsen/logrus"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

// Kind is an implementation of a registry.
type Kind int

// The kinds.
const (
	// Distribution is the CNCF's registry: no referrers API, validates manifests.
	Distribution Kind = iota
	// Referrers is go-containerregistry's, with the referrers API.
	Referrers
	// Simple is go-containerregistry's, without it.
	Simple
)

// Auth is the authentication of a registry.
type Auth int

// The kinds of authentication.
const (
	None  Auth = iota
	Basic      // name and password
	Token      // bearer tokens of a token service at /auth/token (Distribution only)
)

// Options of a registry. The zero value is a Distribution registry without TLS or login, in memory, on a free
// loopback port.
type Options struct {
	Kind     Kind
	TLS      bool
	Auth     Auth
	Password string // default "s3cret-of-the-registry"
	// Address to listen on; default 127.0.0.1:0.
	Address string
	// Names are further names and addresses for the certificate.
	Names []string
	// Dir keeps the content in a directory (Distribution); default: memory.
	Dir string
	// ReadOnly refuses writes with 405, as registries under maintenance do (Distribution).
	ReadOnly bool
	// PullOnly makes the token service grant only pull (Token).
	PullOnly bool
	// AnonymousPull makes the token service grant pull to clients without a login. An empty login is a wrong one.
	AnonymousPull bool
	// ClientCertificates demands a certificate of the registry's CA, see [Registry.ClientCertificate] (TLS).
	ClientCertificates bool
	// Clock dates the answers; default: the current time.
	Clock func() time.Time
	// RelativeURLs answers upload locations without scheme and host (Distribution).
	RelativeURLs bool
}

// Registry is a running registry.
type Registry struct {
	// Host is the address as references write it: 127.0.0.1:40123.
	Host string
	// Username and Password log in, if the registry demands a login.
	Username, Password string

	opts    Options
	ca      pki.Authority
	tokens  *tokenService
	app     http.Handler // the registry with its own authentication
	scratch string
	close   []func()

	underWay sync.RWMutex // held by each request for reading

	mu       sync.Mutex
	faults   []*Fault
	requests []*note
}

// Request is one request to a registry.
type Request struct {
	Method string
	Path   string // without the query
	Status int    // 0: no answer yet, or the connection was cut before it
	// Authorization is whether the client sent credentials.
	Authorization bool
	// Range is the request's Range header, Digest the one in its query.
	Range, Digest string
	// Received and Sent are the bytes of the bodies.
	Received, Sent int64
}

// Start runs a registry until the test ends.
func Start(t testing.TB, o Options) *Registry {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatalf("start registry: %v", err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// New runs a registry until Close.
func New(o Options) (_ *Registry, err error) {
	o.Password, o.Address = cmp.Or(o.Password, "s3cret-of-the-registry"), cmp.Or(o.Address, "127.0.0.1:0")
	if o.Auth == Token && o.Kind != Distribution {
		return nil, errors.New("only the Distribution registry knows tokens")
	}
	r := &Registry{Username: "vdo", Password: o.Password, opts: o}
	defer func() {
		if err != nil {
			_ = r.Close()
		}
	}()
	if r.scratch, err = os.MkdirTemp("", "vdo-registry-"); err != nil {
		return nil, err
	}
	if r.ca, err = (pki.Authority{}).New(pki.Spec{Name: "test registry CA", CA: true}); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, err
	}
	r.Host = listener.Addr().String()
	if r.app, err = r.newApp(); err != nil {
		_ = listener.Close()
		return nil, err
	}
	return r, r.serve(listener)
}

// serve serves on a listener with the registry's certificate.
func (r *Registry) serve(listener net.Listener) error {
	server := &http.Server{
		Handler:           r.counted(r.record(r.inject(r.app))),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	if !r.opts.TLS {
		r.run(func() error { return server.Serve(listener) }, server)
		return nil
	}
	ip := listener.Addr().(*net.TCPAddr).IP.String() //nolint:forcetypeassert // of a TCP listener
	cert, err := r.issue(x509.ExtKeyUsageServerAuth, append([]string{ip}, r.opts.Names...)...)
	if err != nil {
		_ = listener.Close()
		return err
	}
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert.TLS()}, MinVersion: tls.VersionTLS12}
	server.TLSConfig.CurvePreferences = []tls.CurveID{tls.X25519} // ML-KEM takes both sides as long again
	if r.opts.ClientCertificates {
		server.TLSConfig.ClientAuth, server.TLSConfig.ClientCAs = tls.RequireAndVerifyClientCert, r.ca.Pool()
	}
	r.run(func() error { return server.ServeTLS(listener, "", "") }, server)
	return nil
}

// run serves in a goroutine that Close waits for.
func (r *Registry) run(serve func() error, server *http.Server) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = serve()
	}()
	r.close = append(r.close, func() {
		_ = server.Close()
		<-done
		r.underWay.Lock()
		defer r.underWay.Unlock()
	})
}

// counted makes Close wait for active requests: one that still writes would fill the directory that is being removed.
func (r *Registry) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.underWay.RLock()
		defer r.underWay.RUnlock()
		if r.opts.Clock != nil {
			w.Header().Set("Date", r.opts.Clock().UTC().Format(http.TimeFormat))
		}
		h.ServeHTTP(w, req)
	})
}

// issue issues a certificate of the registry's CA, for a server with these further names.
func (r *Registry) issue(use x509.ExtKeyUsage, names ...string) (pki.Authority, error) {
	names = append([]string{"127.0.0.1", "::1", "localhost"}, names...)
	return r.ca.New(pki.Spec{Name: "test registry", DNS: names, Usage: []x509.ExtKeyUsage{use}})
}

// Certificate issues a further certificate of the registry's CA for a server on 127.0.0.1, ::1 and localhost.
func (r *Registry) Certificate() (pki.Authority, error) { return r.issue(x509.ExtKeyUsageServerAuth) }

func (r *Registry) newApp() (h http.Handler, err error) {
	if r.opts.Kind == Distribution {
		h, err = r.newDistribution()
	} else {
		h = ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)), ggcr.WithReferrersSupport(r.opts.Kind == Referrers))
	}
	if err == nil && r.opts.Auth == Basic {
		h = r.requireBasic(h)
	}
	return h, err
}

// requireBasic checks name and password. The reference implementation's own check hashes the password with bcrypt at
// each request: most of a test's time under the race detector.
func (r *Registry) requireBasic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if u, p, ok := req.BasicAuth(); ok && u == r.Username && p == r.Password {
			next.ServeHTTP(w, req)
			return
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED")
	})
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, code, strings.ToLower(http.StatusText(status)))
}

// Close ends the registry and removes its content outside Options.Dir.
func (r *Registry) Close() error {
	for i := len(r.close) - 1; i >= 0; i-- {
		r.close[i]()
	}
	r.close = nil
	if r.scratch == "" {
		return nil
	}
	return os.RemoveAll(r.scratch)
}

// CA returns the certificate of the registry's CA, as PEM.
func (r *Registry) CA() []byte { return r.ca.PEM() }

// CAFile writes CA to a file of the test and returns its name.
func (r *Registry) CAFile(t testing.TB) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(name, r.CA(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// ClientCertificate writes a certificate that the registry accepts, and its key, to files of the test.
func (r *Registry) ClientCertificate(t testing.TB) (certFile, keyFile string) {
	t.Helper()
	cert := r.ca.Issue(t, pki.Spec{Name: "client", Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	err := errors.Join(os.WriteFile(certFile, cert.PEM(), 0o600), os.WriteFile(keyFile, cert.KeyPEM(), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return certFile, keyFile
}

// DockerConfig returns a docker config.json with the login for this registry.
func (r *Registry) DockerConfig() []byte {
	if r.opts.Auth == None {
		return []byte(`{"auths":{}}`)
	}
	login := base64.StdEncoding.EncodeToString([]byte(r.Username + ":" + r.Password))
	return fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, r.Host, login)
}

// TLS reports whether the registry uses HTTPS.
func (r *Registry) TLS() bool { return r.opts.TLS }

// URL returns the registry's base: https://127.0.0.1:40123.
func (r *Registry) URL() string {
	if r.opts.TLS {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// Transport returns an HTTP transport that trusts the registry.
func (r *Registry) Transport() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.ca.Pool(), MinVersion: tls.VersionTLS12}}
}

// Requests returns the requests in their order of arrival, active ones included.
func (r *Registry) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Request, 0, len(r.requests))
	for _, n := range r.requests {
		q := n.Request
		q.Status, q.Sent, q.Received = int(n.status.Load()), n.sent.Load(), n.received.Load()
		out = append(out, q)
	}
	return out
}

// ForgetRequests clears the record.
func (r *Registry) ForgetRequests() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
}

// Count returns how many requests of a method had a path that contains part.
// An empty method counts all.
func (r *Registry) Count(method, part string) int {
	n := 0
	for _, q := range r.Requests() {
		if (method == "" || q.Method == method) && strings.Contains(q.Path, part) {
			n++
		}
	}
	return n
}

// note is an active or answered request.
type note struct {
	Request
	status, sent, received atomic.Int64
}

// record records every request before its answer, and every byte before it is sent: the record has everything that a
// client has seen.
func (r *Registry) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n := &note{Request: Request{
			Method: req.Method, Path: req.URL.Path, Range: req.Header.Get("Range"), Digest: req.URL.Query().Get("digest"),
			Authorization: req.Header.Get("Authorization") != "",
		}}
		r.mu.Lock()
		r.requests = append(r.requests, n)
		r.mu.Unlock()
		req.Body = &countingBody{req.Body, n}
		next.ServeHTTP(&recorder{w, n}, req)
	})
}

type recorder struct {
	http.ResponseWriter
	note *note
}

func (w *recorder) WriteHeader(status int) {
	if status >= 200 {
		w.note.status.CompareAndSwap(0, int64(status))
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(p []byte) (int, error) {
	w.note.status.CompareAndSwap(0, http.StatusOK)
	w.note.sent.Add(int64(len(p)))
	n, err := w.ResponseWriter.Write(p)
	w.note.sent.Add(int64(n - len(p)))
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type countingBody struct {
	io.ReadCloser
	note *note
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.note.received.Add(int64(n))
	return n, err
}

// Storage opens a second address that serves the same content without login, like the object store behind a registry.
// The returned Registry records its requests; it ends with the test.
func (r *Registry) Storage(t testing.TB) *Registry {
	t.Helper()
	s := &Registry{opts: r.opts, ca: r.ca}
	s.opts.Auth = None
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start storage: %v", err)
	}
	s.Host = listener.Addr().String()
	s.app = r.Stored()
	if err := s.serve(listener); err != nil {
		t.Fatalf("start storage: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Stored returns a handler that reads and changes the registry's content without login, faults and record. It tells a
// test the true content.
func (r *Registry) Stored() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		inner := req.Clone(req.Context())
		r.authorize(inner)
		r.app.ServeHTTP(w, inner)
	})
}

const index = "application/vnd.oci.image.index.v1+json"

// manifest reads a manifest, or with a body puts it, without login, faults and record.
func (r *Registry) manifest(method, repository, at string, body io.Reader) (*httptest.ResponseRecorder, error) {
	req := httptest.NewRequest(method, "/v2/"+repository+"/manifests/"+at, body)
	req.Header = http.Header{"Accept": {index + ", application/vnd.oci.image.manifest.v1+json"}, "Content-Type": {index}}
	w := httptest.NewRecorder()
	if r.Stored().ServeHTTP(w, req); w.Code >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("%s %s, %s: %d: %s", method, repository, at, w.Code, w.Body)
	}
	return w, nil
}

// Retag makes a tag name the index of another tag or digest, and returns its digest.
func (r *Registry) Retag(repository, from, to string) (digest string, err error) {
	was, err := r.manifest(http.MethodGet, repository, from, nil)
	if err != nil {
		return "", err
	}
	is, err := r.manifest(http.MethodPut, repository, to, was.Body)
	if err != nil {
		return "", err
	}
	return is.Header().Get("Docker-Content-Digest"), nil
}

// Serves returns an error unless a node that pulls an image by digest, HOST/PATH@DIGEST, finds it here.
func (r *Registry) Serves(image string) error {
	repository, digest, ok := strings.Cut(image, "@")
	path, here := strings.CutPrefix(repository, r.Host+"/")
	if !ok || !here {
		return fmt.Errorf("%s is not an image of %s by digest", image, r.Host)
	}
	_, err := r.manifest(http.MethodHead, path, digest, nil)
	return err
}

// authorize adds a login with all permissions to a request.
func (r *Registry) authorize(req *http.Request) {
	switch r.opts.Auth {
	case None:
	case Basic:
		req.SetBasicAuth(r.Username, r.Password)
	case Token:
		path, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/v2/"), "/blobs/")
		path, _, _ = strings.Cut(path, "/manifests/")
		token, err := r.tokens.mint("storage", []string{"repository:" + path + ":pull,push,delete"})
		if err == nil {
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
}

// silence turns off the registry's log, which goes only to logrus' global logger.
var silence = sync.OnceFunc(func() { logrus.SetOutput(io.Discard) })

// newDistribution returns the reference registry, ready to serve.
func (r *Registry) newDistribution() (h http.Handler, err error) {
	silence()
	config, err := r.configuration()
	if err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil { // its constructor panics on invalid settings
			err = fmt.Errorf("start distribution: %v", p)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	app := handlers.NewApp(ctx, config)
	r.close = append(r.close, func() { _ = app.Shutdown(); cancel() })
	if r.tokens == nil {
		return app, nil
	}
	mux := http.NewServeMux()
	mux.Handle("/auth/token", r.tokens)
	mux.Handle("/", app)
	return mux, nil
}

func (r *Registry) configuration() (*configuration.Configuration, error) {
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	c := &configuration.Configuration{Storage: configuration.Storage{
		memory:        nil,
		"delete":      {"enabled": true},
		"redirect":    {"disable": true},
		"maintenance": {"uploadpurging": map[any]any{"enabled": false}, "readonly": map[any]any{"enabled": r.opts.ReadOnly}},
	}}
	if r.opts.Dir != "" {
		delete(c.Storage, memory)
		c.Storage["filesystem"] = configuration.Parameters{"rootdirectory": r.opts.Dir}
	}
	c.HTTP.Secret = hex.EncodeToString(secret)
	c.HTTP.RelativeURLs = r.opts.RelativeURLs
	if r.opts.Auth != Token {
		return c, nil
	}
	tokens, err := newTokenService(r)
	if err != nil {
		return nil, err
	}
	r.tokens = tokens
	c.Auth = configuration.Auth{"token": {
		"realm": r.URL() + "/auth/token", "service": tokenAudience, "issuer": tokenIssuer, "rootcertbundle": tokens.bundle,
	}}
	return c, nil
}

const memory = "gathered-memory"

func init() { factory.Register(memory, memoryFactory{}) }

type memoryFactory struct{}

func (memoryFactory) Create(context.Context, map[string]any) (storagedriver.StorageDriver, error) {
	return memoryDriver{inmemory.New()}, nil
}

// memoryDriver is distribution's storage in memory with a different writer. The original copies the whole content at
// each write of 32 KiB, a third of the tests' work.
type memoryDriver struct{ *inmemory.Driver }

func (d memoryDriver) Writer(ctx context.Context, path string, appending bool) (storagedriver.FileWriter, error) {
	w, err := d.Driver.Writer(ctx, path, appending)
	if err != nil {
		return nil, err
	}
	return &gatherer{FileWriter: w}, nil
}

// gatherer passes all data on in one write, when the file is closed or committed; the original would also keep it in
// memory until then.
type gatherer struct {
	storagedriver.FileWriter
	kept bytes.Buffer
}

func (g *gatherer) Write(p []byte) (int, error) { return g.kept.Write(p) }

func (g *gatherer) Commit(ctx context.Context) error {
	return errors.Join(g.pass(), g.FileWriter.Commit(ctx))
}

func (g *gatherer) Close() error { return errors.Join(g.pass(), g.FileWriter.Close()) }

func (g *gatherer) Cancel(ctx context.Context) error {
	g.kept.Reset()
	return g.FileWriter.Cancel(ctx)
}

func (g *gatherer) pass() error {
	_, err := g.kept.WriteTo(g.FileWriter)
	return err
}
