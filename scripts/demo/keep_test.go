package main

import (
	"fmt"
	"iter"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// says is what has to be in the output of what a kept demo prints to be pasted, by how the
// command begins, and exits how it ends where that is not with 0: the operator runs beside
// the cluster, which vdoctl status says.
var (
	says = map[string]string{
		"vdoctl status":                "one runs beside the cluster: ",
		"vdoctl plan":                  "nothing would hold it back",
		"vdoctl check":                 "Verdict: ",
		"vdoctl users rotate":          "drivers@vsphere.local",
		"vdoctl users verify":          "has what the drivers need, and no more than that",
		"vdo-bundle verify":            "signed by  vdo.pub",
		"vdo-bundle lock":              "wrote lock4.yaml",
		"vdo-bundle pull":              "drivers4.tar",
		"vdo-bundle push":              "/vdo/drivers@sha256:",
		"kubectl apply -f tenant.yaml": "sipcluster.airship.airshipit.org/tenant-1 created",
	}
	exits = map[string]int{"vdoctl status": notReady}
)

// errands are what the demo printed to be pasted into another terminal, by title and in order.
func (r *demoRun) errands() iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		for _, section := range strings.Split(r.output(), "\n== ")[1:] {
			title, is := strings.CutPrefix(section, "To paste into another terminal: ")
			if !is {
				continue
			}
			lines := strings.Split(strings.TrimSpace(title), "\n")
			if !yield(lines[0], lines[1:]) {
				return
			}
		}
	}
}

// typed pastes lines into a shell that knows nothing of the demo, and holds that each of them
// does what it is for, and leaves nothing in the home of who types.
func typed(t *testing.T, lines []string) {
	var in strings.Builder
	for i, line := range lines {
		fmt.Fprintf(&in, "%s\necho \"<$? of %d>\"\n", line, i)
	}
	home := t.TempDir()
	sh := exec.CommandContext(t.Context(), "/bin/sh")
	sh.Dir, sh.Env = home, []string{"HOME=" + home, "PATH=/usr/bin:/bin"}
	sh.Stdin = strings.NewReader(in.String())
	out, err := sh.CombinedOutput()
	require.NoError(t, err, string(out))
	rest := string(out)
	for i, line := range lines {
		before, after, found := strings.Cut(rest, fmt.Sprintf(" of %d>\n", i))
		require.True(t, found, "%s was not run; all that came:\n%s", line, out)
		at := strings.LastIndex(before, "<")
		require.GreaterOrEqual(t, at, 0, string(out))
		said, code := before[:at], before[at+1:]
		for begin, text := range says {
			if strings.HasPrefix(line, begin) {
				require.Contains(t, said, text, line)
			}
		}
		require.Equal(t, fmt.Sprint(exits[line]), code, "%s\n%s", line, said)
		rest = after
	}
	left, err := os.ReadDir(home)
	require.NoError(t, err)
	require.Empty(t, left)
}
