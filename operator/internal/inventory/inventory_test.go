package inventory_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

func entry(driver matrix.Driver, kind, name, release string) inventory.Entry {
	return inventory.Entry{
		ID:     inventory.ID{Key: inventory.Key{Group: "apps", Kind: kind, Namespace: "kube-system", Name: name}, Version: "v1"},
		Driver: driver, Release: release,
	}
}

func TestRecordRoundTripsAndIsSorted(t *testing.T) {
	a, b := entry(matrix.CPI, "DaemonSet", "a", "cpi@1.33.1"), entry(matrix.CSI, "Deployment", "b", "")
	a.UID, a.Rendered, a.Content = "u-1", "r", "c"
	one := inventory.Of(b, a)
	two := inventory.Of(a).With(b)
	require.Equal(t, string(one.Marshal()), string(two.Marshal()))
	again, err := inventory.Parse("x", one.Marshal())
	require.NoError(t, err)
	require.True(t, again.Equal(one))
	require.Equal(t, []inventory.Entry{a, b}, again.Entries())
	require.Equal(t, []matrix.Driver{matrix.CPI, matrix.CSI}, again.Drivers())
}

func TestUnionKeepsWhatIsKnownAndForgetsNothing(t *testing.T) {
	old := inventory.Of(entry(matrix.CSI, "Deployment", "kept", "csi@3.3.1"), entry(matrix.CSI, "Deployment", "leaves", "csi@3.3.1"))
	wide := old.Union(entry(matrix.CSI, "Deployment", "kept", ""), entry(matrix.CSI, "Deployment", "comes", ""))
	require.Equal(t, 3, wide.Len())
	kept, _ := wide.Get(entry(matrix.CSI, "Deployment", "kept", "").Key)
	require.Equal(t, "csi@3.3.1", kept.Release)
	require.Equal(t, 2, old.Len(), "operations leave their operand alone")
}

func TestParseRefusesWhatItDoesNotUnderstand(t *testing.T) {
	good := string(inventory.Of(entry(matrix.CSI, "Deployment", "a", "")).Marshal())
	for name, data := range map[string]string{
		"empty":         "",
		"not JSON":      "objects: []",
		"newer version": strings.Replace(good, "/v1", "/v2", 1),
		"no kind":       strings.Replace(good, `"Deployment"`, `""`, 1),
		"cut":           good[:len(good)-4],
		"two records":   good + good,
		"twice":         `{"apiVersion":"` + inventory.APIVersion + `","objects":[{"kind":"A","name":"a","version":"v1","driver":"csi"},{"kind":"A","name":"a","version":"v2","driver":"csi"}]}`,
	} {
		_, err := inventory.Parse("vdo/vdo-inventory-x", []byte(data))
		require.Equal(t, fault.Corrupt, fault.ReasonOf(err), name)
		require.Contains(t, err.Error(), "vdo/vdo-inventory-x", name)
	}
}

// No two records are one, of SIPClusters, which tenants name, or of VDOConfigs.
func TestRecordsAreApart(t *testing.T) {
	long := strings.Repeat("n", 253)
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte("copy-a")))
	for naming, owners := range map[inventory.Naming][]string{
		inventory.SIPClusters: {"a.b", "copy-a.b", "of-a.b", "a.copy-b", "copy.a.b", strings.Repeat("n", 63) + "." + long},
		inventory.VDOConfigs:  {"a", "copy-a", "copy-copy-a", "copy", "copy.a", long, long[:252], hash, "copy-" + hash, fmt.Sprintf("%x", sha256.Sum256([]byte(long)))},
	} {
		seen := map[string]bool{}
		for _, owner := range owners {
			for _, name := range []string{naming.ConfigMap(owner), naming.Copy(owner)} {
				require.False(t, seen[name], name)
				require.LessOrEqual(t, len(name), 253)
				seen[name] = true
			}
		}
	}
	require.Equal(t, inventory.VDOConfigs.ConfigMap("x"), inventory.Naming{}.ConfigMap("x"))
	require.Equal(t, "vdo-inventory-site", inventory.VDOConfigs.ConfigMap("site"), "as it always was")
	require.Equal(t, "sip-inventory-of-copy-a.b", inventory.SIPClusters.ConfigMap("copy-a.b"), "as it always was")
}
