package archive

import (
	"bytes"
	"context"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// CheckLayout checks all that the root does not reach: index.json names only the bundle, its images and complete
// attachments. A file must match the package comment to the byte, apart from the blobs that the root reaches.
// Verifying these too covers every byte of the file.
func (a *Archive) CheckLayout(ctx context.Context) error {
	x := a.x
	g, err := x.graph(ctx)
	if err != nil {
		return err
	}
	atts, err := x.checkEntries(ctx, g)
	if err != nil || x.tar == nil {
		return err
	}
	return x.tar.check(ctx, indexJSON(with(g.Names, atts...), g.Base), g.Order())
}

func offLayout(path, format string, args ...any) error {
	return fault.Errorf(fault.Corrupt, "verify", path,
		"take it from where it was made again; if another tool wrote it, copy it to a new archive", format, args...)
}

func isBlobName(name string) bool {
	hex, ok := strings.CutPrefix(name, blobPrefix)
	return ok && digest.NewDigestFromEncoded(digest.SHA256, hex).Validate() == nil
}

// check compares the archive with its layout. It hashes the blobs after that: earlier versions appended signatures.
func (t *tarball) check(ctx context.Context, index []byte, order []ocispec.Descriptor) error {
	room := t.entries[min(1, len(t.entries)-1)].size
	if room%blockSize != 0 || room <= int64(len(index)) || room > maxIndexSize {
		return offLayout(t.path, "index.json is not as it was written")
	}
	want := newLayout(spaced(index, room), t.bare)
	for _, d := range order {
		want.add(d)
	}
	var errs fault.List
	for _, e := range t.entries[min(len(want.entries), len(t.entries)):] {
		if !isBlobName(e.name) {
			return offLayout(t.path, "it has an entry %.200q, which a bundle does not have", e.name)
		}
		d := ocispec.Descriptor{Digest: digest.NewDigestFromEncoded(digest.SHA256, e.name[len(blobPrefix):]), Size: e.size}
		want.add(d)
		errs.Add(discardAll(ctx, t, d))
	}
	return fault.Join(t.compare(want), errs.Join("verify", t.path))
}

// compare compares all bytes but those of blobs with a layout.
func (t *tarball) compare(want *Layout) error {
	if len(t.strange) > 0 {
		return offLayout(t.path, "it has an entry %.200q, which a bundle does not have", t.strange[0])
	}
	for i, e := range want.entries {
		if i == len(t.entries) {
			return incomplete(t.path, "the entry %s is missing, and all that follows", e.name)
		}
		isAt := func(at int64, bytes []byte) bool { return t.entries[i].name == e.name && t.is(at, bytes) }
		if !isAt(e.offset, e.header) || !isAt(e.dataOffset(), e.data) ||
			!isAt(e.dataOffset()+e.size, make([]byte, padded(e.size)-e.size)) {
			return offLayout(t.path, "entry %d is not %s as it is written: it is %.200s, or its header or padding differs",
				i+1, e.name, t.entries[i].name)
		}
	}
	if t.size != want.size || !t.is(want.size-endSize, make([]byte, endSize)) {
		return offLayout(t.path, "after the last entry are not just the two blocks of the end "+
			"(an interrupted `vdo-bundle sign` of an earlier version leaves this: sign again)")
	}
	return nil
}

func (t *tarball) is(at int64, want []byte) bool {
	got := make([]byte, len(want))
	_, err := t.r.ReadAt(got, at)
	return len(want) == 0 || err == nil && bytes.Equal(got, want)
}
