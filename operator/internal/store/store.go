// Package store returns the contents of bundles: from the site's mirror, and from a copy in the cluster
// that outlives the mirror.
//
//	store := store.New(store.Options{Client: c, Reader: r, PlainHTTP: hosts})
//	mirror, err := store.Open(ctx, bundle)          // a session with the registry
//	root, tag, err := mirror.Resolve(ctx)           // tag or version range → digest
//	evidence, err := mirror.Evidence(ctx, root)     // signatures, as package trust reads them
//	contents, err := mirror.Contents(ctx, root)     // verified to the last byte
//	err := mirror.Keep(ctx, root, contents)         // copied into the cluster
//	contents, err := store.Contents(ctx, bundle)    // of the accepted digest, from anywhere
//	copy := store.Copy(bundle, repository, digest)  // a revision retains it; replaces the mirror
//
// # Reading the mirror
//
// Package bundler/remote connects to the registry. Its rules apply to HTTPS, to credentials and to the
// targets of redirects; this machine's addresses are forbidden too. Each request is made once: the
// controller retries. Every byte is verified by digest, from the root's on.
//
// Errors are faults with a remedy each, see [Mirror.Explain].
//
// # The copy in the cluster
//
// ConfigMaps store a bundle without its layers: manifests, lock, matrix, driver manifests and signatures.
// They also store the configuration of an image if nothing else names its platform. So the accepted
// bundle works while the mirror is unreachable, also after a restart of the operator. Copies outlive the
// DriverBundle, because drivers are repaired from them. The copy is one stream:
//
//	{"root":DESCRIPTOR,"signatures":[DESCRIPTOR…],"blobs":[{"digest":…,"size":…}…]}\n
//	the bytes of each blob, in this order
//
// It is compressed with gzip and cut into parts of at most 900 KiB. Each part is the key "part" of the
// binaryData of one immutable ConfigMap, with the labels
//
//	app.kubernetes.io/managed-by: vdo-operator
//	vdo.vmware.com/copy: HASH         of the DriverBundle's name
//	vdo.vmware.com/digest: HEX63      the first 63 digits of the root digest
//
// the annotations vdo.vmware.com/part: "0" and vdo.vmware.com/parts: "2", and the name
// vdo-bundle-HASH-HEX16-PART, by which it is read.
//
// The copy is not trusted: each read verifies it from the root digest, and a copy that fails counts as
// missing. Copies of earlier bundles stay while a revision of them is current or a rollback target. The
// others are removed after another bundle is accepted.
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
	// Reader reads Secrets, ConfigMaps and copies, best without a cache for the copies. Default: Client.
	Reader client.Reader
	// InMemory keeps copies in memory and writes nothing: for a preview.
	InMemory bool
	// PlainHTTP are hosts (HOST or HOST:PORT, as in references) without TLS.
	PlainHTTP []string
	// UserAgent of requests. Default: vdo-operator.
	UserAgent string
	// Timeout bounds the registry's silence. Default: 30 seconds.
	Timeout time.Duration
	// ReadTimeout bounds the time in which Contents reads a mirror, even one without silence, since callers have
	// more to do. Default: 1 minute.
	ReadTimeout time.Duration
}

// Store returns contents of bundles. It is safe for concurrent use.
type Store struct {
	opts   Options
	memory *lru.Cache // contents of bundles, by digest
	copies *lru.Cache // copies in memory, by digest
}

// remembered bounds the bundles in memory: one accepted per DriverBundle of a cluster, with a sensible number of
// these.
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

// Contents returns the contents of the accepted bundle (status.digest): from memory, else from the copy in the
// cluster, else from the mirror. Callers share the result and must not change it.
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
	kept, fromCopy := s.readCopy(ctx, b, digest)
	if fromCopy == nil {
		c, fromCopy = contentsOf(ctx, kept, kept.head.Root)
	}
	if fromCopy != nil {
		var fromMirror error
		if c, fromMirror = s.contentsOfMirror(ctx, b, digest); fromMirror != nil {
			return nil, fmt.Errorf("%w; nor is there a copy in the cluster: %w", fromMirror, fromCopy)
		}
	}
	s.memory.Add(digest, c)
	return c, nil
}

func accepted(b *v1alpha1.DriverBundle) (image.Digest, error) {
	if b.Status.Digest == "" {
		return image.Digest{}, fault.Errorf(fault.NotFound, "read", "DriverBundle "+b.Name,
			"see the conditions of the DriverBundle", "no bundle has been accepted yet")
	}
	return image.ParseDigest(b.Status.Digest)
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

// contentsOf reads and verifies everything below a root. It reads the configuration of an image if nothing else
// names its platform.
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

// Evidence returns the accepted bundle's signatures from the copy in the cluster, so that a changed policy can be
// checked without the mirror.
func (s *Store) Evidence(ctx context.Context, b *v1alpha1.DriverBundle) ([]trust.Evidence, error) {
	digest, err := accepted(b)
	if err != nil {
		return nil, err
	}
	c, err := s.readCopy(ctx, b, digest)
	if err != nil {
		return nil, err
	}
	return trust.ReadEvidence(ctx, c, c.head.Signatures...)
}

// matrices caches the last documents by the hash of their text, since every reconcile needs the same few. A document
// never changes.
var matrices = lru.New(remembered)

// ParseMatrix returns the matrix of a bundle's contents.
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
