package cli_test

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// What output is written to stays what it is: a device or a pipe is no name to give
// to a file, and a link goes on leading where it led.
func TestOutputsAreNotReplacedByFilesOfAnotherKind(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.must(t, "pull", "@up", "-q", "-o", "a.tar")
	for _, c := range []struct {
		name string
		args []string
	}{
		{"sbom", []string{"sbom", "a.tar", "--type", "spdx"}},
		{"inspect", []string{"inspect", "a.tar", "--format", "html"}},
		{"lock", []string{"lock", "@up", "-q"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.must(t, append(c.args, "-o", "want."+c.name)...)
			written := w.read(t, "want."+c.name)

			pipe := filepath.Join(w.dir, "pipe."+c.name)
			require.NoError(t, syscall.Mkfifo(pipe, 0o600))
			got := make(chan []byte, 1)
			go func() {
				f, err := os.Open(pipe)
				if err != nil {
					got <- nil
					return
				}
				data, _ := io.ReadAll(f)
				_ = f.Close()
				got <- data
			}()
			w.must(t, append(c.args, "-o", pipe)...)
			require.Equal(t, written, <-got)
			info, err := os.Lstat(pipe)
			require.NoError(t, err)
			require.Equal(t, os.ModeNamedPipe, info.Mode().Type())

			link, behind := filepath.Join(w.dir, "link."+c.name), "behind."+c.name
			w.write(t, behind, append(slices.Clone(written), "older\n"...))
			require.NoError(t, os.Symlink(behind, link))
			w.must(t, append(c.args, "-o", link)...)
			info, err = os.Lstat(link)
			require.NoError(t, err)
			require.Equal(t, os.ModeSymlink, info.Mode().Type())
			require.Equal(t, written, w.read(t, behind))
		})
	}
}
