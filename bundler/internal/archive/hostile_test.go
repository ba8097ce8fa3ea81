package archive

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// traps are what somebody can put under a name that he expects to be written to.
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
		"a second name": func(path string) func() {
			name, untouched := victim(t, path)
			require.NoError(t, os.Link(name, path))
			return untouched
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
	used := b.Graph
	file := func(o Options) func(string) error {
		return func(dir string) error {
			w, err := CreateFile(filepath.Join(dir, "b.tar"), o)
			if err != nil {
				return err
			}
			return pull(t.Context(), w, b, 1)
		}
	}
	begun := func(o Options) func(string) {
		return func(dir string) {
			w, err := CreateFile(filepath.Join(dir, "b.tar"), o)
			require.NoError(t, err)
			_, err = w.Begin(t.Context(), used)
			require.NoError(t, err)
			require.NoError(t, w.Close())
		}
	}
	there := func(o Options) func(string) {
		return func(dir string) { require.NoError(t, file(o)(dir)) }
	}
	attach := func(open func(string) (interface {
		Attach(context.Context, ...bundle.Attachment) error
		Close() error
	}, error)) func(string) error {
		return func(dir string) error {
			a, err := open(dir)
			require.NoError(t, err)
			return errors.Join(a.Attach(t.Context(), sig), a.Close())
		}
	}
	type signable = interface {
		Attach(context.Context, ...bundle.Attachment) error
		Close() error
	}
	parted := Options{VolumeSize: 20_000, Recovery: 1}
	signFile := attach(func(dir string) (signable, error) { return OpenFile(filepath.Join(dir, "b.tar")) })
	folderThere := func(dir string) {
		w, err := CreateDir(filepath.Join(dir, "b"), Options{})
		require.NoError(t, err)
		require.NoError(t, pull(t.Context(), w, b, 1))
	}
	layer := b.Graph.Blobs[len(b.Graph.Blobs)-1].Digest.Encoded()
	for _, c := range []struct {
		what   string
		before func(dir string)
		do     func(dir string) error
		names  []string
	}{
		{"pull", func(string) {}, file(Options{}), []string{"b.tar.partial", "b.tar.journal", "b.tar.journal.tmp", "b.tar"}},
		{"pull goes on", begun(Options{}), file(Options{}), []string{"b.tar.partial", "b.tar.journal"}},
		{"pull into parts", func(string) {}, file(parted), []string{"b.tar.001.partial", "b.tar.p001.partial", "b.tar.parts.tmp", "b.tar.001", "b.tar.p001"}},
		{"pull into parts goes on", begun(parted), file(parted), []string{"b.tar.002.partial"}},
		{"sign", there(Options{}), signFile, []string{"b.tar.index", "b.tar.index.tmp", "b.tar.journal"}},
		{"sign parts", there(parted), signFile, []string{"b.tar.p001.new", "b.tar.parts.tmp", "b.tar.journal"}},
		{"split", there(Options{}), func(dir string) error {
			_, err := Split(t.Context(), filepath.Join(dir, "b.tar"), filepath.Join(dir, "b.tar"), parted)
			return err
		}, []string{"b.tar.001.split", "b.tar.p001.split", "b.tar.parts.split.tmp", "b.tar.journal", "b.tar.002"}},
		{"repair", func(dir string) {
			there(parted)(dir)
			require.NoError(t, os.Remove(filepath.Join(dir, "b.tar.002")))
		}, func(dir string) error {
			_, err := Repair(t.Context(), filepath.Join(dir, "b.tar.parts"), false)
			return err
		}, []string{"b.tar.002.rebuilt", "b.tar.journal"}},
		{"pull into a folder", func(dir string) { require.NoError(t, os.MkdirAll(filepath.Join(dir, "b", "blobs", "sha256"), 0o755)) }, func(dir string) error {
			w, err := CreateDir(filepath.Join(dir, "b"), Options{})
			require.NoError(t, err)
			return pull(t.Context(), w, b, 1)
		}, []string{"b/oci-layout.tmp", "b/index.json.tmp", "b/oci-layout", "b/.partial", "b/blobs/sha256/" + layer, "b/blobs/sha256/" + used.Root.Digest.Encoded() + ".tmp"}},
		{"sign a folder", folderThere, attach(func(dir string) (signable, error) { return OpenDir(filepath.Join(dir, "b")) }),
			[]string{"b/index.json.tmp", "b/blobs/sha256/" + sig.Node.Descriptor.Digest.Encoded() + ".tmp", "b/blobs/sha256/" + sig.Node.Descriptor.Digest.Encoded()}},
	} {
		for _, name := range c.names {
			for kind, trap := range traps(t) {
				t.Run(c.what+"/"+filepath.Base(name)[:min(20, len(filepath.Base(name)))]+"/"+kind, func(t *testing.T) {
					dir := filepath.Join(t.TempDir(), "medium")
					require.NoError(t, os.Mkdir(dir, 0o755))
					c.before(dir)
					require.NoError(t, errors.Join(os.RemoveAll(filepath.Join(dir, name))))
					untouched := trap(filepath.Join(dir, name))
					err := c.do(dir)
					untouched()
					if err != nil {
						require.NotEqual(t, fault.Internal, fault.ReasonOf(err), err)
					}
				})
			}
		}
	}
}

// A folder's own folders may be links as well.
func TestBlobsAreNotWrittenIntoAFolderElsewhere(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 81, LayerSize: 700, Layers: 1})
	for _, name := range []string{"blobs", "blobs/sha256", ".partial"} {
		dir, elsewhere := filepath.Join(t.TempDir(), "b"), t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, name)))
		w, err := CreateDir(dir, Options{Replace: true})
		require.NoError(t, err)
		err = pull(t.Context(), w, b, 1)
		require.Equal(t, fault.Storage, fault.ReasonOf(err))
		require.ErrorContains(t, err, "it is a link")
		list, err := os.ReadDir(elsewhere)
		require.NoError(t, err)
		require.Empty(t, list)
	}
	dir := writtenDir(t, b)
	elsewhere := filepath.Join(t.TempDir(), "blobs")
	require.NoError(t, os.Rename(filepath.Join(dir, "blobs"), elsewhere))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "blobs")))
	d, err := OpenDir(dir)
	require.NoError(t, err)
	defer d.Close()
	require.Error(t, d.Attach(t.Context(), bundles.Signature(t, rootOf(b), 1)))
}

// Parts may be links for who reads them. Who signs writes into them.
func TestASignatureIsNotWrittenIntoALinkedPart(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 82})
	path := inParts(t, b, Options{VolumeSize: 30_000})
	part := filepath.Join(filepath.Dir(path), "b.tar.001")
	elsewhere := filepath.Join(t.TempDir(), "part")
	require.NoError(t, os.Rename(part, elsewhere))
	require.NoError(t, os.Symlink(elsewhere, part))
	require.NoError(t, verifyPath(t.Context(), path))
	before := read(t, elsewhere)
	f, err := OpenFile(path)
	require.NoError(t, err)
	defer f.Close()
	err = f.Attach(t.Context(), bundles.Signature(t, rootOf(b), 1))
	require.Equal(t, fault.Storage, fault.ReasonOf(err))
	require.ErrorContains(t, err, "it is a link")
	require.Equal(t, before, read(t, elsewhere))
}

// A list of parts says whose they are. What replaces an archive removes its parts, and
// nobody else's.
func TestAListOfAnotherArchivesPartsRemovesNothing(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 85, LayerSize: 700, Layers: 1})
	path := inParts(t, b, Options{VolumeSize: 20_000})
	dir := filepath.Dir(path)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.tar.parts"), read(t, path), 0o600))
	before := contents(t, dir)
	whole := written(t, b)
	for what, do := range map[string]func() error{
		"pull": func() error {
			w, err := CreateFile(filepath.Join(dir, "x.tar"), Options{Replace: true})
			require.NoError(t, err)
			return pull(t.Context(), w, b, 1)
		},
		"pull into parts": func() error {
			w, err := CreateFile(filepath.Join(dir, "x.tar"), Options{Replace: true, Restart: true, VolumeSize: 30_000})
			require.NoError(t, err)
			return pull(t.Context(), w, b, 1)
		},
		"split": func() error {
			_, err := Split(t.Context(), whole, filepath.Join(dir, "x.tar"), Options{Replace: true, VolumeSize: 30_000})
			return err
		},
	} {
		err := do()
		require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%s: %v", what, err)
		for name, data := range before {
			require.Equal(t, data, string(read(t, filepath.Join(dir, name))), "%s: %s", what, name)
		}
	}
}

// byTar makes an archive that tar has written.
func byTar(t *testing.T, b *bundles.Bundle) string {
	t.Helper()
	path, dir := written(t, b), t.TempDir()
	out, err := exec.Command("tar", "-xf", path, "-C", dir).CombinedOutput()
	require.NoError(t, err, string(out))
	out, err = exec.Command("tar", "-cf", path, "-C", dir, "oci-layout", "blobs", "index.json").CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// Files of the user's beside an archive stay as they are, whatever names they have.
func TestSigningLeavesTheFilesBesideIt(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 85})
	for name, c := range map[string]struct {
		beside  string
		refused bool
		path    func() string
	}{
		"an archive of another tool": {"b.tar.sign", false, func() string { return byTar(t, b) }},
		"the list of parts":          {"b.tar.parts.tmp", false, func() string { return inParts(t, b, Options{VolumeSize: 20_000}) }},
		"the copy of index.json":     {"b.tar.index", true, func() string { return written(t, b) }},
		"the copy, of another tool":  {"b.tar.index", true, func() string { return byTar(t, b) }},
		"the next part": {"", true, func() string {
			return inParts(t, b, Options{VolumeSize: int64(len(streamed(t, b)))})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path := c.path()
			beside := filepath.Join(filepath.Dir(path), c.beside)
			if c.beside == "" {
				beside = strings.TrimSuffix(path, parts.Suffix) + ".002"
			}
			require.NoError(t, os.WriteFile(beside, []byte("mine"), 0o600))
			f, err := OpenFile(path)
			require.NoError(t, err)
			defer f.Close()
			err = f.Attach(t.Context(), bundles.Signature(t, rootOf(b), 1))
			require.Equal(t, c.refused, err != nil, "%v", err)
			if err != nil {
				require.ErrorContains(t, err, filepath.Base(beside))
			}
			require.Equal(t, "mine", string(read(t, beside)))
			again, err := OpenFile(path)
			require.NoError(t, err)
			require.NoError(t, again.Close())
		})
	}
}

// The user's own link to an archive is followed: what is beside the archive is beside
// the file, and the link stays.
func TestAnArchiveIsSignedThroughTheUsersLink(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 83})
	path := written(t, b)
	link := filepath.Join(t.TempDir(), "current.tar")
	require.NoError(t, os.Symlink(path, link))
	f, err := OpenFile(link)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Attach(t.Context(), bundles.Signature(t, rootOf(b), 1)))
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
		_, err = Repair(t.Context(), path, true)
		require.ErrorContains(t, err, "not a regular file")
	}
	for _, name := range []string{"oci-layout", "index.json", "blobs/sha256/" + b.Graph.Root.Digest.Encoded()} {
		dir := writtenDir(t, b)
		pipe(t, filepath.Join(dir, name))
		require.ErrorContains(t, verifyDir(t.Context(), dir), "not a regular file")
	}
}
