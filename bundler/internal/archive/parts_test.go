package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// inParts writes a bundle in parts and returns the path of the parts file.
func inParts(t testing.TB, b *bundles.Bundle, o Options) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "b.tar")
	w, err := CreateFile(path, o)
	require.NoError(t, err)
	require.NoError(t, pull(t.Context(), w, b, 1))
	return path + parts.Suffix
}

// cat joins the parts as the shell does.
func cat(t testing.TB, partsFile string) []byte {
	t.Helper()
	names, err := filepath.Glob(strings.TrimSuffix(partsFile, parts.Suffix) + ".[0-9]*")
	require.NoError(t, err)
	var out []byte
	for _, name := range names {
		out = append(out, read(t, name)...)
	}
	return out
}

func TestPartsJoinedAreTheArchive(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 60})
	b.Graph.Attachments = []bundle.Attachment{bundles.Signature(t, rootOf(b), 1)}
	want := streamed(t, b)
	for _, size := range []int64{512, 10_000, int64(len(want)) - 1, int64(len(want)), int64(len(want)) + 1} {
		for _, recovery := range []int{0, 2} {
			if size == 512 && recovery > 0 {
				continue // too many parts to recover
			}
			t.Run(fmt.Sprintf("%d+%d", size, recovery), func(t *testing.T) {
				path := inParts(t, b, Options{VolumeSize: size, Recovery: recovery})
				require.True(t, bytes.Equal(want, cat(t, path)))
				require.NoError(t, verifyPath(t.Context(), path))
				require.NoError(t, verifyPath(t.Context(), strings.TrimSuffix(path, parts.Suffix)), "the archive's name will do")
				list, err := os.ReadDir(filepath.Dir(path))
				require.NoError(t, err)
				count := (len(want)-1)/int(size) + 1
				require.Len(t, list, count+recovery+1, "nothing is left beside the parts")
				check := exec.Command("sha256sum", "-c", "--strict", filepath.Base(path))
				check.Dir = filepath.Dir(path)
				out, err := check.CombinedOutput()
				require.NoError(t, err, string(out))
			})
		}
	}
}

func TestSplitGivesTheSamePartsAsPulling(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 61})
	o := Options{VolumeSize: 20_000, Recovery: 1}
	pulled := inParts(t, b, o)
	whole := written(t, b)
	split, err := Split(t.Context(), whole, whole, o)
	require.NoError(t, err)
	require.Equal(t, whole+parts.Suffix, split)
	l, err := readParts(pulled)
	require.NoError(t, err)
	require.Equal(t, string(read(t, pulled)), string(read(t, split)))
	for i := range l.All() {
		require.True(t, bytes.Equal(read(t, filepath.Join(filepath.Dir(pulled), l.Name(i))), read(t, filepath.Join(filepath.Dir(split), l.Name(i)))), l.Name(i))
	}
	require.True(t, bytes.Equal(read(t, whole), cat(t, split)), "the archive stays")

	_, err = Split(t.Context(), whole, whole, o)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err))
	again, err := Split(t.Context(), whole, whole, Options{VolumeSize: 30_000, Replace: true})
	require.NoError(t, err)
	require.True(t, bytes.Equal(read(t, whole), cat(t, again)))
	require.NoFileExists(t, whole+".p001", "what is replaced goes")
	_, err = Split(t.Context(), filepath.Join(t.TempDir(), "none.tar"), whole, o)
	require.Equal(t, fault.NotFound, fault.ReasonOf(err))
}

// The name of an archive that is replaced by parts leads to the parts afterwards. The archive
// that is split stays, whatever names it has.
func TestSplitReplacesTheArchiveAtItsName(t *testing.T) {
	b, old := bundles.New(t, bundles.Options{Seed: 63}), bundles.New(t, bundles.Options{Seed: 64})
	o := Options{VolumeSize: 30_000}
	for name, prepare := range map[string]func(dir, src string) (to string, err error){
		"another archive": func(dir, _ string) (string, error) {
			to := filepath.Join(dir, "old.tar")
			return to, os.WriteFile(to, read(t, written(t, old)), 0o600)
		},
		"another spelling": func(dir, src string) (string, error) { return dir + "/./" + filepath.Base(src), nil },
		"a hard link": func(dir, src string) (string, error) {
			return filepath.Join(dir, "hard.tar"), os.Link(src, filepath.Join(dir, "hard.tar"))
		},
		"a link": func(dir, src string) (string, error) {
			return filepath.Join(dir, "link.tar"), os.Symlink(src, filepath.Join(dir, "link.tar"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			src := written(t, b)
			want := read(t, src)
			to, err := prepare(filepath.Dir(src), src)
			require.NoError(t, err)
			_, err = Split(t.Context(), src, to, o)
			if name == "another archive" {
				require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%v", err)
				_, err = Split(t.Context(), src, to, Options{VolumeSize: 30_000, Replace: true})
			}
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, cat(t, to+parts.Suffix)))
			require.True(t, bytes.Equal(want, read(t, src)), "the source stays")
			a, err := OpenFile(to)
			require.NoError(t, err)
			defer a.Close()
			root, err := a.Root(t.Context())
			require.NoError(t, err)
			require.Equal(t, b.Graph.Root.Digest, root.Digest)
		})
	}
}

// Any parts up to the number of recovery parts may be lost or damaged.
func TestLostAndDamagedPartsAreRebuilt(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 62})
	path := inParts(t, b, Options{VolumeSize: 40_000, Recovery: 2})
	l, err := readParts(path)
	require.NoError(t, err)
	require.GreaterOrEqual(t, l.Count(), int64(3))
	want := map[string][]byte{}
	for i := range l.All() {
		want[l.Name(i)] = read(t, filepath.Join(filepath.Dir(path), l.Name(i)))
	}
	damages := []func(t *testing.T, name string){
		func(t *testing.T, name string) { require.NoError(t, os.Remove(name)) },
		func(t *testing.T, name string) {
			data := read(t, name)
			data[len(data)/2] ^= 1
			require.NoError(t, os.WriteFile(name, data, 0o600))
		},
		func(t *testing.T, name string) { require.NoError(t, os.Truncate(name, 100)) },
		func(t *testing.T, name string) { require.NoError(t, os.WriteFile(name, make([]byte, 50_000), 0o600)) },
	}
	n := 0
	for i := range l.All() {
		for j := i; j < l.All(); j++ {
			for _, k := range map[bool][]int{true: {i}, false: {i, j}}[i == j] {
				n++
				damages[n%len(damages)](t, filepath.Join(filepath.Dir(path), l.Name(k)))
			}
			_, err := Repair(t.Context(), path, true)
			require.Error(t, err, "a dry run says what is wrong")
			require.Contains(t, err.Error(), l.Name(i))
			require.Contains(t, fault.HintOf(err), "vdo-bundle repair")
			r, err := Repair(t.Context(), path, false)
			require.NoError(t, err)
			require.True(t, r.Rebuilt)
			for name, data := range want {
				require.True(t, bytes.Equal(data, read(t, filepath.Join(filepath.Dir(path), name))), name)
			}
		}
	}
	r, err := Repair(t.Context(), strings.TrimSuffix(path, parts.Suffix), false)
	require.NoError(t, err)
	require.Empty(t, r.Damaged)
	list, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, list, l.All()+1, "nothing is left beside the parts")
}

func TestTooManyLostPartsAreAllNamed(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 63})
	path := inParts(t, b, Options{VolumeSize: 30_000, Recovery: 1})
	dir := filepath.Dir(path)
	require.NoError(t, os.Remove(filepath.Join(dir, "b.tar.002")))
	require.NoError(t, os.Remove(filepath.Join(dir, "b.tar.003")))
	_, err := Repair(t.Context(), path, false)
	require.Equal(t, fault.Incomplete, fault.ReasonOf(err))
	require.Contains(t, err.Error(), "b.tar.002")
	require.Contains(t, err.Error(), "b.tar.003")
	_, err = OpenFile(path)
	require.Equal(t, fault.Incomplete, fault.ReasonOf(err))
	require.Contains(t, err.Error(), "b.tar.002")
	require.Contains(t, err.Error(), "b.tar.003")
	require.Contains(t, fault.HintOf(err), "copy it again")
}

// Parts of two archives are not mixed into something new.
func TestPartsThatDoNotBelongTogetherAreNotRebuilt(t *testing.T) {
	o := Options{VolumeSize: 30_000, Recovery: 1}
	path := inParts(t, bundles.New(t, bundles.Options{Seed: 64}), o)
	l, err := readParts(path)
	require.NoError(t, err)
	l.Sums[1] = parts.Sum{} // a list that lies
	require.NoError(t, os.WriteFile(path, l.Text(), 0o600))
	_, err = Repair(t.Context(), path, false)
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
	require.Contains(t, err.Error(), "do not belong together")
	require.NoFileExists(t, filepath.Join(filepath.Dir(path), "b.tar.002.rebuilt"))
}

func TestAMissingDamagedOrForeignPartIsNamed(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 65})
	for name, c := range map[string]struct {
		damage func(path string) error
		reason fault.Reason
	}{
		"missing":   {os.Remove, fault.Incomplete},
		"short":     {func(p string) error { return os.Truncate(p, 5) }, fault.Incomplete},
		"long":      {func(p string) error { return os.Truncate(p, 50_000) }, fault.Corrupt},
		"a folder":  {func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o755)) }, fault.InvalidInput},
		"other tar": {func(p string) error { return os.WriteFile(p, make([]byte, 30_000), 0o600) }, fault.Corrupt},
	} {
		t.Run(name, func(t *testing.T) {
			path := inParts(t, b, Options{VolumeSize: 30_000, Recovery: 1})
			part := filepath.Join(filepath.Dir(path), "b.tar.002")
			require.NoError(t, c.damage(part))
			err := verifyPath(t.Context(), path)
			if f, openErr := OpenFile(path); err != nil && openErr == nil { // as the flow does
				err = errors.Join(err, f.Damage(t.Context()), f.Close())
			}
			require.Equal(t, c.reason, fault.ReasonOf(err), "%v", err)
			require.Contains(t, err.Error(), part)
		})
	}
}

func TestADamagedRecoveryPartIsFoundAndAMissingOneIsNot(t *testing.T) {
	path := inParts(t, bundles.New(t, bundles.Options{Seed: 66}), Options{VolumeSize: 30_000, Recovery: 2})
	first := strings.TrimSuffix(path, parts.Suffix) + ".p001"
	require.NoError(t, os.WriteFile(first, make([]byte, 30_000), 0o600))
	err := verifyPath(t.Context(), path)
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
	require.Contains(t, err.Error(), first)
	require.NoError(t, os.Remove(first))
	require.NoError(t, verifyPath(t.Context(), path), "it is not needed to read the archive")
}

func TestAnInterruptedPullIntoPartsGoesOn(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 67, LayerSize: 100_000})
	o := Options{VolumeSize: 150_000, Recovery: 1}
	path := filepath.Join(t.TempDir(), "b.tar")
	w, err := CreateFile(path, o)
	require.NoError(t, err)
	missing, err := w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	for _, d := range missing[:len(missing)/2] {
		require.NoError(t, w.Put(t.Context(), d, b.Store.Opener(t.Context(), d)))
	}
	require.NoError(t, w.Close())
	require.NoFileExists(t, path+parts.Suffix)

	// Another cut is another archive.
	other, err := CreateFile(path, Options{VolumeSize: 160_000})
	require.NoError(t, err)
	_, err = other.Begin(t.Context(), b.Graph)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err))

	w, err = CreateFile(path, o)
	require.NoError(t, err)
	rest, err := w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	require.Len(t, rest, len(missing)-len(missing)/2, "what came is not fetched again")
	for _, d := range rest {
		require.NoError(t, w.Put(t.Context(), d, b.Store.Opener(t.Context(), d)))
	}
	require.NoError(t, w.Commit(t.Context()))
	require.True(t, bytes.Equal(streamed(t, b), cat(t, path+parts.Suffix)))

	again, err := CreateFile(path, Options{VolumeSize: 160_000})
	require.Nil(t, again)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err))
	again, err = CreateFile(path, Options{Replace: true})
	require.NoError(t, err)
	require.NoError(t, pull(t.Context(), again, b, 3))
	list, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, list, 1, "one file takes the place of all parts")
	again, err = CreateFile(path, Options{Replace: true, VolumeSize: 500_000})
	require.NoError(t, err)
	require.NoError(t, pull(t.Context(), again, b, 3))
	require.NoFileExists(t, path)
	require.NoError(t, verifyPath(t.Context(), path))
}

func TestRestartDropsThePartsOfAnotherPull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.tar")
	w, err := CreateFile(path, Options{VolumeSize: 10_000})
	require.NoError(t, err)
	_, err = w.Begin(t.Context(), bundles.New(t, bundles.Options{Seed: 68}).Graph)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	b := bundles.New(t, bundles.Options{Seed: 69})
	w, err = CreateFile(path, Options{VolumeSize: 50_000, Restart: true})
	require.NoError(t, err)
	require.NoError(t, pull(t.Context(), w, b, 1))
	left, err := filepath.Glob(path + "*.partial")
	require.NoError(t, err)
	require.Empty(t, left)
	require.True(t, bytes.Equal(streamed(t, b), cat(t, path+parts.Suffix)))
}

// The names are given one by one; who is stopped among them goes on.
func TestACommitStoppedAmongTheNamesGoesOn(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 70})
	o := Options{VolumeSize: 30_000, Recovery: 1}
	finished := strings.TrimSuffix(inParts(t, b, o), parts.Suffix)
	for _, named := range [][]string{{".001"}, {".001", ".002", ".003", ".p001"}} {
		path := filepath.Join(t.TempDir(), "b.tar")
		w, err := CreateFile(path, o)
		require.NoError(t, err)
		missing, err := w.Begin(t.Context(), b.Graph)
		require.NoError(t, err)
		for _, d := range missing {
			require.NoError(t, w.Put(t.Context(), d, b.Store.Opener(t.Context(), d)))
		}
		require.NoError(t, errors.Join(w.journal.end(namedWith(o.Recovery)), w.Close()))
		for _, part := range named { // where it was stopped
			if part == ".p001" {
				require.NoError(t, os.WriteFile(path+part, read(t, finished+part), 0o600))
				continue
			}
			require.NoError(t, os.Rename(path+part+".partial", path+part))
		}
		w, err = CreateFile(path, o)
		require.NoError(t, err)
		rest, err := w.Begin(t.Context(), b.Graph)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.NoError(t, w.Commit(t.Context()))
		require.True(t, bytes.Equal(streamed(t, b), cat(t, path+parts.Suffix)))
		require.NoError(t, verifyPath(t.Context(), path))
	}
}

// Parts that got their names are those of the pull that was stopped; another pull to that
// place neither takes nor changes them.
func TestTheNamedPartsOfAnotherPullAreLeftAlone(t *testing.T) {
	o := Options{VolumeSize: 30_000}
	other := bundles.New(t, bundles.Options{Seed: 170})
	path := strings.TrimSuffix(inParts(t, other, o), parts.Suffix)
	was := read(t, path+".001")
	require.NoError(t, os.Remove(path+parts.Suffix)) // it was stopped before it had written that
	journal := sealed(journalMagic+" "+identity(other.Graph, o)) + sealed(namedWith(0))
	for _, restart := range []bool{false, true} {
		require.NoError(t, os.WriteFile(path+journalSuffix, []byte(journal), 0o600))
		again := o
		again.Restart = restart
		w, err := CreateFile(path, again)
		require.NoError(t, err)
		_, err = w.Begin(t.Context(), bundles.New(t, bundles.Options{Seed: 171}).Graph)
		require.Equal(t, fault.Conflict, fault.ReasonOf(errors.Join(err, w.Close())))
		require.ErrorContains(t, err, "it is there already")
		require.True(t, bytes.Equal(was, read(t, path+".001")))
	}
}

func TestASignatureIsAddedToPartsInPlace(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 71})
	whole := written(t, b)
	size := int64(len(read(t, whole)))
	for _, volume := range []int64{size / 3, size, size - 1, size/3 + 1} { // the last part has room, or has none
		for _, recovery := range []int{0, 1} {
			t.Run(fmt.Sprintf("%d+%d", volume, recovery), func(t *testing.T) {
				path := inParts(t, b, Options{VolumeSize: volume, Recovery: recovery})
				f, err := OpenFile(path)
				require.NoError(t, err)
				for n := range 3 {
					require.NoError(t, f.Attach(t.Context(), bundles.Signature(t, rootOf(b), n)))
				}
				require.NoError(t, verify(t.Context(), f))
				require.NoError(t, f.Close())
				require.NoError(t, verifyPath(t.Context(), path))
				r, err := Repair(t.Context(), path, true)
				require.NoError(t, err)
				require.Empty(t, r.Damaged, "the list and the recovery parts follow")

				one := written(t, b)
				g, err := OpenFile(one)
				require.NoError(t, err)
				for n := range 3 {
					require.NoError(t, g.Attach(t.Context(), bundles.Signature(t, rootOf(b), n)))
				}
				require.NoError(t, g.Close())
				require.True(t, bytes.Equal(read(t, one), cat(t, path)), "the parts are what the file would be")
				if recovery > 0 {
					require.NoError(t, os.Remove(strings.TrimSuffix(path, parts.Suffix)+".001"))
					_, err := Repair(t.Context(), path, false)
					require.NoError(t, err)
					require.NoError(t, verifyPath(t.Context(), path))
				}
			})
		}
	}
}

func TestDamagedPartsAreNotSigned(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 72})
	path := inParts(t, b, Options{VolumeSize: 30_000, Recovery: 1})
	part := filepath.Join(filepath.Dir(path), "b.tar.003")
	data := read(t, part)
	data[len(data)/2] ^= 1
	require.NoError(t, os.WriteFile(part, data, 0o600))
	before := read(t, path)
	f, err := OpenFile(path)
	require.NoError(t, err)
	err = f.Attach(t.Context(), bundles.Signature(t, rootOf(b), 1))
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
	require.Contains(t, err.Error(), part)
	require.NoError(t, f.Close())
	require.Equal(t, before, read(t, path))
}

// Whenever a signing run is stopped, the bundle can be read, and signing again
// completes it.
func TestAnInterruptedSigningOfPartsIsCompletedByTheNext(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 73})
	path := inParts(t, b, Options{VolumeSize: 30_000, Recovery: 1})
	l, err := readParts(path)
	require.NoError(t, err)
	l.Changing = true
	require.NoError(t, os.WriteFile(path, l.Text(), 0o600))
	dir, err := openFolder(filepath.Dir(path))
	require.NoError(t, err)
	v, err := openVolumes(path, dir)
	require.NoError(t, err)
	s, err := scanStorage(v.path, v)
	require.NoError(t, err)
	require.NoError(t, attachTo(t.Context(), dir, v.path, v, []bundle.Attachment{bundles.Signature(t, rootOf(b), 1)}, s.index)) // and then it was stopped
	require.NoError(t, errors.Join(v.Close(), dir.close()))

	f, err := OpenFile(path)
	require.NoError(t, err)
	err = verify(t.Context(), f)
	require.Equal(t, fault.Incomplete, fault.ReasonOf(err))
	require.Contains(t, fault.HintOf(err), "sign")
	_, err = Repair(t.Context(), path, false)
	require.Equal(t, fault.Refused, fault.ReasonOf(err))
	require.NoError(t, f.Attach(t.Context(), bundles.Signature(t, rootOf(b), 2)))
	require.NoError(t, verify(t.Context(), f))
	require.NoError(t, f.Close())
	_, err = Repair(t.Context(), path, true)
	require.NoError(t, err)
}

func TestPartsFilesThatCannotBeReadAreNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.tar.parts")
	_, err := OpenFile(path)
	require.Equal(t, fault.NotFound, fault.ReasonOf(err))
	require.NoError(t, os.WriteFile(path, []byte("no list"), 0o600))
	_, err = OpenFile(path)
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
	require.Contains(t, err.Error(), path)
	_, err = Repair(t.Context(), path, false)
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
	_, err = OpenFile(strings.TrimSuffix(path, parts.Suffix))
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
}

// Memory does not grow with the parts.
func TestSplittingAndRebuildingHoldLittleInMemory(t *testing.T) {
	size := tier.Pick[int64](160<<20, 300<<20)
	b := bundles.New(t, bundles.Options{Seed: 74, LayerSize: 1000, Layers: 1})
	zero := sha256.New()
	_, err := io.Copy(zero, io.LimitReader(zeros{}, size))
	require.NoError(t, err)
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: digest.Digest(fmt.Sprintf("sha256:%x", zero.Sum(nil))), Size: size}
	b.Graph.Blobs = append(b.Graph.Blobs, d)
	path := filepath.Join(t.TempDir(), "b.tar")
	w, err := CreateFile(path, Options{VolumeSize: 20 << 20, Recovery: 2})
	require.NoError(t, err)
	missing, err := w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	stop, peak := make(chan struct{}), make(chan uint64)
	go func() { peak <- highest(stop) }()
	for _, m := range missing {
		open := b.Store.Opener(t.Context(), m)
		if m.Digest == d.Digest {
			open = func(offset int64) (io.ReadCloser, error) {
				return io.NopCloser(io.LimitReader(zeros{}, size-offset)), nil
			}
		}
		require.NoError(t, w.Put(t.Context(), m, open))
	}
	require.NoError(t, w.Commit(t.Context()))
	require.NoError(t, errors.Join(os.Remove(path+".001"), os.Remove(path+".007")))
	r, err := Repair(context.WithoutCancel(t.Context()), path+parts.Suffix, false)
	require.NoError(t, err)
	require.True(t, r.Rebuilt)
	close(stop)
	require.Less(t, <-peak, uint64(64<<20))
	_, err = os.Stat(path + ".001.rebuilt")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// highest samples the heap until it is stopped.
func highest(stop <-chan struct{}) (peak uint64) {
	for {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapInuse)
		select {
		case <-stop:
			return peak
		default:
			runtime.Gosched()
		}
	}
}

// What lies where a part will go is not ours to take, unless it may be replaced.
func TestAFileInThePlaceOfAPartIsRefusedBeforeTheFirstByte(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 75})
	for _, name := range []string{".002", ".p001"} {
		path := filepath.Join(t.TempDir(), "b.tar")
		require.NoError(t, os.WriteFile(path+name, []byte("mine"), 0o600))
		o := Options{VolumeSize: 30_000, Recovery: 1}
		w, err := CreateFile(path, o)
		require.NoError(t, err)
		_, err = w.Begin(t.Context(), b.Graph)
		require.Equal(t, fault.Conflict, fault.ReasonOf(err))
		require.Contains(t, err.Error(), path+name)
		require.Equal(t, "mine", string(read(t, path+name)))
		o.Replace = true
		w, err = CreateFile(path, o)
		require.NoError(t, err)
		require.NoError(t, pull(t.Context(), w, b, 1))
		require.NoError(t, verifyPath(t.Context(), path))
	}
}

// A pull that replaces another one and is stopped leaves that one as it was.
func TestAnInterruptedReplacementLeavesTheOldParts(t *testing.T) {
	path := inParts(t, bundles.New(t, bundles.Options{Seed: 76}), Options{VolumeSize: 30_000, Recovery: 1})
	tar := strings.TrimSuffix(path, parts.Suffix)
	other := bundles.New(t, bundles.Options{Seed: 77})
	o := Options{VolumeSize: 30_000, Recovery: 1, Replace: true}
	w, err := CreateFile(tar, o)
	require.NoError(t, err)
	_, err = w.Begin(t.Context(), other.Graph)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	for i := range 3 { // stopped even before these were made
		require.NoError(t, os.Remove(fmt.Sprintf("%s.%03d.partial", tar, i+1)))
	}
	w, err = CreateFile(tar, o)
	require.NoError(t, err)
	_, err = w.Begin(t.Context(), other.Graph)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, verifyPath(t.Context(), path))
	w, err = CreateFile(tar, o)
	require.NoError(t, err)
	require.NoError(t, pull(t.Context(), w, other, 1))
	require.True(t, bytes.Equal(streamed(t, other), cat(t, path)))
}

func TestASignatureThatWouldMakeTooManyPartsIsRefusedBeforeAnythingChanges(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 78})
	size := int64(len(streamed(t, b)))
	volume := size/250 + 1
	count := (size-1)/volume + 1
	path := inParts(t, b, Options{VolumeSize: volume, Recovery: int(parts.MaxShards - count)})
	before := read(t, path)
	f, err := OpenFile(path)
	require.NoError(t, err)
	err = f.Attach(t.Context(), bundles.Signature(t, rootOf(b), 1))
	require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
	require.NoError(t, f.Close())
	require.Equal(t, before, read(t, path))
	require.NoError(t, verifyPath(t.Context(), path))
}
