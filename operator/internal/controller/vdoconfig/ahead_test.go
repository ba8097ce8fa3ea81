package vdoconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

func TestWhatTheNextUpgradesNeed(t *testing.T) {
	installed := func(ids ...string) func(*site) {
		return func(s *site) {
			for _, text := range ids {
				id, err := matrix.ParseReleaseID(text)
				require.NoError(t, err)
				s.installed[id.Driver] = id.Version
			}
		}
	}
	for name, c := range map[string]struct {
		bundle string
		edit   func(*site)
		lacks  []string // each once in the message; none: it is True
		not    string
	}{
		"the bundle and what is installed serve":             {both + " cpi@1.34.0", installed("cpi@1.33.1", "csi@3.7.3"), nil, ""},
		"nothing is installed yet":                           {both + " cpi@1.34.0", nil, nil, ""},
		"the bundle has no cloud provider for the minor":     {both, installed("cpi@1.33.1", "csi@3.7.3"), []string{"Kubernetes 1.34: the bundle has no drivers for it: cpi@1.34."}, "is installed and serves"},
		"what is installed does not serve the minor":         {both + " cpi@1.34.0", installed("cpi@1.33.1", "csi@3.5.1"), []string{"Kubernetes 1.34: csi@3.5.1 is installed and serves Kubernetes"}, "the bundle has no"},
		"what is installed does not serve the next vCenters": {both + " cpi@1.34.0", installed("csi@2.7.3"), []string{"vCenter vc 8.0.4: csi@2.7.3 is installed and serves vSphere", "vCenter vc 9.0.0: csi@2.7.3 is installed and serves vSphere"}, "cpi@"},
		"what is installed is not listed":                    {both + " cpi@1.34.0", installed("csi@9.9.9"), []string{"csi@9.9.9 is installed, and the matrix does not list it"}, ""},
		"a pin is in the way": {both + " cpi@1.34.0", func(s *site) {
			s.config.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "cpi", Version: "1.33.1"}}
		}, []string{"Kubernetes 1.34: the bundle has no drivers for it: a release without the pins"}, ""},
		"no vCenter is known": {both + " cpi@1.34.0", func(s *site) { s.versions = nil }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := ask(t, "1.33", c.bundle, c.edit).ahead.err()
			if c.lacks == nil {
				require.NoError(t, err)
				return
			}
			require.Equal(t, fault.Incompatible, fault.ReasonOf(err))
			for _, lack := range c.lacks {
				require.Contains(t, err.Error(), lack)
			}
			if c.not != "" {
				require.NotContains(t, err.Error(), c.not)
			}
		})
	}
}

func TestTheNextVersionsOfVSphere(t *testing.T) {
	var got []string
	for _, v := range following(mustVersion("8.0.3")) {
		got = append(got, v.String())
	}
	require.Equal(t, []string{"8.0.4", "9.0.0"}, got)
	require.Empty(t, following(matrix.Version{}))
}
