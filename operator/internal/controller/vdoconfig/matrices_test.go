package vdoconfig

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// While an upgrade waits, each pass needs the matrix of what runs and that of what was
// accepted: neither is read anew for the other. What comes and goes takes no memory for ever.
func TestMatricesAreReadOnce(t *testing.T) {
	text := func(serial int) []byte {
		return fmt.Appendf(nil, `apiVersion: vdo.vmware.com/matrix/v1
kind: CompatibilityMatrix
serial: %d
issued: 2026-01-01T00:00:00Z
expires: 2099-01-01T00:00:00Z
releases:
- driver: cpi
  version: 1.33.1
  state: current
  kubernetes: {min: "1.33", max: "1.33", basis: test}
  vsphere: {min: "7.0.0", basis: test}
  manifests: [{name: a.yaml, url: "https://upstream.test/a.yaml", size: 1, sha256: %064d}]
`, serial, 1)
	}
	var m matrices
	first := map[int]*matrix.Document{}
	for range 3 {
		for serial := 1; serial <= 3; serial++ {
			doc, err := m.parse("one", text(serial))
			require.NoError(t, err)
			require.EqualValues(t, serial, doc.Serial)
			if first[serial] == nil {
				first[serial] = doc
			}
			require.Same(t, first[serial], doc)
		}
	}
	for serial := 4; serial < 100; serial++ {
		_, err := m.parse("one", text(serial))
		require.NoError(t, err)
	}
	require.Len(t, m.kept, keptMatrices)
	_, err := m.parse("one", []byte("no matrix"))
	require.Error(t, err)
	require.Len(t, m.kept, keptMatrices, "what is none is not kept")
	again, err := m.parse("one", text(1))
	require.NoError(t, err)
	require.NotSame(t, first[1], again)
}
