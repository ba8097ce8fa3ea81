package vdoconfig

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

func ask(t *testing.T, kubernetes, bundle string, edit func(*decided)) decision {
	t.Helper()
	return resolved(asking(t, kubernetes, bundle, edit))
}

// asking is a site whose bundle may be asked.
func asking(t *testing.T, reported, bundle string, edit func(*decided)) *decided {
	t.Helper()
	s := siteOf(t, pairRequested(), bundle, "")
	var err error
	s.site.Kubernetes, err = matrix.ParseKubernetes(reported)
	require.NoError(t, err)
	if edit != nil {
		edit(s)
	}
	return s
}

// decideAll decides without checks of the bundle's images.
func (p *pass) decideAll(ctx context.Context) {
	p.desired = p.chooseReleases()
	p.decideUpgrades(ctx)
}

// resolved is what comes of a site as it is.
func resolved(s *decided) decision {
	s.desired = s.chooseReleases()
	return s.resolve()
}

// split is nil of no words.
func split(s string) []string { return append([]string(nil), strings.Fields(s)...) }

func chosen(d decision) []string {
	var all []string
	for _, id := range d.releases {
		all = append(all, id.String())
	}
	return all
}

func mustVersion(s string) matrix.Version {
	v, err := matrix.ParseVersion(s)
	if err != nil {
		panic(err)
	}
	return v
}

// releaseIDs are those of a text, "" for none.
func releaseIDs(text string) (all []matrix.ReleaseID) {
	for _, each := range strings.Fields(text) {
		id, err := matrix.ParseReleaseID(each)
		if err != nil {
			panic(err)
		}
		all = append(all, id)
	}
	return all
}

func only(driver matrix.Driver, version string) decision {
	return decision{releases: []matrix.ReleaseID{{Driver: driver, Version: mustVersion(version)}}}
}

func runs(driver matrix.Driver, version string) func(*decided) {
	return func(s *decided) { s.site.Installed[driver] = mustVersion(version) }
}

const (
	pair133 = "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.5.1"
	both    = pair133 + " csi@3.7.3"
)

func TestWhatIsChosenInOrderOfInstallation(t *testing.T) {
	cloud := func(cp *v1alpha1.CloudProvider) func(*decided) {
		return func(s *decided) { s.config.Spec.CloudProvider = cp }
	}
	const storage = "snapshot-controller@8.2.0 csi@3.7.3"
	for name, c := range map[string]struct {
		kubernetes string
		edit       func(*decided)
		want       string
	}{
		"the newest that fits":                    {"v1.33.4+k3s1", nil, "cpi@1.33.1 " + storage},
		"a version that runs is none of a string": {"1.33", runs(matrix.CSI, "3.10.0"), "cpi@1.33.1 " + storage},
		"the network is asked for": {"1.33", func(s *decided) {
			s.config.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "cni", Policy: "latest"}}
		}, "cni@2.7.0 cpi@1.33.1 " + storage},
		"no storage is asked for":                        {"1.33", func(s *decided) { s.config.Spec.StorageProvider = nil }, "cpi@1.33.1"},
		"no cloud provider is":                           {"1.33", cloud(nil), storage},
		"nor one without vCenters, as vdoctl once wrote": {"1.33", cloud(&v1alpha1.CloudProvider{}), storage},
		"nor with an empty topology":                     {"1.33", cloud(&v1alpha1.CloudProvider{Topology: &v1alpha1.Topology{}}), storage},
		"nor with an empty list":                         {"1.33", cloud(&v1alpha1.CloudProvider{VsphereCloudConfigs: []string{}}), storage},
	} {
		d := ask(t, c.kubernetes, both+" cni@2.7.0", c.edit)
		require.NoError(t, d.refused, name)
		require.Equal(t, strings.Fields(c.want), chosen(d), name)
	}
}

func TestARefusalKeepsWhatIsInstalledAsFarAsTheBundleHoldsIt(t *testing.T) {
	pin := func(s *decided) { s.config.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "csi", Version: "2.7.3"}} }
	d := ask(t, "1.33", both, func(s *decided) {
		pin(s)
		runs(matrix.CSI, "3.5.1")(s)
		runs(matrix.CPI, "1.32.1")(s)
	})
	require.Equal(t, fault.Incompatible, fault.ReasonOf(d.refused))
	require.Equal(t, []string{"csi@3.5.1"}, chosen(d))
	require.Contains(t, d.gated[matrix.CPI], "cpi@1.32.1 is installed and no bundle that can be read holds it")
	require.Contains(t, d.gated, matrix.SnapshotController)
	d = ask(t, "1.33", both, pin)
	require.Empty(t, d.releases, "nothing is installed in place of what was asked for")
}

func TestAWithdrawnReleaseThatRunsIsFlagged(t *testing.T) {
	doc, err := matrix.Parse("default", matrix.Default())
	require.NoError(t, err)
	for _, r := range doc.Releases {
		if r.State == matrix.Withdrawn && r.Driver == matrix.CSI {
			d := ask(t, "1.33", both, func(s *decided) { s.site.Installed[matrix.CSI] = r.Version })
			require.NotEmpty(t, d.withdrawn[matrix.CSI], r.ReleaseID)
			return
		}
	}
	t.Fatal("the default matrix has no withdrawn CSI release")
}
