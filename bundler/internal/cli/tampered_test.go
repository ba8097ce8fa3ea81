package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// Bytes that are not what their digest says are exit code 3 wherever they go to, also
// among items that failed for the network: a loop that tries 9 and 5 again ends.
func TestTamperedBytesAreTheSameExitCodeEverywhere(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.must(t, "lock", "@up", "-q", "-o", "lock.yaml")
	w.must(t, "pull", "@up", "-q", "--lock", "lock.yaml", "-o", "oci:damaged")
	blobs, err := filepath.Glob(filepath.Join(w.dir, "damaged/blobs/sha256/*"))
	require.NoError(t, err)
	largest, size := "", int64(0)
	for _, name := range blobs {
		info, err := os.Stat(name)
		require.NoError(t, err)
		if info.Size() > size {
			largest, size = name, info.Size()
		}
	}
	data, err := os.ReadFile(largest)
	require.NoError(t, err)
	data[len(data)/2] ^= 1
	require.NoError(t, os.WriteFile(largest, data, 0o600)) //nolint:gosec // a name of the test's own folder

	mirror := w.mirror.Host + "/vdo/drivers:"
	pull := []string{"pull", "@up", "-q", "--lock", "lock.yaml", "--ca-file", "ca.crt", "--retries", "0", "-o"}
	for n, args := range [][]string{
		append(pull[:len(pull):len(pull)], "-"),
		append(pull[:len(pull):len(pull)], "a.tar"),
		append(pull[:len(pull):len(pull)], "b.tar", "--volume-size", "300kB"),
		append(pull[:len(pull):len(pull)], "oci:c"),
		append(pull[:len(pull):len(pull)], mirror+"1"),
		{"push", "oci:damaged", mirror + "2", "--ca-file", "ca.crt", "-q"},
		{"verify", "oci:damaged", "--key", "k.pub", "-q"},
	} {
		w.key(t, "k")
		w.upstream.Heal()
		w.upstream.Fail(registry.Fault{Match: registry.Match{Method: "GET", Path: "/x/csi/driver/blobs/"}, Tamper: true, TamperAt: 5})
		if n > 0 { // to standard output the first fault is the last
			w.upstream.Fail(registry.Fault{Match: registry.Match{Method: "GET", Path: "/x/cloud/ccm/blobs/"}, Status: 503})
		}
		for range 2 { // a second run meets the same
			cmd, _, stderr := w.command(t.Context(), args...)
			_ = cmd.Run() // the code says it
			require.Equal(t, 3, cmd.ProcessState.ExitCode(), fmt.Sprint(args, stderr))
		}
	}
}
