package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/help"
)

func TestHelpOfEveryCommandFitsATerminal(t *testing.T) {
	require.Greater(t, help.Fits(t, (&app{}).root()), 25)
	help.Page(t, (&app{}).root(), "../../docs/reference.md")
}
