package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// An index is what an index.json names, and the way to the bytes.
type index struct {
	medium  string // for errors: the path
	entries []ocispec.Descriptor
	base    *bundle.Base // of a delta
	fetch   bundle.Fetcher

	mu       sync.Mutex
	subjects map[string]string // manifest digest → digest of its subject, or ""
}

func parseIndex(medium string, data []byte, fetch bundle.Fetcher) (*index, error) {
	bad := func(format string, args ...any) (*index, error) {
		return nil, &fault.Error{
			Reason: fault.Corrupt, Op: "read", Subject: medium, Hint: "copy it again from where it was made",
			Err: fmt.Errorf("index.json: "+format, args...),
		}
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
	return &index{medium: medium, entries: withPlainTags(doc.Manifests), base: base, fetch: fetch, subjects: map[string]string{}}, nil
}

// root finds the one bundle among the entries.
func (x *index) root(ctx context.Context) (ocispec.Descriptor, error) {
	var found []ocispec.Descriptor
	for _, d := range x.entries {
		if d.MediaType != ocispec.MediaTypeImageIndex || slices.ContainsFunc(found, sameDigest(d)) {
			continue
		}
		is, err := x.isBundle(ctx, d)
		if fault.ReasonOf(err) == fault.NotFound {
			return ocispec.Descriptor{}, &fault.Error{
				Reason: fault.Incomplete, Op: "read", Subject: x.medium, Hint: "copy it again from where it was made",
				Err: fmt.Errorf("index.json names %s, which is not there", d.Digest),
			}
		}
		if err != nil {
			return ocispec.Descriptor{}, fmt.Errorf("look for the bundle in %s: %w", x.medium, err)
		}
		if is {
			found = append(found, d)
		}
	}
	bad := func(reason fault.Reason, hint, why string) (ocispec.Descriptor, error) {
		return ocispec.Descriptor{}, &fault.Error{Reason: reason, Op: "read", Subject: x.medium, Hint: hint, Err: errors.New(why)}
	}
	switch len(found) {
	case 0:
		return bad(fault.InvalidInput, "name a bundle that `vdo-bundle pull` made", "it holds no bundle")
	case 1:
		d := found[0]
		return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, ArtifactType: bundle.ArtifactType}, nil
	}
	return bad(fault.Conflict, "copy one of them to a place of its own",
		fmt.Sprintf("it holds more than one bundle: %s and %s", found[0].Digest, found[1].Digest))
}

func sameDigest(d ocispec.Descriptor) func(ocispec.Descriptor) bool {
	return func(o ocispec.Descriptor) bool { return o.Digest == d.Digest }
}

// isBundle believes the descriptor that says it is one, and asks the index where
// a tool dropped that.
func (x *index) isBundle(ctx context.Context, d ocispec.Descriptor) (bool, error) {
	if d.ArtifactType != "" || d.Size > bundle.MaxManifestSize {
		return d.ArtifactType == bundle.ArtifactType, nil
	}
	return bundle.IsRoot(ctx, x.fetch, d)
}

// tagSubject tells what a tag of an attachment is about. What has the form of none of
// cosign's is looked at as a list of referrers.
func tagSubject(tag string) (subject string, fallback, ok bool) {
	rest, found := strings.CutPrefix(tag, "sha256-")
	if !found {
		return "", false, false
	}
	for _, end := range image.CosignSuffixes() {
		if hex, is := strings.CutSuffix(rest, string(end)); is {
			return "sha256:" + hex, false, true
		}
	}
	return "sha256:" + rest, true, true
}

// attachments lists what is about a subject: cosign's tags, referrers by their
// subject, and those that the fallback tag of the referrers lists.
func (x *index) attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	var out []ocispec.Descriptor
	var errs []error
	for _, d := range x.entries {
		of, isList, err := x.about(ctx, d)
		errs = append(errs, err)
		if of == subject.String() {
			listed, err := x.listed(ctx, d, isList)
			out, errs = append(out, listed...), append(errs, err)
		}
	}
	slices.SortFunc(out, compareAttached)
	out = slices.CompactFunc(out, func(a, b ocispec.Descriptor) bool { return compareAttached(a, b) == 0 })
	return out, fault.Join(errs...)
}

// about tells what an entry is about, by its tag or else by its subject, or "", and whether
// it is a list of referrers.
func (x *index) about(ctx context.Context, d ocispec.Descriptor) (of string, isList bool, err error) {
	tag := d.Annotations[ocispec.AnnotationRefName]
	if of, isList, ok := tagSubject(tag); ok || tag != "" {
		return of, isList, nil
	}
	of, err = x.subject(ctx, d)
	return of, false, err
}

func compareAttached(a, b ocispec.Descriptor) int {
	if c := strings.Compare(a.Annotations[ocispec.AnnotationRefName], b.Annotations[ocispec.AnnotationRefName]); c != 0 {
		return c
	}
	return strings.Compare(a.Digest.String(), b.Digest.String())
}

// listed are the entries of a list of referrers, or the entry itself where it is none.
func (x *index) listed(ctx context.Context, d ocispec.Descriptor, isList bool) ([]ocispec.Descriptor, error) {
	if !isList {
		return []ocispec.Descriptor{d}, nil
	}
	data, err := bundle.Read(ctx, x.fetch, d, bundle.MaxManifestSize)
	if err != nil {
		return nil, err
	}
	listed, err := parseIndex(x.medium, data, x.fetch)
	if err != nil {
		return nil, err
	}
	for i := range listed.entries {
		listed.entries[i].Annotations = nil // what is listed there has no tag
	}
	return listed.entries, nil
}

// subject returns the digest that a manifest refers to, or "".
func (x *index) subject(ctx context.Context, d ocispec.Descriptor) (string, error) {
	if d.MediaType != ocispec.MediaTypeImageManifest {
		return "", nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if s, ok := x.subjects[d.Digest.String()]; ok {
		return s, nil
	}
	data, err := bundle.Read(ctx, x.fetch, d, bundle.MaxManifestSize)
	if err != nil {
		return "", err
	}
	var doc struct {
		Subject ocispec.Descriptor `json:"subject"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		doc.Subject.Digest = ""
	}
	x.subjects[d.Digest.String()] = doc.Subject.Digest.String()
	return doc.Subject.Digest.String(), nil
}

// with returns the entries of an index.json with attachments added: in the place
// of what had their tags, attachments after all names.
func with(entries []ocispec.Descriptor, add ...bundle.Attachment) []ocispec.Descriptor {
	var names, atts []ocispec.Descriptor
	for _, d := range entries {
		tag := d.Annotations[ocispec.AnnotationRefName]
		if _, _, isTag := tagSubject(tag); tag == "" || isTag {
			atts = append(atts, d)
		} else {
			names = append(names, d)
		}
	}
	for _, a := range add {
		added := attached(a)
		atts = append(slices.DeleteFunc(atts, func(d ocispec.Descriptor) bool {
			return a.Tag != "" && d.Annotations[ocispec.AnnotationRefName] == a.Tag || compareAttached(d, added) == 0
		}), added)
	}
	slices.SortFunc(atts, compareAttached)
	return append(names, atts...)
}

// attached is how index.json names an attachment.
func attached(a bundle.Attachment) ocispec.Descriptor {
	d := a.Node.Descriptor
	out := ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, ArtifactType: d.ArtifactType}
	if a.Tag != "" {
		out.Annotations = map[string]string{ocispec.AnnotationRefName: a.Tag}
	}
	return out
}

// entriesOf are the entries of the index.json of a graph.
func entriesOf(g *bundle.Graph) []ocispec.Descriptor {
	return with(g.Names, g.Attachments...)
}

func indexJSON(entries []ocispec.Descriptor, base *bundle.Base) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: entries,
		Annotations: base.Annotations(),
	})
	if err != nil {
		return nil, fmt.Errorf("write index.json: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}
