package matrix_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

func version(t testing.TB, s string) matrix.Version {
	return must.Have(matrix.ParseVersion(s))(t)
}

func TestKubernetesVersionsOfDistributions(t *testing.T) {
	for text, want := range map[string]string{
		"1.33": "1.33.0", "v1.33": "1.33.0", "1.33+": "1.33.0", "v1.33+": "1.33.0", "v1.33.4\n": "1.33.4",
		"v1.33.4+k3s1": "1.33.4", "v1.33.4+rke2r1": "1.33.4", "v1.33.4-gke.100": "1.33.4", "v1.33.4-eks-abc123": "1.33.4",
		"v1.33.4+vmware.1-fips.1": "1.33.4", "v1.30.0-rc.1": "1.30.0-rc.1", "v1.30.0-alpha.0.10+abcdef": "1.30.0-alpha.0.10",
		"v1.31.2+6a2f": "1.31.2", "v1.33.4-gke.100+x": "1.33.4",
	} {
		got, err := matrix.ParseKubernetes(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got.String(), text)
	}
	for _, text := range []string{"", "1", "v", "1.x", "one", "1.33.", "1.33.4.5", "-1.33", "1.9999999999", "1.33\x00", strings.Repeat("1", 500), "1.33.4 beta"} {
		_, err := matrix.ParseKubernetes(text)
		require.Error(t, err, text)
		require.Less(t, len(err.Error()), 800)
	}
}

func TestVSphereVersionsAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]string{
		"8.0": "8.0.0", "8.0.3": "8.0.3", "8.0.3.00500": "8.0.3", "8.0U3": "8.0.3", "8.0 U3b": "8.0.3", "7.0 Update 3": "7.0.3",
		"6.7u3": "6.7.3", "7.0.0U2": "7.0.2", "v9.0.0": "9.0.0",
	} {
		got, err := matrix.ParseVSphere(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got.String(), text)
	}
	for _, text := range []string{"", "8", "eight", "8.0U", "8.0.3-1", "8.0.3.4.5", "8.0Ux"} {
		require.Error(t, must.Err(matrix.ParseVSphere(text)), text)
	}
}

func TestVersionsAreOrderedByNumberNotByText(t *testing.T) {
	ordered := []string{"1.9.0", "1.10.0-rc.1", "1.10.0", "1.10.2", "1.10.10", "2.0.0"}
	for i, a := range ordered {
		for j, b := range ordered {
			require.Equal(t, i < j, version(t, a).LessThan(version(t, b)), "%s %s", a, b)
		}
		require.True(t, matrix.Version{}.LessThan(version(t, a)))
		require.False(t, version(t, a).LessThan(matrix.Version{}))
	}
	require.True(t, version(t, "1.0.0+a").Equal(version(t, "v1.0.0+b")))
	var none, nothing matrix.Version
	require.Zero(t, none.Compare(nothing))
}

func TestVersionsAndMinorsAsText(t *testing.T) {
	type both struct {
		V matrix.Version
		M matrix.Minor
	}
	data := must.Have(json.Marshal(both{version(t, "3.5.1"), matrix.Minor{Major: 1, Minor: 33}}))(t)
	require.JSONEq(t, `{"V":"3.5.1","M":"1.33"}`, string(data))
	var back both
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, "3.5.1", back.V.String())
	require.Equal(t, "1.33", back.M.String())
	require.NoError(t, json.Unmarshal([]byte(`{"V":"","M":""}`), &back))
	require.True(t, back.V.IsZero())
	require.True(t, back.M.IsZero())
	require.Error(t, json.Unmarshal([]byte(`{"V":"3.5"}`), &back))
	require.Error(t, json.Unmarshal([]byte(`{"M":"1.33.4"}`), &back))
}

func TestCeilingsCoverWhatBeginsWithThem(t *testing.T) {
	for _, c := range []struct {
		ceiling, version string
		covers           bool
	}{
		{"8", "8.9.9", true}, {"8", "9.0.0", false}, {"8", "7.0.3", true},
		{"8.0", "8.0.3", true}, {"8.0", "8.1.0", false},
		{"8.0.1", "8.0.1", true}, {"8.0.1", "8.0.2", false}, {"8.0.1", "8.0.0", true},
	} {
		ceiling := must.Have(matrix.ParseCeiling(c.ceiling))(t)
		require.Equal(t, c.ceiling, ceiling.String())
		require.Equal(t, c.covers, ceiling.Covers(version(t, c.version)), "%s %s", c.ceiling, c.version)
	}
	require.True(t, matrix.Ceiling{}.Covers(version(t, "99.0.0")))
	for _, text := range []string{"", "8.", "8.0.0.0", "v8", "8.x", "99999999999"} {
		require.Error(t, must.Err(matrix.ParseCeiling(text)), text)
	}
}

func TestMinors(t *testing.T) {
	for s, want := range map[string]string{
		"1.33": "[1.33]", "v1.33.4+k3s1": "[1.33]", "1.32-1.34": "[1.32 1.33 1.34]", "1.34-1.34": "[1.34]",
		"v1.28.8+vmware.1-fips.1": "[1.28]", "v1.34.0-rc.1": "[1.34]", "v1.33.4+k3s1-v1.34.1": "[1.33 1.34]",
		"1.32.0-34": "error", "1.32.4-1.34.x": "error", "v1.32.4-gke.100-v1.34.2-gke.200": "error", "v1.32.4-gke.100": "[1.32]",
		"": "error", "1.34-1.32": "error", "x": "error", "1.32-": "error", "1.0-1.500": "error", "1.2.3.4": "error", "1.33-2.1": "error", "1.0-1.99": "[1.0", "1.0-1.100": "error",
	} {
		t.Run(s, func(t *testing.T) {
			got, err := matrix.ParseMinors(s)
			if want == "error" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Contains(t, fmt.Sprint(got), want)
		})
	}
}

func TestReleaseIDs(t *testing.T) {
	id := must.Have(matrix.ParseReleaseID("snapshot-controller@v8.2.0"))(t)
	require.Equal(t, "snapshot-controller@8.2.0", id.String())
	for _, text := range []string{"", "csi", "csi@", "@1.0.0", "xyz@1.0.0", "csi@3.5", "csi@3.5.1@2"} {
		require.Error(t, must.Err(matrix.ParseReleaseID(text)), text)
	}
	_, err := matrix.ParseDriver("cloud")
	require.EqualError(t, err, `"cloud" is not a driver: it is one of cni, cpi, snapshot-controller, csi`)
	require.False(t, matrix.Driver("").Valid())
}

// FuzzVersions: no text panics, and what is read is read back from its own text.
func FuzzVersions(f *testing.F) {
	for _, s := range []string{"v1.33.4+k3s1", "1.33+", "8.0U3", "8.0.3.00500", "csi@3.5.1", "8", "1.0.0-rc.1+x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := matrix.ParseKubernetes(s); err == nil {
			back := must.Have(matrix.ParseKubernetes(v.String()))(t)
			require.True(t, v.Equal(back), s)
		}
		if v, err := matrix.ParseVSphere(s); err == nil {
			require.True(t, v.Equal(version(t, v.String())), s)
		}
		if c, err := matrix.ParseCeiling(s); err == nil {
			back := must.Have(matrix.ParseCeiling(c.String()))(t)
			require.Equal(t, c, back)
		}
		if m, err := matrix.ParseMinor(s); err == nil && !m.IsZero() {
			back := must.Have(matrix.ParseMinor(m.String()))(t)
			require.Equal(t, m, back)
		}
		if id, err := matrix.ParseReleaseID(s); err == nil {
			back := must.Have(matrix.ParseReleaseID(id.String()))(t)
			require.Zero(t, id.Compare(back), s)
		}
	})
}
