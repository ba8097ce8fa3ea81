package cli

import (
	"io"
	"slices"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// Every command that can name a file to write has a rule of what it may replace.
func TestEveryOutputHasARule(t *testing.T) {
	// They look themselves: the pair is never replaced, files below a folder are looked at
	// one by one, parts want --replace, and so does a bundle.
	own := []string{"keygen", "mirror-config", "split", "pull"}
	found := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, name := range outputNames {
			if cmd.Flags().Lookup(name) == nil {
				continue
			}
			found++
			_, ok := written(cmd)
			require.Equal(t, !slices.Contains(own, cmd.Name()), ok, cmd.CommandPath())
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk((&app{out: io.Discard, err: io.Discard}).root())
	require.Greater(t, found, 8)
}
