package preflight_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// maintenance puts a host into it.
func maintenance(s *preflight.Snapshot, host string) {
	r := ref("HostSystem", host)
	o := s.VCenters[0].Objects[r]
	o.Maintenance = true
	s.VCenters[0].Objects[r] = o
}

// A host in maintenance may have no storage for that time: what the others see is what counts.
func TestAHostInMaintenanceDoesNotCountForSharedDatastores(t *testing.T) {
	s := healthy()
	s.Wants.Categories = nil
	s.VCenters[0].Datastores[0].Hosts = map[preflight.Ref]bool{ref("HostSystem", "h1"): true}
	shared := func() preflight.Action {
		results := preflight.Check(s)
		return results[slices.IndexFunc(results, func(r preflight.Result) bool { return r.ID == "datastore-shared" })].Action
	}
	require.Equal(t, preflight.Warn, shared())
	maintenance(&s, "h2")
	require.Equal(t, preflight.Pass, shared())
	maintenance(&s, "h1")
	require.Equal(t, preflight.Warn, shared(), "where all are, all count")
}
