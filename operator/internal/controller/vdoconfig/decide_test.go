package vdoconfig

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

func ask(t *testing.T, kubernetes, bundle string, edit func(*question)) decision {
	t.Helper()
	q := questionTo(t, kubernetes, bundle, edit)
	s := site{bundle: holding(t, "sha256:new", bundle), installed: q.facts.Installed}
	return s.stay(decide(q))
}

func questionTo(t *testing.T, kubernetes, bundle string, edit func(*question)) question {
	t.Helper()
	doc, err := matrix.Parse("default", matrix.Default())
	require.NoError(t, err)
	version, err := matrix.ParseKubernetes(kubernetes)
	require.NoError(t, err)
	q := question{
		document: doc, available: matrix.Available{},
		spec: v1alpha1.VDOConfigSpec{
			CloudProvider:   &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"vc"}},
			StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "vc"},
		},
		facts: matrix.Facts{Kubernetes: version, VCenters: []matrix.VCenter{{Name: "vc", Version: mustVersion("8.0.3")}}, Installed: map[matrix.Driver]matrix.Version{}},
	}
	for _, id := range split(bundle) {
		q.available[id] = true
	}
	if edit != nil {
		edit(&q)
	}
	return q
}

func split(s string) []string {
	var all []string
	for start, i := 0, 0; i <= len(s); i++ {
		if i == len(s) || s[i] == ' ' {
			if i > start {
				all = append(all, s[start:i])
			}
			start = i + 1
		}
	}
	return all
}

func chosen(d decision) []string {
	var all []string
	for _, id := range d.releases {
		all = append(all, id.String())
	}
	return all
}

func runs(driver matrix.Driver, version string) func(*question) {
	return func(q *question) { q.facts.Installed[driver] = mustVersion(version) }
}

const (
	pair133 = "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.5.1"
	both    = pair133 + " csi@3.7.3"
)

func TestChoosesTheNewestThatFitsInOrderOfInstallation(t *testing.T) {
	d := ask(t, "v1.33.4+k3s1", both, nil)
	require.NoError(t, d.refused)
	require.Equal(t, []string{"cpi@1.33.1", "snapshot-controller@8.2.0", "csi@3.7.3"}, chosen(d))
	require.Contains(t, d.ahead.lacks[0], "Kubernetes 1.34: the bundle has no drivers for it")
}

func TestARefusalKeepsWhatIsInstalledAsFarAsTheBundleHoldsIt(t *testing.T) {
	pin := func(q *question) { q.spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "csi", Version: "2.7.3"}} }
	d := ask(t, "1.33", both, func(q *question) {
		pin(q)
		runs(matrix.CSI, "3.5.1")(q)
		runs(matrix.CPI, "1.32.1")(q)
	})
	require.Equal(t, fault.Incompatible, fault.ReasonOf(d.refused))
	require.Equal(t, []string{"csi@3.5.1"}, chosen(d))
	require.Contains(t, d.held[matrix.CPI], "cpi@1.32.1 is installed and no bundle that can be read holds it")
	require.Contains(t, d.held, matrix.SnapshotController)
	d = ask(t, "1.33", both, pin)
	require.Empty(t, d.releases, "nothing is installed in place of what was asked for")
}

func TestAHoldInstallsNothingNewAndUpgradesNothing(t *testing.T) {
	hold := &fault.Error{Reason: fault.Expired, Err: errors.New("matrix expired")}
	d := ask(t, "1.33", both, func(q *question) {
		q.hold = hold
		runs(matrix.CSI, "3.5.1")(q)
	})
	require.Equal(t, []string{"csi@3.5.1"}, chosen(d))
	require.Contains(t, d.held[matrix.CPI], "matrix expired")
}

func TestDriversWithoutAProviderAreNotAskedFor(t *testing.T) {
	d := ask(t, "1.33", both, func(q *question) { q.spec.CloudProvider = nil })
	require.Equal(t, []string{"snapshot-controller@8.2.0", "csi@3.7.3"}, chosen(d))
	d = ask(t, "1.33", both, func(q *question) { q.spec.StorageProvider = nil })
	require.Equal(t, []string{"cpi@1.33.1"}, chosen(d))
}

func TestAWithdrawnReleaseThatRunsIsFlagged(t *testing.T) {
	doc, err := matrix.Parse("default", matrix.Default())
	require.NoError(t, err)
	for _, r := range doc.Releases {
		if r.State == matrix.Withdrawn && r.Driver == matrix.CSI {
			d := ask(t, "1.33", both, func(q *question) { q.facts.Installed[matrix.CSI] = r.Version })
			require.NotEmpty(t, d.withdrawn[matrix.CSI], r.ReleaseID)
			return
		}
	}
	t.Fatal("the default matrix has no withdrawn CSI release")
}

func TestVersionsAreComparedAsVersionsNotAsStrings(t *testing.T) {
	require.True(t, mustVersion("3.9.0").LessThan(mustVersion("3.10.0")))
	d := ask(t, "1.33", both, runs(matrix.CSI, "3.10.0"))
	require.Contains(t, chosen(d), "csi@3.7.3")
}

// The predecessor's command line wrote a cloudProvider without vCenters for the
// storage driver alone.
func TestACloudProviderWithoutVCentersIsNotAskedFor(t *testing.T) {
	for name, cp := range map[string]*v1alpha1.CloudProvider{
		"absent": nil, "empty": {}, "empty topology": {Topology: &v1alpha1.Topology{}}, "empty list": {VsphereCloudConfigs: []string{}},
	} {
		d := ask(t, "1.33", "cpi@1.33.1 csi@3.5.1 snapshot-controller@8.2.0", func(q *question) { q.spec.CloudProvider = cp })
		require.NoError(t, d.refused, name)
		require.Equal(t, []string{"snapshot-controller@8.2.0", "csi@3.5.1"}, chosen(d), name)
	}
}
