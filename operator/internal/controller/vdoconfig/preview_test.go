package vdoconfig

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// routed is the way of a site on Kubernetes 1.33 and vCenter 8.0.3, with the pair for it, to what is assumed, one line
// for each thing that is done or lacks.
func routed(t *testing.T, bundle string, a Assume) []string {
	t.Helper()
	s := asking(t, bundle, runs(pair133))
	upgrades, err := a.upgrades(&s.facts)
	require.NoError(t, err)
	q, err := s.ofMatrix()
	require.NoError(t, err)
	newest := matrix.ReleaseID{Driver: matrix.CSI, Version: mustVersion("3.7.3")}
	path, _ := q.Path([]decide.OneWay{{ReleaseID: newest, Why: "it moves volumes"}}, upgrades)
	var out []string
	for _, h := range path {
		if h.To != "" {
			out = append(out, h.To)
		}
		for _, why := range h.Lacks {
			out = append(out, "lacks "+why)
		}
		for _, m := range h.Moves {
			line := fmt.Sprintf("%s %s->%s", m.Driver, m.From, m.To)
			if m.OneWay != "" {
				line += " one way"
			}
			out = append(out, line)
		}
	}
	return out
}

func TestRoute(t *testing.T) {
	minor := matrix.Minor{Major: 1, Minor: 34}
	nine := map[string]matrix.Version{"": mustVersion("9.0.0")}
	for name, c := range map[string]struct {
		bundle string
		assume Assume
		want   []string // each the beginning of a line
	}{
		"a newer release":                     {both, Assume{}, []string{"csi 3.5.1->3.7.3 one way"}},
		"storage first, then the cloud after": {both + " cpi@1.34.0", Assume{Kubernetes: minor}, []string{"csi 3.5.1->3.7.3", "Kubernetes 1.34", "cpi 1.33.1->1.34.0"}},
		"the bundle lacks the cloud provider": {both, Assume{Kubernetes: minor}, []string{"csi 3.5.1->3.7.3", "Kubernetes 1.34", "lacks the bundle has no drivers for it: cpi@1.34."}},
		"vCenters come first":                 {both + " cpi@1.34.0", Assume{Kubernetes: minor, VCenters: nine}, []string{"csi 3.5.1->3.7.3", "vCenter vc 9.0.0", "Kubernetes 1.34", "cpi 1.33.1->1.34.0"}},
		"minor after minor":                   {both + " cpi@1.34.0", Assume{Kubernetes: minor.Next()}, []string{"csi 3.5.1->3.7.3", "Kubernetes 1.34", "cpi 1.33.1->1.34.0", "Kubernetes 1.35", "lacks "}},
	} {
		t.Run(name, func(t *testing.T) {
			requireBegin(t, c.want, routed(t, c.bundle, c.assume))
		})
	}
}

func TestWhatIsAssumedIsLaterThanWhatIsThere(t *testing.T) {
	s := &facts{}
	s.site.Kubernetes, s.site.VCenters = mustVersion("1.33.4"), []matrix.VCenter{{Name: "vc", Version: mustVersion("8.0.3")}}
	for hint, a := range map[string]Assume{
		"of 1.33 already":                     {Kubernetes: matrix.Minor{Major: 1, Minor: 32}},
		"the cluster is of 1.33":              {Kubernetes: matrix.Minor{Major: 1, Minor: 99}},
		"vCenter vc is of 8.0.3 already":      {VCenters: map[string]matrix.Version{"": mustVersion("7.0.3")}},
		"no vCenter that drivers use has tha": {VCenters: map[string]matrix.Version{"vd": mustVersion("9.0.0")}},
	} {
		_, err := a.upgrades(s)
		require.ErrorContains(t, err, hint)
		require.Regexp(t, `--(k8s|vsphere)\b`, fault.HintOf(err))
	}
	all, err := Assume{Kubernetes: matrix.Minor{Major: 1, Minor: 33}, VCenters: map[string]matrix.Version{"vc": mustVersion("8.0.3")}}.upgrades(s)
	require.NoError(t, err)
	require.Empty(t, all, "it is there already")
	s.site.VCenters = nil
	_, err = Assume{VCenters: map[string]matrix.Version{"": mustVersion("9.0.0")}}.upgrades(s)
	require.ErrorContains(t, err, "the version is known")
}

func TestWhatTheBundleLacksIsFetchedByCommands(t *testing.T) {
	end := matrix.Facts{Kubernetes: mustVersion("1.34.0"), VCenters: []matrix.VCenter{{Version: mustVersion("9.0.0")}}}
	s, b := asking(t, pair133, nil), holding(t, "sha256:new", "csi@3.7.3")
	s.bundle = b
	require.Equal(t, []string{
		"vdo-bundle lock --drivers cpi,snapshot-controller,csi --k8s 1.33-1.34 --vsphere 9.0.0 -o lock.yaml",
		"vdo-bundle pull --lock lock.yaml --sign-key KEY -o drivers.tar",
		"vdo-bundle push drivers.tar mirror.site/vdo:TAG",
	}, s.fetching(end, false))
	b.verified, b.contents.MatrixSignature, b.source.Status.Tag = true, []byte("theirs"), "stable"
	b.contents.Lock.Releases = append(b.contents.Lock.Releases,
		bundle.Release{Driver: bundle.Operator, Images: map[string]string{"vdo-operator": "up.example/vdo:v1"}},
		bundle.Release{Driver: bundle.JumpHost, Images: map[string]string{"vdo-jumphost": "up.example/jump:v1"}})
	commands := s.fetching(end, false)
	require.Contains(t, commands[0], " 9.0.0 --matrix MATRIX --operator up.example/vdo:v1 --jump-host up.example/jump:v1 --services sip -o")
	require.Contains(t, commands[1], " --matrix MATRIX ", "the same as the lock")
	require.Contains(t, commands[2], "mirror.site/vdo:stable --key KEY.pub", "the site verified what runs")
	b.contents.MatrixSignature = nil
	require.Contains(t, s.fetching(end, true)[0], " --matrix MATRIX ", "the present one lists none")
}

func TestAPreviewExplainsEachGateOnce(t *testing.T) {
	const refused = "no signature is accepted"
	p, out := &pass{}, &Preview{}
	p.decided = *asking(t, both, nil)
	p.upgrades.verdicts = map[revision.Group]decide.Verdict{
		matrix.CPI: {Action: decide.Wait, Reason: decide.Interlocked, Message: refused},
		matrix.CSI: {Action: decide.Gated, Reason: decide.DowngradeRefused, Message: "csi@3.7.3 runs"}}
	p.gated = fault.Errorf(fault.Untrusted, "install from", "DriverBundle site", "", refused)
	p.bundle.source.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Message: refused}}
	p.explain(out)
	require.NotContains(t, strings.Join(out.Warnings, ""), refused)
	require.Equal(t, []Gated{{Reason: "Untrusted", Message: "install from DriverBundle site: " + refused},
		{Reason: "DowngradeRefused", Message: "csi@3.7.3 runs", Do: "vdoctl upgrade approve REVISION --allow-downgrade, " +
			"unless a release cannot be gone back from; `vdoctl upgrade list` names REVISION once the DriverBundle has " +
			"this bundle"}}, out.Gated)
}

// The next minor of Kubernetes, and the next update and major version of each vCenter; the rest is as of a route.
func TestWhatTheNextUpgradesNeed(t *testing.T) {
	const serves = " is installed and serves "
	const unlisted = "csi@9.9.9 is installed, and the matrix does not list it"
	for name, c := range map[string]struct {
		bundle string
		edit   func(*decided)
		lacks  []string // the beginning of each
	}{
		"the bundle and what is installed serve": {both + " cpi@1.34.0", runs("cpi@1.33.1 csi@3.7.3"), nil},
		"neither serves the minor": {both, runs("cpi@1.33.1 csi@3.5.1"), []string{
			"Kubernetes 1.34: csi@3.5.1" + serves + "Kubernetes", "Kubernetes 1.34: the bundle has no drivers for it: cpi@1.34."}},
		"what is installed does not serve the next vCenters": {both + " cpi@1.34.0", runs("csi@2.7.3"), []string{
			"Kubernetes 1.34: csi@2.7.3" + serves + "Kubernetes",
			"vCenter vc 8.0.4: csi@2.7.3" + serves + "vSphere", "vCenter vc 9.0.0: csi@2.7.3" + serves + "vSphere"}},
		"what is installed is not listed": {both + " cpi@1.34.0", runs("csi@9.9.9"), []string{
			"Kubernetes 1.34: " + unlisted, "vCenter vc 8.0.4: " + unlisted, "vCenter vc 9.0.0: " + unlisted}},
		"a pin is in the way": {both + " cpi@1.34.0", func(s *decided) {
			s.config.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "cpi", Version: "1.33.1"}}
		}, []string{"Kubernetes 1.34: the bundle has no drivers for it: a release without the pins"}},
		"the matrix lacks a driver": {both + " cpi@1.35.0", func(s *decided) {
			s.site.Kubernetes = mustVersion("1.35.0")
		}, []string{"Kubernetes 1.36: the matrix lists no csi for it: fetch a bundle with "}},
	} {
		t.Run(name, func(t *testing.T) {
			requireBegin(t, c.lacks, ask(t, c.bundle, c.edit).outlook.Lacks)
		})
	}
}

// requireBegin requires as many lines, each with its beginning.
func requireBegin(t *testing.T, want, got []string) {
	t.Helper()
	require.Len(t, got, len(want), "%s", strings.Join(got, "\n"))
	for i, begins := range want {
		require.True(t, strings.HasPrefix(got[i], begins), "%q does not begin with %q", got[i], begins)
	}
}
