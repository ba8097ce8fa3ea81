package archive

import (
	"context"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// whole tells whether an entry has the bytes that its name says; an entry that is not
// there is none. What has a blob's name, and what an interrupted run left of it, proves
// nothing.
func (s *scan) whole(ctx context.Context, f *scanFetcher, hex string) (there, whole bool, err error) {
	i, ok := s.byName[blobPrefix+hex]
	if !ok {
		return false, false, nil
	}
	d := ocispec.Descriptor{Digest: digest.NewDigestFromEncoded(digest.SHA256, hex), Size: s.entries[i].size}
	err = discardAll(ctx, f, d)
	if fault.ReasonOf(err) == fault.Corrupt {
		return true, false, nil
	}
	return true, err == nil, err
}

// spoiled is the fault of an entry that has the name of what is to be added and not its
// bytes.
func spoiled(path string, d ocispec.Descriptor) error {
	return brokenFile(path, "it has an entry %s%s whose bytes are others: somebody has changed the archive", blobPrefix, d.Digest.Encoded())
}

// cutTorn takes away what a signing that was interrupted left behind the last entry that
// anything names, from the first entry on that is not whole. The order of the steps
// leaves an archive that can be read: what becomes the second block of the end goes first.
func (s *scan) cutTorn(ctx context.Context, path string, f storage) error {
	at, err := s.torn(ctx, path, f)
	if err != nil || at < 0 {
		return err
	}
	end := s.entries[at].offset
	for _, block := range []int64{end + blockSize, end} {
		if _, err := f.WriteAt(make([]byte, blockSize), block); err != nil {
			return storageFault("sign", path, err)
		}
		if err := flushStorage(f); err != nil {
			return storageFault("sign", path, err)
		}
	}
	for _, e := range s.entries[at:] {
		delete(s.byName, e.name)
	}
	s.entries, s.end = s.entries[:at], end
	return nil
}

// torn finds the first entry behind all that is named that is not whole; -1: there is none.
func (s *scan) torn(ctx context.Context, path string, f storage) (int, error) {
	fetch := &scanFetcher{path, f, s}
	named, err := s.named(ctx, fetch)
	if err != nil {
		return -1, err
	}
	from := len(s.entries)
	for from > 2 && isBlobName(s.entries[from-1].name) && !named[s.entries[from-1].name] {
		from--
	}
	for i := from; i < len(s.entries); i++ {
		if _, whole, err := s.whole(ctx, fetch, s.entries[i].name[len(blobPrefix):]); err != nil || !whole {
			return i, err
		}
	}
	return -1, nil
}

// named are the names of the entries that index.json leads to.
func (s *scan) named(ctx context.Context, fetch *scanFetcher) (map[string]bool, error) {
	root, err := s.index.root(ctx)
	if err != nil {
		return nil, err
	}
	g, err := bundle.Load(ctx, fetch, root)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", fetch.path, err)
	}
	names := map[string]bool{}
	for _, d := range g.Order() {
		names[blobPrefix+d.Digest.Encoded()] = true
	}
	for _, d := range s.index.entries {
		blobs, err := s.attachedBlobs(ctx, fetch, d)
		if err != nil {
			return nil, err
		}
		for _, b := range append(blobs, d) {
			names[blobPrefix+b.Digest.Encoded()] = true
		}
	}
	return names, nil
}

// attachedBlobs are the parts of an attachment that an entry of index.json names, and of
// those that a fallback tag lists. What cannot be read is left to verify to tell.
func (s *scan) attachedBlobs(ctx context.Context, fetch *scanFetcher, d ocispec.Descriptor) (out []ocispec.Descriptor, err error) {
	of, isList, _ := s.about(ctx, d)
	subject, err := image.ParseDigest(of)
	if err != nil {
		return nil, ctx.Err() // an image
	}
	listed, _ := s.listed(ctx, d, isList)
	out = slices.Clone(listed)
	for _, d := range listed {
		if a, err := bundle.ReadAttachment(ctx, fetch, subject, d); err == nil {
			out = append(out, a.Blobs...)
		}
	}
	return out, ctx.Err()
}
