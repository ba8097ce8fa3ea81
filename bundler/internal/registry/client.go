// Package registry moves bundles and images to and from OCI registries.
//
// A [Client] holds what is the same for all registries: credentials, trusted
// certificates, how many transfers a host takes at once, and how long to try. A
// [Repository] is one name in one registry; it is read from (Root, Fetch,
// Attachments), written to (Begin, Put, Commit) and added to (Attach).
//
// What holds for every request:
//   - HTTPS, unless the host was named in Options.PlainHTTP. Loopback and private
//     addresses are no exception.
//   - Credentials go to the host they are for, and to the token service that this
//     host names over HTTPS; never to the target of a redirect or of an upload
//     location on another host. A client certificate is shown to none of these but
//     the host itself, also where the other host has one in its settings.
//   - Faults that can pass (a reset, a short body, a timeout, 429, 5xx) are tried
//     again, with exponential backoff, jitter and the server's Retry-After; a blob
//     goes on where it stopped.
//   - Whatever a server sends is bounded; manifests are verified here, blobs by
//     who reads them (see [Repository.Fetch]).
//   - What remains is a fault that names the operation, the reference and the
//     remedy. No message holds a credential, nor a URL's query.
//
// # What is there already
//
// A push asks for every blob and every manifest by its digest before it sends
// anything: that a root is there proves nothing, since a push that broke off, or a
// garbage collection, may have left any part of what is below it. Once everything
// was written, asked for again and read back, [Repository.Remember] leaves a note:
// an image manifest of the artifact type application/vnd.vdo.confirmed.v1 under the
// tag sha256-<hex of the root>.confirmed, with the empty configuration and layer of
// the OCI specification and four annotations (the prefix is
// com.vmware.vdo.confirmed): repository, the name that it was pushed to; root, the
// digest of the root; pushed, when a push last put a tag on it, by the registry's clock
// (RFC 3339), for who prunes; set, the sha256 over the sorted lines "DIGEST SIZE" of all
// blobs and manifests and "DIGEST of SUBJECT at "TAG"" of all attachments, each
// with its newline.
//
// A later push of the same bundle that finds a note of this set asks for the
// root, the tag, the root's signatures with their blobs and a random sample of eight
// other blobs and manifests only. Any of them missing leads to the full look, before
// which the note is overwritten by one with an empty set: no push believes that, until
// one has come to its end. So does Options.CheckAll lead to the full look.
//
// Where there are many small blobs (128 of up to 128 KiB), and neither the root nor any
// of 32 that chance picks is there, the others are not asked for beforehand: each is in
// the request that opens its upload, which asks the registry to mount the blob from the
// very repository that it goes to. The answer is 201 where the blob is there, and else
// an upload. Whether the registry does so is tried with the first blob that was sent;
// one that does not is asked for each blob before its upload.
//
// A note is worth nothing in another repository, so that a
// replication that has copied the tags and not yet the rest does not look complete.
// It has no subject: it never travels with a bundle, and it is not what a cluster
// trusts, since every reader verifies what it reads. Who removes a bundle removes
// its note.
//
// # Large blobs up
//
// A blob is the body of one PUT, and larger ones than Options.ChunkSize are sent in
// parts (PATCH with Content-Range). Where nothing was said, parts are tried after a
// 413, and where a connection broke in the middle of more than 1 MiB: 64 MiB (after
// a broken connection 16 MiB), then a quarter with each refusal, not less than
// 256 KiB; what a host took is kept for its other blobs. After a fault the registry
// is asked how much it has, and the upload goes on there; the source is read again
// from the last part's beginning at most. A blob that another repository of the
// same registry has is mounted, where the registry offers that.
//
// # When a host has had enough
//
// A 429, or a 503 with Retry-After, holds back everything that goes to that host,
// not only the request that was refused, and halves how much is done there at a
// time; that grows again by one with every two rounds of success. So does a connection
// that is cut, without the pause. What is small begins with four times
// Options.Concurrency, and has one more with each success, up to sixteen times, until
// the first such fault.
//
// # Settings of single hosts
//
// A file of YAML, in which unknown keys are refused ([ParseConfig]):
//
//	apiVersion: vdo.vmware.com/registries/v1
//	kind: RegistryConfig
//	hosts:
//	  registry.site:5000:        # as references write it, with the port
//	    ca: site-ca.crt          # PEM, trusted for this host; found from the file's folder
//	    clientCert: desk.crt     # PEM, shown to this host, not where another points to it
//	    clientKey: desk.key      # PEM, not encrypted
//	    plainHTTP: false         # true: no TLS
//	    concurrency: 3           # blobs at a time, 1 to 64, where that is less than for all hosts
//	    chunkSize: 50MB          # the largest body; also MiB
//	  registry.k8s.io:
//	    mirror: mirror.corp/k8s  # HOST[/PATH] from which its images are fetched
//
// The hosts that upstream manifests are downloaded from may be among them: ca,
// clientCert, clientKey, plainHTTP and concurrency (of requests) hold for those, too.
package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

// Options say how registries are reached. The zero value is what a user expects
// who said nothing.
type Options struct {
	// Credentials finds the login for a repository. Nil: the docker and podman
	// configuration of the environment, see [DefaultCredentials].
	Credentials CredentialFunc
	// CAFile is a PEM file of certificates trusted besides the system's own.
	CAFile string
	// CA is the same as bytes.
	CA []byte
	// ClientCert and ClientKey are PEM files of the certificate that hosts are shown
	// which the user named and which ask for one.
	ClientCert, ClientKey string
	// Hosts are settings of single hosts, as references write them.
	Hosts map[string]HostOptions
	// PlainHTTP are the hosts, as references write them (with the port), that are
	// spoken to without TLS.
	PlainHTTP []string
	// UserAgent is sent with each request. Empty: "vdo-bundle".
	UserAgent string
	// Concurrency is how many blobs are read from, and how many written to, one
	// host at a time; of blobs up to 128 KiB and of other small requests, four times
	// as many, and up to sixteen times where the host keeps up. Zero: 6.
	Concurrency int
	// Ranges is over how many connections a blob of 64 MiB or more is read, as far as
	// the slots of Concurrency are free: for hosts that hold each connection to a part
	// of what the link can do. They take 16 MiB of memory, all together. Zero: one.
	Ranges int
	// ChunkSize is the largest body of a request that sends a part of a blob; larger
	// blobs are sent in several. Zero: whole blobs, and parts where a host, or a
	// proxy before it, does not take a whole one.
	ChunkSize int64
	// Rate is how many bytes a second all transfers together may take. Zero: all.
	Rate int64
	// Attempts is how often a request is made before its fault is final. Zero: 6.
	Attempts int
	// Backoff is the wait before the second attempt; it doubles up to a minute.
	// Zero: half a second.
	Backoff time.Duration
	// Stall is how long a host may be silent, before its answer or in the middle
	// of it, and over how long it has to send 64 bytes a second at least. Zero: one
	// minute.
	Stall time.Duration
	// OmitRefused pushes a bundle without the attachments that the registry does not
	// take, instead of leaving it untagged.
	OmitRefused bool
	// CheckAll makes every push ask for every part, whatever was noted earlier.
	CheckAll bool
	// Sleep waits between attempts. Nil: the clock. Tests set it.
	Sleep func(ctx context.Context, d time.Duration) error
}

const (
	defaultConcurrency = 6
	defaultAttempts    = 6
	defaultBackoff     = 500 * time.Millisecond
	maxBackoff         = time.Minute
	defaultStall       = time.Minute
	maxCAFile          = 4 << 20
)

// Client speaks to registries. It is safe for concurrent use.
type Client struct {
	opts     Options
	plain    map[string]bool
	own      *http.Transport       // to hosts that the user named
	named    map[string]transports // to those that have their own, by address
	foreign  *http.Transport       // to hosts that a server named
	segments *slots                // places in memory for parts of blobs that are read over several connections
	pace     *pace

	mu    sync.Mutex
	hosts map[string]*host
}

// NewClient checks the options and returns a client. Nothing is sent yet.
func NewClient(o Options) (*Client, error) {
	pool, err := certificates(o)
	if err != nil {
		return nil, err
	}
	if o.Credentials == nil {
		o.Credentials = DefaultCredentials
	}
	if o.UserAgent == "" {
		o.UserAgent = "vdo-bundle"
	}
	if o.Concurrency <= 0 {
		o.Concurrency = defaultConcurrency
	}
	if o.Attempts <= 0 {
		o.Attempts = defaultAttempts
	}
	if o.Backoff <= 0 {
		o.Backoff = defaultBackoff
	}
	if o.Stall <= 0 {
		o.Stall = defaultStall
	}
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	certs, err := clientCertificate(o.ClientCert, o.ClientKey)
	if err != nil {
		return nil, err
	}
	c := &Client{opts: o, plain: map[string]bool{}, hosts: map[string]*host{}, named: map[string]transports{}, segments: newSlots(maxSegments, maxSegments)}
	if err := c.configure(pool); err != nil {
		return nil, err
	}
	if o.Rate > 0 {
		c.pace = &pace{rate: o.Rate, sleep: o.Sleep}
	}
	c.own = newTransport(pool, certs, o, nil)
	c.foreign = newTransport(pool, nil, o, refuseLinkLocal)
	return c, nil
}

// Close drops idle connections.
func (c *Client) Close() error {
	c.own.CloseIdleConnections()
	c.foreign.CloseIdleConnections()
	for _, t := range c.named {
		t.own.CloseIdleConnections()
		t.foreign.CloseIdleConnections()
	}
	return nil
}

// Repository returns the repository that ref names; with ref's tag or digest as
// what Root resolves and Commit names.
func (c *Client) Repository(ref image.Reference) *Repository {
	return &Repository{client: c, ref: ref, host: c.host(ref.Host())}
}

// certificates returns the system's pool with the user's certificates added.
func certificates(o Options) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if err := addFile(pool, o.CAFile); err != nil {
		return nil, err
	}
	if len(o.CA) > 0 && !pool.AppendCertsFromPEM(o.CA) {
		return nil, badCA("")
	}
	return pool, nil
}

// addFile adds the certificates of a file; of none, none.
func addFile(pool *x509.CertPool, name string) error {
	if name == "" {
		return nil
	}
	data, err := readFile(name, maxCAFile)
	if err != nil {
		return &fault.Error{Reason: fault.InvalidInput, Op: "read CA file", Subject: name, Hint: "name a readable PEM file", Err: err}
	}
	if !pool.AppendCertsFromPEM(data) {
		return badCA(name)
	}
	return nil
}

func badCA(name string) error {
	return &fault.Error{
		Reason: fault.InvalidInput, Op: "read CA certificates", Subject: name,
		Hint: "give the certificate authority's certificate as PEM (BEGIN CERTIFICATE)",
		Err:  errors.New("there is no PEM certificate in it"),
	}
}

// newTransport speaks HTTP/1.1 only: one connection a transfer uses a link with
// delay or loss better than streams that share one, and a cut is one transfer's.
func newTransport(pool *x509.CertPool, certs []tls.Certificate, o Options, control func(network, address string, c syscall.RawConn) error) *http.Transport {
	dialer := &net.Dialer{Timeout: min(o.Stall, 30*time.Second), KeepAlive: 30 * time.Second, Control: control}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: pool, Certificates: certs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    min(o.Stall, 30*time.Second),
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConnsPerHost:    (2 + 2*manySmall) * o.Concurrency,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // a blob's bytes are its bytes
		Protocols:              protocols,
		ReadBufferSize:         16 << 10, // large reads and writes pass them by
		WriteBufferSize:        8 << 10,
	}
}

// refuseLinkLocal keeps a server from sending the client to link-local
// addresses, where clouds keep their metadata services. It sees the address that
// is dialled, so no name can get around it.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	h, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	ip := net.ParseIP(h)
	if ip == nil || ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() || ip.IsUnspecified() {
		return errLinkLocal
	}
	return nil
}

var errLinkLocal = errors.New("the server points to a link-local address, which is refused")

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// readFile reads a file of at most limit bytes.
func readFile(name string, limit int64) ([]byte, error) {
	f, err := userfile.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return readAll(f, limit)
}
