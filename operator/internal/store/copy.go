package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// Labels and annotations of the copy; see the package comment.
const (
	labelManagedBy  = "app.kubernetes.io/managed-by"
	labelCopy       = "vdo.vmware.com/copy"
	labelDigest     = "vdo.vmware.com/digest"
	annotationPart  = "vdo.vmware.com/part"
	annotationParts = "vdo.vmware.com/parts"
	managedBy       = "vdo-operator"
	partKey         = "part"

	partSize = 900 << 10 // bytes: a ConfigMap holds at most 1 MiB
	maxParts = 64
	maxCopy  = 160 << 20 // bytes, unpacked: manifests, contents and signatures at their limits
)

// header is the first line of the copy's stream.
type header struct {
	Root       ocispec.Descriptor   `json:"root"`
	Signatures []ocispec.Descriptor `json:"signatures,omitempty"`
	Blobs      []blobHeader         `json:"blobs"`
}

type blobHeader struct {
	Digest digest.Digest `json:"digest"`
	Size   int64         `json:"size"`
}

// held is a copy in memory; readers of its blobs verify them.
type held struct {
	bundle.InMemory
	head header
}

// recorder stores every blob that is fetched through it.
type recorder struct {
	from  bundle.Fetcher
	blobs bundle.InMemory
}

func (r *recorder) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	body, err := r.from.Fetch(ctx, d, 0)
	if err != nil {
		return nil, err
	}
	defer body.Close() //nolint:errcheck // nothing was written
	if d.Size < 0 || d.Size > maxCopy {
		return nil, corruptAnswer(d.Digest.String(), fmt.Errorf("its size of %d bytes cannot be", d.Size))
	}
	data, err := io.ReadAll(io.LimitReader(body, d.Size+1)) // one byte more shows the reader that it is too long
	if err != nil {
		return nil, err
	}
	r.blobs[d.Digest] = data
	return r.blobs.Fetch(ctx, d, offset)
}

// Keep writes the cluster's copy of a root whose Evidence and Contents this session has read. A copy of another
// digest stays until [Store.Forget].
func (m *Mirror) Keep(ctx context.Context, root ocispec.Descriptor, contents *bundle.Contents) error {
	rootDigest, err := image.ParseDigest(root.Digest.String())
	if err != nil {
		return err
	}
	if _, read := m.read.blobs[root.Digest]; !read {
		why := errors.New("its contents were not read")
		return &fault.Error{Reason: fault.Internal, Op: "keep", Subject: root.Digest.String(), Err: why}
	}
	if m.store.opts.InMemory {
		m.store.copies.Add(rootDigest, &held{m.read.blobs, header{Root: root, Signatures: m.signed}})
	} else if err := m.store.writeCopy(ctx, m.bundle, rootDigest, pack(root, m.signed, m.read.blobs)); err != nil {
		return err
	}
	m.store.memory.Add(rootDigest, contents)
	return nil
}

// Copy is the cluster's copy of a bundle that a DriverBundle may accept, as a replacement for the mirror.
type Copy struct {
	store  *Store
	bundle *v1alpha1.DriverBundle // with that digest as the accepted one
}

// Copy returns the copy of a digest in a repository.
func (s *Store) Copy(b *v1alpha1.DriverBundle, repository string, d digest.Digest) *Copy {
	as := b.DeepCopy()
	as.Status.Repository, as.Status.Digest = repository, d.String()
	return &Copy{store: s, bundle: as}
}

// Evidence returns the signatures in the copy.
func (c *Copy) Evidence(ctx context.Context, _ ocispec.Descriptor) ([]trust.Evidence, error) {
	return c.store.Evidence(ctx, c.bundle)
}

// Contents returns the contents of the copy, or else of the mirror.
func (c *Copy) Contents(ctx context.Context, _ ocispec.Descriptor) (*bundle.Contents, error) {
	return c.store.Contents(ctx, c.bundle)
}

// Keep does nothing: the copy of the accepted bundle stays.
func (c *Copy) Keep(context.Context, ocispec.Descriptor, *bundle.Contents) error { return nil }

// pack returns the stream, the same for the same blobs.
func pack(root ocispec.Descriptor, signatures []ocispec.Descriptor, blobs map[digest.Digest][]byte) []byte {
	h := header{Root: root, Signatures: signatures}
	digests := slices.Sorted(maps.Keys(blobs))
	for _, d := range digests {
		h.Blobs = append(h.Blobs, blobHeader{Digest: d, Size: int64(len(blobs[d]))})
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	head, _ := json.Marshal(h)         //nolint:errchkjson // strings and numbers only
	_, _ = z.Write(append(head, '\n')) // a buffer takes everything
	for _, d := range digests {
		_, _ = z.Write(blobs[d])
	}
	_ = z.Close()
	return out.Bytes()
}

// unpack reads the stream, bounded; readers of the blobs verify them.
func unpack(packed []byte) (*held, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(z, maxCopy+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxCopy:
		return nil, fmt.Errorf("it is longer than %d bytes", maxCopy)
	}
	head, rest, ok := bytes.Cut(data, []byte("\n"))
	if !ok {
		return nil, errors.New("it has no header")
	}
	h := &held{InMemory: bundle.InMemory{}}
	if err := json.Unmarshal(head, &h.head); err != nil {
		return nil, fmt.Errorf("its header: %w", err)
	}
	for _, b := range h.head.Blobs {
		if b.Size < 0 || b.Size > int64(len(rest)) {
			return nil, errors.New("it is cut off")
		}
		h.InMemory[b.Digest], rest = rest[:b.Size], rest[b.Size:]
	}
	return h, nil
}

func copyLabels(b *v1alpha1.DriverBundle) map[string]string {
	return map[string]string{labelManagedBy: managedBy, labelCopy: image.DigestOf([]byte(b.Name)).Hex()[:16]}
}

func parts(b *v1alpha1.DriverBundle, d image.Digest, packed []byte) (out []*corev1.ConfigMap) {
	chunks := slices.Collect(slices.Chunk(packed, partSize))
	for i, chunk := range chunks {
		out = append(out, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: b.Namespace,
				Name:      partName(b, d, i),
				Labels:    labels.Merge(copyLabels(b), labels.Set{labelDigest: d.Hex()[:63]}),
				Annotations: map[string]string{
					annotationPart: strconv.Itoa(i), annotationParts: strconv.Itoa(len(chunks)),
				},
			},
			Immutable:  ptr.To(true),
			BinaryData: map[string][]byte{partKey: chunk},
		})
	}
	return out
}

func (s *Store) writeCopy(ctx context.Context, b *v1alpha1.DriverBundle, d image.Digest, packed []byte) error {
	all := parts(b, d, packed)
	if len(all) > maxParts {
		err := fmt.Errorf("it takes %d ConfigMaps, more than %d", len(all), maxParts)
		return copyFault("write", b, &fault.Error{Reason: fault.Refused, Err: err})
	}
	for _, part := range all {
		if err := s.writePart(ctx, part); err != nil {
			return copyFault("write", b, err)
		}
	}
	return nil
}

// writePart creates a ConfigMap. Parts are immutable, so it replaces one with other content.
func (s *Store) writePart(ctx context.Context, part *corev1.ConfigMap) error {
	create := func() error { return s.opts.Client.Create(ctx, part.DeepCopy()) }
	err := create()
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	var is corev1.ConfigMap
	switch err := s.opts.Reader.Get(ctx, client.ObjectKeyFromObject(part), &is); {
	case apierrors.IsNotFound(err):
		return create()
	case err != nil:
		return err
	case same(part, &is):
		return nil
	}
	uid := client.Preconditions{UID: &is.UID}
	if err := client.IgnoreNotFound(s.opts.Client.Delete(ctx, &is, uid)); err != nil {
		return err
	}
	return create()
}

// same reports whether a part has the wanted content, labels and annotations; it may have more of these.
func same(want, is *corev1.ConfigMap) bool {
	has := func(is, want labels.Set) bool { return labels.SelectorFromSet(want).Matches(is) }
	return bytes.Equal(want.BinaryData[partKey], is.BinaryData[partKey]) && has(is.Labels, want.Labels) &&
		has(is.Annotations, want.Annotations)
}

// readCopy reads the copy of a digest and checks its root; readers of the blobs verify the rest.
func (s *Store) readCopy(ctx context.Context, b *v1alpha1.DriverBundle, d image.Digest) (*held, error) {
	if kept, ok := s.copies.Get(d); ok {
		return kept.(*held), nil //nolint:forcetypeassert // nothing else is kept
	}
	packed, err := s.readParts(ctx, b, d)
	if err != nil {
		return nil, copyFault("read", b, err)
	}
	h, err := unpack(packed)
	if err != nil {
		return nil, copyFault("read", b, &fault.Error{Reason: fault.Corrupt, Err: err})
	}
	if h.head.Root.Digest.String() != d.String() {
		err := &fault.Error{Reason: fault.Corrupt, Err: errors.New("it is of another digest")}
		return nil, copyFault("read", b, err)
	}
	return h, nil
}

// readParts reads the parts by their names. The first one has their number; readers verify the content from the
// digest.
func (s *Store) readParts(ctx context.Context, b *v1alpha1.DriverBundle, d image.Digest) (packed []byte, err error) {
	for i, n := 0, 1; i < n; i++ {
		var part corev1.ConfigMap
		err := s.opts.Reader.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: partName(b, d, i)}, &part)
		switch {
		case apierrors.IsNotFound(err) && i == 0:
			return nil, &fault.Error{Reason: fault.NotFound, Err: errors.New("there is none")}
		case apierrors.IsNotFound(err):
			return nil, &fault.Error{Reason: fault.Incomplete, Err: errors.New("not all of its parts are there")}
		case err != nil:
			return nil, err
		case i == 0:
			if n, err = strconv.Atoi(part.Annotations[annotationParts]); err != nil || n < 1 || n > maxParts {
				why := fmt.Errorf("annotation %s is not a number up to %d", annotationParts, maxParts)
				return nil, &fault.Error{Reason: fault.Corrupt, Err: why}
			}
		}
		packed = append(packed, part.BinaryData[partKey]...)
	}
	return packed, nil
}

func partName(b *v1alpha1.DriverBundle, d image.Digest, i int) string {
	return fmt.Sprintf("vdo-bundle-%s-%s-%d", copyLabels(b)[labelCopy], d.Hex()[:16], i)
}

func copyFault(op string, b *v1alpha1.DriverBundle, err error) error {
	subject := "DriverBundle " + b.Namespace + "/" + b.Name
	f := &fault.Error{Reason: fault.ReasonOf(err), Op: op + " the copy of", Subject: subject, Err: err}
	switch hint := fault.AdmissionHint(err); {
	case hint != "":
		f.Reason, f.Hint = fault.Refused, hint
	case apierrors.IsForbidden(err):
		f.Reason = fault.Forbidden
		f.Hint = "let the operator's Role get, list, create and delete ConfigMaps in its namespace, " +
			"and list DriverBundles there"
	}
	return f
}

// Forget removes copies of missing DriverBundles, and of this one those of other digests than the accepted. It keeps
// copies of the bundles in but, each REPOSITORY@DIGEST: drivers may still run and be repaired from them.
func (s *Store) Forget(ctx context.Context, b *v1alpha1.DriverBundle, but ...string) error {
	if s.opts.InMemory {
		return nil
	}
	rest, err := s.rest(ctx, b, but)
	if err != nil {
		return copyFault("list", b, err)
	}
	var bundles v1alpha1.DriverBundleList // after the parts, which therefore have none of a DriverBundle created now
	if err := s.opts.Reader.List(ctx, &bundles, client.InNamespace(b.Namespace)); err != nil {
		return copyFault("list", b, err)
	}
	others := map[string]bool{} // they remove their own
	for i := range bundles.Items {
		others[copyLabels(&bundles.Items[i])[labelCopy]] = bundles.Items[i].Name != b.Name
	}
	var errs []error
	for _, old := range rest {
		if !others[old.GetLabels()[labelCopy]] {
			uid := old.GetUID()
			errs = append(errs, client.IgnoreNotFound(s.opts.Client.Delete(ctx, old, client.Preconditions{UID: &uid})))
		}
	}
	if err := fault.Join(errs...); err != nil {
		return copyFault("remove old parts of", b, err)
	}
	return nil
}

// rest returns the metadata of all parts but those of the accepted digest and of the bundles in but.
func (s *Store) rest(ctx context.Context, b *v1alpha1.DriverBundle, but []string) (rest []client.Object, err error) {
	var all metav1.PartialObjectMetadataList
	all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := s.opts.Reader.List(ctx, &all, client.InNamespace(b.Namespace),
		client.MatchingLabels{labelManagedBy: managedBy}, client.HasLabels{labelCopy}); err != nil {
		return nil, err
	}
	keep := map[string]bool{}
	for _, bundle := range append(but, "@"+b.Status.Digest) {
		_, text, _ := strings.Cut(bundle, "@")
		if d, err := image.ParseDigest(text); err == nil {
			keep[d.Hex()[:63]] = true
		}
	}
	for i := range all.Items {
		if part := &all.Items[i]; !keep[part.Labels[labelDigest]] {
			rest = append(rest, part)
		}
	}
	return rest, nil
}
