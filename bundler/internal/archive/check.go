package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// CheckLayout demands the archive in the form that the package comment gives, to
// the byte: headers, padding, end, oci-layout, index.json, the order of entries.
// It reads all manifests, and all that the root does not reach: attachments, and
// what was replaced by them. What it does not read is the bytes of the other
// blobs; who verifies those as well has verified every byte of the file.
func (a *File) CheckLayout(ctx context.Context) error {
	return a.steadily(ctx, func(f *scanFetcher) error { return checkLayout(ctx, f) })
}

func checkLayout(ctx context.Context, f *scanFetcher) error {
	c := &layoutCheck{f: f}
	if err := c.tar(); err != nil {
		return err
	}
	root, err := f.index.root(ctx)
	if err != nil {
		return err
	}
	g, err := bundle.Load(ctx, f, root)
	if err != nil {
		return err
	}
	if err := g.LeaveTo(f.index.base); err != nil {
		return err
	}
	if err := c.order(g); err != nil {
		return err
	}
	atts, err := checkEntries(ctx, f.path, f.index, g)
	if err == nil {
		err = c.index(g, atts)
	}
	return fault.Join(err, c.rest(ctx, g), c.parts(ctx))
}

// parts checks what belongs to the archive and is not in it: the parts file's mark,
// and recovery parts. Those may be left behind, and must not be damaged.
func (c *layoutCheck) parts(ctx context.Context) error {
	v, ok := c.f.r.(*volumes)
	if !ok {
		return nil
	}
	if v.list.Changing {
		return &fault.Error{Reason: fault.Incomplete, Op: "verify", Subject: v.partsPath,
			Hint: "run that `vdo-bundle sign` again", Err: errors.New("a signature was being added, and that was interrupted")}
	}
	return damaged(ctx, v, func(i int) bool {
		return i >= int(v.list.Count()) && isThere(filepath.Join(filepath.Dir(v.partsPath), v.list.Name(i)))
	})
}

const layoutHint = "take it from where it was made again; an archive that another tool wrote is written anew by copying it"

func offLayout(path, format string, args ...any) error {
	return &fault.Error{Reason: fault.Corrupt, Op: "verify", Subject: path, Hint: layoutHint, Err: fmt.Errorf(format, args...)}
}

func isBlobName(name string) bool {
	hex, ok := strings.CutPrefix(name, blobPrefix)
	return ok && digest.NewDigestFromEncoded(digest.SHA256, hex).Validate() == nil
}

type layoutCheck struct{ f *scanFetcher }

// tar checks what is between the data: all of it follows from names and sizes.
func (c *layoutCheck) tar() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, offLayout(c.f.path, format, args...)) }
	for _, name := range c.f.strange {
		bad("it has an entry %.200q, which a bundle does not have", name)
	}
	for _, e := range c.f.entries {
		if !c.is(e.offset, header(e.name, e.size), e.headerLength()) {
			bad("the header of %.200s at byte %d is not as it was written", e.name, e.offset)
		}
		pad := padded(e.size) - e.size
		if !c.is(e.scannedData()+e.size, make([]byte, pad), pad) {
			bad("the padding after %.200s is not zero", e.name)
		}
	}
	if !c.is(c.f.end, make([]byte, endSize), c.f.size-c.f.end) {
		bad("after the last entry, at byte %d, are not just the two blocks of the end (an interrupted `vdo-bundle sign` leaves this: sign again)", c.f.end)
	}
	return fault.Join(errs...)
}

// is reports whether the n bytes at an offset are want.
func (c *layoutCheck) is(at int64, want []byte, n int64) bool {
	if n != int64(len(want)) {
		return false
	}
	got := make([]byte, n)
	_, err := c.f.r.ReadAt(got, at)
	return err == nil && bytes.Equal(got, want)
}

// order checks that the root's part has its order, and that nothing but blobs
// follows.
func (c *layoutCheck) order(g *bundle.Graph) error {
	want := []string{layoutName, indexName}
	for _, d := range g.Order() {
		want = append(want, blobPrefix+d.Digest.Encoded())
	}
	for i, e := range c.f.entries {
		if i >= len(want) {
			if !isBlobName(e.name) {
				return offLayout(c.f.path, "it has an entry %.200q, which a bundle does not have", e.name)
			}
			continue
		}
		if e.name != want[i] {
			return offLayout(c.f.path, "entry %d is %.200s and should be %s", i+1, e.name, want[i])
		}
	}
	if lack := len(want) - len(c.f.entries); lack > 0 {
		return incomplete(c.f.path, "%d entries are missing, the first is %s", lack, want[len(c.f.entries)])
	}
	return nil
}

// index checks the bytes of oci-layout and index.json, which names the graph, its images and
// what is attached, and nothing else.
func (c *layoutCheck) index(g *bundle.Graph, atts []bundle.Attachment) error {
	data, err := c.f.small(c.f.path, c.f.r, layoutName, 4096)
	if err != nil {
		return err
	}
	if string(data) != layoutData {
		return offLayout(c.f.path, "oci-layout is not as it was written")
	}
	if data, err = c.f.small(c.f.path, c.f.r, indexName, maxIndexSize); err != nil {
		return err
	}
	text, err := indexJSON(with(g.Names, atts...), c.f.index.base)
	if err != nil {
		return err
	}
	n := int64(len(data))
	if n%blockSize != 0 || n <= int64(len(text)) || !bytes.Equal(spaced(text, n), data) {
		return offLayout(c.f.path, "index.json is not as it was written")
	}
	return nil
}

// rest hashes the entries that the root does not reach.
func (c *layoutCheck) rest(ctx context.Context, g *bundle.Graph) error {
	var errs []error
	for _, e := range c.f.entries[2+len(g.Order()):] {
		d := ocispec.Descriptor{Digest: digest.NewDigestFromEncoded(digest.SHA256, e.name[len(blobPrefix):]), Size: e.size}
		if err := discardAll(ctx, c.f, d); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.f.path, err))
		}
	}
	return fault.Join(errs...)
}

// ofAttachment says of which attachment a blob is that cannot be read. The bundle is
// there: what is not there of it makes it incomplete.
func ofAttachment(medium string, d ocispec.Descriptor, err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Reason != fault.NotFound || f.Err == nil {
		return fmt.Errorf("%s: the attachment %s: %w", medium, d.Digest, err)
	}
	return &fault.Error{
		Reason: fault.Incomplete, Op: "check", Subject: medium, Err: fmt.Errorf("the attachment %s: %w", d.Digest, f.Err),
		Hint: "copy the bundle again from where it was made, or pull it again",
	}
}

func sameEntry(a, b ocispec.Descriptor) bool {
	text, err := indexJSON([]ocispec.Descriptor{a}, nil)
	other, otherErr := indexJSON([]ocispec.Descriptor{b}, nil)
	return err == nil && otherErr == nil && bytes.Equal(text, other)
}
