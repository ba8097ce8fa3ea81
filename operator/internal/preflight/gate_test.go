package preflight_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

func TestWhatAFindingKeepsBackOfWhichDriver(t *testing.T) {
	const none, release, all = "", "release", "release and configuration"
	for name, c := range map[string]struct {
		change   func(*preflight.Snapshot)
		cpi, csi string
	}{
		"nothing amiss":       {func(*preflight.Snapshot) {}, none, none},
		"a warning":           {func(s *preflight.Snapshot) { s.VCenters[0].Machines[0].Snapshots = 1 }, none, none},
		"no VM behind a node": {func(s *preflight.Snapshot) { s.VCenters[0].Machines = s.VCenters[0].Machines[:2] }, release, release},
		"disk.EnableUUID is the storage driver's": {func(s *preflight.Snapshot) { s.VCenters[0].Machines[0].DiskUUID = false }, none, release},
		"Tools are the cloud provider's":          {func(s *preflight.Snapshot) { s.VCenters[0].Machines[0].ToolsRunning = false }, release, none},
		"a user name that CSI refuses":            {func(s *preflight.Snapshot) { s.VCenters[0].Username = "vdo" }, none, all},
		"an in-tree cloud provider":               {func(s *preflight.Snapshot) { s.Cluster.CloudProviders["0"] = "vsphere" }, release, none},
		"a category of the storage driver alone":  {func(s *preflight.Snapshot) { s.Wants.Categories = []string{"region", "zone", "rack"} }, none, all},
		"a category of both":                      {func(s *preflight.Snapshot) { delete(s.VCenters[0].Categories, "zone") }, all, all},
		"a category of the cloud provider alone":  {func(s *preflight.Snapshot) { s.Wants.Zone = "rack" }, all, none},
		"a category that a vCenter of the cloud provider lacks": {func(s *preflight.Snapshot) {
			other := s.VCenters[0]
			other.Name, other.UsedByCSI, other.Categories, other.Machines = "west", false, nil, nil
			s.VCenters = append(s.VCenters, other)
		}, all, none},
		"a vCenter of the storage driver that is away": {func(s *preflight.Snapshot) {
			s.VCenters = append(s.VCenters, preflight.VCenter{Name: "west", UsedByCSI: true, Err: &fault.Error{Reason: fault.Unreachable, Op: "connect to", Subject: "west", Err: errors.New("refused")}})
		}, none, all},
		"a driver that is not asked for": {func(s *preflight.Snapshot) {
			s.Wants.CPI, s.VCenters[0].UsedByCPI = false, false
			delete(s.VCenters[0].Categories, "zone")
		}, none, all},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			c.change(&s)
			results := preflight.Check(s)
			gates := func(d matrix.Driver) string {
				h := preflight.Gate(results)[d]
				switch {
				case h.Configuration:
					return all
				case h.Err != nil:
					return release
				}
				return none
			}
			require.Equal(t, []string{c.cpi, c.csi}, []string{gates(matrix.CPI), gates(matrix.CSI)})
			// What the status lists keeps back the same: a restart forgets nothing.
			require.Equal(t, preflight.Gate(results), preflight.Gate(preflight.Listed(preflight.Status(results))))
		})
	}
}

func TestAHoldSaysWhatToDo(t *testing.T) {
	s := healthy()
	s.Wants.Categories = []string{"region", "zone", "rack"}
	err := preflight.Gate(preflight.Check(s))[matrix.CSI].Err
	require.Equal(t, fault.Refused, fault.ReasonOf(err))
	for _, want := range []string{"topology-category in vCenter east", "no tag category of this name: rack", "vdoctl topology tag --vcenter NAME --username ADMIN --attach rack:TAG=PATH"} {
		require.Contains(t, fault.Text(err), want)
	}
	for reason, want := range map[fault.Reason]fault.Reason{
		fault.Unreachable: fault.Unreachable, fault.CertificateInvalid: fault.Refused, // only the former may pass
	} {
		s.VCenters[0].Err = fault.Errorf(reason, "connect to", "vc.site", "", "a cause")
		h := preflight.Gate(preflight.Check(s))[matrix.CSI]
		require.Equal(t, want, fault.ReasonOf(h.Err))
		require.True(t, h.Configuration)
	}
}

func turn(id string, a v1alpha1.PreflightAction) v1alpha1.PreflightCheck {
	return v1alpha1.PreflightCheck{ID: id, Action: a, Reason: "a lab"}
}

func TestACheckIsTurnedDown(t *testing.T) {
	s := healthy()
	s.VCenters[0].Machines[0].DiskUUID = false
	s.VCenters[0].Machines[1].Hardware = "vmx-13"
	s.VCenters[0].Machines[2].Hardware = "vmx-14"
	raw := preflight.Check(s)
	got := preflight.Turned(raw, &v1alpha1.PreflightPolicy{Checks: []v1alpha1.PreflightCheck{
		turn("vm-disk-uuid", v1alpha1.PreflightWarn), turn("vm-hardware", v1alpha1.PreflightDisabled), turn("vm-scsi", v1alpha1.PreflightWarn)}})
	require.Equal(t, preflight.Warn, preflight.Worst(got))
	require.Empty(t, preflight.Gate(got))
	st := preflight.Status(got)
	require.Equal(t, len(preflight.IDs())-2, st.Passed, "a check that passed stays one")
	require.Len(t, st.Results, 2)
	uuid, hardware := st.Results[0], st.Results[1]
	require.Equal(t, []string{"vm-disk-uuid", "Warn", "BlockInstall", "a lab"}, []string{uuid.ID, uuid.Action, uuid.Override.Was, uuid.Override.Reason})
	require.Contains(t, uuid.Objects[0], "node-0")
	require.Equal(t, []string{"vm-hardware", "Disabled", "BlockInstall"}, []string{hardware.ID, hardware.Action, hardware.Override.Was})

	down := []v1alpha1.PreflightCheck{turn("vcenter-account", v1alpha1.PreflightWarn)}
	unread := []preflight.Result{{ID: "vcenter-account", Action: preflight.BlockInstall, Stops: true}}
	unread = preflight.Turned(unread, &v1alpha1.PreflightPolicy{Checks: down})
	require.False(t, unread[0].Stops)
	require.Equal(t, unread, preflight.Only(unread, func(preflight.ID) bool { return false }), "others may be missing")

	require.Equal(t, preflight.BlockInstall, preflight.Worst(raw), "what was found is not changed")
	require.Equal(t, raw, preflight.Turned(raw, nil))
}

// Whatever fails, and however long its texts are, the status is bounded, and keeps back
// what all results do.
func TestAStatusIsBoundedAndKeepsWhatDecides(t *testing.T) {
	long := strings.Repeat("ünï", 3000)
	var results []preflight.Result
	for i := range 40 {
		for _, id := range preflight.IDs() {
			results = append(results, preflight.Result{ID: id, Action: preflight.BlockInstall, Drivers: []matrix.Driver{matrix.CPI}, On: fmt.Sprint("vc-", i),
				Objects: slices.Repeat([]string{long}, preflight.MaxObjects), Count: 5000, Found: long, Why: long, Remedy: long})
		}
	}
	results = append(results,
		preflight.Result{ID: "vm-scsi", Action: preflight.BlockInstall, Drivers: []matrix.Driver{matrix.CSI}, Found: "of csi"},
		preflight.Result{ID: "topology-tag", Action: preflight.BlockInstall, Stops: true, Drivers: []matrix.Driver{matrix.CSI}, Found: "stops csi"})
	st := preflight.Status(results)
	data := must.Have(json.Marshal(st))(t)
	require.Less(t, len(data), 48<<10)
	require.Equal(t, len(results), len(st.Results)+st.Omitted)
	full, listed := preflight.Gate(results), preflight.Gate(preflight.Listed(st))
	for _, d := range []matrix.Driver{matrix.CPI, matrix.CSI} {
		full, listed := full[d], listed[d]
		require.NotNil(t, listed.Err)
		full.Err, listed.Err = nil, nil
		require.Equal(t, full, listed, d)
	}
}

func TestTheCRDKnowsTheChecks(t *testing.T) {
	data := must.Have(os.ReadFile("../../../deploy/crds/vdo.vmware.com_vdoconfigs.yaml"))(t)
	var crd map[string]any
	require.NoError(t, yaml.Unmarshal(data, &crd))
	versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
	require.NoError(t, err)
	schema, _ := versions[0].(map[string]any)
	checks := strings.Split("schema openAPIV3Schema properties spec properties preflight properties checks items properties id enum", " ")
	got, found, err := unstructured.NestedStringSlice(schema, checks...)
	require.NoError(t, err)
	require.True(t, found)
	want := []string{"vm-folder", "node-zone-labels", "datastore-space", "node-address", "vcenter-clock", "node-uninitialized"} // were ones once
	for _, id := range preflight.IDs() {
		want = append(want, string(id))
	}
	require.ElementsMatch(t, want, got, "api/v1alpha1/preflight.go, and make generate")
}
