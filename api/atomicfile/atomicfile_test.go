package atomicfile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/atomicfile"
)

func folder(t *testing.T) (string, *atomicfile.Folder) {
	dir := t.TempDir()
	d, err := atomicfile.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return dir, d
}

func read(t *testing.T, parts ...string) string {
	data, err := os.ReadFile(filepath.Join(parts...))
	require.NoError(t, err)
	return string(data)
}

func names(t *testing.T, dir string) (out []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// A link under the name is replaced, and what it leads to stays as it is; a name or a
// folder that leads out of the root is refused.
func TestNothingIsWrittenThroughALinkOrOutside(t *testing.T) {
	dir, d := folder(t)
	outside := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(outside, []byte("other"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "a")))
	require.NoError(t, os.Symlink(filepath.Dir(outside), filepath.Join(dir, "out")))
	require.ErrorIs(t, d.New("a", []byte("x"), 0o644), fs.ErrExist)
	require.Equal(t, "other", read(t, outside))
	require.NoError(t, d.Replace("a", []byte("x"), 0o644))
	require.Equal(t, "other", read(t, outside))
	require.Equal(t, "x", read(t, dir, "a"))
	for _, name := range []string{"out/other", "../b"} {
		require.Error(t, d.Replace(name, []byte("x"), 0o644), name)
		require.Error(t, d.New(name, []byte("x"), 0o644), name)
	}
	require.Equal(t, "other", read(t, outside))
	require.Equal(t, []string{"other"}, names(t, filepath.Dir(outside)))
}

func TestANewFileReplacesNothing(t *testing.T) {
	dir, d := folder(t)
	require.NoError(t, d.New("a", []byte("first"), 0o640))
	require.ErrorIs(t, d.New("a", []byte("second"), 0o640), fs.ErrExist)
	require.Equal(t, "first", read(t, dir, "a"))
	require.Equal(t, []string{"a"}, names(t, dir))
	long := strings.Repeat("ä", 127) // as long as a name may be
	require.NoError(t, d.New(long, nil, 0o640))
	require.NoError(t, d.Replace(long, []byte("y"), 0o600))
}

func TestAFailureLeavesTheOldFileAndNoTemporaryOne(t *testing.T) {
	dir, d := folder(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "a"), 0o755)) // a rename onto it fails
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a", "in"), nil, 0o600))
	require.Error(t, d.Replace("a", []byte("x"), 0o644))
	require.Equal(t, []string{"a"}, names(t, dir))
}

func TestAPipeIsNoFolder(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err := atomicfile.Open(pipe)
	require.ErrorIs(t, err, syscall.ENOTDIR)
}
