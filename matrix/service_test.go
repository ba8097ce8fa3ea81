package matrix_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

// withServices is the default document with other services.
func withServices(t *testing.T, services string) (*matrix.Document, error) {
	text := string(matrix.Default())
	from, to := strings.Index(text, "\nservices:\n"), strings.Index(text, "\nneeds:\n")
	require.True(t, 0 < from && from < to)
	return matrix.Parse("m.yaml", []byte(text[:from]+"\nservices:\n"+services+text[to:]))
}

func entry(service, version, state, more string) string {
	return fmt.Sprintf("  - {service: %s, version: %s, state: %s, image: registry.test/%s:v%s, basis: test%s}\n", service, version, state, service, version, more)
}

func TestServicesAreChosen(t *testing.T) {
	doc, err := withServices(t, entry("haproxy", "3.2.23", "lts", "")+entry("haproxy", "3.10.0", "current", "")+
		entry("haproxy", "4.0.0", "deprecated", ", reason: old")+entry("haproxy", "5.0.0", "withdrawn", ", reason: bad")+
		entry("dex", "2.44.0", "withdrawn", ", reason: bad"))
	require.NoError(t, err)
	for _, c := range []struct {
		service matrix.Driver
		held    string // "": all
		want    string
	}{
		{matrix.HAProxy, "", "haproxy@3.10.0"},
		{matrix.HAProxy, "haproxy@3.2.23 haproxy@4.0.0 haproxy@5.0.0", "haproxy@3.2.23"},
		{matrix.HAProxy, "haproxy@4.0.0 haproxy@5.0.0", "haproxy@4.0.0"},
		{matrix.HAProxy, "haproxy@5.0.0", ""},
		{matrix.HAProxy, "haproxy@9.9.9", ""},
		{matrix.Dex, "", ""},
	} {
		var held matrix.Available
		if c.held != "" {
			held = matrix.Available{}
			for _, id := range strings.Fields(c.held) {
				held[id] = true
			}
		}
		got, err := doc.ChooseService(c.service, held)
		if c.want == "" {
			require.ErrorIs(t, err, matrix.ErrNoService, "%v", c)
			continue
		}
		require.NoError(t, err, "%v", c)
		require.Equal(t, c.want, got.ReleaseID.String(), "%v", c)
	}
}

func TestServicesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ services, want string }{
		"unknown":       {entry("nginx", "1.0.0", "current", ""), `services[0].service`},
		"a driver":      {entry("csi", "3.5.1", "current", ""), `services[0].service`},
		"a word":        {entry("haproxy", "newest", "current", ""), `services[0].version`},
		"twice":         {entry("haproxy", "3.2.0", "current", "") + entry("haproxy", "3.2.0", "lts", ""), "haproxy@3.2.0 is listed twice"},
		"no reason":     {entry("haproxy", "3.2.0", "withdrawn", ""), "a release is not withdrawn without one"},
		"unknown state": {entry("haproxy", "3.2.0", "new", ""), "services[0].state"},
		"unknown key":   {entry("haproxy", "3.2.0", "current", ", tag: x"), "tag"},
		"no image":      {"  - {service: haproxy, version: 3.2.0, state: current, basis: test}\n", "services[0].image"},
		"no tag":        {"  - {service: haproxy, version: 3.2.0, state: current, basis: test, image: registry.test/haproxy}\n", "services[0].image"},
		"latest":        {"  - {service: haproxy, version: 3.2.0, state: current, basis: test, image: 'registry.test/ha proxy:1'}\n", "services[0].image"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := withServices(t, c.services)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "m.yaml:")
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
			require.NotEmpty(t, fault.HintOf(err))
		})
	}
}

func TestTheDefaultMatrixHasEveryService(t *testing.T) {
	doc := must.Have(matrix.Parse(matrix.DefaultName, matrix.Default()))(t)
	for _, s := range matrix.Services() {
		got, err := doc.ChooseService(s, nil)
		require.NoError(t, err, s)
		require.Contains(t, got.Image, got.Version.String())
	}
}
