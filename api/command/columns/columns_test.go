package columns

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLinesAreBrokenAtBlanks(t *testing.T) {
	for _, c := range []struct {
		text        string
		width, hang int
		want        string
	}{
		{"short", 10, 2, "short"},
		{"one two three", 0, 2, "one two three"},
		{"one two three", 9, 2, "one two\n  three"},
		{"  one two three", 9, 2, "  one two\n    three"},
		{"a  b  c  dddd", 9, 4, "a  b  c\n    dddd"},
		{"to sha256:0123456789 and on", 12, 2, "to\n  sha256:0123456789\n  and on"},
		{"\x1b[1mone\x1b[0m two\nthree", 7, 2, "\x1b[1mone\x1b[0m two\nthree"},
		{"sha256:0123456789", 5, 2, "sha256:0123456789"},
		{"see `vdoctl upgrade list`; then go on", 16, 2, "see\n  `vdoctl upgrade list`;\n  then go on"},
		{"one ` is no command", 10, 2, "one ` is\n  no\n  command"},
	} {
		require.Equal(t, c.want, Fold(c.text, c.width, c.hang), "%q", c.text)
	}
	require.Equal(t, "do  one\n    two", Hanging("do  ", "    ", "one two", 8))
}

// Broken by hand or not, a text reads the same; lists keep their columns.
func TestTextIsLaidOutAnew(t *testing.T) {
	text := "One sentence, that goes on\nhere. Another.\n\nThe list:\n  Pass  nothing is to be done\n  Warn  something will not\n        work\n\nLast."
	require.Equal(t, "One sentence, that\ngoes on here.\nAnother.\n\nThe list:\n  Pass  nothing is to\n        be done\n  Warn  something\n        will not work\n\nLast.", Reflow(text, 21))
	require.Equal(t, "One sentence, that goes on here. Another.\n\nThe list:\n  Pass  nothing is to be done\n  Warn  something will not work\n\nLast.", Reflow(text, 80))
}

func TestExamplesStayAsTheyAre(t *testing.T) {
	text := "A file:\n\n  kind: Policy\n  keys:\n    - id: one      # of the release engineers, who sign\n      file: one.pub"
	require.Equal(t, text, Reflow(text, 30))
}

type wide struct{ bytes.Buffer }

func (*wide) Columns() int { return 120 }

func TestOnlyTerminalsHaveColumns(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	require.Zero(t, Of(file))
	require.Zero(t, Of(&bytes.Buffer{}))
	require.Equal(t, 120, Of(&wide{}))
	require.Equal(t, 100, Prose(&wide{}))
	require.Equal(t, 80, Prose(file))
}

func FuzzFoldLosesNothing(f *testing.F) {
	f.Add("  one two  three\nfour", 5, 2)
	f.Fuzz(func(t *testing.T, s string, width, hang int) {
		if width < 0 || width > 200 || hang < 0 || hang > 20 || strings.ContainsAny(s, "\x1b\t\r\v\f\u0085\u00a0") {
			return
		}
		require.Equal(t, strings.Fields(s), strings.Fields(Fold(s, width, hang)))
	})
}
