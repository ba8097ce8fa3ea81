package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

func written(t testing.TB, b *bundles.Bundle) string {
	s := store{path: filepath.Join(t.TempDir(), "b.tar")}
	require.NoError(t, s.pull(t, b))
	return s.path
}

func streamed(t testing.TB, b *bundles.Bundle) []byte {
	var out bytes.Buffer
	s := NewStreamWriter(&out)
	missing, err := s.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	for _, d := range missing {
		require.NoError(t, s.Put(t.Context(), d, b.Store.Opener(t.Context(), d)))
	}
	require.NoError(t, s.Commit(t.Context()))
	require.EqualValues(t, s.layout.size, out.Len())
	return out.Bytes()
}

func read(t testing.TB, path string) []byte {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

// verify is what a flow does: the layout, the graph, every blob.
func verify(ctx context.Context, a *Archive) error {
	return errors.Join(a.CheckLayout(ctx), verifyLoaded(ctx, a))
}

// verifyLoaded is verify without the layout.
func verifyLoaded(ctx context.Context, a *Archive) error {
	g, err := a.x.graph(ctx)
	if err != nil {
		return err
	}
	for _, d := range g.Order() {
		d.Data = nil
		if err := discardAll(ctx, a, d); err != nil {
			return err
		}
	}
	_, err = g.Contents(ctx, a)
	return err
}

func verifyPath(ctx context.Context, path string) error {
	a, err := openAny(path)
	if err != nil {
		return err
	}
	return errors.Join(verify(ctx, a), a.Close())
}

func rootOf(b *bundles.Bundle) image.Digest { return image.MustDigest(b.Graph.Root.Digest.String()) }

func TestOtherToolsReadTheArchive(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 3})
	b.Graph.Attachments = []bundle.Referrer{bundles.Signature(t, rootOf(b), 1)}
	path := written(t, b)
	store, err := oci.NewFromTar(t.Context(), path)
	require.NoError(t, err)
	for _, d := range b.Graph.Names {
		got, err := store.Resolve(t.Context(), d.Annotations[ocispec.AnnotationRefName])
		require.NoError(t, err)
		require.Equal(t, d.Digest, got.Digest)
	}
	skopeo := toolchain.Installed(t, "skopeo")
	for _, ref := range []string{"registry.test/oci/index:v1", "registry.test/plain/image:v3", "registry.test/plain/image:v3.1"} {
		out, err := exec.CommandContext(t.Context(), skopeo, "inspect", "oci-archive:"+path+":"+ref).CombinedOutput()
		require.NoError(t, err, string(out))
		copied := filepath.Join(t.TempDir(), "layout")
		out, err = exec.CommandContext(t.Context(), skopeo, "copy", "--insecure-policy", "--all", "oci-archive:"+path+":"+ref, "oci:"+copied+":x").CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

func TestAKilledProcessLosesLittle(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 5, PlainSize: 3 * checkpoint, Layers: 1})
	path := filepath.Join(t.TempDir(), "b.tar")
	w, err := CreateFile(path, Options{})
	require.NoError(t, err)
	missing, err := w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	large := slices.MaxFunc(missing, func(a, b ocispec.Descriptor) int { return int(a.Size - b.Size) })
	c := &cut{b.Store, 2*checkpoint + 1000}
	require.ErrorIs(t, w.Put(t.Context(), large, c.open(t.Context(), large)), errCut)
	require.NoError(t, w.journal.end()) // the journal as it is without Close's last word
	require.NoError(t, errors.Join(w.f.Close(), w.lock.f.Close()))

	next := store{path: path}.mustCreate(t)
	_, err = next.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	var from int64
	require.NoError(t, next.Put(t.Context(), large, func(offset int64) (io.ReadCloser, error) {
		from = offset
		return b.Store.Fetch(t.Context(), large, offset)
	}))
	require.GreaterOrEqual(t, from, int64(2*checkpoint))
	require.NoError(t, next.Close())
}

func TestEveryFlippedByteIsFound(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 12, LayerSize: 700, Layers: 1})
	b.Graph.Attachments = []bundle.Referrer{bundles.Signature(t, rootOf(b), 1)}
	path := written(t, b)
	sign(t, path, bundles.Signature(t, rootOf(b), 2))
	good := read(t, path)
	require.NoError(t, verifyPath(t.Context(), path))
	check := func(at int, bit byte) {
		data := bytes.Clone(good)
		data[at] ^= bit
		require.Error(t, verifyBytes(t, path, data), "byte %d", at)
	}
	r := rand.New(rand.NewSource(12))
	for range 300 {
		check(r.Intn(len(good)), 1<<r.Intn(8))
	}
	for at := 0; at < 1024; at++ { // the first header and its padding, all of it
		check(at, 0x20)
	}
	for at := len(good) - 2*blockSize; at < len(good); at += 13 {
		check(at, 1)
	}
}

// verifyBytes writes data over the archive and verifies it.
func verifyBytes(t *testing.T, path string, data []byte) error {
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return verifyPath(t.Context(), path)
}

func TestTruncatedArchivesAreIncompleteAndSayWhere(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 13})
	path := written(t, b)
	good := read(t, path)
	l, err := NewLayout(b.Graph)
	require.NoError(t, err)
	cuts := map[int64]string{l.size - 1: l.entries[len(l.entries)-1].name}
	for i, e := range l.entries {
		cuts[e.dataOffset()], cuts[e.dataOffset()+e.size-1] = e.name, e.name
		if i > 0 {
			cuts[e.offset], cuts[e.offset+100] = l.entries[i-1].name, l.entries[i-1].name
		}
	}
	for at, want := range cuts {
		err := verifyBytes(t, path, good[:at])
		require.Equal(t, fault.Incomplete, fault.ReasonOf(err), "cut at %d: %v", at, err)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, path)
	}
	require.Equal(t, fault.Incomplete, fault.ReasonOf(verifyBytes(t, path, nil)))
	require.Equal(t, fault.Corrupt, fault.ReasonOf(verifyBytes(t, path, append(bytes.Clone(good), 0))), "bytes after the end")
}

// rebuilt writes the archive's entries with another hand.
func rebuilt(t *testing.T, data []byte, change func(w *tar.Writer, h *tar.Header, data []byte)) string {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	r := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		body, err := io.ReadAll(r)
		require.NoError(t, err)
		change(w, h, body)
	}
	require.NoError(t, w.Close())
	path := filepath.Join(t.TempDir(), "other.tar")
	require.NoError(t, os.WriteFile(path, out.Bytes(), 0o600))
	return path
}

func put(t *testing.T, w *tar.Writer, h *tar.Header, data []byte) {
	h.Format = tar.FormatUnknown
	require.NoError(t, w.WriteHeader(h))
	_, err := w.Write(data)
	require.NoError(t, err)
}

func TestHostileTarsAreRefused(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 14})
	good := streamed(t, b)
	extra := func(h tar.Header) func(w *tar.Writer, o *tar.Header, data []byte) {
		return func(w *tar.Writer, o *tar.Header, data []byte) {
			put(t, w, o, data)
			if o.Name == indexName {
				put(t, w, &h, make([]byte, h.Size))
			}
		}
	}
	for _, c := range []struct {
		want string
		h    tar.Header
	}{
		{"leads out of the archive", tar.Header{Name: "../../etc/passwd", Mode: 0o644}},
		{"leads out of the archive", tar.Header{Name: "/etc/passwd", Mode: 0o644}},
		{"leads out of the archive", tar.Header{Name: "blobs/../../x", Mode: 0o644}},
		{"no file and no folder", tar.Header{Name: "blobs/sha256/a", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}},
		{"no file and no folder", tar.Header{Name: "blobs/sha256/a", Typeflag: tar.TypeLink, Linkname: "index.json"}},
		{"no file and no folder", tar.Header{Name: "blobs/sha256/a", Typeflag: tar.TypeChar}},
		{"no file and no folder", tar.Header{Name: "blobs/sha256/a", Typeflag: tar.TypeFifo}},
		{"is there twice", tar.Header{Name: "./index.json", Mode: 0o644}},
		{"is there twice", tar.Header{Name: "oci-layout", Mode: 0o644}},
	} {
		_, err := OpenFile(rebuilt(t, good, extra(c.h)))
		require.ErrorContains(t, err, c.want)
		require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
	}
	without := func(name string) string {
		return rebuilt(t, good, func(w *tar.Writer, h *tar.Header, data []byte) {
			if !strings.HasSuffix(h.Name, name) {
				put(t, w, h, data)
			}
		})
	}
	for _, name := range []string{indexName, layoutName} {
		_, err := OpenFile(without(name))
		require.ErrorContains(t, err, "it has no "+name)
	}
	image0 := b.Graph.Images()[0]
	f, err := OpenFile(without(image0.Digest.Encoded()))
	require.NoError(t, err)
	_, err = bundle.Load(t.Context(), f, b.Graph.Root)
	require.Equal(t, fault.Incomplete, fault.ReasonOf(err))
	require.ErrorContains(t, err, image0.Annotations[bundle.AnnotationReference])
	require.EqualError(t, f.CheckLayout(t.Context()), err.Error(), "who reports both reports it once")
	require.NoError(t, f.Close())

	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, bytes.Repeat([]byte("no tar "), 1000), 0o600))
	_, err = OpenFile(plain)
	require.ErrorContains(t, err, "not a tar archive")
	_, err = OpenFile(plain + ".absent")
	require.Equal(t, fault.NotFound, fault.ReasonOf(err))
	_, err = OpenFile(t.TempDir())
	require.ErrorContains(t, err, "it is a folder")
}

func TestArchivesOfOtherToolsAreRead(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 15})
	good := streamed(t, b)
	first := true
	path := rebuilt(t, good, func(w *tar.Writer, h *tar.Header, data []byte) {
		if first {
			put(t, w, &tar.Header{Name: "./blobs/", Typeflag: tar.TypeDir, Mode: 0o755}, nil)
			first = false
		}
		h.Name, h.Mode = "./"+h.Name, 0o600
		if h.Name == "./index.json" {
			text := indexJSON([]ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageIndex, Digest: b.Graph.Root.Digest, Size: b.Graph.Root.Size}}, nil)
			data, h.Size = text, int64(len(text))
		}
		put(t, w, h, data)
	})
	f := opened(t, path)
	root, err := f.Root(t.Context())
	require.NoError(t, err)
	g, err := bundle.Load(t.Context(), f, root)
	require.NoError(t, err)
	_, err = g.Contents(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, fault.Corrupt, fault.ReasonOf(f.CheckLayout(t.Context())), "its bytes outside blobs follow no rule")
	require.NoError(t, f.Attach(t.Context(), bundles.Signature(t, rootOf(b), 1)))
	require.NoError(t, verifyPath(t.Context(), path))
}

func TestASignedArchiveIsWhatAPullWithItsSignatureWrites(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 16})
	path := written(t, b)
	atts := []bundle.Referrer{bundles.Signature(t, rootOf(b), 2), referrer(t, rootOf(b), 1)}
	sign(t, path, bundles.Signature(t, rootOf(b), 1))
	sign(t, path, atts...)
	b.Graph.Attachments = atts
	want := streamed(t, b)
	require.True(t, bytes.Equal(want, read(t, path)))
	sign(t, path, atts...)
	require.True(t, bytes.Equal(want, read(t, path)), "the same again")
	out, err := exec.CommandContext(t.Context(), toolchain.Installed(t, "skopeo"), "inspect",
		"oci-archive:"+path+":registry.test/oci/index:v1").CombinedOutput()
	require.NoError(t, err, string(out))
}

// referrer is an attachment without a tag.
func referrer(t *testing.T, subject image.Digest, n int) bundle.Referrer {
	node := bundle.NewManifest(ocispec.Manifest{
		ArtifactType: "application/x-test", Config: bundle.Plain(ocispec.DescriptorEmptyJSON), Layers: []ocispec.Descriptor{},
		Subject:     &ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.Digest(subject.String()), Size: 1},
		Annotations: map[string]string{"n": fmt.Sprint(n)},
	})
	a, err := bundle.NewReferrer(subject, "", node, ocispec.DescriptorEmptyJSON)
	require.NoError(t, err)
	return a
}

func TestEntriesBeyondEightGiBAreReadByAll(t *testing.T) {
	const size = 9 << 30
	s := bundles.Store{}
	d := s.Add(ocispec.MediaTypeImageLayer, []byte("large"))
	d.Size = size
	l := newLayout([]byte(`{"schemaVersion":2,"mediaType":"`+ocispec.MediaTypeImageIndex+`","manifests":[]}`), true)
	l.add(d)
	l.add(s.Add(ocispec.MediaTypeImageLayer, []byte("after")))
	path := filepath.Join(t.TempDir(), "large.tar")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(l.size))
	for _, e := range l.entries {
		_, err := f.WriteAt(e.header, e.offset)
		require.NoError(t, err)
		_, err = f.WriteAt(e.data, e.dataOffset())
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	a := opened(t, path)
	require.Len(t, a.x.tar.entries, 4)
	require.EqualValues(t, size, a.x.tar.entries[2].size)
	require.True(t, a.x.tar.bare, "as earlier versions wrote them")
	require.NoError(t, a.x.tar.compare(l))
	store, err := oci.NewFromTar(t.Context(), path)
	require.NoError(t, err)
	rc, err := store.Fetch(t.Context(), d)
	require.NoError(t, err)
	n, err := rc.Read(make([]byte, 10))
	require.NoError(t, err)
	require.Positive(t, n)
	require.NoError(t, rc.Close())
	if out, err := exec.CommandContext(t.Context(), "tar", "tvf", path).CombinedOutput(); !errors.Is(err, exec.ErrNotFound) {
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), fmt.Sprint(int64(size)))
		require.Equal(t, 4, strings.Count(string(out), "\n"))
	}
}

// Tools that unpack it without the rights of root make no folders themselves.
func TestFoldersComeBeforeTheirFiles(t *testing.T) {
	b := bundles.New(t, bundles.Options{})
	data := read(t, written(t, b))
	tr, made := tar.NewReader(bytes.NewReader(data)), []string{"."}
	for h, err := tr.Next(); !errors.Is(err, io.EOF); h, err = tr.Next() {
		require.NoError(t, err)
		require.Contains(t, made, filepath.Dir(filepath.Clean(h.Name)))
		if h.Typeflag == tar.TypeDir {
			require.EqualValues(t, 0o755, h.Mode)
			made = append(made, filepath.Clean(h.Name))
		}
	}
	require.Len(t, made, 3)
	l, err := NewLayout(b.Graph)
	require.NoError(t, err)
	_, err = scanTar("cut", bytes.NewReader(data), l.entries[2].offset+2*blockSize)
	require.ErrorContains(t, err, "the file ends at byte", "the folders are no end mark")
}

func FuzzScan(f *testing.F) {
	blob := []byte("a blob")
	f.Add(tarWith(f, layoutName, `{"imageLayoutVersion":"1.0.0"}`, blobPrefix+image.DigestOf(blob).Hex(), string(blob),
		indexName, `{"schemaVersion":2,"manifests":[{"mediaType":"m","size":6,"digest":"`+image.DigestOf(blob).String()+`"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{data, summed(data)} { // mutants with right checksums of headers too
			s, err := scanTar("fuzz", bytes.NewReader(data), int64(len(data)))
			var text []byte
			if err == nil {
				text, err = readIndex("fuzz", s.small)
			}
			if err == nil {
				_, err = parseIndex("fuzz", text, s)
			}
			if err != nil {
				require.NotEqual(t, fault.Internal, fault.ReasonOf(err), err)
				continue
			}
			for _, e := range s.entries {
				require.LessOrEqual(t, e.dataOffset()+e.size, int64(len(data)))
			}
		}
	})
}

func tarWith(t testing.TB, namesAndContents ...string) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := 0; i < len(namesAndContents); i += 2 {
		content := namesAndContents[i+1]
		require.NoError(t, w.WriteHeader(&tar.Header{Name: namesAndContents[i], Mode: 0o644, Size: int64(len(content))}))
		_, err := w.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

// summed writes the checksum of every block that looks like a tar header.
func summed(data []byte) []byte {
	out := bytes.Clone(data)
	for at := 0; at+512 <= len(out); at += 512 {
		block := out[at : at+512]
		if !bytes.Equal(block[257:262], []byte("ustar")) {
			continue
		}
		copy(block[148:156], "        ")
		sum := 0
		for _, b := range block {
			sum += int(b)
		}
		copy(block[148:156], fmt.Sprintf("%06o\x00 ", sum))
	}
	return out
}

func FuzzParseIndex(f *testing.F) {
	b := bundles.New(f, bundles.Options{Seed: 21, LayerSize: 10, Layers: 1})
	root := b.Graph.Root
	f.Add(fmt.Appendf(nil, `{"schemaVersion":2,"manifests":[{"mediaType":%q,"size":%d,"digest":%q,"annotations":{"org.opencontainers.image.ref.name":"x"}}]}`, root.MediaType, root.Size, root.Digest))
	f.Add(fmt.Appendf(nil, `{"schemaVersion":2,"manifests":[],"annotations":{%q:%q}}`, bundle.AnnotationBase, root.Digest))
	f.Add(fmt.Appendf(nil, `{"schemaVersion":2,"manifests":[{"mediaType":%q,"size":%d,"digest":%q},{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":%d,"digest":%q,"annotations":{"org.opencontainers.image.ref.name":"sha256-%s.sig"}}]}`,
		root.MediaType, root.Size, root.Digest, b.Graph.Manifests[0].Descriptor.Size, b.Graph.Manifests[0].Descriptor.Digest, root.Digest.Encoded()))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := parseIndex("fuzz", data, b.Store)
		if err == nil {
			var d ocispec.Descriptor
			if d, err = x.root(t.Context()); err == nil {
				require.Equal(t, root.Digest, d.Digest)
			}
			if err == nil {
				_, err = x.attachments(t.Context(), image.MustDigest(root.Digest.String()))
			}
		}
		if err != nil {
			require.NotEqual(t, fault.Internal, fault.ReasonOf(err), err)
			require.NotEmpty(t, fault.Text(err))
		}
	})
}

func FuzzReadJournal(f *testing.F) {
	f.Add(append(lines(journalHead{journalFormat, "x"}), lines(progress{Blob: "ab", Offset: 9})...))
	f.Fuzz(func(t *testing.T, data []byte) {
		read := readJournal(bytes.NewReader(data))
		require.Equal(t, read, readJournal(bytes.NewReader(data[:read.sound])))
	})
}

// Debian's skopeo 1.9.3 copies no index within an index, so the copy is oras's.
func TestACopyThatOrasMadeIsReadAndVerified(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 22})
	from, err := oci.NewFromTar(t.Context(), written(t, b))
	require.NoError(t, err)
	copied := filepath.Join(t.TempDir(), "copy")
	to, err := oci.New(copied)
	require.NoError(t, err)
	_, err = oras.Copy(t.Context(), from, bundle.RootName, to, "anything", oras.DefaultCopyOptions)
	require.NoError(t, err)
	d := opened(t, copied)
	root, err := d.Root(t.Context())
	require.NoError(t, err)
	g, err := bundle.Load(t.Context(), d, root)
	require.NoError(t, err)
	require.Equal(t, b.Graph.Manifests, g.Manifests)
	_, err = g.Contents(t.Context(), d)
	require.NoError(t, err)
}

func TestStreamIsTheFileAndIsReadFromAPipe(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 21})
	want := streamed(t, b)
	var out bytes.Buffer
	s := NewStreamWriter(&out)
	require.Equal(t, fault.Incomplete, fault.ReasonOf(s.Commit(t.Context())), "before Begin")
	missing, err := s.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	require.Greater(t, len(missing), 1)
	require.Equal(t, fault.Internal, fault.ReasonOf(s.Put(t.Context(), missing[1], nil)), "not in their order")
	require.Equal(t, fault.Incomplete, fault.ReasonOf(s.Commit(t.Context())))
	broken := &cut{b.Store, 10}
	err = s.Put(t.Context(), missing[0], broken.open(t.Context(), missing[0]))
	require.ErrorIs(t, err, errCut)
	require.Equal(t, fault.Incomplete, fault.ReasonOf(err), "%v", err)
	err = s.Put(t.Context(), missing[0], b.Store.Opener(t.Context(), missing[0]))
	require.Equal(t, fault.Incomplete, fault.ReasonOf(err), "what was written cannot be taken back")
	require.Equal(t, fault.Incomplete, fault.ReasonOf(s.Commit(t.Context())))
	require.NoError(t, s.Close())

	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	go func() {
		_, _ = w.Write(want)
		_ = w.Close()
	}()
	f, err := OpenStream(t.Context(), "standard input", r)
	require.NoError(t, err)
	require.NoError(t, verify(t.Context(), f))
	list, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, list, "what is kept has no name")
	require.NoError(t, f.Close())

	ctx, cancel := context.WithCancel(t.Context())
	silent, open, err := os.Pipe()
	require.NoError(t, err)
	cancel()
	_, err = OpenStream(ctx, "standard input", silent)
	require.NoError(t, open.Close())
	require.ErrorIs(t, err, context.Canceled)
}

// Nothing is wrong with a disk where this machine may open no more files.
func TestTooManyOpenFilesAreNoFaultOfTheDisk(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
		err := atomicfile.Fault("open", "a.tar", &fs.PathError{Op: "open", Path: "a.tar", Err: errno})
		require.Equal(t, fault.Storage, fault.ReasonOf(err))
		require.Contains(t, fault.HintOf(err), "ulimit -n")
		require.NotContains(t, fault.HintOf(err), "disk")
	}
}
