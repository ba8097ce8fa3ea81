package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The demo fails if VDO_UPSTREAM names a directory without manifests.
func TestManifestsAreThoseThatAreNamed(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	t.Setenv("VDO_UPSTREAM", absent)
	require.ErrorContains(t, new(demo).findManifests(t.Context()), "VDO_UPSTREAM="+absent+" has no upstream manifests")
}
