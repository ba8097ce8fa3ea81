// Package remote speaks to OCI registries: one code for vdo-bundle and vdo-operator.
//
// A [Client] holds what is the same for all registries: logins, trusted certificates,
// pace, patience. A [Repository] is one name in one registry, with its manifests, tags
// and referrers; it is read from (Root, Fetch, Attachments), written to (Begin, Put,
// Commit) and added to (Attach).
//
//	c, err := remote.NewClient(remote.Options{CAFile: "site-ca.crt"})
//	repo := c.Repository(image.MustReference("registry.site/vdo/drivers:1"))
//	root, err := repo.Root(ctx)
//	data, err := bundle.Read(ctx, repo, root, bundle.MaxManifestSize)
//	about, err := repo.Attachments(ctx, digest)
//
// What holds for every request:
//   - HTTPS, unless the host was named in Options.PlainHTTP, also to loopback and private
//     addresses. Certificates are verified, unless it was named in Options.SkipTLSVerify.
//   - Credentials go to the host they are for, and to the token service that this host names
//     over HTTPS; never to the target of a redirect or of an upload location on another host.
//     A client certificate is shown to none of these but the host itself.
//   - No server sends the client to a link-local address, through a proxy or without;
//     where Options.NoLoopback says so, nor to this machine.
//   - Faults that can pass (a reset, a short body, a timeout, 429, 5xx) are tried
//     again, with exponential backoff, jitter and the server's Retry-After.
//   - Whatever a server sends is bounded, a list over all its pages; content is
//     verified by who reads it.
//   - What remains is a fault that names the operation, the reference and the
//     remedy. No message holds a credential of four characters or more, nor a URL's query.
//
// oras.land/oras-go/v2 reads and writes entries of docker's configuration, and runs credential
// helpers. Its client of registries is not used: its retries cover neither a reset connection nor a
// short body, it refuses token services of another name at a private address, does not know that
// tokens expire, loses one of two lists of referrers that are written at a time, believes an
// OCI-Subject without an API behind it, and cannot delete a tag.
//
// # When a host has had enough
//
// A 429, or a 503 with Retry-After, holds back everything that goes to that host, and halves how
// much is done there at a time; that grows again by one with every two rounds of success. So does
// any other fault that can pass of a host that has answered, without the pause. What is small begins
// with four times Options.Concurrency, and has one more with each success, up to sixteen times and
// 128, until the first such fault.
//
// # What is there already
//
// A push asks for every blob and every manifest by its digest before it sends
// anything: that a root is there proves nothing, since a push that broke off, or a
// garbage collection, may have left any part of what is below it. Where there are many
// small blobs (128 of up to 128 KiB), and neither the root nor any of 32 that chance picks
// is there, the others are sent without asking.
//
// # The note of a push
//
// Registries do not tell when a tag was put. A push that put one on a bundle leaves a note
// of it, for who lists and prunes: an image manifest of the artifact type
// application/vnd.vdo.confirmed.v1 under the tag sha256-<hex of the root>.confirmed, with
// the empty configuration and layer of the OCI specification and three annotations (the
// prefix is com.vmware.vdo.confirmed): repository, the name that it was pushed to; root,
// the digest of the root; pushed, the time by the registry's clock (RFC 3339). A note in another
// repository says nothing: a replication has copied it. It has no subject, so that it never travels
// with a bundle. Who removes a bundle removes its note.
//
// # Large blobs up
//
// A blob is the body of one PUT, and larger ones than Options.ChunkSize are sent in
// parts (PATCH with Content-Range). Where nothing was said, parts are tried after a
// 413, and where a connection broke in the middle of more than 1 MiB: 16 MiB, then a quarter
// with each refusal, not less than 256 KiB; what a host took is kept for its other blobs. After a fault the registry
// is asked how much it has, and the upload goes on there.
package remote

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/userfile"
)

// Options say how registries are reached. The zero value is what a user expects
// who gave nothing.
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
	// Hosts are settings of single hosts, as references or URLs write them.
	Hosts map[string]HostOptions
	// PlainHTTP are the hosts, as references write them (with the port), that are
	// spoken to without TLS; SkipTLSVerify are those of which any certificate is taken.
	PlainHTTP, SkipTLSVerify []string
	// NoLoopback refuses to go where a server points if that is this machine: for
	// programs whose machine has services of its own that strangers do not reach.
	NoLoopback bool
	// UserAgent is sent with each request. Empty: "vdo-bundle".
	UserAgent string
	// Concurrency is how many blobs are read from, and how many written to, one
	// host at a time; of blobs up to 128 KiB and of other small requests, four times
	// as many, and up to sixteen times, but not more than 128, where the host keeps up.
	// Zero: 6.
	Concurrency int
	// ChunkSize is the largest body of a request that sends a part of a blob; larger
	// blobs are sent in several. Zero: whole blobs, and parts where a host, or a
	// proxy before it, does not take a whole one.
	ChunkSize int64
	// OmitRefused pushes a bundle without the attachments that the registry does not
	// take, instead of leaving it untagged.
	OmitRefused bool
	// Rate is how many bytes a second all transfers together may take. Zero: all.
	Rate int64
	// Attempts is how often a request is made before its fault is final. Zero: 6.
	Attempts int
	// Stall is how long a host may be silent, before its answer or in the middle of it. Zero: one
	// minute.
	Stall time.Duration
	// Sleep waits between attempts. Nil: the clock. Tests set it.
	Sleep func(ctx context.Context, d time.Duration) error
	// Transport replaces the network below TLS. Nil: the network, with the proxy of the
	// environment. Tests set it.
	Transport *http.Transport
	// Trace is told of every request. Nil: no one. It is called from many goroutines.
	Trace func(Exchange)
	// Explainer makes faults of errors. Nil: the words for who sits at the command line
	// of vdo-bundle.
	Explainer Explainer
}

// Explainer makes a fault of what ended an operation on a subject: of an [AnswerError],
// or of an error of the network. Faults of this package come to it as they are.
type Explainer interface {
	Explain(op, subject string, err error) error
}

const maxCAFile = 4 << 20

// Client speaks to registries. It is safe for concurrent use.
type Client struct {
	opts       Options
	transports map[string]transports // by the address of hosts that have their own; "": of all others
	rate       *rate.Limiter         // of all transfers; nil: none

	mu    sync.Mutex
	hosts map[string]*Host
}

// NewClient checks the options and returns a client. Nothing is sent yet.
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

// Repository returns the repository that ref names; with ref's tag or digest as
// what Resolve resolves.
func (c *Client) Repository(ref image.Reference) *Repository {
	return &Repository{client: c, ref: ref, host: c.Host(ref.Host())}
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
		"give the certificate authority's certificate as PEM (BEGIN CERTIFICATE)", "there is no PEM certificate in it")
}

// newTransport speaks HTTP/1.1 only: one connection a transfer uses a link with
// delay or loss better than streams that share one, and a cut is one transfer's. One that is foreign
// carries requests where a server points, and refuses addresses that no stranger may lead to.
func newTransport(o Options, pool *x509.CertPool, certs []tls.Certificate, isForeign bool) *http.Transport {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment}
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
	t.TLSHandshakeTimeout = min(o.Stall, 30*time.Second)
	t.ExpectContinueTimeout = time.Second
	t.IdleConnTimeout = 90 * time.Second
	t.MaxIdleConnsPerHost = 4 * mostSmall // as many as are ever in use
	t.MaxResponseHeaderBytes = 64 << 10
	t.DisableCompression = true // a blob's bytes are its bytes
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.ReadBufferSize = 16 << 10 // large reads and writes pass them by
	t.WriteBufferSize = 8 << 10
	return t
}

// refuseAddress keeps a server from sending the client to link-local addresses, where
// clouds keep their metadata services. It sees the address that is dialled, so no name
// can get around it.
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

// Addresses to which no server may lead.
var (
	ErrLinkLocal   = errors.New("the server points to a link-local address, which is refused")
	ErrThisMachine = errors.New("the server points to this machine, which is refused")
)
