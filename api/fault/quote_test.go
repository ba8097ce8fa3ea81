package fault_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

func TestQuotedWordsAreWhatAShellTakesBack(t *testing.T) {
	for word, want := range map[string]string{
		"drivers.tar": "drivers.tar", "": "''", "a b": "'a b'", "x$(id).tar.parts": "'x$(id).tar.parts'", "it's": `'it'\''s'`,
		"`id`;&|<>*?~!{}[]#\\\"": "'`id`;&|<>*?~!{}[]#\\\"'", "line\nend\x1b[2J'": `$'line\012end\033[2J\''`, "größe.tar": "größe.tar",
		"registry.site:5000/vdo/drivers@sha256:ab": "registry.site:5000/vdo/drivers@sha256:ab",
	} {
		require.Equal(t, want, fault.Quote(word))
		out, err := exec.CommandContext(t.Context(), "bash", "-c", "printf %s "+fault.Quote(word)).Output() //nolint:gosec // that is the test
		require.NoError(t, err)
		require.Equal(t, word, string(out))
	}
	require.Equal(t, "repair 'a b'", fault.Quote("repair", "a b"))
}
