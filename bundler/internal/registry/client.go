// Package registry moves bundles and images to and from OCI registries.
//
// A [Client] holds what is the same for all registries: credentials, trusted
// certificates, how many transfers a host takes at once, and how long to try. A
// [Repository] is one name in one registry; it is read from (Root, Fetch,
// Attachments), written to (Begin, Put, Commit) and added to (Attach).
//
// Requests, logins, manifests, tags and referrers are package remote's; this package
// moves blobs over it, and what is to be there is looked at here before and after. A blob
// goes on where it stopped, and is verified by who reads it (see [Repository.Fetch]).
//
// # What is there already
//
// A push asks for every blob and every manifest by its digest before it sends
// anything: that a root is there proves nothing, since a push that broke off, or a
// garbage collection, may have left any part of what is below it. Where there are many
// small blobs (128 of up to 128 KiB), and neither the root nor any of 32 that chance picks
// is there, the others are sent without asking: the few of them that are there after all
// are sent again.
//
// # The note of a push
//
// Registries do not tell when a tag was put. A push that put one on a bundle leaves a note
// of it, for who lists and prunes: an image manifest of the artifact type
// application/vnd.vdo.confirmed.v1 under the tag sha256-<hex of the root>.confirmed, with
// the empty configuration and layer of the OCI specification and three annotations (the
// prefix is com.vmware.vdo.confirmed): repository, the name that it was pushed to; root,
// the digest of the root; pushed, the time by the registry's clock (RFC 3339). Earlier
// versions wrote a fourth one, set, and let a later push ask for less where it had one.
// A note in another repository says nothing: a replication has copied it. It has no
// subject, so that it never travels with a bundle. Who removes a bundle removes its note.
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
// # Sources
//
// A blob is hashed as it streams, and its last bytes go out once all of them are right:
// what changes after it was verified never arrives, whatever the registry compares.
//
// # Settings of single hosts
//
// A file of YAML, in which unknown keys are refused ([ParseConfig]):
//
//	apiVersion: vdo.vmware.com/hosts/v1
//	kind: HostsConfig
//	hosts:
//	  registry.site:5000:        # as references write it, with the port
//	    ca: site-ca.crt          # PEM, trusted for this host; found from the file's folder
//	    clientCert: signer.crt     # PEM, shown to this host, not where another points to it
//	    clientKey: signer.key      # PEM, not encrypted
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
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

// HostOptions are what differs for one host.
type HostOptions = remote.HostOptions

// Options say how registries are reached. The zero value is what a user expects
// who said nothing.
type Options struct {
	// Credentials finds the login for a repository. Nil: the docker and podman
	// configuration of the environment, see [remote.DefaultCredentials].
	Credentials remote.CredentialFunc
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
	// as many, and up to sixteen times, but not more than 128, where the host keeps up.
	// Zero: 6.
	Concurrency int
	// Ranges is over how many connections a blob of 64 MiB or more is read, as far as
	// the slots of Concurrency are free: for hosts that hold each connection to a part
	// of what the link can do. They take 8 MiB of memory, all together. Zero: one.
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
	// Trace is told of every request. Nil: nobody. It is called from many goroutines.
	Trace func(remote.Exchange)
	// Sleep waits between attempts. Nil: the clock. Tests set it.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Client speaks to registries. It is safe for concurrent use.
type Client struct {
	*remote.Client
	opts     Options
	segments *remote.Slots // places in memory for parts of blobs that are read over several connections

	mu    sync.Mutex
	hosts map[string]*host
}

// host is a host of package remote, and how it takes blobs.
type host struct {
	*remote.Host
	small, pull *remote.Slots
	noRanges    atomic.Bool  // the host does not give ranges of blobs
	chunk       atomic.Int64 // bytes that a request sends of a blob; 0: all of it

	mu      sync.Mutex
	noMount map[string]bool // repositories that it does not let blobs be taken over from
}

// NewClient checks the options and returns a client. Nothing is sent yet.
func NewClient(o Options) (*Client, error) {
	c, err := remote.NewClient(remote.Options{
		Credentials: o.Credentials, CAFile: o.CAFile, CA: o.CA, ClientCert: o.ClientCert, ClientKey: o.ClientKey, Hosts: o.Hosts, PlainHTTP: o.PlainHTTP,
		UserAgent: o.UserAgent, Concurrency: o.Concurrency, Rate: o.Rate, Attempts: o.Attempts, Backoff: o.Backoff, Stall: o.Stall, Sleep: o.Sleep, Trace: o.Trace,
	})
	if err != nil {
		return nil, err
	}
	all := c.Options()
	o.Backoff, o.Sleep = all.Backoff, all.Sleep
	return &Client{Client: c, opts: o, segments: remote.NewSlots(maxSegments, maxSegments), hosts: map[string]*host{}}, nil
}

// Repository returns the repository that ref names; with ref's tag or digest as
// what Root resolves and Commit names.
func (c *Client) Repository(ref image.Reference) *Repository {
	return &Repository{Repository: c.Client.Repository(ref), client: c, ref: ref, host: c.host(ref.Host())}
}

func (c *Client) host(name string) *host {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.hosts[name]; h != nil {
		return h
	}
	h := &host{Host: c.Host(name), noMount: map[string]bool{}}
	h.small, h.pull = h.Small(), h.Pulls(remote.SmallBlob+1)
	chunk := c.Settings(name).ChunkSize
	if chunk <= 0 {
		chunk = c.opts.ChunkSize
	}
	h.chunk.Store(chunk)
	c.hosts[name] = h
	return h
}
