package vdoctl_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// The real kubectl finds the program by its name in the PATH, hands its arguments on, and ends
// with its exit code.
func TestKubectlCallsItAsAPlugin(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	kubectl := toolchain.Path(t, "kubectl")
	plugin, err := exec.LookPath("kubectl-vdo")
	require.NoError(t, err)
	run := func(args ...string) (string, int) {
		cmd := exec.CommandContext(t.Context(), kubectl, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+s.conf, "PATH="+filepath.Dir(plugin)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			require.NoError(t, err, string(out))
			return string(out), 0
		}
		return string(out), exit.ExitCode()
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"plugin", "list"}, 0, plugin},
		{[]string{"vdo"}, 0, "\n  kubectl vdo COMMAND\n"},
		{[]string{"vdo", "status", "--help"}, 0, "\n  kubectl vdo status [flags]\n"},
		{[]string{"vdo", "version", "-n", s.ns}, 0, "vdo-operator  not installed"},
		{[]string{"vdo", "status", "-n", s.ns}, 8, "there is none in namespace " + s.ns},
		{[]string{"vdo", "upgrade", "list", "-n", s.ns, "-o", "json"}, 4, `"exitCode": 4`},
		{[]string{"vdo", "statsu"}, 2, "did you mean status?\nhint: see `kubectl vdo --help`"},
	} {
		out, code := run(c.args...)
		require.Equal(t, c.code, code, "%v\n%s", c.args, out)
		require.Contains(t, out, c.want)
	}
}
