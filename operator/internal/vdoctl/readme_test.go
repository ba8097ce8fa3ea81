package vdoctl_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/readme"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// Each command of the page is one of the program, with flags that it has. The first steps
// are typed as they are up to the one that needs a bundle, but for the vCenter's address.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pw"), []byte(vcsim.Admin.Password+"\n"), 0o600))
	bash := func(text string) (string, int) {
		cmd := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-ec", text)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "KUBECONFIG="+s.conf)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return string(out), exit.ExitCode()
		}
		require.NoError(t, err, text)
		return string(out), 0
	}
	yours := strings.NewReplacer("vc.site.example", east.Host+" --port "+portOf(east)+" --thumbprint "+east.SHA256, "/site/prod", "/site/prod/east")
	blocks, err := readme.Blocks("../../docs/vdoctl.md", "vdoctl")
	require.NoError(t, err)
	typed := 0
	for _, b := range blocks {
		for _, c := range b.Commands {
			if strings.HasPrefix(c.Text, "vdoctl ") {
				out, code := bash(c.Text + " --help")
				require.Zero(t, code, "%s\n%s", c, out)
			}
			needsBundle := strings.HasPrefix(c.Text, "vdoctl deploy") ||
				strings.HasPrefix(c.Text, "vdoctl configure --from-file") || strings.HasPrefix(c.Text, "vdoctl status") ||
				strings.HasPrefix(c.Text, "vdoctl describe")
			if b.Section != "First steps" || needsBundle {
				continue
			}
			out, code := bash(yours.Replace(c.Text))
			if strings.HasPrefix(c.Text, "vdoctl check") { // whether something blocks is a matter of the nodes
				require.Contains(t, out, "Verdict: ")
				require.Contains(t, []int{0, 8}, code)
			} else {
				require.Zero(t, code, "%s\n%s", c, out)
			}
			typed++
		}
	}
	require.Equal(t, 4, typed)
	require.Contains(t, readFile(t, filepath.Join(dir, "site.yaml")), "reference: registry.site/vdo/drivers:1")
	require.Contains(t, readFile(t, filepath.Join(dir, "roles.sh")), "govc role.create ")
}
