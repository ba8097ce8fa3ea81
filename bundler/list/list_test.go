package list

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTagsOfAttachmentsAreNoBundles(t *testing.T) {
	hex := strings.Repeat("a", 64)
	for tag, want := range map[string]bool{
		"sha256-" + hex: true, "sha256-" + hex + ".sig": true, "sha256-" + hex + ".att": true, "sha256-" + hex + ".sbom": true, "sha256-" + hex + ".confirmed": true,
		"sha256-" + hex + ".other": false, "sha256-" + hex + "0": false, "sha256-abc.sig": false, "v1": false, "": false,
	} {
		require.Equal(t, want, IsReferrerTag(tag), tag)
	}
}
