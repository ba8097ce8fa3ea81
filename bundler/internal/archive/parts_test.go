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

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// inParts writes a bundle in parts and returns the path of the parts file.
func inParts(t testing.TB, b *bundles.Bundle, o Options) string {
	s := store{path: filepath.Join(t.TempDir(), "b.tar"), o: o}
	require.NoError(t, s.pull(t, b))
	return s.location()
}

// cat joins the parts as the shell does.
func cat(t testing.TB, partsFile string) []byte {
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
	want := streamed(t, b)
	for _, size := range []int64{512, 10_000, int64(len(want)) - 1, int64(len(want)), int64(len(want)) + 1} {
		s := store{path: filepath.Join(t.TempDir(), "b.tar"), o: Options{VolumeSize: size, Recovery: 2}}
		if size == 512 {
			s.o.Recovery = 0 // too many parts to recover
		}
		require.NoError(t, s.pull(t, b))
		s.verify(t)
		require.True(t, bytes.Equal(want, s.bytes(t)))
		require.NoError(t, verifyPath(t.Context(), s.path), "the archive's name will do")
		check := exec.Command("sha256sum", "-c", "--strict", filepath.Base(s.location()))
		check.Dir = filepath.Dir(s.path)
		out, err := check.CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

func TestSplitGivesTheSamePartsAsPulling(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 61})
	o := Options{VolumeSize: 20_000, Recovery: 1}
	whole := written(t, b)
	list, err := Split(t.Context(), whole, whole, o)
	require.NoError(t, err)
	require.Equal(t, whole+parts.Suffix, list)
	want, got := contents(t, filepath.Dir(inParts(t, b, o))), contents(t, filepath.Dir(whole))
	want[filepath.Base(whole)] = string(streamed(t, b)) // the archive stays
	require.Equal(t, want, got)

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
			a := opened(t, to)
			root, err := a.Root(t.Context())
			require.NoError(t, err)
			require.Equal(t, b.Graph.Root.Digest, root.Digest)
		})
	}
}

// Whatever happened to which parts: each is named, and any up to the number of parity shards
// are rebuilt.
func TestDamagedPartsAreNamedAndRebuilt(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 62})
	s := store{o: Options{VolumeSize: 40_000, Recovery: 2}}
	inBlob := int64(4500 + slackEach*len(b.Graph.Manifests)) // of each part but the first
	damages := map[string]struct {
		do     func(name string) error
		reason fault.Reason
	}{
		"missing":  {os.Remove, fault.Incomplete},
		"short":    {func(name string) error { return os.Truncate(name, 5) }, fault.Incomplete},
		"long":     {func(name string) error { return os.WriteFile(name, make([]byte, 50_000), 0o600) }, fault.Corrupt},
		"one byte": {func(name string) error { flip(t, name, inBlob); return nil }, fault.Corrupt},
	}
	for _, lost := range [][]string{{"001"}, {"002"}, {"003", "p002"}, {"001", "002"}, {"p001"}, {"p001", "p002"},
		{"001", "003", "p001"}} {
		for name, damage := range damages {
			t.Run(name+" "+strings.Join(lost, " "), func(t *testing.T) {
				s.path = filepath.Join(t.TempDir(), "b.tar")
				require.NoError(t, s.pull(t, b))
				whole := contents(t, filepath.Dir(s.path))
				for _, part := range lost {
					require.NoError(t, damage.do(s.path+"."+part))
				}
				damaged := contents(t, filepath.Dir(s.path))
				named := func(err error) {
					for _, part := range lost {
						require.ErrorContains(t, err, s.path+"."+part)
					}
				}
				a, err := OpenFile(s.location())
				if err == nil {
					require.NoError(t, a.CheckLayout(t.Context()), "it reads no blobs, and no parity shards")
					err = errors.Join(a.Damage(t.Context()), a.Close())
				}
				require.ErrorContains(t, err, s.path+"."+lost[0])
				require.Equal(t, damage.reason, fault.ReasonOf(err), "%v", err)
				r, err := Repair(t.Context(), s.path)
				if len(lost) > s.o.Recovery {
					named(err)
					require.Contains(t, fault.HintOf(err), "copy it again")
					require.Equal(t, damaged, contents(t, filepath.Dir(s.path)))
					return
				}
				require.NoError(t, err)
				require.True(t, r.Rebuilt)
				require.Equal(t, whole, contents(t, filepath.Dir(s.path)))
			})
		}
	}
}

// Parts of two archives are not mixed into something new.
func TestPartsThatDoNotBelongTogetherAreNotRebuilt(t *testing.T) {
	o := Options{VolumeSize: 30_000, Recovery: 1}
	path := inParts(t, bundles.New(t, bundles.Options{Seed: 64}), o)
	l, err := readParts(path)
	require.NoError(t, err)
	l.Sums[1] = parts.Sum{} // a list that lies
	require.NoError(t, os.WriteFile(path, l.Text(), 0o600))
	_, err = Repair(t.Context(), path)
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
	require.Contains(t, err.Error(), "do not belong together")
	require.NoFileExists(t, filepath.Join(filepath.Dir(path), "b.tar.002.rebuilt"))
}

// Memory does not grow with the parts.
func TestSplittingAndRebuildingHoldLittleInMemory(t *testing.T) {
	size := tier.Pick[int64](160<<20, 300<<20)
	b := bundles.New(t, bundles.Options{Seed: 74, LayerSize: 1000, Layers: 1})
	zero := sha256.New()
	_, err := io.Copy(zero, io.LimitReader(zeros{}, size))
	require.NoError(t, err)
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip,
		Digest: digest.Digest(fmt.Sprintf("sha256:%x", zero.Sum(nil))), Size: size}
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
	r, err := Repair(context.WithoutCancel(t.Context()), path+parts.Suffix)
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
		s := stores["parts"]
		s.path = filepath.Join(t.TempDir(), "b.tar")
		require.NoError(t, os.WriteFile(s.path+name, []byte("mine"), 0o600))
		_, err := s.begin(t, b)
		require.Equal(t, fault.Conflict, fault.ReasonOf(err))
		require.Contains(t, err.Error(), s.path+name)
		require.Equal(t, "mine", string(read(t, s.path+name)))
		require.NoError(t, s.replacing().pull(t, b))
		s.verify(t)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
