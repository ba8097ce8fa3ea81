package baseline

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListOnlyShrinks(t *testing.T) {
	const before = "a\tlong\t2\nb\tlong\t1\n"
	for name, c := range map[string]struct {
		found    Found
		problems []string // the start of each
		after    string
		refused  []string
	}{
		"same": {found: Found{"a\tlong": {"1", "2"}, "b\tlong": {"3"}}, after: before},
		"fewer": {
			found:    Found{"a\tlong": {"1"}},
			problems: []string{"a\tlong: 1 findings, 2 listed\nb\tlong: 0 findings, 1 listed\nlower the numbers: update"},
			after:    "a\tlong\t1\n",
		},
		"more": {
			found:    Found{"a\tlong": {"1", "2", "x.go:7"}},
			problems: []string{"a\tlong: 3 findings, at most 2 allowed; fix the new ones:\n1\n2\nx.go:7", "b\tlong: 0"},
			after:    "a\tlong\t2\n", refused: []string{"a\tlong"},
		},
		"renamed": {
			found:    Found{"c\tlong": {"1", "2"}, "b\tlong": {"3"}},
			problems: []string{"c\tlong: 2 findings, at most 0", "a\tlong: 0"},
			after:    "b\tlong\t1\nc\tlong\t2\n",
		},
		"renamed and grown": {
			found:    Found{"c\tlong": {"1", "2", "4"}, "b\tlong": {"3"}},
			problems: []string{"c\tlong: 3 findings, at most 0", "a\tlong: 0"},
			after:    "b\tlong\t1\n", refused: []string{"c\tlong"},
		},
		"another rule": {
			found:    Found{"a\tlong": {"1", "2"}, "a\tbanned": {"3"}},
			problems: []string{"a\tbanned: 1 findings, at most 0", "b\tlong: 0"},
			after:    "a\tlong\t2\n", refused: []string{"a\tbanned"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			listed, err := parse(before)
			require.NoError(t, err)
			problems := compare(listed, c.found, "update")
			require.Len(t, problems, len(c.problems), problems)
			for i, start := range c.problems {
				require.True(t, strings.HasPrefix(problems[i], start), "got %q, want %q", problems[i], start)
			}
			after, refused := rewrite(listed, c.found, false)
			require.Equal(t, c.after, format(after))
			require.Equal(t, c.refused, refused)
		})
	}
}

func TestListStartsWithWhatIsFound(t *testing.T) {
	list, refused := rewrite(nil, Found{"a": {"1"}}, true)
	require.Equal(t, "a\t1\n", format(list))
	require.Empty(t, refused)
}

func TestMalformedList(t *testing.T) {
	for _, text := range []string{"a\n", "a\t\n", "a\tmany\n", "\t1\n", "a\t0\n"} {
		_, err := parse(text)
		require.Error(t, err, "%q", text)
	}
}
