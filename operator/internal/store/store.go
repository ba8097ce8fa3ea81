// Package store gives the operator the contents of bundles: from the site's mirror,
// and from a copy in the cluster that outlives the mirror.
//
//	store := store.New(store.Options{Client: c, Reader: r, PlainHTTP: hosts})
//	mirror, err := store.Open(ctx, bundle)          // a session with the registry
//	root, tag, err := mirror.Resolve(ctx)           // tag or version range → digest
//	evidence, err := mirror.Evidence(ctx, root)     // signatures, as package trust reads them
//	contents, err := mirror.Contents(ctx, root)     // verified to the last byte
//	err := mirror.Keep(ctx, root, contents)         // copied into the cluster
//	contents, err := store.Contents(ctx, bundle)    // of the accepted digest, from anywhere
//	copy := store.Copy(bundle, repository, digest)  // retained by revisions so far, in the mirror's place
//
// # Reading the mirror
//
// Package bundler/remote speaks to the registry; what it says of HTTPS, of credentials and
// of where a server may point holds, this machine's addresses among what it may not. A
// request is made once: the controller comes again. Every byte is verified by digest,
// starting from the root's. Errors are told apart as faults: unreachable, 401, 403,
// 404, 429, 5xx, certificate, corrupt, each with its remedy; no text of a registry's
// answer and no query of an URL gets into them, so that a registry cannot make the
// operator publish what it sent.
//
// # The copy in the cluster
//
// What a bundle consists of apart from layers (manifests, lock, matrix, driver
// manifests, signatures, and the configuration of an image where nothing else says what
// platform it is for) is kept in ConfigMaps, so that the accepted bundle goes on
// serving while the mirror is away, and after a restart of the operator meanwhile. They
// outlive the DriverBundle: drivers are repaired from them. The copy is one stream:
//
//	{"root":DESCRIPTOR,"signatures":[DESCRIPTOR…],"blobs":[{"digest":…,"size":…}…]}\n
//	the bytes of each blob, in this order
//
// compressed with gzip and cut into parts of at most 900 KiB, each the key "part" of
// the binaryData of one immutable ConfigMap, with the labels
//
//	app.kubernetes.io/managed-by: vdo-operator
//	vdo.vmware.com/copy: HASH         of the DriverBundle's name
//	vdo.vmware.com/digest: HEX63      the first 63 digits of the root digest
//
// the annotations vdo.vmware.com/part: "0" and vdo.vmware.com/parts: "2", and the name
// vdo-bundle-HASH-HEX16-PART, by which it is read. The
// copy is not trusted: it is verified from the root digest each time it is read, and
// a copy that fails is as good as none. Copies of bundles that were accepted before stay
// while a revision of them may be gone back to, or is current; the rest goes once another bundle is accepted.
package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/tracing"
)

// Options configure a Store.
type Options struct {
	// Client writes the copies.
	Client client.Client
	// Reader reads Secrets, ConfigMaps and copies; the copies are best read past a
	// cache. Default: Client.
	Reader client.Reader
	// InMemory keeps what is accepted in memory, and records nothing: for a preview.
	InMemory bool
	// PlainHTTP are the hosts (HOST or HOST:PORT, as references write them) that are
	// spoken to without TLS.
	PlainHTTP []string
	// UserAgent of requests. Default: vdo-operator.
	UserAgent string
	// Timeout is how long the registry may be silent. Default: 30 seconds.
	Timeout time.Duration
	// ReadTimeout is how long Contents may take to read a mirror whose every answer comes in
	// time, since callers have more to do. Default: 1 minute.
	ReadTimeout time.Duration
}

// Store gives contents of bundles. It is safe for concurrent use.
type Store struct {
	opts   Options
	memory *lru.Cache // contents of bundles, by digest
	copies *lru.Cache // those in memory, by digest
}

// remembered is how many bundles' contents are kept in memory: the accepted one of
// each DriverBundle that a cluster sensibly has.
const remembered = 4

// New returns a Store.
func New(o Options) *Store {
	if o.Reader == nil {
		o.Reader = o.Client
	}
	o.UserAgent = cmp.Or(o.UserAgent, "vdo-operator")
	o.Timeout, o.ReadTimeout = cmp.Or(o.Timeout, 30*time.Second), cmp.Or(o.ReadTimeout, time.Minute)
	return &Store{opts: o, memory: lru.New(remembered), copies: lru.New(remembered)}
}

// Contents returns what is in the accepted bundle (status.digest): from memory, else
// from the copy in the cluster, else from the mirror. The result is shared: callers
// do not change it.
func (s *Store) Contents(ctx context.Context, b *v1alpha1.DriverBundle) (c *bundle.Contents, err error) {
	ctx, end := tracing.Span(ctx, "read bundle", "name", b.Name, "digest", b.Status.Digest)
	defer func() { end(err) }()
	digest, err := accepted(b)
	if err != nil {
		return nil, err
	}
	if known, ok := s.memory.Get(digest); ok {
		return known.(*bundle.Contents), nil //nolint:forcetypeassert // nothing else is kept
	}
	c, fromCopy := s.contentsOfCopy(ctx, b, digest)
	if fromCopy == nil {
		s.memory.Add(digest, c)
		return c, nil
	}
	c, fromMirror := s.contentsOfMirror(ctx, b, digest)
	if fromMirror != nil {
		return nil, fmt.Errorf("%w; nor is there a copy in the cluster: %w", fromMirror, fromCopy)
	}
	s.memory.Add(digest, c)
	return c, nil
}

// accepted returns the digest that was accepted.
func accepted(b *v1alpha1.DriverBundle) (image.Digest, error) {
	if b.Status.Digest == "" {
		return image.Digest{}, fault.Errorf(fault.NotFound, "read", "DriverBundle "+b.Name,
			"see the conditions of the DriverBundle", "no bundle has been accepted yet")
	}
	return image.ParseDigest(b.Status.Digest)
}

func (s *Store) contentsOfCopy(ctx context.Context, b *v1alpha1.DriverBundle, digest image.Digest) (*bundle.Contents, error) {
	c, err := s.readCopy(ctx, b, digest)
	if err != nil {
		return nil, err
	}
	return contentsOf(ctx, c, c.head.Root)
}

func (s *Store) contentsOfMirror(ctx context.Context, b *v1alpha1.DriverBundle, digest image.Digest) (*bundle.Contents, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.ReadTimeout)
	defer cancel()
	ref, err := image.ParseReference(b.Status.Repository + "@" + digest.String())
	if err != nil {
		return nil, err
	}
	m, err := s.open(ctx, b, ref)
	if err != nil {
		return nil, err
	}
	root, err := m.descriptor(ctx, digest.String())
	if err != nil {
		return nil, err
	}
	return contentsOf(ctx, m.repo, root)
}

// contentsOf reads and verifies everything from a root. The configuration of an image is read
// where nothing else says what platform it is for.
func contentsOf(ctx context.Context, f bundle.Fetcher, root ocispec.Descriptor) (*bundle.Contents, error) {
	g, err := bundle.Load(ctx, f, root)
	if err != nil {
		return nil, err
	}
	c, err := g.Contents(ctx, f)
	if err != nil {
		return nil, err
	}
	c.Platforms, err = g.Platforms(ctx, f, c.Lock)
	return c, err
}

// Evidence returns the signatures of the accepted bundle as the copy in the cluster
// has them, so that a changed policy can be held against them without the mirror.
func (s *Store) Evidence(ctx context.Context, b *v1alpha1.DriverBundle) ([]trust.Evidence, error) {
	digest, err := accepted(b)
	if err != nil {
		return nil, err
	}
	c, err := s.readCopy(ctx, b, digest)
	if err != nil {
		return nil, err
	}
	return readEvidence(ctx, c, c.head.Signatures)
}

func readEvidence(ctx context.Context, f trust.Fetcher, manifests []ocispec.Descriptor) ([]trust.Evidence, error) {
	all, err := trust.ReadEvidence(ctx, f, manifests...)
	if err != nil {
		return nil, err
	}
	if len(all) > maxEvidence {
		return nil, fault.Errorf(fault.Untrusted, "read signatures", "",
			"remove signatures that are out of use from the mirror", "there are more than %d", maxEvidence)
	}
	return all, nil
}

// maxEvidence is how many signatures of one bundle are read.
const maxEvidence = 256

// matrices are the documents that were read last, by the hash of their text: passes need the same few again and
// again. A document is never changed.
var matrices = lru.New(remembered)

// ParseMatrix reads the matrix of a bundle's contents.
func ParseMatrix(digest string, c *bundle.Contents) (*matrix.Document, error) {
	sum := sha256.Sum256(c.Matrix)
	if known, ok := matrices.Get(sum); ok {
		return known.(*matrix.Document), nil //nolint:forcetypeassert // nothing else is kept
	}
	doc, err := matrix.Parse("matrix of "+digest, c.Matrix)
	if err == nil {
		matrices.Add(sum, doc)
	}
	return doc, err
}
