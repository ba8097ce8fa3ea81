package link_test

import (
	"bytes"
	"crypto/rand"
	"errors"
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

func TestBytesArriveAsTheyWereSent(t *testing.T) {
	for _, o := range []link.Options{{}, {RoundTrip: 4 * time.Millisecond, BitsPerSecond: 1e9}} {
		l, err := link.New(echo(t), o)
		require.NoError(t, err)
		data := make([]byte, 3<<20)
		_, _ = rand.Read(data)
		resp, err := http.Post("http://"+l.Host, "", bytes.NewReader(data))
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.True(t, bytes.Equal(data, got))
		require.Greater(t, l.Bytes(), int64(2*len(data)))
		require.Positive(t, l.Connections())
		http.DefaultClient.CloseIdleConnections()
		require.NoError(t, l.Close())
	}
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

func TestACutNetworkIsGoneUntilItIsMended(t *testing.T) {
	l, err := link.New(echo(t), link.Options{})
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // the end
	post := func() error {
		resp, err := http.Post("http://"+l.Host, "", bytes.NewReader(make([]byte, 1<<20)))
		if err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if err == nil {
			require.Equal(t, int64(1<<20), n)
		}
		return errors.Join(err, resp.Body.Close())
	}
	require.NoError(t, post())
	require.False(t, l.Mend(), "it was never cut")
	l.Cut(300 << 10)
	before := l.Bytes()
	require.Error(t, post())
	require.Error(t, post())
	require.Less(t, l.Bytes()-before, int64(1<<20))
	require.True(t, l.Mend())
	require.NoError(t, post())
	http.DefaultClient.CloseIdleConnections()
}
