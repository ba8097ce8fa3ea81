package serve

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Who sends wrong logins takes one slot at most: hashing them keeps no one else out.
func TestAClientTakesOneSlotAtATime(t *testing.T) {
	a := newAccounts(2)
	turn := func(address string) (func(), error) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		req := httptest.NewRequestWithContext(ctx, "GET", "/v2/", nil)
		req.RemoteAddr = address
		return a.turn(req)
	}
	other := "192.0.2.2"
	for n := 3; a.turnOf(other) == a.turnOf("192.0.2.1"); n++ {
		other = fmt.Sprintf("192.0.2.%d", n)
	}
	first, err := turn("192.0.2.1:1000")
	require.NoError(t, err)
	_, err = turn("192.0.2.1:1001")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	second, err := turn(other + ":1000")
	require.NoError(t, err)
	_, err = turn("192.0.3.1:1000")
	require.ErrorIs(t, err, context.DeadlineExceeded, "all slots are taken")
	first()
	second()
	third, err := turn("192.0.2.1:1002")
	require.NoError(t, err)
	third()
}
