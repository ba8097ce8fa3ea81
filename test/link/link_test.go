package link_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/link"
)

func echo(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// A link may be slower than it says on a busy machine, never faster.
func TestNothingArrivesEarlier(t *testing.T) {
	l, err := link.New(echo(t), link.Options{RoundTrip: 30 * time.Millisecond, BitsPerSecond: 80e6})
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // the end
	began := time.Now()
	resp, err := http.Post("http://"+l.Host, "", bytes.NewReader(make([]byte, 1<<20)))
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	// One round trip for the connection, one for the exchange, 105 ms for 1 MiB, less
	// what a sender may be late.
	require.Greater(t, time.Since(began), 145*time.Millisecond)
	http.DefaultClient.CloseIdleConnections()
}
