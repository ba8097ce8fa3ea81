package serve

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Who sends wrong logins takes one slot at most: hashing them keeps nobody else out.
func TestAClientTakesOneSlotAtATime(t *testing.T) {
	a := &Accounts{slots: make(chan struct{}, 2), clients: map[string]*client{}}
	turn := func(address string) (func(), error) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		req := httptest.NewRequestWithContext(ctx, "GET", "/v2/", nil)
		req.RemoteAddr = address
		return a.turn(req)
	}
	first, err := turn("192.0.2.1:1000")
	require.NoError(t, err)
	_, err = turn("192.0.2.1:1001")
	require.ErrorIs(t, err, errGone)
	second, err := turn("192.0.2.2:1000")
	require.NoError(t, err)
	_, err = turn("192.0.2.3:1000")
	require.ErrorIs(t, err, errGone, "all slots are taken")
	first()
	second()
	third, err := turn("192.0.2.1:1002")
	require.NoError(t, err)
	third()
	require.Empty(t, a.clients, "nothing is kept of who has gone")
}
