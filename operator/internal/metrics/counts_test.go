package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Where nobody scrapes, as where metrics are off, what is kept of vCenters does not grow
// with the addresses that were ever asked; what was asked last is there.
func TestLatenciesAreBoundedWithoutScrapes(t *testing.T) {
	c := newCounts()
	var last string
	for i := range 3 * maxAddresses {
		host := fmt.Sprintf("vc-%d.site.example", i)
		c.VCenterChecked(host, 443, time.Second, "Succeeded")
		c.VCenterChecked(host, 443, time.Minute, "Succeeded") // again: nothing makes way for it
		last = address(host, 443)
	}
	require.Len(t, c.took, maxAddresses)
	require.Equal(t, map[string]time.Duration{last: time.Minute}, c.latencies(map[string]bool{last: true}))
	require.Len(t, c.took, 1)
}
