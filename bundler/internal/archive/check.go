package archive

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// CheckLayout checks what the root does not reach: index.json names the bundle, its
// images and what is about them, and nothing else, and attachments are whole. A folder may
// have been written by any tool.
//
// An archive has to have the form that the package comment gives, to the byte: headers,
// padding, end, oci-layout, index.json, the order of entries. What is not read of it are the
// bytes of the blobs that the root reaches; who verifies those as well has verified every
// byte of the file.
func (a *Archive) CheckLayout(ctx context.Context) error {
	x := a.index()
	if t := x.tar; t != nil {
		return t.check(ctx, x)
	}
	g, err := x.graph(ctx)
	if err == nil {
		_, err = x.checkEntries(ctx, g)
	}
	return err
}

func (t *tarball) check(ctx context.Context, x *index) error {
	if err := t.checkHeaders(); err != nil {
		return err
	}
	g, err := x.graph(ctx)
	if err != nil {
		return err
	}
	if err := t.checkOrder(g); err != nil {
		return err
	}
	atts, err := x.checkEntries(ctx, g)
	if err == nil {
		err = t.checkIndex(g, atts)
	}
	return fault.Join(err, t.checkRest(ctx, g))
}

const layoutHint = "take it from where it was made again; if another tool wrote it, copy it to a new archive"

func offLayout(path, format string, args ...any) error {
	return fault.Errorf(fault.Corrupt, "verify", path, layoutHint, format, args...)
}

func isBlobName(name string) bool {
	hex, ok := strings.CutPrefix(name, blobPrefix)
	return ok && digest.NewDigestFromEncoded(digest.SHA256, hex).Validate() == nil
}

// blob describes an entry with a blob's name.
func (e entry) blob() ocispec.Descriptor {
	return ocispec.Descriptor{Digest: digest.NewDigestFromEncoded(digest.SHA256, e.name[len(blobPrefix):]),
		Size: e.size}
}

// checkHeaders checks what is between the data: all of it follows from names and sizes.
func (t *tarball) checkHeaders() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, offLayout(t.path, format, args...)) }
	for _, name := range t.strange {
		bad("it has an entry %.200q, which a bundle does not have", name)
	}
	for _, e := range t.entries {
		if !t.is(e.offset, header(e.name, e.size), e.head) {
			bad("the header of %.200s at byte %d is not as it was written", e.name, e.offset)
		}
		pad := padded(e.size) - e.size
		if !t.is(e.dataOffset()+e.size, make([]byte, pad), pad) {
			bad("the padding after %.200s is not zero", e.name)
		}
	}
	if !t.is(t.end, make([]byte, endSize), t.size-t.end) {
		bad("after the last entry, at byte %d, are not just the two blocks of the end "+
			"(an interrupted `vdo-bundle sign` leaves this: sign again)", t.end)
	}
	return fault.Join(errs...)
}

// is reports whether the n bytes at an offset are want.
func (t *tarball) is(at int64, want []byte, n int64) bool {
	if n != int64(len(want)) {
		return false
	}
	got := make([]byte, n)
	_, err := t.r.ReadAt(got, at)
	return err == nil && bytes.Equal(got, want)
}

// checkOrder checks that the root's part has its order, and that nothing but blobs
// follows.
func (t *tarball) checkOrder(g *bundle.Graph) error {
	want := []string{layoutName, indexName}
	for _, d := range g.Order() {
		want = append(want, blobPrefix+d.Digest.Encoded())
	}
	for i, e := range t.entries {
		switch {
		case i >= len(want) && !isBlobName(e.name):
			return offLayout(t.path, "it has an entry %.200q, which a bundle does not have", e.name)
		case i < len(want) && e.name != want[i]:
			return offLayout(t.path, "entry %d is %.200s and should be %s", i+1, e.name, want[i])
		}
	}
	if lack := len(want) - len(t.entries); lack > 0 {
		return incomplete(t.path, "%d entries are missing, the first is %s", lack, want[len(t.entries)])
	}
	return nil
}

// checkIndex checks the bytes of oci-layout and index.json, which names the graph, its images and
// what is attached, and nothing else.
func (t *tarball) checkIndex(g *bundle.Graph, atts []bundle.Attachment) error {
	layout, err := t.small(layoutName, 4096)
	if err != nil {
		return err
	}
	if string(layout) != layoutData {
		return offLayout(t.path, "oci-layout is not as it was written")
	}
	data, err := t.small(indexName, maxIndexSize)
	if err != nil {
		return err
	}
	text, err := indexJSON(with(g.Names, atts...), g.Base)
	if err != nil {
		return err
	}
	n := int64(len(data))
	if n%blockSize != 0 || n <= int64(len(text)) || !bytes.Equal(spaced(text, n), data) {
		return offLayout(t.path, "index.json is not as it was written")
	}
	return nil
}

// checkRest hashes the entries that the root does not reach.
func (t *tarball) checkRest(ctx context.Context, g *bundle.Graph) error {
	var errs []error
	for _, e := range t.entries[2+len(g.Order()):] {
		if err := discardAll(ctx, t, e.blob()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.path, err))
		}
	}
	return fault.Join(errs...)
}
