// Package remote is the OCI registry client of vdo-bundle and vdo-operator.
//
// A [Client] holds what all registries share: logins, trusted certificates, rate limit and
// retries. A [Repository] is one name in one registry, with its manifests, tags and referrers.
// It is read with Root, Fetch and Attachments, written with Begin, Put and Commit, and
// extended with Attach.
//
//	c, err := remote.NewClient(remote.Options{CAFiles: []string{"site-ca.crt"}})
//	repo := c.Repository(image.MustReference("registry.site/vdo/drivers:1"))
//	root, err := repo.Root(ctx)
//	data, err := bundle.Read(ctx, repo, root, bundle.MaxManifestSize)
//	about, err := repo.Attachments(ctx, digest)
//
// Every request keeps these rules:
//   - HTTPS, unless Options.PlainHTTP names the host, also to loopback and private
//     addresses. Certificates are verified, unless Options.SkipTLSVerify names the host.
//   - Credentials go to their host and to the token service that it names over HTTPS. They
//     never go to the target of a redirect or of an upload location on another host. Only the
//     host itself sees a client certificate.
//   - No server can send the client to a link-local address, with or without a proxy. With
//     Options.NoLoopback, no server can send it to this machine either.
//   - Transient faults (a reset, a short body, a timeout, 429, 5xx) are retried, with
//     exponential backoff, jitter and the server's Retry-After.
//   - Every answer is bounded, a list over all its pages. The reader verifies the content.
//   - Every other fault names the operation, the reference and the remedy. No message holds
//     a credential of four characters or more, nor a URL's query.
//
// oras.land/oras-go/v2 reads and writes entries of docker's configuration. It waits for a
// child of a killed credential helper, so this package runs helpers. Its registry client is
// not used:
//   - its retries cover neither a reset connection nor a short body
//   - it refuses token services of another name at a private address
//   - it does not know that tokens expire
//   - it loses one of two lists of referrers that are written concurrently
//   - it believes an OCI-Subject header without an API behind it
//   - it cannot delete a tag
//
// # Throttling
//
// A 429, or a 503 with Retry-After, pauses all requests to that host and halves their
// concurrency limit. Two rounds of success then raise the limit by one. Any other transient
// fault of a host that has answered before halves the limit too, without the pause. Small
// requests start with four times Options.Concurrency. Each success adds one until the first
// such fault, up to sixteen times Options.Concurrency and at most 128.
//
// # Existing content
//
// A push asks for every blob and manifest by digest before it sends anything. An existing root
// proves nothing: an aborted push or a garbage collection may have left any part of what is
// below it. A push of at least 128 small blobs (up to 128 KiB) without an existing root asks
// for a random sample of 32. If all of these are missing, it sends the others without asking.
//
// # The note of a push
//
// Registries do not say when a tag was written. A push that tags a bundle leaves a note for
// list and prune. The note is an image manifest of the artifact type
// application/vnd.vdo.confirmed.v1 under the tag sha256-<hex of the root>.confirmed. It has the
// empty configuration and layer of the OCI specification, and four annotations with the prefix
// com.vmware.vdo.confirmed. These are repository, the name that it was pushed to; root, the digest of
// the root; tag; and pushed. The last is the time by the registry's clock (RFC 3339). Until the tag is
// written, begun stands for it: an interrupted push may have written the tag or not. A note that names
// another repository is ignored: a replication has copied it. It has no subject, so that it never
// travels with a bundle. Removing a bundle removes its note.
//
// # Uploads of large blobs
//
// A blob is the body of one PUT. Blobs larger than Options.ChunkSize are sent in parts (PATCH
// with Content-Range). Without ChunkSize, the client tries parts after a 413, and after a
// connection broke in the middle of more than 1 MiB. Parts begin with 16 MiB; each refusal makes
// them a quarter, down to 256 KiB. The host's other blobs then use the size that it took. After
// a fault the client asks the registry how much it has, and continues from there.
package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/http/httpproxy"
	"golang.org/x/time/rate"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/userfile"
)

// Options say how the client reaches registries. The zero value holds the defaults.
type Options struct {
	// Credentials finds a repository's login. Nil: docker's and podman's configuration, see [DefaultCredentials].
	Credentials CredentialFunc
	// CAFiles are PEM files of certificates trusted besides the system's own.
	CAFiles []string
	// CA is the same as bytes, not a file.
	CA []byte
	// ClientCert and ClientKey are PEM files of the certificate for hosts that the user named and that request one.
	ClientCert, ClientKey string
	// Hosts are settings of single hosts, by host as references write it.
	Hosts map[string]HostOptions
	// PlainHTTP and SkipTLSVerify are hosts (as in references, with port) without TLS, or with unverified certificates.
	PlainHTTP, SkipTLSVerify []string
	// NoLoopback refuses redirects and locations on this machine, which may have private services.
	NoLoopback bool
	// LoginFlags are what `vdo-bundle login` needs in hints, with a space before each.
	LoginFlags string
	// UserAgent is sent with each request. Empty: "vdo-bundle".
	UserAgent string
	// Concurrency limits the blobs read from one host at a time, and the blobs written to it. Blobs up to 128 KiB and
	// other small requests start at four times that, and grow to sixteen times, at most 128. Zero: 6.
	Concurrency int
	// ChunkSize is the largest part of a blob in one request, in bytes; larger blobs take several. Zero: whole blobs,
	// and parts if the host or its proxy refuses a whole one.
	ChunkSize int64
	// OmitRefused pushes a bundle without the attachments that the registry refuses, instead of leaving it untagged.
	OmitRefused bool
	// Rate limits all transfers together, in bytes per second. Zero: unlimited.
	Rate int64
	// Attempts limits the attempts of one request. Zero: 6.
	Attempts int
	// Stall is how long a host may be silent, before or during its answer. Zero: one minute.
	Stall time.Duration
	// Sleep waits between attempts. Nil: the clock. Tests set it.
	Sleep func(ctx context.Context, d time.Duration) error
	// Transport replaces the network below TLS. Nil: the network, with the proxy of the environment. Tests set it.
	Transport *http.Transport
	// Trace receives every request, from many goroutines. Nil: no trace.
	Trace func(Exchange)
	// Paused receives the long pauses that a host demands of all requests, from many goroutines. Nil: none.
	Paused func(host string, pause time.Duration)
	// Explain turns the error that ended an operation on a subject into a fault. The error is an [AnswerError], a
	// network error, or a fault of this package. Nil: faults for a user of the vdo-bundle command line.
	Explain func(op, subject string, err error) error
}

const maxCAFile = 4 << 20

// Client speaks to registries. It is safe for concurrent use.
type Client struct {
	opts       Options
	transports map[string]transports // by address, for hosts that have their own; "": all others
	rate       *rate.Limiter         // of all transfers; nil: unlimited

	mu    sync.Mutex
	hosts map[string]*Host
}

// NewClient checks the options and returns a client. It sends nothing.
func NewClient(o Options) (*Client, error) {
	pool, err := certificates(o)
	if err != nil {
		return nil, err
	}
	c := &Client{opts: o.withDefaults(), hosts: map[string]*Host{}, transports: map[string]transports{}}
	if err := c.configure(pool); err != nil {
		return nil, err
	}
	if o.Rate > 0 {
		c.rate = rate.NewLimiter(rate.Limit(o.Rate), paced)
	}
	return c, nil
}

// proxies returns the proxy of a request, or a fault if the environment names it by no URL. Without that,
// net/http ignores the value, or takes its scheme for a host. The fault does not show it, since it may hold a password.
func proxies(env *httpproxy.Config) func(*http.Request) (*url.URL, error) {
	bad := map[string]error{} // by scheme of the request
	for scheme, proxy := range map[string]*string{"https": &env.HTTPSProxy, "http": &env.HTTPProxy} {
		value := *proxy
		if !strings.Contains(value, "://") {
			value = "http://" + value
		}
		u, err := url.Parse(value)
		if err != nil || u.RawQuery != "" || u.Fragment != "" || strings.Contains(u.Path, "@") {
			*proxy = "unusable" // NO_PROXY decides who needs it
			name := strings.ToUpper(scheme) + "_PROXY"
			if os.Getenv(name) == "" {
				name = strings.ToLower(name)
			}
			bad[scheme] = fault.Errorf(fault.InvalidInput, "read", name, "write "+
				"http://USER:PASSWORD@PROXY:PORT, with each special character of the password percent-encoded "+
				"(% as %25, # as %23, a space as %20)", "it is not the URL of a proxy")
		}
	}
	find := env.ProxyFunc()
	return func(req *http.Request) (*url.URL, error) {
		u, err := find(req.URL)
		if refused := bad[req.URL.Scheme]; u != nil && refused != nil {
			return nil, refused
		}
		return u, err
	}
}

func (o Options) withDefaults() Options {
	if o.Credentials == nil {
		o.Credentials = DefaultCredentials
	}
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	o.UserAgent = cmp.Or(o.UserAgent, "vdo-bundle")
	o.Concurrency = cmp.Or(max(o.Concurrency, 0), 6)
	o.Attempts = cmp.Or(max(o.Attempts, 0), 6)
	o.Stall = cmp.Or(max(o.Stall, 0), time.Minute)
	return o
}

// Close drops idle connections.
func (c *Client) Close() error {
	for _, t := range c.transports {
		t.own.CloseIdleConnections()
		t.foreign.CloseIdleConnections()
	}
	return nil
}

// Repository returns the repository that ref names. Root resolves ref's tag or digest.
func (c *Client) Repository(ref image.Reference) *Repository {
	return &Repository{client: c, ref: ref, host: c.Host(ref.Host())}
}

// certificates returns the system's pool with the user's certificates added.
func certificates(o Options) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	for _, name := range o.CAFiles {
		if err := addFile(pool, name); err != nil {
			return nil, err
		}
	}
	if len(o.CA) > 0 && !pool.AppendCertsFromPEM(o.CA) {
		return nil, badCA("")
	}
	return pool, nil
}

// addFile adds the certificates of a file; an empty name adds none.
func addFile(pool *x509.CertPool, name string) error {
	if name == "" {
		return nil
	}
	data, err := userfile.Read("--ca-file", name, maxCAFile)
	if err != nil {
		return err
	}
	if !pool.AppendCertsFromPEM(data) {
		return badCA(name)
	}
	return nil
}

func badCA(name string) error {
	return fault.Errorf(fault.InvalidInput, "read CA certificates", name,
		"give the CA certificate as PEM (BEGIN CERTIFICATE)", "there is no PEM certificate in it")
}

// newTransport returns a transport for HTTP/1.1 only. One connection per transfer uses a slow or lossy link better
// than shared streams, and a cut ends one transfer. A foreign one serves targets that a server named, and refuses
// forbidden addresses.
func newTransport(o Options, pool *x509.CertPool, certs []tls.Certificate, isForeign bool) *http.Transport {
	t := &http.Transport{Proxy: proxies(httpproxy.FromEnvironment())}
	if o.Transport != nil {
		t = o.Transport.Clone()
	}
	if t.DialContext == nil {
		d := &net.Dialer{Timeout: min(o.Stall, 30*time.Second), KeepAlive: 30 * time.Second}
		if isForeign {
			d.Control = func(_, address string, _ syscall.RawConn) error { return refuseAddress(address, o.NoLoopback) }
		}
		t.DialContext = d.DialContext
	}
	t.TLSClientConfig = &tls.Config{
		RootCAs: pool, Certificates: certs, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0),
	}
	t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, req *http.Request, resp *http.Response) error {
		switch resp.StatusCode {
		case http.StatusOK:
			return nil
		case http.StatusProxyAuthRequired:
			asks := Clean(strings.Join(resp.Header.Values("Proxy-Authenticate"), ", "), 100)
			return &AnswerError{Method: req.Method, Where: req.Host, Status: resp.StatusCode, Detail: asks}
		}
		status := fmt.Errorf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)) // not the proxy's text
		return &net.OpError{Op: "proxyconnect", Err: status}
	}
	t.TLSHandshakeTimeout = min(o.Stall, 30*time.Second)
	t.ExpectContinueTimeout = time.Second
	t.IdleConnTimeout = 90 * time.Second
	t.MaxIdleConnsPerHost = 4 * mostSmall // as many as are ever in use
	t.MaxResponseHeaderBytes = 64 << 10
	t.DisableCompression = true // blobs must arrive as they are
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.ReadBufferSize = 16 << 10 // large reads and writes bypass these buffers
	t.WriteBufferSize = 8 << 10
	return t
}

// refuseAddress keeps a server from sending the client to link-local addresses, where clouds have their metadata
// services. It checks the dialled address, so no name gets around it.
func refuseAddress(address string, loopback bool) error {
	h, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	ip := net.ParseIP(h)
	switch {
	case ip == nil || ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() || ip.IsUnspecified():
		return ErrLinkLocal
	case loopback && ip.IsLoopback():
		return ErrThisMachine
	}
	return nil
}

// ErrLinkLocal and ErrThisMachine refuse an address that a server named.
var (
	ErrLinkLocal   = errors.New("the server points to a link-local address, which is refused")
	ErrThisMachine = errors.New("the server points to this machine, which is refused")
)
