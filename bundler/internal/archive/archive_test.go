package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/oci"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// target is what both writers are to a flow.
type target interface {
	Begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error)
	Put(ctx context.Context, d ocispec.Descriptor, open func(int64) (io.ReadCloser, error)) error
	Commit(ctx context.Context) error
	Close() error
}

// pull writes a bundle as a flow does, blobs in a shuffled order and at once.
func pull(ctx context.Context, t target, b *bundles.Bundle, seed int64) error {
	missing, err := t.Begin(ctx, b.Graph)
	if err != nil {
		return errors.Join(err, t.Close())
	}
	rand.New(rand.NewSource(seed)).Shuffle(len(missing), func(i, j int) { missing[i], missing[j] = missing[j], missing[i] })
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for _, d := range missing {
		g.Go(func() error { return t.Put(gctx, d, b.Store.Opener(gctx, d)) })
	}
	if err := g.Wait(); err != nil {
		return errors.Join(err, t.Close())
	}
	return errors.Join(t.Commit(ctx), t.Close())
}

func written(t testing.TB, b *bundles.Bundle) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "b.tar")
	w, err := CreateFile(path, Options{})
	require.NoError(t, err)
	require.NoError(t, pull(t.Context(), w, b, 1))
	return path
}

func streamed(t testing.TB, b *bundles.Bundle) []byte {
	t.Helper()
	l, err := NewLayout(b.Graph)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, l.Stream(t.Context(), &out, b.Store))
	require.EqualValues(t, l.Size(), out.Len())
	return out.Bytes()
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

// verify is what a flow does: the layout, the graph, every blob.
func verify(ctx context.Context, s interface {
	bundle.Fetcher
	Root(context.Context) (ocispec.Descriptor, error)
	CheckLayout(context.Context) error
}) error {
	if err := s.CheckLayout(ctx); err != nil {
		return err
	}
	root, err := s.Root(ctx)
	if err != nil {
		return err
	}
	g, err := bundle.Load(ctx, s, root)
	if err != nil {
		return err
	}
	for _, d := range g.Order() {
		d.Data = nil
		if err := discardAll(ctx, s, d); err != nil {
			return err
		}
	}
	_, err = g.Contents(ctx, s)
	return err
}

func verifyPath(ctx context.Context, path string) error {
	f, err := OpenFile(path)
	if err != nil {
		return err
	}
	return errors.Join(verify(ctx, f), f.Close())
}

func rootOf(b *bundles.Bundle) image.Digest { return image.MustDigest(b.Graph.Root.Digest.String()) }

func TestArchiveIsTheSameInAnyOrderOfWritingAndAsAStream(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 1})
	b.Graph.Attachments = []bundle.Attachment{bundles.Signature(t, rootOf(b), 1)}
	want := streamed(t, b)
	for seed := range int64(5) {
		path := filepath.Join(t.TempDir(), "b.tar")
		w, err := CreateFile(path, Options{})
		require.NoError(t, err)
		require.NoError(t, pull(t.Context(), w, b, seed))
		require.True(t, bytes.Equal(want, read(t, path)), "seed %d", seed)
		require.NoError(t, verifyPath(t.Context(), path))
		list, err := os.ReadDir(filepath.Dir(path))
		require.NoError(t, err)
		require.Len(t, list, 1, "nothing is left beside the archive")
	}
}

func TestReadersGetWhatWasWritten(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 2})
	sig := bundles.Signature(t, rootOf(b), 1)
	b.Graph.Attachments = []bundle.Attachment{sig}
	f, err := OpenFile(written(t, b))
	require.NoError(t, err)
	defer f.Close()
	root, err := f.Root(t.Context())
	require.NoError(t, err)
	require.Equal(t, b.Graph.Root.Digest, root.Digest)
	for _, d := range b.Graph.Order() {
		for _, offset := range []int64{0, d.Size / 2, d.Size} {
			rc, err := f.FetchFrom(t.Context(), d, offset)
			require.NoError(t, err)
			got, err := io.ReadAll(rc)
			require.NoError(t, err)
			want := b.Store[d.Digest.String()]
			if d.Data != nil {
				want = d.Data
			}
			require.True(t, bytes.Equal(want[offset:], got))
		}
	}
	list, err := f.Attachments(t.Context(), rootOf(b))
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, sig.Tag, list[0].Annotations[ocispec.AnnotationRefName])
	got, err := bundle.ReadAttachment(t.Context(), f, rootOf(b), list[0])
	require.NoError(t, err)
	require.Equal(t, sig.Node.Data, got.Node.Data)
	_, err = f.Fetch(t.Context(), bundles.Store{}.Add("", []byte("absent")))
	require.Equal(t, fault.NotFound, fault.ReasonOf(err))
}

func TestOtherToolsReadTheArchive(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 3})
	b.Graph.Attachments = []bundle.Attachment{bundles.Signature(t, rootOf(b), 1)}
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

// cut is a source that dies after so many bytes of all blobs together.
type cut struct {
	bundles.Store
	left int
}

func (c *cut) open(ctx context.Context, d ocispec.Descriptor) func(int64) (io.ReadCloser, error) {
	return func(offset int64) (io.ReadCloser, error) {
		rc, err := c.FetchFrom(ctx, d, offset)
		return struct {
			io.Reader
			io.Closer
		}{&cutReader{c, rc}, rc}, err
	}
}

type cutReader struct {
	c *cut
	r io.Reader
}

var errCut = errors.New("cut")

func (r *cutReader) Read(p []byte) (int, error) {
	if r.c.left == 0 {
		return 0, errCut
	}
	n, err := r.r.Read(p[:min(len(p), r.c.left)])
	r.c.left -= n
	return n, err
}

// attempt writes until the source dies, one blob after another.
func attempt(t *testing.T, path string, b *bundles.Bundle, left int) (done bool) {
	t.Helper()
	w, err := CreateFile(path, Options{})
	require.NoError(t, err)
	missing, err := w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	c := &cut{b.Store, left}
	for _, d := range missing {
		if err := w.Put(t.Context(), d, c.open(t.Context(), d)); err != nil {
			require.ErrorIs(t, err, errCut)
			require.Equal(t, fault.Incomplete, fault.ReasonOf(w.Commit(t.Context())), "what is incomplete never gets the name")
			require.NoError(t, w.Close())
			require.NoFileExists(t, path)
			return false
		}
	}
	require.NoError(t, w.Commit(t.Context()))
	return true
}

func TestInterruptedWritesGoOnWithoutFetchingAgain(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 4, LayerSize: 40_000})
	want := streamed(t, b)
	total := 0
	for _, d := range b.Graph.Blobs {
		if d.Data == nil {
			total += int(d.Size)
		}
	}
	for seed := range int64(10) {
		r := rand.New(rand.NewSource(seed))
		path := filepath.Join(t.TempDir(), "b.tar")
		budget := total
		for {
			left := 1 + r.Intn(total/4)
			if attempt(t, path, b, min(left, budget)) {
				break
			}
			budget -= left
			require.Positive(t, budget, "more was fetched than there is")
		}
		require.True(t, bytes.Equal(want, read(t, path)), "seed %d", seed)
	}
}

func TestAKilledProcessLosesLittle(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 5, PlainSize: 3 * checkpoint, Layers: 1})
	path := filepath.Join(t.TempDir(), "b.tar")
	w, err := CreateFile(path, Options{})
	require.NoError(t, err)
	missing, err := w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	var large ocispec.Descriptor
	for _, d := range missing {
		if d.Size > large.Size {
			large = d
		}
	}
	c := &cut{b.Store, 2*checkpoint + 1000}
	require.ErrorIs(t, w.Put(t.Context(), large, c.open(t.Context(), large)), errCut)
	require.NoError(t, w.journal.end()) // the journal as it is without Close's last word
	require.NoError(t, errors.Join(w.f.Close(), w.lock.f.Close()))

	w, err = CreateFile(path, Options{})
	require.NoError(t, err)
	_, err = w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	var from int64
	require.NoError(t, w.Put(t.Context(), large, func(offset int64) (io.ReadCloser, error) {
		from = offset
		return b.Store.FetchFrom(t.Context(), large, offset)
	}))
	require.GreaterOrEqual(t, from, int64(2*checkpoint))
	require.NoError(t, w.Close())
}

func TestAJournalCutOffAnywhereIsStillRight(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 6})
	want := streamed(t, b)
	path := filepath.Join(t.TempDir(), "b.tar")
	require.False(t, attempt(t, path, b, 20_000))
	journal, partial := read(t, path+".journal"), read(t, path+".partial")
	r := rand.New(rand.NewSource(6))
	for range 30 {
		n := len(journal) - r.Intn(len(journal)-len(journalMagic)-82)
		require.NoError(t, os.WriteFile(path+".journal", journal[:n], 0o600))
		require.NoError(t, os.WriteFile(path+".partial", partial, 0o600))
		w, err := CreateFile(path, Options{})
		require.NoError(t, err)
		require.NoError(t, pull(t.Context(), w, b, 1))
		require.True(t, bytes.Equal(want, read(t, path)))
		require.NoError(t, os.Remove(path))
	}
}

func TestWhatTheDiskLostIsFetchedAgain(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 7})
	path := filepath.Join(t.TempDir(), "b.tar")
	require.False(t, attempt(t, path, b, 20_000))
	l, err := NewLayout(b.Graph)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".partial", make([]byte, l.Size()), 0o600))
	w, err := CreateFile(path, Options{})
	require.NoError(t, err)
	require.NoError(t, pull(t.Context(), w, b, 1))
	require.True(t, bytes.Equal(streamed(t, b), read(t, path)))
}

func TestTheRestOfAnotherBundleIsRefusedOrRestarted(t *testing.T) {
	b, other := bundles.New(t, bundles.Options{Seed: 8}), bundles.New(t, bundles.Options{Seed: 9})
	path := filepath.Join(t.TempDir(), "b.tar")
	require.False(t, attempt(t, path, other, 20_000))
	w, err := CreateFile(path, Options{})
	require.NoError(t, err)
	_, err = w.Begin(t.Context(), b.Graph)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err))
	require.Contains(t, fault.HintOf(err), path+".partial")
	w, err = CreateFile(path, Options{Restart: true})
	require.NoError(t, err)
	require.NoError(t, pull(t.Context(), w, b, 1))
	require.True(t, bytes.Equal(streamed(t, b), read(t, path)))

	stray := filepath.Join(t.TempDir(), "c.tar")
	require.NoError(t, os.WriteFile(stray+".partial", []byte("somebody's"), 0o600))
	w, err = CreateFile(stray, Options{})
	require.NoError(t, err)
	_, err = w.Begin(t.Context(), b.Graph)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err))
	require.Equal(t, "somebody's", string(read(t, stray+".partial")))
}

func TestTwoWritersOfOneArchiveDoNotMix(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 10})
	path := filepath.Join(t.TempDir(), "b.tar")
	first, err := CreateFile(path, Options{})
	require.NoError(t, err)
	_, err = first.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	second, err := CreateFile(path, Options{Restart: true})
	require.NoError(t, err)
	_, err = second.Begin(t.Context(), b.Graph)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err))
	require.NoError(t, first.Close())
}

func TestWrongSourcesAreRefusedAndCanBeReplaced(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 11})
	for _, create := range creators(t) {
		w := create(Options{})
		missing, err := w.Begin(t.Context(), b.Graph)
		require.NoError(t, err)
		d := missing[len(missing)-1]
		good := b.Store[d.Digest.String()]
		flipped := bytes.Clone(good)
		flipped[len(flipped)/2] ^= 1
		for _, c := range []struct {
			data   []byte
			reason fault.Reason
		}{{flipped, fault.Corrupt}, {good[:len(good)-1], fault.Incomplete}, {append(bytes.Clone(good), 1), fault.Corrupt}} {
			err := w.Put(t.Context(), d, func(offset int64) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(c.data[min(offset, int64(len(c.data))):])), nil
			})
			require.Equal(t, c.reason, fault.ReasonOf(err), err)
		}
		require.NoError(t, w.Close())
		require.NoError(t, pull(t.Context(), create(Options{}), b, 1))
	}
}

// creators gives the two media, each always at one place.
func creators(t *testing.T) []func(Options) target {
	file, dir := filepath.Join(t.TempDir(), "b.tar"), filepath.Join(t.TempDir(), "b")
	return []func(Options) target{
		func(o Options) target {
			w, err := CreateFile(file, o)
			require.NoError(t, err)
			return w
		},
		func(o Options) target {
			w, err := CreateDir(dir, o)
			require.NoError(t, err)
			return w
		},
	}
}

func TestEveryFlippedByteIsFound(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 12, LayerSize: 700, Layers: 1})
	b.Graph.Attachments = []bundle.Attachment{bundles.Signature(t, rootOf(b), 1)}
	path := written(t, b)
	f, err := OpenFile(path)
	require.NoError(t, err)
	require.NoError(t, f.Attach(t.Context(), bundles.Signature(t, rootOf(b), 2)))
	require.NoError(t, f.Close())
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
	t.Helper()
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return verifyPath(t.Context(), path)
}

func TestTruncatedArchivesAreIncompleteAndSayWhere(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 13})
	path := written(t, b)
	good := read(t, path)
	l, err := NewLayout(b.Graph)
	require.NoError(t, err)
	cuts := map[int64]string{}
	for i, e := range l.entries {
		cuts[e.offset] = ""
		cuts[e.offset+100] = "the header or the end mark"
		cuts[e.dataOffset()] = e.name
		cuts[e.dataOffset()+e.size-1] = e.name
		if i > 0 {
			cuts[e.offset] = l.entries[i-1].name
		}
	}
	cuts[l.size-1], cuts[l.size-blockSize] = "end mark", "end mark"
	for at, want := range cuts {
		if at == 0 {
			continue
		}
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
	t.Helper()
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
	t.Helper()
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
		{"is a link", tar.Header{Name: "blobs/sha256/a", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}},
		{"is a link", tar.Header{Name: "blobs/sha256/a", Typeflag: tar.TypeLink, Linkname: "index.json"}},
		{"is a device", tar.Header{Name: "blobs/sha256/a", Typeflag: tar.TypeChar}},
		{"is a device", tar.Header{Name: "blobs/sha256/a", Typeflag: tar.TypeFifo}},
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
			text, err := indexJSON([]ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageIndex, Digest: b.Graph.Root.Digest, Size: b.Graph.Root.Size}}, nil)
			require.NoError(t, err)
			data, h.Size = text, int64(len(text))
		}
		put(t, w, h, data)
	})
	f, err := OpenFile(path)
	require.NoError(t, err)
	defer f.Close()
	root, err := f.Root(t.Context())
	require.NoError(t, err)
	g, err := bundle.Load(t.Context(), f, root)
	require.NoError(t, err)
	_, err = g.Contents(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, fault.Corrupt, fault.ReasonOf(f.CheckLayout(t.Context())), "its bytes outside blobs follow no rule")
	sig := bundles.Signature(t, rootOf(b), 1)
	require.NoError(t, f.Attach(t.Context(), sig))
	list, err := f.Attachments(t.Context(), rootOf(b))
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NoError(t, verifyLoaded(t, f))
}

func verifyLoaded(t *testing.T, f *File) error {
	t.Helper()
	root, err := f.Root(t.Context())
	require.NoError(t, err)
	g, err := bundle.Load(t.Context(), f, root)
	if err != nil {
		return err
	}
	for _, d := range g.Order() {
		d.Data = nil
		if err := discardAll(t.Context(), f, d); err != nil {
			return err
		}
	}
	return nil
}

func TestSigningDoesNotTouchThePayload(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 16})
	path := written(t, b)
	before := read(t, path)
	f, err := OpenFile(path)
	require.NoError(t, err)
	defer f.Close()
	l, err := NewLayout(b.Graph)
	require.NoError(t, err)
	start, end := l.entries[2].offset, l.size-endSize
	for n := range 5 { // each replaces the one before
		sig := bundles.Signature(t, rootOf(b), n)
		require.NoError(t, f.Attach(t.Context(), sig))
		require.NoError(t, verify(t.Context(), f))
		list, err := f.Attachments(t.Context(), rootOf(b))
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, sig.Node.Descriptor.Digest, list[0].Digest)
	}
	require.True(t, bytes.Equal(before[start:end], read(t, path)[start:end]))
	size := len(read(t, path))
	require.NoError(t, f.Attach(t.Context(), bundles.Signature(t, rootOf(b), 4)), "the same again")
	require.Len(t, read(t, path), size)
	out, err := exec.CommandContext(t.Context(), toolchain.Installed(t, "skopeo"), "inspect", "oci-archive:"+path+":registry.test/oci/index:v1").CombinedOutput()
	require.NoError(t, err, string(out))
}

func TestSlackThatIsUsedUpIsRenewed(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 17, LayerSize: 100, Layers: 1})
	path := written(t, b)
	f, err := OpenFile(path)
	require.NoError(t, err)
	defer f.Close()
	want := map[string]bool{}
	before := f.entries[1].size
	for n := range 100 {
		subject := image.MustDigest(b.Graph.Manifests[n%len(b.Graph.Manifests)].Descriptor.Digest.String())
		sig := bundles.Signature(t, subject, n)
		sig.Tag = strings.TrimSuffix(sig.Tag, ".sig") + string(image.CosignSuffixes()[n/len(b.Graph.Manifests)%3])
		want[sig.Tag] = true
		require.NoError(t, f.Attach(t.Context(), sig))
	}
	if f.entries[1].size == before { // few subjects: fill the rest by hand
		require.Less(t, len(want)*300, slack)
		for n := 0; f.entries[1].size == before; n++ {
			a := referrer(t, rootOf(b), n)
			require.NoError(t, f.Attach(t.Context(), a))
		}
	}
	require.Greater(t, f.entries[1].size, before)
	require.NoError(t, verify(t.Context(), f))
	list, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, list, 1)
}

// referrer is an attachment without a tag.
func referrer(t *testing.T, subject image.Digest, n int) bundle.Attachment {
	t.Helper()
	s := bundles.Store{}
	config := s.Add("application/vnd.oci.empty.v1+json", []byte(`{}`))
	config.Data = []byte(`{}`)
	data := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"artifactType":"application/x-test","config":{"mediaType":%q,"digest":%q,"size":2},"layers":[],"subject":{"mediaType":%q,"digest":%q,"size":1},"annotations":{"n":"%d"}}`,
		ocispec.MediaTypeImageManifest, config.MediaType, config.Digest, ocispec.MediaTypeImageIndex, subject, n)
	a, err := bundle.NewAttachment(subject, "", bundle.Node{Descriptor: s.Add(ocispec.MediaTypeImageManifest, data), Data: data}, config)
	require.NoError(t, err)
	return a
}

func TestReferrersTravelWithoutATag(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 18})
	path := written(t, b)
	f, err := OpenFile(path)
	require.NoError(t, err)
	defer f.Close()
	for n := range 2 {
		require.NoError(t, f.Attach(t.Context(), referrer(t, rootOf(b), n)))
	}
	list, err := f.Attachments(t.Context(), rootOf(b))
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.NoError(t, verify(t.Context(), f))
	err = f.Attach(t.Context(), referrer(t, image.DigestOf([]byte("absent")), 1))
	require.Equal(t, fault.NotFound, fault.ReasonOf(err))
	bare := referrer(t, rootOf(b), 3)
	bare.Node.Data = nil
	require.Equal(t, fault.InvalidInput, fault.ReasonOf(f.Attach(t.Context(), bare)))
}

func TestSigningThatWasCutOffLeavesAReadableArchiveAndIsRepaired(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 19})
	path := written(t, b)
	before := read(t, path)
	sig := bundles.Signature(t, rootOf(b), 1)
	f, err := OpenFile(path)
	require.NoError(t, err)
	require.NoError(t, f.Attach(t.Context(), sig))
	require.NoError(t, f.Close())
	after := read(t, path)
	end := len(before) - endSize
	indexAt := blockSize * 3
	extended := append(bytes.Clone(before), make([]byte, len(after)-len(before))...)
	step := func(from []byte, parts ...[2]int) []byte {
		out := bytes.Clone(from)
		for _, p := range parts {
			copy(out[p[0]:p[1]], after[p[0]:p[1]])
		}
		return out
	}
	states := map[string][]byte{
		"extended":         extended,
		"half of the rest": step(extended, [2]int{end + endSize, end + endSize + 300}),
		"the rest":         step(extended, [2]int{end + endSize, len(after)}),
		"first block":      step(extended, [2]int{end + endSize, len(after)}, [2]int{end, end + blockSize}),
		"second block":     step(extended, [2]int{end, len(after)}),
	}
	for name, data := range states {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, data, 0o600))
			f, err := OpenFile(path)
			require.NoError(t, err)
			defer f.Close()
			require.NoError(t, verifyLoaded(t, f))
			require.NoError(t, f.Attach(t.Context(), sig))
			list, err := f.Attachments(t.Context(), rootOf(b))
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.NoError(t, verify(t.Context(), f))
		})
	}
	t.Run("index.json torn", func(t *testing.T) {
		l, err := NewLayout(b.Graph)
		require.NoError(t, err)
		size := int(l.entries[1].size)
		torn := bytes.Clone(after)
		copy(torn[indexAt+size/3:indexAt+size], bytes.Repeat([]byte{0}, size))
		text := len(bytes.TrimRight(after[indexAt:indexAt+size], " \n"))
		copy(torn[indexAt+text-40:], bytes.Repeat([]byte{' '}, 40))
		require.NoError(t, os.WriteFile(path, torn, 0o600))
		_, err = OpenFile(path)
		require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
		require.NoError(t, os.WriteFile(indexCopy(path), after[indexAt:indexAt+size], 0o600))
		f, err := OpenFile(path)
		require.NoError(t, err)
		defer f.Close()
		require.NoError(t, f.Attach(t.Context(), sig))
		require.NoError(t, verify(t.Context(), f))
		require.True(t, bytes.Equal(after, read(t, path)))
		require.NoFileExists(t, indexCopy(path))
	})
}

func TestTargetsThatCannotBeWritten(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 20})
	dir := t.TempDir()
	there := filepath.Join(dir, "there.tar")
	require.NoError(t, os.WriteFile(there, []byte("old"), 0o600))
	for _, c := range []struct {
		path, want string
		reason     fault.Reason
	}{
		{filepath.Join(dir, "absent", "b.tar"), "no such file", fault.Storage},
		{filepath.Join(there, "b.tar"), "not a directory", fault.Storage},
		{dir, "it is a folder", fault.Storage},
		{there, "it is there already", fault.Conflict},
	} {
		_, err := CreateFile(c.path, Options{})
		require.ErrorContains(t, err, c.want)
		require.Equal(t, c.reason, fault.ReasonOf(err))
		require.NotEmpty(t, fault.HintOf(err))
	}
	w, err := CreateFile(there, Options{Replace: true})
	require.NoError(t, err)
	_, err = w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Equal(t, "old", string(read(t, there)), "the old one stays until the new one is complete")
	w, err = CreateFile(there, Options{Replace: true})
	require.NoError(t, err)
	require.NoError(t, pull(t.Context(), w, b, 1))
	require.True(t, bytes.Equal(streamed(t, b), read(t, there)))
}

func TestEntriesBeyondEightGiBAreReadByAll(t *testing.T) {
	const size = 9 << 30
	s := bundles.Store{}
	d := s.Add(ocispec.MediaTypeImageLayer, []byte("large"))
	d.Size = size
	l := newLayout([]byte(`{"schemaVersion":2,"mediaType":"` + ocispec.MediaTypeImageIndex + `","manifests":[]}`))
	l.add(d)
	l.add(s.Add(ocispec.MediaTypeImageLayer, []byte("after")))
	path := filepath.Join(t.TempDir(), "large.tar")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(l.Size()))
	for _, e := range l.entries {
		_, err := f.WriteAt(e.header, e.offset)
		require.NoError(t, err)
		_, err = f.WriteAt(e.data, e.dataOffset())
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	a, err := OpenFile(path)
	require.NoError(t, err)
	defer a.Close()
	require.Len(t, a.entries, 4)
	require.EqualValues(t, size, a.entries[2].size)
	require.NoError(t, (&layoutCheck{f: a.fetcher()}).tar())
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

func FuzzScan(f *testing.F) {
	blob := []byte("a blob")
	f.Add(tarOf(f, layoutName, `{"imageLayoutVersion":"1.0.0"}`, blobPrefix+image.DigestOf(blob).Hex(), string(blob),
		indexName, `{"schemaVersion":2,"manifests":[{"mediaType":"m","size":6,"digest":"`+image.DigestOf(blob).String()+`"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{data, summed(data)} { // mutants with right checksums of headers too
			s, err := scanSized("fuzz", bytes.NewReader(data), int64(len(data)))
			if err != nil {
				require.NotEqual(t, fault.Internal, fault.ReasonOf(err), err)
				continue
			}
			for _, e := range s.entries {
				require.LessOrEqual(t, e.scannedData()+e.size, int64(len(data)))
			}
		}
	})
}

func tarOf(t testing.TB, namesAndContents ...string) []byte {
	t.Helper()
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
	f.Add([]byte(sealed(journalMagic+" x") + progress{place: 512, offset: 9}.line("ab") + sealed(namedWith(0))))
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
	d, err := OpenDir(copied)
	require.NoError(t, err)
	defer d.Close()
	root, err := d.Root(t.Context())
	require.NoError(t, err)
	g, err := bundle.Load(t.Context(), d, root)
	require.NoError(t, err)
	require.Equal(t, b.Graph.Manifests, g.Manifests)
	_, err = g.Contents(t.Context(), d)
	require.NoError(t, err)
}
