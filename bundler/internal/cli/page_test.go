package cli_test

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page is self-contained, the same from every medium and at any time, and
// accounts for every byte.
func TestThePageForAnAuditor(t *testing.T) {
	w := newWorld(t, t.TempDir())
	hostile := strings.Replace(string(w.read(t, "matrix.yaml")), "state: current",
		"state: deprecated\n    reason: \"<script>alert(1)</script><img src=http://evil.test/x>\"", 1)
	w.write(t, "hostile.yaml", []byte(hostile))
	w.key(t, "k")
	w.must(t, "lock", "@up", "-q", "--matrix", "hostile.yaml", "-o", "lock.yaml", "--release", "csi@3.5.1", "--release", "cpi@1.33.1", "--release", "cpi@1.34.0")
	w.must(t, "pull", "@up", "-q", "--matrix", "hostile.yaml", "--lock", "lock.yaml", "--sign-key", "k.key", "-o", "a.tar")
	w.must(t, "pull", "@up", "-q", "--release", "cpi@1.34.0", "-o", "cpi.tar")
	w.must(t, "push", "a.tar", w.mirror.Host+"/vdo/drivers:1", "--ca-file", "ca.crt", "-q")

	w.must(t, "inspect", "a.tar", "--format", "html", "-o", "a.html")
	page := string(w.read(t, "a.html"))
	require.Equal(t, page, w.must(t, "inspect", "a.tar", "--format", "html"))
	require.Equal(t, page, w.must(t, "inspect", w.mirror.Host+"/vdo/drivers:1", "--ca-file", "ca.crt", "--format", "html"))
	require.Contains(t, page, "Not verified")

	require.NotRegexp(t, `(?i)<script|<img|<link|<iframe|<[^>]*\s(src|href)=|@import|url\(`, page)
	require.Contains(t, page, "&lt;script&gt;alert(1)&lt;/script&gt;")
	require.Contains(t, page, "default-src 'none'")

	var inspection struct {
		Bytes  int64
		Images []struct{ Reference, Digest string }
	}
	require.NoError(t, json.Unmarshal([]byte(w.must(t, "inspect", "a.tar", "--format", "json")), &inspection))
	for _, i := range inspection.Images {
		require.Contains(t, page, i.Reference)
		require.Contains(t, page, i.Digest)
	}
	_, table, ok := strings.Cut(page, "Where each byte came from")
	require.True(t, ok)
	var sum int64
	for _, row := range regexp.MustCompile(`(?s)<tr><td>.*?</tr>`).FindAllString(table, -1) {
		cells := regexp.MustCompile(`(?s)<td[^>]*>(.*?)</td>`).FindAllStringSubmatch(row, -1)
		require.Len(t, cells, 5, row)
		n := must(strconv.ParseInt(cells[1][1], 10, 64))(t)
		sum += n
		require.NotEmpty(t, cells[3][1], "what it is part of: %s", row)
		require.NotEmpty(t, cells[4][1], "where it came from: %s", row)
	}
	require.Equal(t, inspection.Bytes, sum)
	require.Contains(t, table, "registry.test/csi/driver, resolved at "+w.upstream.Host+"/x/csi/driver<br>")
	require.Contains(t, table, "listed at https://127.0.0.1:1/csi@3.5.1/driver.yaml")
	require.Regexp(t, `<th>1\.33</th><td>.*cpi@1\.33\.1 \(deprecated\).*csi@3\.5\.1`, page)

	// Only what is served is in the grid, and no word of a head breaks.
	grid := regexp.MustCompile(`(?s)<table class="grid">.*?</table>`).FindString(page)
	require.Regexp(t, `<th>1\.34</th>`, grid)
	for _, row := range regexp.MustCompile(`<tr>.*`).FindAllString(grid, -1)[1:] {
		require.Regexp(t, `(cpi|csi)@[0-9]`, row)
	}
	for _, head := range regexp.MustCompile(`<th>[^<]*vSphere [^<]*</th>`).FindAllString(grid, -1) {
		require.Regexp(t, `<th>from vSphere [0-9.]+</th>`, head)
	}
	require.NotContains(t, w.must(t, "inspect", "cpi.tar", "--format", "html"), "<th>1.33</th>")
	require.NotRegexp(t, `th[^{]*\{[^}]*overflow-wrap: anywhere`, page)

	verified := w.must(t, "inspect", "a.tar", "--key", "k.pub", "--format", "html")
	require.Contains(t, verified, "Verified: signed by k.pub.")
	require.Equal(t, verified, w.must(t, "inspect", "a.tar", "--key", "k.pub", "--format", "html"))
	require.Regexp(t, `"verification": \{\s+"root": "sha256:\w+",\s+"signedBy": \[\s+"k.pub"`,
		w.must(t, "inspect", "a.tar", "--key", "k.pub", "--format", "json"))
}
