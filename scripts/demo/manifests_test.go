package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A folder that is named and has no manifests is no reason to take others.
func TestManifestsAreThoseThatAreNamed(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	t.Setenv("VDO_UPSTREAM", absent)
	require.ErrorContains(t, new(demo).findManifests(t.Context()), "VDO_UPSTREAM="+absent+" names no folder of upstream manifests")
}
