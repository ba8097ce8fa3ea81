package v1alpha1_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

func TestAVCentersHostIsComparedInOneForm(t *testing.T) {
	for given, want := range map[string]string{
		"vc1.site.example": "vc1.site.example", "VC1.Site.Example": "vc1.site.example", "vc1.site.example.": "vc1.site.example",
		"10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1",
		"2001:DB8:0::1": "2001:db8::1", "[2001:db8::1]": "2001:db8::1",
		"": "",
	} {
		require.Equal(t, want, v1alpha1.CanonicalHost(given), given)
		require.Equal(t, want, v1alpha1.CanonicalHost(" "+given+"\n"), given)
	}
}
