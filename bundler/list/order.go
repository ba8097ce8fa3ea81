package list

import (
	"cmp"
	"slices"
	"strings"
)

// NewestFirst orders bundles as [Listing] has them.
func NewestFirst(a, b Bundle) int {
	return cmp.Or(
		compareMatrix(b, a), b.Pushed.Compare(a.Pushed), compareNatural(highest(b.Tags), highest(a.Tags)),
		cmp.Compare(a.Root.String(), b.Root.String()),
	)
}

// compareMatrix compares by what the matrix says.
func compareMatrix(a, b Bundle) int {
	return cmp.Or(cmp.Compare(a.Serial, b.Serial), a.Issued.Compare(b.Issued))
}

// ShownNewer tells whether what the registry shows says that a is newer than b, and
// nothing says otherwise. A tag's name shows nothing: it may have been moved today, and
// to an older matrix.
func ShownNewer(a, b Bundle) bool {
	m := compareMatrix(a, b)
	switch {
	case b.Pushed.IsZero():
		return m > 0
	case a.Pushed.IsZero():
		return m > 0 && a.Issued.After(b.Pushed)
	}
	p := a.Pushed.Compare(b.Pushed)
	return m >= 0 && p >= 0 && (m > 0 || p > 0)
}

func highest(tags []string) string {
	if len(tags) == 0 {
		return ""
	}
	return slices.MaxFunc(tags, compareNatural)
}

// compareNatural compares texts with the numbers in them as numbers: v9 before v10.
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		x, restA := cutRun(a)
		y, restB := cutRun(b)
		if c := compareRuns(x, y); c != 0 {
			return c
		}
		a, b = restA, restB
	}
	return cmp.Compare(len(a), len(b))
}

// cutRun cuts a run of digits, or of anything else, off the front.
func cutRun(s string) (run, rest string) {
	digit := isDigit(s[0])
	i := 1
	for i < len(s) && isDigit(s[i]) == digit {
		i++
	}
	return s[:i], s[i:]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func compareRuns(a, b string) int {
	if isDigit(a[0]) && isDigit(b[0]) {
		x, y := strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
		return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y), cmp.Compare(len(a), len(b)))
	}
	return cmp.Compare(a, b)
}
