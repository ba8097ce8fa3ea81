package vdoctl_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// onTerminal runs a program to its end on a terminal that is so many columns wide, 0 for one
// that does not know, and that answers nothing. It returns what was written to it.
func onTerminal(t *testing.T, columns uint16, env []string, args ...string) (string, int) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	defer func() { _ = master.Close() }()
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: columns}))
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm-256color"), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, slave.Close())
	var out bytes.Buffer
	_, err = io.Copy(&out, master) // ends with EIO once nobody has the other side open
	require.ErrorIs(t, err, syscall.EIO)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		require.NoError(t, err)
		return strings.ReplaceAll(out.String(), "\r\n", "\n"), 0
	}
	return strings.ReplaceAll(out.String(), "\r\n", "\n"), exit.ExitCode()
}

// A terminal is asked nothing of itself: one that does not answer would hold up every command.
func TestTerminalIsNotAskedForItsColours(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"vdoctl", "version", "--client"}, {"vdoctl", "configure", "--help"}} {
		out, code := onTerminal(t, 80, nil, args...)
		require.Zero(t, code, out)
		require.NotContains(t, out, "\x1b", args)
	}
}
