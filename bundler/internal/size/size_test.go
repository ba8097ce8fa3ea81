package size_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
)

func TestSizesAreRead(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "17": 17, "17B": 17, "50MB": 50_000_000, "50M": 50_000_000, "16MiB": 16 << 20, "16Mi": 16 << 20,
		"3k": 3000, "3K": 3000, "2GiB": 2 << 30, "1T": 1e12, "1.5M": 1_500_000, "1 MB": 1_000_000, "1mb": 1_000_000,
		"4294967295": 4294967295, "4.7GB": 4_700_000_000, "64KiB": 64 << 10, "4Gi": 4 << 30,
		"": -1, "MB": -1, "-1": -1, "1iB": -1, "1.2.3M": -1, "99999999T": -1, "16EiB": -1, "1XB": -1, "1e3": -1,
		"NaN": -1, "Inf": -1, "5 0MB": -1, "4i": -1, "0x10": -1, "4,7GB": -1,
	} {
		var b size.Bytes = -1
		if err := b.Set(s); err != nil {
			require.EqualError(t, err, "not a size such as 4GB, 16MiB or 1048576", s)
		}
		require.Equal(t, want, int64(b), s)
	}
}

func TestFormat(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1000: "1.0 kB", 1234567: "1.2 MB", 82_900_000: "83 MB", 4_700_000_000: "4.7 GB", -1: "0 B",
	} {
		require.Equal(t, want, size.Format(n), n)
	}
}
