package parts_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

func list(t testing.TB, size, volume int64, recovery int) *parts.List {
	l, err := parts.New("drivers.tar", size, volume, recovery)
	require.NoError(t, err)
	for i := range l.Sums {
		l.Sums[i] = sha256.Sum256([]byte{byte(i)})
	}
	return l
}

func TestPartsAreTheArchive(t *testing.T) {
	for _, c := range []struct {
		size, volume int64
		want         []int64
	}{
		{5000, 2000, []int64{2000, 2000, 1000}},
		{4000, 2000, []int64{2000, 2000}},
		{1, 2000, []int64{1}},
		{2000, 2000, []int64{2000}},
		{2001, 2000, []int64{2000, 1}},
	} {
		l := list(t, c.size, c.volume, 2)
		var got []int64
		for i := range int(l.Count()) {
			got = append(got, l.PartSize(i))
			require.Equal(t, fmt.Sprintf("drivers.tar.%03d", i+1), l.Name(i))
		}
		require.Equal(t, c.want, got)
		require.Equal(t, "drivers.tar.p002", l.Name(l.All()-1))
		require.Equal(t, c.want[0], l.PartSize(l.All()-1), "a parity shard is as long as the longest part")
	}
}

func TestTextIsWhatTheSpecificationSays(t *testing.T) {
	text := string(list(t, 5_000_000_000, 2_000_000_000, 1).Text())
	require.Equal(t, `# vdo-bundle parts 1
# file drivers.tar
# size 5000000000
# volume 2000000000
# recovery 1
6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d  drivers.tar.001
4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a  drivers.tar.002
dbc1b4c900ffe48d575b5da5c638040125f65db0fe3e24494b76ea986457d986  drivers.tar.003
084fed08b978af4d7d196a7446a86b58009e636b611db16211b65a9aadff29c5  drivers.tar.p001
`, text[:strings.LastIndex(text, "# sum ")])
	l, err := parts.Parse("x", []byte(text))
	require.NoError(t, err)
	require.Equal(t, list(t, 5_000_000_000, 2_000_000_000, 1), l)
}

func TestWhatCannotBeSplitIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		file         string
		size, volume int64
		recovery     int
	}{
		"no parts":        {"a.tar", 0, 1000, 0},
		"tiny parts":      {"a.tar", 1000, 511, 0},
		"too many":        {"a.tar", 1000 * 512, 512, 0},
		"too many shards": {"a.tar", 200 * 512, 512, 57},
		"negative":        {"a.tar", 1000, 512, -1},
		"folder":          {"a/b.tar", 1000, 512, 0},
		"climbs":          {"..", 1000, 512, 0},
		"line":            {"a\nb.tar", 1000, 512, 0},
		"empty":           {"", 1000, 512, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parts.New(c.file, c.size, c.volume, c.recovery)
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
		})
	}
}

// sealed gives a text the last line that fits it.
func sealed(body string) []byte {
	return fmt.Appendf(nil, "%s# sum %x\n", body, sha256.Sum256([]byte(body)))
}

func TestEveryOtherTextIsRefused(t *testing.T) {
	good := string(list(t, 5000, 2000, 1).Text())
	body := good[:strings.LastIndex(good, "# sum ")]
	_, err := parts.Parse("x", sealed(body))
	require.NoError(t, err)
	for name, data := range map[string][]byte{
		"empty":           nil,
		"cut off":         []byte(good[:len(good)-1]),
		"longer":          []byte(good + "\n"),
		"a bit":           bytes.Replace([]byte(good), []byte("6e34"), []byte("6e35"), 1),
		"windows lines":   []byte(strings.ReplaceAll(good, "\n", "\r\n")),
		"upper case":      sealed(strings.Replace(body, "6e340b", "6E340B", 1)),
		"other name":      sealed(strings.Replace(body, "  drivers.tar.001", "  ../../etc/pass", 1)),
		"leading zero":    sealed(strings.Replace(body, "size 5000", "size 05000", 1)),
		"part missing":    sealed(strings.Replace(body, "dbc1b4c900ffe48d575b5da5c638040125f65db0fe3e24494b76ea986457d986  drivers.tar.003\n", "", 1)),
		"climbing file":   sealed(strings.ReplaceAll(body, "drivers.tar", "../drivers.tar")),
		"volume zero":     sealed(strings.Replace(body, "volume 2000", "volume 0", 1)),
		"huge":            sealed(strings.Replace(body, "size 5000", "size 9223372036854775807", 1)),
		"many recoveries": sealed(strings.Replace(body, "recovery 1", "recovery 999999999", 1)),
		"another comment": sealed(strings.Replace(body, "recovery 1\n", "recovery 1\n# changing\n", 1)),
		"other version":   sealed(strings.Replace(body, "parts 1", "parts 2", 1)),
		"too large":       bytes.Repeat([]byte("#"), parts.MaxSize+1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parts.Parse("drivers.tar.parts", data)
			require.Equal(t, fault.Corrupt, fault.ReasonOf(err), "%v", err)
			require.Contains(t, err.Error(), "drivers.tar.parts")
			require.Equal(t, name == "windows lines", strings.Contains(err.Error(), "CRLF"))
			require.NotEmpty(t, fault.HintOf(err))
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(list(f, 5000, 2000, 1).Text())
	f.Add([]byte("# vdo-bundle parts 1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{data, sealed(string(data))} { // mutants with a right last line too
			l, err := parts.Parse("x", data)
			if err != nil {
				continue
			}
			require.Equal(t, data, l.Text())
			require.Len(t, l.Sums, l.All())
			var sum int64
			for i := range int(l.Count()) {
				sum += l.PartSize(i)
			}
			require.Equal(t, l.Size, sum)
		}
	})
}
