package shell_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

// What is echoed is read as it would be on a terminal: progress comes before the result that
// it is of, though they are two streams.
func TestBothStreamsAreEchoedInTheOrderInWhichTheyAreWritten(t *testing.T) {
	var seen bytes.Buffer
	s := shell.Shell{Dir: t.TempDir(), Echo: func(string) io.Writer { return &seen }}
	script := strings.Repeat("echo progress >&2; echo result; ", 200)
	_, err := s.Run(t.Context(), "sh", "-c", script)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("progress\nresult\n", 200), seen.String())

	_, err = s.Run(t.Context(), "sh", "-c", "echo why >&2; exit 3")
	var exit *shell.Exit
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 3, exit.Code)
	require.Contains(t, exit.Stderr, "why")
}
