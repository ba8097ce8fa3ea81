package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/sigstore"
)

// typed runs the program with something on standard input.
func (w *world) typed(t *testing.T, input string, args ...string) (output string, err error) {
	t.Helper()
	cmd, stdout, stderr := w.command(t.Context(), args...)
	cmd.Stdin = strings.NewReader(input)
	err = cmd.Run()
	return stdout.String() + stderr.String(), err
}

// Behind the gap there is nothing to read but the help: the trust policy that it shows is
// one, with everything that it names.
func TestTheHelpShowsAWholeTrustPolicy(t *testing.T) {
	help := must(exec.CommandContext(t.Context(), binary, "verify", "--help").Output())(t)
	var policy []string
	for _, text := range strings.Split(string(help), "\n") {
		if strings.HasPrefix(text, "  apiVersion:") || policy != nil && strings.HasPrefix(text, "  ") {
			policy = append(policy, strings.TrimPrefix(text, "  "))
		} else if policy != nil {
			break
		}
	}
	dir := t.TempDir()
	root, signer := pki.Root(t, "corp"), pki.Root(t, "release")
	for name, data := range map[string][]byte{
		"release.pub": signer.PublicPEM(), "corp-root.crt": root.PEM(), "tsa-root.crt": root.PEM(),
		"trusted_root.json": sigstore.New(t).Root,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	p, err := trust.ParsePolicy("the policy of the help", []byte(strings.Join(policy, "\n")), func(path string) ([]byte, error) {
		return os.ReadFile(filepath.Join(dir, path))
	})
	require.NoError(t, err)
	require.NotNil(t, p)
}
