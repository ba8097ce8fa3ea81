package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// A store is a place for a bundle in one of the forms that this package writes.
type store struct {
	path string
	dir  bool
	o    Options
}

// stores are the forms; what is promised of all is tested with each.
var stores = map[string]store{
	"file":   {},
	"parts":  {o: Options{VolumeSize: 40_000, Recovery: 1}},
	"folder": {dir: true},
}

func eachStore(t *testing.T, test func(t *testing.T, s store)) {
	for name, s := range stores {
		t.Run(name, func(t *testing.T) {
			s.path = filepath.Join(t.TempDir(), "b.tar")
			test(t, s)
		})
	}
}

func (s store) replacing() store  { s.o.Replace = true; return s }
func (s store) restarting() store { s.o.Restart = true; return s }

func (s store) create() (medium.Target, error) {
	if s.dir {
		return CreateDir(s.path, s.o)
	}
	return CreateFile(s.path, s.o)
}

func (s store) mustCreate(t testing.TB) medium.Target {
	w, err := s.create()
	require.NoError(t, err)
	return w
}

// begin begins, and closes again; it returns what was missing.
func (s store) begin(t testing.TB, b *bundles.Bundle) ([]ocispec.Descriptor, error) {
	t.Helper()
	w, err := s.create()
	if err != nil {
		return nil, err
	}
	missing, err := w.Begin(t.Context(), b.Graph)
	return missing, errors.Join(err, w.Close())
}

func (s store) pull(t testing.TB, b *bundles.Bundle) error {
	t.Helper()
	w, err := s.create()
	if err != nil {
		return err
	}
	return pull(t.Context(), w, b, 1)
}

// location is what a reader opens.
func (s store) location() string {
	if s.o.VolumeSize > 0 {
		return s.path + parts.Suffix
	}
	return s.path
}

func (s store) open(t testing.TB) *Archive { return opened(t, s.location()) }

// opened opens a file, parts or a folder until the test ends.
func opened(t testing.TB, path string) *Archive {
	a, err := openAny(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func openAny(path string) (*Archive, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return OpenDir(path)
	}
	return OpenFile(path)
}

// verify checks all of it, and that nothing is left beside it.
func (s store) verify(t testing.TB) {
	a := s.open(t)
	require.NoError(t, errors.Join(verify(t.Context(), a), a.Damage(t.Context())))
	want := []string{filepath.Base(s.location())}
	if s.o.VolumeSize > 0 {
		want = append(a.x.tar.v.list.Names(), want...)
	}
	require.ElementsMatch(t, want, names(t, filepath.Dir(s.path)))
	if s.dir {
		require.ElementsMatch(t, []string{"blobs", "index.json", "oci-layout"}, names(t, s.path))
	}
}

// bytes are those of the tar, of parts joined as the shell does.
func (s store) bytes(t testing.TB) []byte {
	t.Helper()
	if s.o.VolumeSize == 0 {
		return read(t, s.path)
	}
	return cat(t, s.location())
}

// flip changes a byte of what an interrupted run of a tar left.
func (s store) flip(t testing.TB, at int64) {
	t.Helper()
	name := s.path + partialSuffix
	if s.o.VolumeSize > 0 {
		name, at = fmt.Sprintf("%s.%03d.partial", s.path, at/s.o.VolumeSize+1), at%s.o.VolumeSize
	}
	flip(t, name, at)
}

func flip(t testing.TB, name string, at int64) {
	data := read(t, name)
	data[at] ^= 0x55
	require.NoError(t, os.WriteFile(name, data, 0o600))
}

func names(t testing.TB, dir string) (out []string) {
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

// contents are the files of a folder with their bytes.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range names(t, dir) {
		out[name] = string(read(t, filepath.Join(dir, name)))
	}
	return out
}

// pull writes a bundle as a flow does, blobs in a shuffled order and at once.
func pull(ctx context.Context, t medium.Target, b *bundles.Bundle, seed int64) error {
	missing, err := t.Begin(ctx, b.Graph)
	if err != nil {
		return errors.Join(err, t.Close())
	}
	rand.New(rand.NewSource(seed)).Shuffle(len(missing),
		func(i, j int) { missing[i], missing[j] = missing[j], missing[i] })
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

// halfway writes half of the blobs, and is stopped.
func halfway(t *testing.T, s store, b *bundles.Bundle) (rest []ocispec.Descriptor) {
	w := s.mustCreate(t)
	missing, err := w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	for _, d := range missing[:len(missing)/2] {
		require.NoError(t, w.Put(t.Context(), d, b.Store.Opener(t.Context(), d)))
	}
	require.NoError(t, w.Close())
	return missing[len(missing)/2:]
}

// cut is a source that dies after so many bytes of all blobs together.
type cut struct {
	bundles.Store
	left int
}

func (c *cut) open(ctx context.Context, d ocispec.Descriptor) func(int64) (io.ReadCloser, error) {
	return func(offset int64) (io.ReadCloser, error) {
		rc, err := c.Fetch(ctx, d, offset)
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

// errCut is a fault of the source, as a registry's client brings it.
var errCut = fault.Errorf(fault.Incomplete, "read", "source", "run the same command again", "cut")

func (r *cutReader) Read(p []byte) (int, error) {
	if r.c.left == 0 {
		return 0, errCut
	}
	n, err := r.r.Read(p[:min(len(p), r.c.left)])
	r.c.left -= n
	return n, err
}

func TestABundleIsReadAsItWasWritten(t *testing.T) {
	for _, delta := range []bool{false, true} {
		eachStore(t, func(t *testing.T, s store) {
			b := bundles.New(t, bundles.Options{Seed: 1})
			if delta {
				asDelta(t, b)
			}
			sig := bundles.Signature(t, rootOf(b), 1)
			b.Graph.Attachments = []bundle.Referrer{sig}
			for seed := range int64(4) {
				require.NoError(t, pull(t.Context(), s.replacing().mustCreate(t), b, seed))
				s.verify(t)
				if !s.dir {
					require.True(t, bytes.Equal(streamed(t, b), s.bytes(t)), "whatever the order of writing: seed %d", seed)
				}
			}
			a := s.open(t)
			require.Equal(t, b.Graph.Base, a.Can().Base)
			root, err := a.Root(t.Context())
			require.NoError(t, err)
			require.Equal(t, b.Graph.Root.Digest, root.Digest)
			for _, d := range b.Graph.Order() {
				for _, offset := range []int64{0, d.Size / 2, d.Size} {
					rc, err := a.Fetch(t.Context(), d, offset)
					require.NoError(t, err)
					got, err := io.ReadAll(rc)
					require.NoError(t, errors.Join(err, rc.Close()))
					want := b.Store[d.Digest.String()]
					if d.Data != nil {
						want = d.Data
					}
					require.True(t, bytes.Equal(want[offset:], got))
				}
			}
			for _, absent := range append(b.Graph.Omitted(), bundles.Store{}.Add("", []byte("absent"))) {
				_, err = a.Fetch(t.Context(), absent, 0)
				require.Equal(t, fault.NotFound, fault.ReasonOf(err))
			}
			list, err := a.Attachments(t.Context(), rootOf(b))
			require.NoError(t, err)
			require.Len(t, list, 1)
			got, err := bundle.ReadReferrer(t.Context(), a, rootOf(b), list[0])
			require.NoError(t, err)
			require.Equal(t, sig.Tag, got.Tag)
			require.Equal(t, sig.Node.Data, got.Node.Data)
		})
	}
}

func TestSignaturesTakeThePlaceOfTheirTags(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		b := bundles.New(t, bundles.Options{Seed: 2})
		asDelta(t, b)
		require.NoError(t, s.pull(t, b))
		if s.o.VolumeSize > 0 {
			require.Nil(t, s.open(t).Can().Attach, "parts are not signed")
			return
		}
		unsigned := s.open(t)
		attach := func(atts ...bundle.Referrer) error { return s.open(t).Attach(t.Context(), atts...) }
		for n := range 3 { // each replaces the one before
			sig, was := bundles.Signature(t, rootOf(b), n), s.open(t)
			require.NoError(t, attach(sig))
			list, err := was.Attachments(t.Context(), rootOf(b))
			require.NoError(t, err)
			for _, d := range list {
				_, err := bundle.ReadReferrer(t.Context(), was, rootOf(b), d)
				require.NoError(t, err, "who has opened it reads what was replaced")
			}
			list, err = s.open(t).Attachments(t.Context(), rootOf(b))
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.Equal(t, sig.Node.Descriptor.Digest, list[0].Digest)
		}
		require.NoError(t, attach(referrer(t, rootOf(b), 1), referrer(t, rootOf(b), 2)))
		before := s.open(t)
		require.NoError(t, attach(bundles.Signature(t, rootOf(b), 2), referrer(t, rootOf(b), 1)), "the same again")
		s.verify(t)
		require.NoError(t, before.Attach(t.Context()), "nothing to add, and nothing is written")
		for _, a := range []*Archive{before, s.open(t)} {
			list, err := a.Attachments(t.Context(), rootOf(b))
			require.NoError(t, err)
			require.Len(t, list, 3)
			require.Equal(t, b.Graph.Base, a.Can().Base, "a signature changes nothing of it")
		}
		list, err := unsigned.Attachments(t.Context(), rootOf(b))
		require.NoError(t, err)
		require.Empty(t, list, "who has opened it reads on as it was")
		require.Equal(t, fault.NotFound, fault.ReasonOf(attach(referrer(t, image.DigestOf([]byte("absent")), 1))))
		bare := referrer(t, rootOf(b), 3)
		bare.Node.Data = nil
		require.Equal(t, fault.NotFound, fault.ReasonOf(attach(bare)))
		s.verify(t)
	})
}

// Two people have read the same bundle and sign it. Who comes second would take the
// first one's signature away, and is told to look again.
func TestASignatureThatWasNotReadIsNotReplaced(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		if s.o.VolumeSize > 0 {
			return // to which nothing is added
		}
		b := bundles.New(t, bundles.Options{Seed: 3})
		require.NoError(t, s.pull(t, b))
		first, second := s.open(t), s.open(t)
		referrers := func() []ocispec.Descriptor {
			list, err := s.open(t).Attachments(t.Context(), rootOf(b))
			require.NoError(t, err)
			return list
		}
		sig := bundles.Signature(t, rootOf(b), 1)
		require.NoError(t, first.Attach(t.Context(), sig))
		err := second.Attach(t.Context(), referrer(t, rootOf(b), 2), bundles.Signature(t, rootOf(b), 2))
		require.Equal(t, fault.Conflict, fault.ReasonOf(err))
		require.ErrorContains(t, err, "another process has changed it")
		require.Len(t, referrers(), 1, "nothing of what could not be attached")
		require.Equal(t, sig.Node.Descriptor.Digest, referrers()[0].Digest)
		s.verify(t)
	})
}

func TestInterruptedWritesGoOnWithoutFetchingAgain(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 4, LayerSize: 40_000})
	total := 0
	for _, d := range b.Graph.Blobs {
		if d.Data == nil {
			total += int(d.Size)
		}
	}
	for seed := range int64(5) {
		eachStore(t, func(t *testing.T, s store) {
			r := rand.New(rand.NewSource(seed))
			for budget, done := total, false; !done; {
				w := s.mustCreate(t)
				missing, err := w.Begin(t.Context(), b.Graph)
				require.NoError(t, err)
				left := 1 + r.Intn(total/4)
				c := &cut{b.Store, min(left, budget)}
				for _, d := range missing {
					if err = w.Put(t.Context(), d, c.open(t.Context(), d)); err != nil {
						break
					}
				}
				if done = err == nil; done {
					require.NoError(t, w.Commit(t.Context()))
					break
				}
				require.ErrorIs(t, err, errCut)
				require.Equal(t, fault.Incomplete, fault.ReasonOf(err), "the target's disk is right: %v", err)
				require.Equal(t, fault.Incomplete, fault.ReasonOf(w.Commit(t.Context())), "what is incomplete never gets the name")
				require.NoError(t, w.Close())
				if s.dir {
					continue // of which whole blobs are kept
				}
				budget -= left
				require.Positive(t, budget, "more was fetched than there is")
			}
			s.verify(t)
		})
	}
}

// Whatever the disk or someone else made of what an interrupted run left: the bundle
// is right to the byte, or there is none.
func TestNoByteOfAnEarlierRunIsBelievedUnread(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 5, LayerSize: 9000, Layers: 2})
	l, err := NewLayout(b.Graph)
	require.NoError(t, err)
	at := []int64{l.size - endSize, l.size - 1} // one byte of everything: headers, data, padding, the end
	for _, e := range l.entries {
		at = append(at, e.offset+10, e.dataOffset(), e.dataOffset()+e.size/3)
		if padded(e.size) > e.size {
			at = append(at, e.dataOffset()+e.size)
		}
	}
	for round := range 4 {
		eachStore(t, func(t *testing.T, s store) {
			rest := halfway(t, s, b)
			if s.dir { // a blob has a name that says what it is: that is no proof
				for _, name := range names(t, filepath.Join(s.path, blobPrefix)) {
					flip(t, filepath.Join(s.path, blobPrefix, name), 1)
				}
				missing, err := s.begin(t, b)
				require.NoError(t, err)
				require.Greater(t, len(missing), len(rest), "what is damaged is missing")
				require.NoError(t, os.WriteFile(filepath.Join(s.path, partialDir, missing[0].Digest.Encoded()), make([]byte, 50), 0o600))
			} else {
				for i := round; i < len(at); i += 4 {
					s.flip(t, at[i])
				}
			}
			require.NoError(t, s.pull(t, b))
			s.verify(t)
		})
	}
}

// A key that signs twice makes two signatures, and the key may be forgotten at first. The payload is the same.
func TestAPullThatIsSignedAnewGoesOn(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		b := bundles.New(t, bundles.Options{Seed: 6, LayerSize: 20_000})
		rest := halfway(t, s, b)
		for n := range 2 {
			b.Graph.Attachments = []bundle.Referrer{bundles.Signature(t, rootOf(b), n)}
			missing, err := s.begin(t, b)
			require.NoError(t, err)
			require.Equal(t, rest, missing, "what came is not fetched again")
		}
		b.Graph.Attachments = append(b.Graph.Attachments, referrer(t, rootOf(b), 1))
		missing, err := s.begin(t, b)
		require.NoError(t, err)
		require.Equal(t, rest, missing, "what came is not fetched again")
		require.NoError(t, s.pull(t, b))
		s.verify(t)
	})
}

// What is there is refused, also where it is the very bundle, and stays as it is.
func TestAPullToWhereABundleIsIsRefused(t *testing.T) {
	eachStore(t, func(t *testing.T, s store) {
		b := bundles.New(t, bundles.Options{Seed: 7})
		require.NoError(t, s.pull(t, b))
		err := s.pull(t, b)
		require.Equal(t, fault.Conflict, fault.ReasonOf(err))
		require.ErrorContains(t, err, "it is there already")
		require.Contains(t, fault.HintOf(err), "--replace")
		s.verify(t)
	})
}

// What is replaced is there until the new one is whole, and leaves nothing behind.
func TestAReplacementTakesThePlaceOfEveryForm(t *testing.T) {
	b, other := bundles.New(t, bundles.Options{Seed: 9}), bundles.New(t,
		bundles.Options{Seed: 10, LayerSize: 20_000, Layers: 2})
	eachStore(t, func(t *testing.T, s store) {
		require.NoError(t, s.pull(t, b))
		rest := halfway(t, s.replacing(), other)
		if !s.dir {
			require.NoError(t, verifyPath(t.Context(), s.location()), "it is there meanwhile")
		}
		missing, err := s.replacing().begin(t, other)
		require.NoError(t, err)
		require.Equal(t, rest, missing, "what has come is not fetched again")
		require.NoError(t, s.replacing().pull(t, other))
		s.verify(t)
		if s.dir {
			require.Len(t, names(t, filepath.Join(s.path, blobPrefix)), len(other.Graph.Order()), "what was replaced is gone")
			return
		}
		for _, form := range []store{stores["file"], {o: Options{VolumeSize: 50_000}}, stores["parts"]} {
			form.path = s.path
			if form.o.VolumeSize != s.o.VolumeSize {
				require.Equal(t, fault.Conflict, fault.ReasonOf(form.pull(t, other)))
			}
			require.NoError(t, form.replacing().pull(t, other))
			form.verify(t)
		}
	})
}

func TestWrongSourcesAreRefusedAndCanBeReplaced(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 12})
	eachStore(t, func(t *testing.T, s store) {
		w := s.mustCreate(t)
		missing, err := w.Begin(t.Context(), b.Graph)
		require.NoError(t, err)
		d := missing[len(missing)-1]
		good := b.Store[d.Digest.String()]
		flipped := bytes.Clone(good)
		flipped[len(flipped)/2] ^= 1
		for _, c := range []struct {
			data   []byte
			reason fault.Reason
		}{{flipped, fault.Corrupt}, {good[:len(good)-1], fault.Incomplete}} {
			err := w.Put(t.Context(), d, func(offset int64) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(c.data[min(offset, int64(len(c.data))):])), nil
			})
			require.Equal(t, c.reason, fault.ReasonOf(err), err)
		}
		require.NoError(t, w.Close())
		require.NoError(t, s.pull(t, b))
		s.verify(t)
	})
}

// What cannot be written to is said before anything is, with what to do about it.
func TestTargetsThatCannotBeWritten(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 14})
	dir := t.TempDir()
	exists := filepath.Join(dir, "there.tar")
	require.NoError(t, os.WriteFile(exists, []byte("old"), 0o600))
	for _, c := range []struct {
		s      store
		want   string
		reason fault.Reason
	}{
		{store{path: filepath.Join(dir, "absent", "b.tar")}, "no such file", fault.Storage},
		{store{path: filepath.Join(exists, "b.tar")}, "not a directory", fault.Storage},
		{store{path: dir}, "it is a folder", fault.Storage},
		{store{path: exists}, "it is there already", fault.Conflict},
		{store{path: exists, dir: true}, "it is a file", fault.Storage},
		{store{path: filepath.Join(dir, "absent", "b"), dir: true}, "no such file", fault.Storage},
		{store{path: dir, dir: true}, "it is not empty, and no OCI image layout", fault.Conflict},
		{store{path: dir, dir: true}.replacing(), "it is not empty, and no OCI image layout", fault.Conflict},
	} {
		_, err := c.s.begin(t, b)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, c.reason, fault.ReasonOf(err))
		require.NotEmpty(t, fault.HintOf(err))
	}
	s := store{path: exists}.replacing()
	_, err := s.begin(t, b)
	require.NoError(t, err)
	require.Equal(t, "old", string(read(t, exists)), "the old one stays until the new one is complete")
	require.NoError(t, s.pull(t, b))
	s.verify(t)
	require.False(t, strings.HasPrefix(string(read(t, exists)), "old"))
}
