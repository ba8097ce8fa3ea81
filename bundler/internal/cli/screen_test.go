package cli_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A terminal is no narrower than what is shown there, but for digests and the like, which are
// copied: the tables of inspect are laid out before any of them is written.
func TestInspectFitsTheTerminal(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.must(t, "pull", "@up", "-q", "--release", "csi@3.5.1", "--release", "cpi@1.34.0", "-o", "a.tar")
	const wide = 60
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	defer func() { _ = terminal.Close() }()
	require.NoError(t, unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetUint32(int(terminal.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: wide}))
	end, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	cmd, _, stderr := w.command(t.Context(), "inspect", "a.tar")
	cmd.Stdout = end
	require.NoError(t, cmd.Start())
	require.NoError(t, end.Close())
	var shown bytes.Buffer
	_, err = io.Copy(&shown, terminal)
	require.ErrorIs(t, err, syscall.EIO, "nobody has the other side open any more")
	require.NoError(t, cmd.Wait(), stderr.String())
	require.Contains(t, shown.String(), "csi@3.5.1")
	for line := range strings.SplitSeq(strings.ReplaceAll(shown.String(), "\r\n", "\n"), "\n") {
		if len(strings.Fields(line)) > 2 { // else one of two words is a digest or a reference
			require.LessOrEqual(t, len([]rune(line)), wide, shown.String())
		}
	}
}
