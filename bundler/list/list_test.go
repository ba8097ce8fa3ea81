package list

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTagsAreOrderedWithTheirNumbersAsNumbers(t *testing.T) {
	want := []string{"", "1.9", "1.10", "1.10.1", "2", "010", "a1", "v9", "v10", "v10-rc1"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, compareNatural)
	require.Equal(t, want, got)
}

func FuzzCompareNatural(f *testing.F) {
	f.Add("v9", "v10", "v010")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		require.Equal(t, compareNatural(a, b), -compareNatural(b, a))
		require.Equal(t, a == b, compareNatural(a, b) == 0)
		if compareNatural(a, b) <= 0 && compareNatural(b, c) <= 0 {
			require.LessOrEqual(t, compareNatural(a, c), 0)
		}
	})
}

func TestTagsOfAttachmentsAreNoBundles(t *testing.T) {
	hex := strings.Repeat("a", 64)
	for tag, want := range map[string]bool{
		"sha256-" + hex: true, "sha256-" + hex + ".sig": true, "sha256-" + hex + ".att": true, "sha256-" + hex + ".sbom": true, "sha256-" + hex + ".confirmed": true,
		"sha256-" + hex + ".other": false, "sha256-" + hex + "0": false, "sha256-abc.sig": false, "v1": false, "": false,
	} {
		require.Equal(t, want, IsAttachmentTag(tag), tag)
	}
}
