package outdated

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

func TestListedReleasesThatTheOperatorRefusesAreMarked(t *testing.T) {
	doc, err := matrix.Parse("default", matrix.Default())
	require.NoError(t, err)
	has, err := matrix.ParseVersion("3.5.1")
	require.NoError(t, err)
	d := Driver{Driver: matrix.CSI, Has: []matrix.Version{has}}
	require.NoError(t, Input{Matrix: doc}.fill(t.Context(), &d, &bundle.Lock{}))
	require.Contains(t, d.Listed, d.Refused[0])
	require.Equal(t, "3.6.3", d.Refused[0].String())
}

func TestNewerReleases(t *testing.T) {
	for _, c := range []struct{ has, offered, newer string }{
		{"3.5.1", "3.5.1", ""},
		{"3.5.1", "3.4.9 3.5.0", ""},
		{"3.5.1", "3.5.2 3.5.3 3.6.0-rc.1", "3.5.3"},
		{"3.5.1 3.7.3", "3.5.2 3.6.4 3.7.4 3.8.0 3.8.1", "3.5.2 3.7.4 3.8.1"},
		{"1.33.1 1.34.0", "1.33.1 1.35.0 1.36.0-beta.1", "1.35.0"},
	} {
		parse := func(s string) (out []matrix.Version) {
			for _, text := range strings.Fields(s) {
				v, err := matrix.ParseVersion(text)
				require.NoError(t, err)
				out = append(out, v)
			}
			return out
		}
		var names []string
		for _, v := range newer(parse(c.offered), parse(c.has)) {
			names = append(names, v.String())
		}
		require.Equal(t, c.newer, strings.Join(names, " "), "%+v", c)
	}
}
