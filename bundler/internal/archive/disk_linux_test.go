package archive

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// smallDisk mounts a file system of so many bytes, which only root can.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("mounting a small disk needs root: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

func TestADiskThatIsTooSmallIsRefusedBeforeTheFirstByte(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 40, LayerSize: 500_000, Layers: 1})
	dir := smallDisk(t, "size=1m")
	_, err := store{path: filepath.Join(dir, "b.tar")}.begin(t, b)
	require.Equal(t, fault.Storage, fault.ReasonOf(err))
	require.ErrorIs(t, err, syscall.ENOSPC)
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = store{path: filepath.Join(dir, "b"), dir: true}.begin(t, b)
	require.Equal(t, fault.Storage, fault.ReasonOf(err))

	s := store{path: filepath.Join(smallDisk(t, "size=8m"), "b"), dir: true}
	missing, err := s.begin(t, b)
	require.NoError(t, err)
	free, _ := freeSpace(s.path)
	require.NoError(t, os.WriteFile(filepath.Join(s.path, halfName(missing[0])), make([]byte, free), 0o600))
	require.NoError(t, s.pull(t, b), "half a blob of a killed run takes no space")
}

func TestADiskThatFillsUpOnTheWayLeavesWhatCanGoOn(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 41, LayerSize: 500_000, Layers: 1})
	dir := smallDisk(t, "size=8m")
	path, filler := filepath.Join(dir, "b.tar"), filepath.Join(dir, "filler")
	w, err := CreateFile(path, Options{})
	require.NoError(t, err)
	missing, err := w.Begin(t.Context(), b.Graph)
	require.NoError(t, err)
	free, ok := freeSpace(dir)
	require.True(t, ok)
	require.NoError(t, os.WriteFile(filler, make([]byte, free-700_000), 0o600))
	for _, d := range missing {
		if err = w.Put(t.Context(), d, b.Store.Opener(t.Context(), d)); err != nil {
			break
		}
	}
	require.Equal(t, fault.Storage, fault.ReasonOf(err))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Contains(t, fault.HintOf(err), "free space")
	_ = w.Close() // the journal may find no room for its last words; what it says is right
	require.NoFileExists(t, path)
	require.NoError(t, os.Remove(filler))

	require.NoError(t, store{path: path}.pull(t, b))
	require.NoError(t, verifyPath(t.Context(), path))
	f := opened(t, path)
	free, _ = freeSpace(dir)
	require.NoError(t, os.WriteFile(filler, make([]byte, free), 0o600))
	require.Equal(t, fault.Storage, fault.ReasonOf(f.Attach(t.Context(), bundles.Signature(t, rootOf(b), 1))))
	require.NoError(t, verifyPath(t.Context(), path), "signing that failed leaves the archive as it was")
}

// The list of the parts is written last, and finds no room then.
func TestADiskThatFillsUpAtAnyStepLeavesWhatCanGoOn(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 43})
	src, dir := written(t, b), smallDisk(t, "size=8m")
	s := store{path: filepath.Join(dir, "b.tar"), o: Options{VolumeSize: 60_000}}
	filler := filepath.Join(dir, "filler")
	for free := int64(len(read(t, src))); ; free += 4096 {
		all, _ := freeSpace(dir)
		require.NoError(t, os.WriteFile(filler, make([]byte, all-free), 0o600))
		if _, err := Split(t.Context(), src, s.path, s.o); err == nil {
			break
		}
		require.Equal(t, []string{"filler"}, names(t, dir))
		require.ErrorIs(t, s.pull(t, b), syscall.ENOSPC)
		require.NoError(t, os.Remove(filler))
		require.NoError(t, s.pull(t, b))
		for _, name := range names(t, dir) {
			require.NoError(t, os.Remove(filepath.Join(dir, name)))
		}
	}
}

func TestReadOnlyTargetsAreStorageFaults(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 42})
	dir := smallDisk(t, "size=8m")
	s := store{path: filepath.Join(dir, "b.tar")}
	require.NoError(t, s.pull(t, b))
	require.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	err := s.open(t).Attach(t.Context(), bundles.Signature(t, rootOf(b), 1))
	require.Equal(t, fault.Storage, fault.ReasonOf(err))
	require.ErrorIs(t, err, syscall.EROFS)
	require.Contains(t, fault.HintOf(err), "read-only")
	for _, s := range []store{{path: filepath.Join(dir, "c.tar")}, {path: filepath.Join(dir, "c"), dir: true}} {
		_, err := s.begin(t, b)
		require.ErrorIs(t, err, syscall.EROFS)
	}
}

func TestSpaceIsCountedInTheBlocksOfTheFileSystem(t *testing.T) {
	require.Equal(t, int64(10*4096), available(unix.Statfs_t{Bavail: 10, Bsize: 1 << 20, Frsize: 4096}), "FUSE")
}
