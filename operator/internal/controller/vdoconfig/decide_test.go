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

func ask(t *testing.T, bundle string, edit func(*decided)) decision {
	t.Helper()
	return resolved(asking(t, bundle, edit))
}

// asking is a site whose bundle may be asked.
func asking(t *testing.T, bundle string, edit func(*decided)) *decided {
	t.Helper()
	s := siteOf(t, pairRequested(), bundle, "")
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

// runs has releases be installed.
func runs(releases string) func(*decided) {
	return func(s *decided) {
		for _, id := range releaseIDs(releases) {
			s.site.Installed[id.Driver] = id.Version
		}
	}
}

const (
	pair133 = "cpi@1.33.1 snapshot-controller@8.2.0 csi@3.5.1"
	both    = pair133 + " csi@3.7.3"
)

func TestARefusalKeepsWhatIsInstalledAsFarAsTheBundleHoldsIt(t *testing.T) {
	pin := func(s *decided) { s.config.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "csi", Version: "2.7.3"}} }
	d := ask(t, both, func(s *decided) {
		pin(s)
		runs("csi@3.5.1 cpi@1.32.1")(s)
	})
	require.Equal(t, fault.Incompatible, fault.ReasonOf(d.refused))
	require.Equal(t, []string{"csi@3.5.1"}, chosen(d))
	require.Contains(t, d.gated[matrix.CPI], "cpi@1.32.1 is installed and no bundle that can be read holds it")
	require.Contains(t, d.gated, matrix.SnapshotController)
	d = ask(t, both, pin)
	require.Empty(t, d.releases, "nothing is installed in place of what was asked for")
}

func TestAWithdrawnReleaseThatRunsIsFlagged(t *testing.T) {
	doc, err := carried()
	require.NoError(t, err)
	for _, r := range doc.Releases {
		if r.State == matrix.Withdrawn && r.Driver == matrix.CSI {
			d := ask(t, both, runs(r.ReleaseID.String()))
			require.NotEmpty(t, d.withdrawn[matrix.CSI], r.ReleaseID)
			return
		}
	}
	t.Fatal("the default matrix has no withdrawn CSI release")
}
