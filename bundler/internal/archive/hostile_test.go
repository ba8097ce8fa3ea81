package archive

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// traps are what someone can put under a name that he expects to be written to.
func traps(t *testing.T) map[string]func(path string) (untouched func()) {
	victim := func(t *testing.T, path string) (string, func()) {
		name := filepath.Join(filepath.Dir(path), "..", "victim")
		require.NoError(t, os.WriteFile(name, []byte("mine"), 0o600))
		return name, func() { require.Equal(t, "mine", string(read(t, name)), "written through %s", path) }
	}
	return map[string]func(string) func(){
		"a link": func(path string) func() {
			name, untouched := victim(t, path)
			require.NoError(t, os.Symlink(name, path))
			return untouched
		},
		"a link to nothing": func(path string) func() {
			name := filepath.Join(filepath.Dir(path), "..", "made")
			require.NoError(t, os.Symlink(name, path))
			return func() { require.NoFileExists(t, name, "made through %s", path) }
		},
		"a pipe": func(path string) func() {
			require.NoError(t, syscall.Mkfifo(path, 0o600))
			return func() {}
		},
	}
}

// Every name that is written beside an archive is known to who made the medium.
func TestNothingIsWrittenThroughWhatLiesUnderAKnownName(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 80, LayerSize: 700, Layers: 1})
	sig := bundles.Signature(t, rootOf(b), 1)
	file, parted, dir := store{}, store{o: Options{VolumeSize: 20_000, Recovery: 1}}, store{dir: true}
	nothing := func(store) error { return nil }
	pull := func(s store) error { return s.pull(t, b) }
	begin := func(s store) error { _, err := s.begin(t, b); return err }
	sign := func(s store) error { return s.open(t).Attach(t.Context(), sig) }
	layer := b.Graph.Blobs[len(b.Graph.Blobs)-1].Digest.Encoded()
	for what, c := range map[string]struct {
		s          store
		before, do func(store) error
		names      []string // what is written after the name of the archive
	}{
		"pull":                 {file, nothing, pull, []string{".partial", ".journal", ""}},
		"pull goes on":         {file, begin, pull, []string{".partial", ".journal"}},
		"pull into parts":      {parted, nothing, pull, []string{".001.partial", ".p001.partial", ".001", ".p001"}},
		"a pull into parts on": {parted, begin, pull, []string{".002.partial", ".parts.partial"}},
		"sign":                 {file, pull, sign, []string{".partial", ".journal"}},
		"split": {file, pull, func(s store) error {
			_, err := Split(t.Context(), s.path, s.path, parted.o)
			return err
		}, []string{".001.partial", ".p001.partial", ".journal", ".002"}},
		"repair": {parted, func(s store) error { return errors.Join(pull(s), os.Remove(s.path+".002")) },
			func(s store) error {
				_, err := Repair(t.Context(), s.location())
				return err
			}, []string{".002.rebuilt", ".journal"}},
		"pull into a folder": {dir, func(s store) error {
			return os.MkdirAll(filepath.Join(s.path, blobPrefix), 0o755)
		}, pull,
			[]string{"/oci-layout", "/.partial", "/blobs/sha256/" + layer}},
		"sign a folder": {dir, pull, sign, []string{"/blobs/sha256/" + sig.Node.Descriptor.Digest.Encoded()}},
	} {
		for _, name := range c.names {
			for kind, trap := range traps(t) {
				t.Run(what+"/"+name[:min(20, len(name))]+"/"+kind, func(t *testing.T) {
					c.s.path = filepath.Join(t.TempDir(), "medium", "b.tar")
					require.NoError(t, os.Mkdir(filepath.Dir(c.s.path), 0o755))
					require.NoError(t, c.before(c.s))
					require.NoError(t, os.RemoveAll(c.s.path+name))
					untouched := trap(c.s.path + name)
					err := c.do(c.s)
					untouched()
					require.NotEqual(t, fault.Internal, fault.ReasonOf(err), err)
				})
			}
		}
	}
}

// A folder's own folders may be links as well.
func TestBlobsAreNotWrittenIntoAFolderElsewhere(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 81, LayerSize: 700, Layers: 1})
	for _, name := range []string{"blobs", "blobs/sha256", ".partial"} {
		s := store{path: filepath.Join(t.TempDir(), "b"), dir: true}.replacing()
		elsewhere := t.TempDir()
		for _, dir := range []string{filepath.Dir(name), ".partial"} { // as of an interrupted run
			if dir != name {
				require.NoError(t, os.MkdirAll(filepath.Join(s.path, dir), 0o755))
			}
		}
		require.NoError(t, os.Symlink(elsewhere, filepath.Join(s.path, name)))
		require.Equal(t, fault.Storage, fault.ReasonOf(s.pull(t, b)))
		require.Empty(t, names(t, elsewhere))
	}
	s := store{path: writtenDir(t, b), dir: true}
	elsewhere := filepath.Join(t.TempDir(), "blobs")
	require.NoError(t, os.Rename(filepath.Join(s.path, "blobs"), elsewhere))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(s.path, "blobs")))
	require.Error(t, s.open(t).Attach(t.Context(), bundles.Signature(t, rootOf(b), 1)))
}

// A list of parts says whose they are. What replaces an archive removes its parts, and
// no one else's.
func TestAListOfAnotherArchivesPartsRemovesNothing(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 85, LayerSize: 700, Layers: 1})
	path, whole := inParts(t, b, Options{VolumeSize: 20_000}), written(t, b)
	other := store{path: filepath.Join(filepath.Dir(path), "x.tar")}.replacing().restarting()
	require.NoError(t, os.WriteFile(other.path+parts.Suffix, read(t, path), 0o600))
	before := contents(t, filepath.Dir(path))
	otherParts := other
	otherParts.o.VolumeSize = 30_000
	for what, do := range map[string]func() error{
		"pull":            func() error { return other.pull(t, b) },
		"pull into parts": func() error { return otherParts.pull(t, b) },
		"split":           func() error { _, err := Split(t.Context(), whole, other.path, otherParts.o); return err },
	} {
		err := do()
		require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%s: %v", what, err)
		now := contents(t, filepath.Dir(path))
		for name, data := range before {
			require.Equal(t, data, now[name], "%s: %s", what, name)
		}
	}
}

// The user's own link to an archive is followed: what is beside the archive is beside
// the file, and the link stays.
func TestAnArchiveIsSignedThroughTheUsersLink(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 83})
	path := written(t, b)
	link := filepath.Join(t.TempDir(), "current.tar")
	require.NoError(t, os.Symlink(path, link))
	sign(t, link, bundles.Signature(t, rootOf(b), 1))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, fs.ModeSymlink, info.Mode().Type())
	require.NoError(t, verifyPath(t.Context(), path))
}

// What is not a regular file is refused at once.
func TestPipesAreNotWaitedFor(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 84, LayerSize: 700, Layers: 1})
	pipe := func(t *testing.T, path string) {
		require.NoError(t, errors.Join(os.RemoveAll(path), syscall.Mkfifo(path, 0o600)))
	}
	plain := filepath.Join(t.TempDir(), "b.tar")
	pipe(t, plain)
	_, err := OpenFile(plain)
	require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
	require.ErrorContains(t, err, "not a regular file")
	_, err = OpenFile(os.DevNull)
	require.ErrorContains(t, err, "not a regular file")
	_, err = OpenDir(plain)
	require.Error(t, err)
	for _, name := range []string{"b.tar.parts", "b.tar.002"} {
		path := inParts(t, b, Options{VolumeSize: 10_000})
		pipe(t, filepath.Join(filepath.Dir(path), name))
		_, err = OpenFile(path)
		require.ErrorContains(t, err, "not a regular file")
		_, err = Repair(t.Context(), path)
		require.ErrorContains(t, err, "not a regular file")
	}
	for _, name := range []string{"oci-layout", "index.json", "blobs/sha256/" + b.Graph.Root.Digest.Encoded()} {
		dir := writtenDir(t, b)
		pipe(t, filepath.Join(dir, name))
		require.ErrorContains(t, verifyPath(t.Context(), dir), "not a regular file")
	}
}
