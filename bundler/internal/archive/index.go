package archive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// index holds the entries of an index.json, and where to fetch the blobs.
type index struct {
	path    string // for errors
	data    []byte // of index.json
	entries []ocispec.Descriptor
	base    *bundle.Base // of a delta
	from    bundle.Fetcher
	tar     *tarball // nil for a directory

	mu       sync.Mutex
	attached []attached // cached by listAttached
}

func parseIndex(path string, data []byte, from bundle.Fetcher) (*index, error) {
	bad := func(format string, args ...any) (*index, error) {
		return nil, fault.Errorf(fault.Corrupt, "read", path, "copy it again from where it was made",
			"index.json: "+format, args...)
	}
	var doc ocispec.Index
	if err := json.Unmarshal(data, &doc); err != nil {
		return bad("%w", err)
	}
	if doc.SchemaVersion != 2 {
		return bad("its schema version %d is not 2", doc.SchemaVersion)
	}
	if len(doc.Manifests) > maxNames {
		return bad("it names more than %d manifests", maxNames)
	}
	for _, d := range doc.Manifests {
		if err := bundle.CheckDescriptor(d); err != nil {
			return bad("%w", err)
		}
	}
	base, err := bundle.ParseBase(doc.Annotations)
	if err != nil {
		return bad("%w", err)
	}
	return &index{path: path, data: data, entries: doc.Manifests, base: base, from: from}, nil
}

// once reads each digest once, however many entries name it.
func once[T any](read func(d ocispec.Descriptor) (T, error)) func(d ocispec.Descriptor) (T, error) {
	type key struct {
		digest digest.Digest
		size   int64
	}
	known := map[key]func() (T, error){}
	return func(d ocispec.Descriptor) (T, error) {
		k := key{d.Digest, d.Size}
		if known[k] == nil {
			known[k] = sync.OnceValues(func() (T, error) { return read(d) })
		}
		return known[k]()
	}
}

// root returns the only bundle among the entries.
func (x *index) root(ctx context.Context) (root ocispec.Descriptor, err error) {
	bad := func(reason fault.Reason, hint, format string, args ...any) (ocispec.Descriptor, error) {
		return ocispec.Descriptor{}, fault.Errorf(reason, "read", x.path, hint, format, args...)
	}
	isRoot := once(func(d ocispec.Descriptor) (bool, error) { return bundle.IsRoot(ctx, x.from, d) })
	for _, d := range x.entries {
		if d.MediaType != ocispec.MediaTypeImageIndex || d.Digest == root.Digest {
			continue
		}
		is := d.ArtifactType == bundle.ArtifactType
		if d.ArtifactType == "" && d.Size <= bundle.MaxManifestSize { // a tool may have dropped it; the index has it
			is, err = isRoot(d)
		}
		switch {
		case fault.ReasonOf(err) == fault.NotFound:
			return bad(fault.Incomplete, "copy it again from where it was made",
				"index.json names %s, which is not there", d.Digest)
		case err != nil:
			return root, fmt.Errorf("look for the bundle in %s: %w", x.path, err)
		case is && root.Digest != "":
			return bad(fault.Conflict, "copy one of them to a place of its own",
				"it holds more than one bundle: %s and %s", root.Digest, d.Digest)
		case is:
			root = bundle.Plain(d)
			root.ArtifactType = bundle.ArtifactType
		}
	}
	if root.Digest == "" {
		return bad(fault.InvalidInput, "name a bundle that `vdo-bundle pull` made", "it holds no bundle")
	}
	return root, nil
}

func (x *index) graph(ctx context.Context) (*bundle.Graph, error) {
	root, err := x.root(ctx)
	if err != nil {
		return nil, err
	}
	g, err := bundle.Load(ctx, x.from, root)
	if err != nil {
		return nil, err
	}
	return g, g.OmitFor(x.base)
}

// tagSubject returns the subject of an attachment's tag. Tags without a cosign suffix are lists of referrers.
func tagSubject(tag string) (subject string, isList, ok bool) {
	of, suffix, ok := image.ParseAttachedTag(tag)
	return of.String(), ok && !slices.Contains(image.CosignSuffixes(), suffix), ok
}

// attached is an entry of index.json with a subject, from its tag or manifest, or an entry of a list of referrers.
// Descriptor is zero for the list itself. err is the reason why it cannot be read; its subject may be unknown.
type attached struct {
	ocispec.Descriptor
	subject string
	entry   ocispec.Descriptor
	err     error
}

// listAttached reads all attachments in the order of index.json. It skips notes of pushes, which are copied along
// with other tags and prove nothing.
func (x *index) listAttached(ctx context.Context) (out []attached) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.attached != nil {
		return x.attached
	}
	out = []attached{}
	counted, bytes := 0, int64(0)
	subjectOf := once(func(d ocispec.Descriptor) (string, error) { return x.subject(ctx, d) })
	listed := once(func(d ocispec.Descriptor) ([]ocispec.Descriptor, error) { return x.listed(ctx, d) })
	for _, d := range x.entries {
		tag := d.Annotations[ocispec.AnnotationRefName]
		a := attached{Descriptor: d, entry: d}
		of, isList, isTag := tagSubject(tag)
		if a.subject = of; tag == "" && d.MediaType == ocispec.MediaTypeImageManifest {
			a.subject, a.err = subjectOf(d)
		}
		switch {
		case strings.HasSuffix(tag, string(bundle.NoteSuffix)), tag != "" && !isTag, a.err == nil && a.subject == "":
		case isList:
			list, err := listed(d)
			out = append(out, attached{subject: of, entry: d, err: err})
			for _, l := range list {
				out = append(out, attached{Descriptor: l, subject: of, entry: d})
			}
		default:
			out = append(out, a)
		}
		for ; counted < len(out); counted++ {
			bytes += out[counted].Size
		}
		if counted > bundle.MaxNodes || bytes > bundle.MaxManifestBytes {
			out = []attached{{err: offEntry(x.path, "index.json and its lists of referrers name more than %d referrers, or "+
				"manifests of more than %d bytes", bundle.MaxNodes, bundle.MaxManifestBytes)}}
			break
		}
	}
	if ctx.Err() == nil {
		x.attached = out
	}
	return out
}

func (x *index) attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	var out []ocispec.Descriptor
	var errs []error
	for _, a := range x.listAttached(ctx) {
		switch {
		case a.subject != "" && a.subject != subject.String():
		case a.err != nil:
			errs = append(errs, a.err)
		case a.Digest != "":
			out = append(out, a.Descriptor)
		}
	}
	slices.SortFunc(out, compareAttached)
	out = slices.CompactFunc(out, func(a, b ocispec.Descriptor) bool { return compareAttached(a, b) == 0 })
	return out, fault.Join(errs...)
}

func compareAttached(a, b ocispec.Descriptor) int {
	return cmp.Or(strings.Compare(nameOf(a), nameOf(b)), cmp.Compare(a.Digest, b.Digest))
}

func nameOf(d ocispec.Descriptor) string { return d.Annotations[ocispec.AnnotationRefName] }

// readAttached reads an attachment and verifies its blobs.
func (x *index) readAttached(
	ctx context.Context, a attached, exists map[string]bool, sum func(ocispec.Descriptor) (bool, error),
) (read bundle.Referrer, err error) {
	if !exists[a.subject] {
		return read, offEntry(x.path, "index.json names %s, which is about %.100s, and that is not there",
			a.Digest, a.subject)
	}
	subject, err := image.ParseDigest(a.subject)
	if err != nil {
		return read, err
	}
	if read, err = bundle.ReadReferrer(ctx, x.from, subject, a.Descriptor); err != nil {
		return read, fmt.Errorf("%s: %w", x.path, err)
	}
	var errs []error
	for _, b := range read.Blobs {
		if _, err := sum(b); err != nil {
			errs = append(errs, ofReferrer(x.path, a.Descriptor, err))
		}
	}
	return read, fault.Join(errs...)
}

// ofReferrer names the attachment whose blob cannot be read. A missing blob makes the bundle incomplete.
func ofReferrer(path string, d ocispec.Descriptor, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Reason != fault.NotFound || f.Err == nil {
		return fmt.Errorf("%s: the referrer %s: %w", path, d.Digest, err)
	}
	return fault.Errorf(fault.Incomplete, "check", path,
		"copy the bundle again from where it was made, or pull it again",
		"the referrer %s: %w", d.Digest, f.Err)
}

// checkEntries checks an index.json, which any tool may have written, against the bundle, and returns its
// attachments. Entries may be missing or in any order, and the root may have any name. Every entry must belong to the
// bundle or its attachments; other names must be upstream names of images.
func (x *index) checkEntries(ctx context.Context, g *bundle.Graph) (atts []bundle.Referrer, err error) {
	images, parts := map[string]digest.Digest{}, map[digest.Digest]ocispec.Descriptor{}
	for _, n := range g.Names[1:] {
		images[nameOf(n)] = n.Digest
	}
	exists := map[string]bool{} // of the bundle and its attachments: a signature may have an attestation
	for _, n := range g.Manifests {
		parts[n.Descriptor.Digest], exists[n.Descriptor.Digest.String()] = n.Descriptor, true
	}
	// An untagged manifest of the bundle is no attachment, even if it has a subject.
	list := slices.DeleteFunc(slices.Clone(x.listAttached(ctx)), func(a attached) bool {
		return nameOf(a.entry) == "" && parts[a.entry.Digest].Digest != ""
	})
	for _, a := range list {
		exists[a.entry.Digest.String()], exists[a.Digest.String()] = true, true
	}
	sum := once(func(d ocispec.Descriptor) (bool, error) { return true, discardAll(ctx, x.from, d) })
	var errs fault.List
	for _, a := range list {
		errs.Add(a.err)
		if a.err == nil && a.Digest != "" {
			read, err := x.readAttached(ctx, a, exists, sum)
			atts = append(atts, read)
			errs.Add(err)
		}
	}
	for _, d := range x.entries {
		name := nameOf(d)
		part, isPart := parts[d.Digest]
		if !isPart && images[name] == "" && (exists[d.Digest.String()] || name == bundle.NoteTag(g.Root.Digest.Encoded())) {
			continue
		}
		isNamed := images[name] == d.Digest || images[name] == "" && (name == "" || d.Digest == g.Root.Digest)
		if !isNamed || d.MediaType != part.MediaType || d.Size != part.Size {
			errs.Add(offEntry(x.path, "index.json names %s of the type %.100s and %d bytes as %.200q, "+
				"which this bundle does not have under that name", d.Digest, d.MediaType, d.Size, name))
		}
	}
	return atts, errs.Join("verify", x.path)
}

func offEntry(path, format string, args ...any) error {
	return fault.Errorf(fault.Corrupt, "verify", path,
		"copy the bundle alone to a place of its own, from where it was made", format, args...)
}

// listed returns the entries of a list of referrers.
func (x *index) listed(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	data, err := bundle.Read(ctx, x.from, d, bundle.MaxManifestSize)
	if err != nil {
		return nil, err
	}
	listed, err := parseIndex(x.path, data, x.from)
	if err != nil {
		return nil, err
	}
	for i := range listed.entries {
		listed.entries[i].Annotations = nil // entries of such a list have no tag
	}
	return listed.entries, nil
}

// subject returns the digest that a manifest refers to, or "".
func (x *index) subject(ctx context.Context, d ocispec.Descriptor) (string, error) {
	data, err := bundle.Read(ctx, x.from, d, bundle.MaxManifestSize)
	var doc ocispec.Manifest
	if err != nil || json.Unmarshal(data, &doc) != nil || doc.Subject == nil {
		return "", err
	}
	return doc.Subject.Digest.String(), nil
}

// with returns the entries of an index.json: the names, then attachments, the last of those with one tag.
func with(names []ocispec.Descriptor, add ...bundle.Referrer) []ocispec.Descriptor {
	var atts []ocispec.Descriptor
	for _, a := range add {
		added := entryOf(a)
		atts = append(slices.DeleteFunc(atts, func(d ocispec.Descriptor) bool {
			return a.Tag != "" && nameOf(d) == a.Tag || compareAttached(d, added) == 0
		}), added)
	}
	slices.SortFunc(atts, compareAttached)
	return slices.Concat(names, atts)
}

func entryOf(a bundle.Referrer) ocispec.Descriptor {
	d := a.Node.Descriptor
	out := ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, ArtifactType: d.ArtifactType}
	if a.Tag != "" {
		out.Annotations = map[string]string{ocispec.AnnotationRefName: a.Tag}
	}
	return out
}

func indexJSON(entries []ocispec.Descriptor, base *bundle.Base) []byte {
	return bundle.NewIndex(ocispec.Index{Manifests: entries, Annotations: base.Annotations()}).Data
}
