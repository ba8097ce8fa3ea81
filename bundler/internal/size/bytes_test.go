package size_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
)

func TestSizesAreRead(t *testing.T) {
	for s, want := range map[string]int64{
		"4GB": 4e9, "4G": 4e9, "4GiB": 4 << 30, "4Gi": 4 << 30, "650MB": 650e6, "1.5GB": 1.5e9, "4294967295": 4294967295,
		"64kB": 64e3, "64KiB": 64 << 10, "1TB": 1e12, "700 MB": 700e6, "12B": 12,
		"": -1, "GB": -1, "-1GB": -1, "4XB": -1, "4i": -1, "4iB": -1, "9999999999TB": -1, "1.5.5G": -1, "0x10": -1,
	} {
		var b size.Bytes = -1
		err := b.Set(s)
		require.Equal(t, want < 0, err != nil, s)
		require.Equal(t, want, int64(b), s)
	}
}

func FuzzBytes(f *testing.F) {
	f.Add("1.5GiB")
	f.Fuzz(func(t *testing.T, s string) {
		var b size.Bytes
		if b.Set(s) != nil {
			return
		}
		require.GreaterOrEqual(t, int64(b), int64(0))
		var again size.Bytes
		if b > 0 {
			require.NoError(t, again.Set(b.String()))
			require.Equal(t, b, again)
		}
	})
}
