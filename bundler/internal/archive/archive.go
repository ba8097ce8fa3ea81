// Package archive keeps bundles on disk: in one file, or in a folder.
//
// # The file
//
// A file is one uncompressed tar whose root is an OCI image layout. Its bytes are
// fixed by the bundle: two archives of one graph are the same.
//
//	oci-layout                {"imageLayoutVersion":"1.0.0"}
//	index.json                an OCI index, then slack
//	blobs/sha256/<hex> …      what the root reaches, in the order of bundle.Graph.Order:
//	                          manifests; configs and the contents; layers
//	blobs/sha256/<hex> …      what attachments add; what was signed later comes last
//	two blocks of zeros       the end; nothing follows
//
// Every header is a POSIX ustar header with mode 0644, owner 0 without a name,
// modification time 0 and device 0; see [Layout]. An entry of 8 GiB or more has a
// PAX header before it that gives its size, and its ustar header gives the size in
// base 256, so that readers of either kind find the next entry. There are no
// entries for folders. Data is followed by zeros up to a block of 512 bytes.
//
// index.json is JSON without insignificant space, its keys in the order of the OCI
// specification: first the root and the images as bundle.Graph.Names gives them,
// then the attachments sorted by tag and digest; of a delta (see package bundle)
// also its annotations. The slack after it are spaces
// and, as the last byte, a newline: the entry has as many bytes as the JSON of its
// creation and 16 KiB more, rounded up to a block.
//
// # Signing
//
// The slack is for signing without moving the payload: a signature's blobs are
// appended where the end was, and index.json is written again in its place, with
// the size it had. Each step leaves an archive that can be read: the file is first
// extended by zeros, all but the first two blocks of what is new are written
// behind the end, then the first, then the second, each flushed. The new
// index.json is kept in FILE.index while it is written; a reader that finds
// index.json torn reads that instead. Where the slack is used up, the archive is
// written again with new slack beside itself and takes its own place. What a
// signature replaces stays behind as an entry that nothing names. What an interrupted
// signing left behind all that is named is cut off by the next one, from the first
// entry on that has not the bytes of its name.
//
// # Reading
//
// Readers use an io.ReaderAt and unpack nothing. Entries are found by digest only.
// Archives that other tools wrote are read as well: any order, folders, other
// headers, Docker's media types. Refused are links, devices, sparse files, names
// that climb, an entry twice, more than 131072 entries. [File.CheckLayout] demands
// the form above to the byte, so that no byte of an archive can change unseen.
//
// # Writing
//
// [FileWriter] lays the whole file out first and fills it in any order, many blobs
// at a time: hashed once while they arrive and written once, to their final place
// in FILE.partial. FILE.journal remembers what is there; a line is written only after
// the bytes that it speaks of were flushed. A writer that is started again hashes what
// the journal speaks of, writes everything else again, headers and padding too, and
// goes on: every byte of the result was written or hashed by the run that calls it
// done. The journal is about the bundle's root, so a pull that is signed anew goes on as
// well. FILE appears complete, or not at all; who asks for what is there already, whole,
// has nothing to do.
//
// FILE.journal is the lock too, of all that changes FILE or its parts: who pulls, signs,
// splits or repairs holds it, and another one is told so at once. A lock file that its
// holder removes is nobody's lock any more. A folder is locked itself. Where a file
// system has no locks, a signature is still never replaced that was not read.
//
// Nothing is written through a name that somebody else has prepared; see folder.
//
// # Parts
//
// A file may be in parts: byte ranges of the tar, listed with their sha256 in a
// parts file, perhaps with recovery parts; see package parts. [FileWriter] fills
// FILE.001.partial and so on in the same way, so that no byte is written twice and
// no medium has to hold the whole; FILE.parts appears last. [OpenFile] takes the
// parts as they are, and names each that is missing or has another size;
// [File.Damage] names those whose bytes are not what they were. [Split] writes
// FILE.001.split and so on, then FILE.parts.split with the list; from then on they take
// the names, and what they replace goes last. A signature is
// added in place: the parts are held against their sums first, "changing" is
// written into the parts file, then the tar is signed as above, in its first and
// last part, then the sums and the recovery parts are made anew.
//
// # The folder
//
// [Dir] and [DirWriter] do the same for an OCI image layout in a folder: each blob
// is flushed under another name before it gets its own, index.json comes last. A
// folder that another tool wrote is taken too: its index.json may lack names and call
// the root as it likes, but names nothing that is not of the bundle or about a part of
// it, and no image by an upstream name that is another's.
package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

const (
	layoutName   = ocispec.ImageLayoutFile
	layoutData   = `{"imageLayoutVersion":"1.0.0"}`
	indexName    = ocispec.ImageIndexFile
	blobPrefix   = "blobs/sha256/"
	maxIndexSize = 8 << 20 // bytes of an index.json
	maxNames     = 65536   // entries of an index.json
)

// Options of CreateFile and CreateDir; the zero value never destroys anything.
type Options struct {
	Replace bool // replace a target that is there, once the new one is complete
	Restart bool // drop what an interrupted run left there of another bundle

	VolumeSize int64 // bytes of each part of a file; 0: one file
	Recovery   int   // recovery parts beside them
}

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
	data, err := bundle.Read(ctx, x.fetch, d, bundle.MaxManifestSize)
	if err != nil {
		return false, err
	}
	var doc struct {
		ArtifactType string `json:"artifactType"`
	}
	err = json.Unmarshal(data, &doc)
	return err == nil && doc.ArtifactType == bundle.ArtifactType, nil
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
		tag := d.Annotations[ocispec.AnnotationRefName]
		of, fallback, ok := tagSubject(tag)
		switch {
		case ok && fallback && of == subject.String():
			listed, err := x.fallback(ctx, d)
			out, errs = append(out, listed...), append(errs, err)
		case ok && of == subject.String():
			out = append(out, d)
		case tag == "":
			of, err := x.subject(ctx, d)
			errs = append(errs, err)
			if of == subject.String() {
				out = append(out, d)
			}
		}
	}
	slices.SortFunc(out, compareAttached)
	out = slices.CompactFunc(out, func(a, b ocispec.Descriptor) bool { return compareAttached(a, b) == 0 })
	return out, fault.Join(errs...)
}

func compareAttached(a, b ocispec.Descriptor) int {
	if c := strings.Compare(a.Annotations[ocispec.AnnotationRefName], b.Annotations[ocispec.AnnotationRefName]); c != 0 {
		return c
	}
	return strings.Compare(a.Digest.String(), b.Digest.String())
}

func (x *index) fallback(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
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

// with returns the entries of an index.json with an attachment added: in the place
// of what had its tag, attachments after all names.
func with(entries []ocispec.Descriptor, a bundle.Attachment) []ocispec.Descriptor {
	added := attached(a)
	var names, atts []ocispec.Descriptor
	for _, d := range entries {
		tag := d.Annotations[ocispec.AnnotationRefName]
		_, _, isTag := tagSubject(tag)
		switch {
		case a.Tag != "" && tag == a.Tag, compareAttached(d, added) == 0:
		case tag == "" || isTag:
			atts = append(atts, d)
		default:
			names = append(names, d)
		}
	}
	atts = append(atts, added)
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
	entries := slices.Clone(g.Names)
	for _, a := range g.Attachments {
		entries = with(entries, a)
	}
	return entries
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

// checkAttachment demands that an attachment can be added: what it is about is
// there, and what is not there yet comes with its bytes. It returns what to add.
func checkAttachment(medium string, a bundle.Attachment, has func(hex string) bool, whole func(ocispec.Descriptor) (bool, error)) ([]ocispec.Descriptor, error) {
	bad := func(reason fault.Reason, format string, args ...any) ([]ocispec.Descriptor, error) {
		return nil, &fault.Error{Reason: reason, Op: "attach to", Subject: medium, Err: fmt.Errorf(format, args...),
			Hint: "sign the bundle that is there"}
	}
	if !has(a.Subject.Hex()) {
		return bad(fault.NotFound, "it holds no %s", a.Subject)
	}
	if a.Tag != "" {
		if of, _, ok := tagSubject(a.Tag); !ok || of != a.Subject.String() {
			return bad(fault.InvalidInput, "%.100q is not a tag of an attachment of %s", a.Tag, a.Subject)
		}
	}
	node := a.Node.Descriptor
	node.Data = a.Node.Data
	var add []ocispec.Descriptor
	for _, d := range append(slices.Clone(a.Blobs), node) {
		if err := bundle.CheckDescriptor(d); err != nil {
			return nil, err
		}
		there, err := whole(d)
		if err != nil {
			return nil, err
		}
		if there || slices.ContainsFunc(add, sameDigest(d)) {
			continue
		}
		if int64(len(d.Data)) != d.Size || image.DigestOf(d.Data).Hex() != d.Digest.Encoded() {
			return bad(fault.InvalidInput, "the bytes of its part %s are not at hand", d.Digest)
		}
		add = append(add, d)
	}
	slices.SortFunc(add, func(x, y ocispec.Descriptor) int { return strings.Compare(x.Digest.String(), y.Digest.String()) })
	return add, nil
}

// discardAll reads and verifies everything of d.
func discardAll(ctx context.Context, f bundle.Fetcher, d ocispec.Descriptor) error {
	rc, err := f.Fetch(ctx, d)
	if err != nil {
		return err
	}
	defer rc.Close() //nolint:errcheck // nothing was written
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{bundle.Verify(rc, d)}, *buf)
	return err
}

const bufferSize = 256 << 10

// buffers keeps memory flat: what is copied at a time, for each concurrent blob.
var buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}

// manyBuffers is how many of them are taken at a time; who comes after that gets a
// smaller one, so that memory keeps its bound with 64 blobs at a time as well.
const (
	manyBuffers = 16
	smallBuffer = bufferSize / 4
)

var (
	buffersTaken atomic.Int64
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallBuffer); return &b }}
)

// buffer is for copying size bytes, until free is called. Small blobs get no more
// than they have: many of them are copied at a time.
func buffer(size int64) (b []byte, free func()) {
	if size < smallBuffer {
		return make([]byte, size), func() {}
	}
	pool := &buffers
	if buffersTaken.Add(1) > manyBuffers {
		pool = &smallBuffers
	}
	pooled := pool.Get().(*[]byte)
	return *pooled, func() {
		pool.Put(pooled)
		buffersTaken.Add(-1)
	}
}
