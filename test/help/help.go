// Package help checks that the help of a program's commands fits a terminal.
package help

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
)

// Fits requires that the help of a command and of all below it, hidden ones included, fits a terminal of 80 columns.
// Examples may be wider, since people copy them. It returns the number of commands.
func Fits(t *testing.T, cmd *cobra.Command) int {
	t.Helper()
	var out bytes.Buffer
	cmd.SetOut(&out)
	require.NoError(t, cmd.Help())
	TextFits(t, cmd.CommandPath(), strings.Replace(out.String(), cmd.Example, "", 1))
	n := 1
	for _, c := range cmd.Commands() {
		if c.Name() != "completion" { // cobra's text
			n += Fits(t, c)
		}
	}
	return n
}

// TextFits checks one help text like Fits.
func TextFits(t *testing.T, of, text string) {
	t.Helper()
	require.NotEmpty(t, text, of)
	for line := range bytes.Lines([]byte(text)) {
		line = bytes.TrimRight(line, "\n")
		require.LessOrEqual(t, columns.Width(string(line)), columns.Default, "%s --help: %s", of, line)
		require.NotContains(t, string(line), "\t", "%s --help", of)
	}
}
