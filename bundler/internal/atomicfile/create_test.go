package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func open(t *testing.T) (string, *os.Root) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return dir, root
}

// only returns the one file of a folder.
func only(t *testing.T, dir string) (name, text string, mode fs.FileMode) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file stays")
	info, err := entries[0].Info()
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(dir, info.Name()))
	require.NoError(t, err)
	return info.Name(), string(data), info.Mode()
}

// At no time is a part of a new file under its name: whenever the process is killed, the
// name has the whole file or none.
func TestANewFileIsNeverSeenInPart(t *testing.T) {
	dir, root := open(t)
	data := make([]byte, 16<<20)
	var ended atomic.Bool
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for !ended.Load() {
			if info, err := os.Stat(filepath.Join(dir, "key")); err == nil && info.Size() != int64(len(data)) {
				t.Errorf("%d of %d bytes are under the name", info.Size(), len(data))
				return
			}
		}
	})
	for range 3 {
		require.NoError(t, Create(root, "key", data, 0o640))
		name, text, mode := only(t, dir)
		require.Equal(t, "key", name)
		require.Len(t, text, len(data))
		require.Equal(t, fs.FileMode(0o640), mode)
		require.NoError(t, root.Remove("key"))
	}
	ended.Store(true)
	watcher.Wait()
}

// Of several that create the same name one does, and the others say so.
func TestOneOfSeveralCreates(t *testing.T) {
	dir, root := open(t)
	var made atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			switch err := Create(root, "a", []byte("x"), 0o600); {
			case err == nil:
				made.Add(1)
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Equal(t, int32(1), made.Load())
	only(t, dir)
}

// Where the file system has no links a file is made under its name, and never over
// another one; any other error of the link is told.
func TestCreateWithoutLinks(t *testing.T) {
	for _, reason := range []error{syscall.EPERM, syscall.ENOTSUP, syscall.EOPNOTSUPP, syscall.ENOSYS} {
		dir, root := open(t)
		unsupported := func(from, to string) error { return &os.LinkError{Op: "linkat", Old: from, New: to, Err: reason} }
		require.NoError(t, create(root, "a", []byte("first"), 0o640, unsupported), reason)
		require.ErrorIs(t, create(root, "a", []byte("second"), 0o600, unsupported), fs.ErrExist, reason)
		name, text, mode := only(t, dir)
		require.Equal(t, []any{"a", "first", fs.FileMode(0o640)}, []any{name, text, mode}, reason)
	}
	dir, root := open(t)
	full := func(from, to string) error {
		return &os.LinkError{Op: "linkat", Old: from, New: to, Err: syscall.ENOSPC}
	}
	require.ErrorIs(t, create(root, "a", []byte("x"), 0o600, full), syscall.ENOSPC)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// A name may be as long as the file system takes it.
func TestTheLongestNames(t *testing.T) {
	dir, root := open(t)
	long := strings.Repeat("ä", 127)
	require.NoError(t, Create(root, long, []byte("x"), 0o600))
	require.NoError(t, Replace(root, long, []byte("y"), 0o600))
	name, text, _ := only(t, dir)
	require.Equal(t, []string{long, "y"}, []string{name, text})
}

func TestAFileThatCannotBeWrittenIsRemoved(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	f, err := root.Create("closed")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Error(t, finish(root, temp{File: f, Name: "closed", Mode: 0o644}, "b", []byte("x")))
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, list)
}
