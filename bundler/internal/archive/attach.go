package archive

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// Attach adds signatures, in the place of what had their tags, all at once: of two who sign
// at the same time one is done. The payload is not written again unless the slack of
// index.json is used up, or another tool wrote the archive. What it adds has to come with
// its bytes.
func (a *File) Attach(ctx context.Context, atts ...bundle.Attachment) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a.attaching.Lock()
	defer a.attaching.Unlock()
	place := a.fetcher().place()
	attachTo := attachToFile
	if filepath.Ext(place) == parts.Suffix {
		attachTo = attachToParts
	}
	if err := attachTo(ctx, place, atts, a.was); err != nil {
		return err
	}
	a.was = &index{entries: with(a.was.entries, atts...)}
	return a.reopen(place)
}

// attachToFile adds signatures to an archive in one file: where a link leads, the
// file behind it. Nobody else changes the archive at that moment, and what has a
// signature's tag has to be what it was when the archive was opened, or what was attached
// since through the same File: what is attached was joined with that.
func attachToFile(ctx context.Context, path string, atts []bundle.Attachment, was *index) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return openFault(path, err)
	}
	dir, name, err := folderOf(real)
	if err != nil {
		return err
	}
	defer dir.close() //nolint:errcheck // nothing is written through it any more
	lock, err := dir.lockArchive(name)
	if err != nil {
		return err
	}
	f, err := dir.reopen(name)
	if err == nil {
		err = errors.Join(attachTo(ctx, dir, real, f, atts, was), storageFault("sign", path, f.Close()))
	}
	return errors.Join(err, lock.release())
}

// reopen reads the file again, which may be another one by now.
func (a *File) reopen(path string) error {
	now, err := OpenFile(path)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.old = append(a.old, a.f) // somebody may be reading
	a.f, a.scan, a.seen = now.f, now.scan, now.seen
	return nil
}

func attachTo(ctx context.Context, dir *folder, path string, f storage, atts []bundle.Attachment, was *index) error {
	s, err := scanStorage(path, f)
	if err != nil {
		return err
	}
	if err := sameTags(path, atts, was, s.index); err != nil {
		return err
	}
	if err := s.ownCopy(dir, path); err != nil {
		return err
	}
	if err := s.cutTorn(ctx, path, f); err != nil {
		return err
	}
	whole := func(d ocispec.Descriptor) (bool, error) {
		there, whole, err := s.whole(ctx, &scanFetcher{path, f, s}, d.Digest.Encoded())
		if err == nil && there && !whole {
			err = spoiled(path, d)
		}
		return whole, err
	}
	add, err := checkAttachments(path, atts, s.has, whole)
	if err != nil {
		return err
	}
	text, err := indexJSON(with(s.index.entries, atts...), s.index.base)
	if err != nil {
		return err
	}
	tail := &Layout{byHex: map[string]int{}, size: endSize}
	for _, d := range add {
		tail.add(d)
	}
	if s.fits(text) {
		return s.inPlace(dir, path, f, tail, text)
	}
	file, ok := f.(*os.File)
	if !ok {
		return &fault.Error{Reason: fault.Refused, Op: "sign", Subject: path,
			Hint: "join the parts with `cat`, sign the archive, and split it with `vdo-bundle split`",
			Err:  errors.New("the room for signatures in its index.json is used up")}
	}
	return s.rewrite(dir, path, file, tail, text)
}

// ownCopy refuses a file that has the name of the copy of index.json and is none.
func (s *scan) ownCopy(dir *folder, path string) error {
	name := indexCopy(filepath.Base(path))
	if !dir.has(name) {
		return nil
	}
	data, err := readRegular(dir.at(name), maxIndexSize)
	if err == nil && int64(len(data)) == s.entries[s.byName[indexName]].size && json.Valid(data) {
		return nil // of a signing that was interrupted
	}
	return &fault.Error{
		Reason: fault.Conflict, Op: "sign", Subject: path,
		Hint: "move " + fault.Quote(dir.at(name)) + " away, and run the same command again",
		Err:  fmt.Errorf("%s is in the way: a copy of index.json is kept there meanwhile", dir.at(name)),
	}
}

// fits reports whether an index.json can be written where the old one is: ours
// comes second and is padded to whole blocks.
func (s *scan) fits(text []byte) bool {
	i := s.byName[indexName]
	e := s.entries[i]
	return i == 1 && e.size%blockSize == 0 && int64(len(text)) < e.size
}

// inPlace appends, then writes index.json again. The order of the steps is that of
// the package comment: each leaves an archive that can be read.
func (s *scan) inPlace(dir *folder, path string, f storage, tail *Layout, text []byte) error {
	if err := checkSpace(path, tail.size); err != nil {
		return err
	}
	e := s.entries[s.byName[indexName]]
	data := spaced(text, e.size)
	if err := s.appendTail(f, tail); err != nil {
		return storageFault("sign", path, errors.Join(err, f.Truncate(s.end+endSize)))
	}
	if err := dir.write(indexCopy(filepath.Base(path)), data); err != nil {
		return err
	}
	_, err := f.WriteAt(data, e.scannedData())
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return storageFault("sign", path, err)
	}
	return dir.remove(indexCopy(filepath.Base(path)))
}

func (s *scan) appendTail(f storage, tail *Layout) error {
	var out bytes.Buffer
	if err := tail.Stream(context.Background(), &out, nil); err != nil {
		return err
	}
	b := out.Bytes()
	// What an earlier run left behind the end goes first, so that zeros follow it.
	err := errors.Join(f.Truncate(s.end+endSize), f.Truncate(s.end+int64(len(b))))
	for _, part := range [][2]int{{endSize, len(b)}, {0, blockSize}, {blockSize, endSize}} {
		if err != nil {
			return err
		}
		if _, err = f.WriteAt(b[part[0]:part[1]], s.end+int64(part[0])); err == nil {
			err = flushStorage(f)
		}
	}
	return err
}

// rewrite makes the archive anew beside itself, with headers, order and slack as
// they should be, and takes its place.
func (s *scan) rewrite(dir *folder, path string, f *os.File, tail *Layout, text []byte) error {
	if len(text)+slack > maxIndexSize {
		return &fault.Error{Reason: fault.InvalidInput, Op: "sign", Subject: path,
			Hint: "make the bundle again", Err: errors.New("its index.json has no room for more signatures")}
	}
	if err := checkSpace(path, s.size+tail.size); err != nil {
		return err
	}
	name := filepath.Base(path)
	tmp := "." + rand.Text() + ".sign"
	if err := s.writeAnew(dir, tmp, f, tail, text); err != nil {
		return errors.Join(storageFault("sign", dir.at(tmp), err), dir.remove(tmp))
	}
	if err := dir.rename(tmp, name); err != nil {
		return errors.Join(err, dir.remove(tmp))
	}
	return errors.Join(dir.sync("."), dir.remove(indexCopy(name)))
}

func (s *scan) writeAnew(dir *folder, tmp string, f *os.File, tail *Layout, text []byte) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	out, err := dir.make(tmp, info.Mode().Perm())
	if err != nil {
		return err
	}
	l := newLayout(text)
	for _, e := range s.entries {
		if hex, ok := strings.CutPrefix(e.name, blobPrefix); ok && isBlobName(e.name) {
			l.add(ocispec.Descriptor{Digest: digest.NewDigestFromEncoded(digest.SHA256, hex), Size: e.size})
		}
	}
	for _, e := range tail.entries {
		l.add(e.d)
	}
	err = l.Stream(context.Background(), out, &scanFetcher{f.Name(), f, s})
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// checkAttachments demands that attachments can be added: what they are about is
// there, and what is not there yet comes with its bytes. It returns what to add.
func checkAttachments(medium string, atts []bundle.Attachment, has func(hex string) bool, whole func(ocispec.Descriptor) (bool, error)) ([]ocispec.Descriptor, error) {
	var add []ocispec.Descriptor
	for _, a := range atts {
		of, err := checkAttachment(medium, a, has, whole)
		if err != nil {
			return nil, err
		}
		add = append(add, of...)
	}
	byDigest := func(x, y ocispec.Descriptor) int { return strings.Compare(x.Digest.String(), y.Digest.String()) }
	slices.SortFunc(add, byDigest)
	return slices.CompactFunc(add, func(x, y ocispec.Descriptor) bool { return byDigest(x, y) == 0 }), nil
}

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
		if there {
			continue
		}
		if int64(len(d.Data)) != d.Size || image.DigestOf(d.Data).Hex() != d.Digest.Encoded() {
			return bad(fault.InvalidInput, "the bytes of its part %s are not at hand", d.Digest)
		}
		add = append(add, d)
	}
	return add, nil
}
