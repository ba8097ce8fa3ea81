package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// tlsConn is a connection of which a failed write says what the other side reported. Under
// TLS 1.3 a server refuses a client, for want of a certificate, after the handshake: who
// is writing by then sees the connection go, and not why. The transport reads while it
// writes, and so has the reason; it tells the one or the other.
type tlsConn struct {
	*tls.Conn
	once  sync.Once
	ended chan struct{} // closed when reading has ended
	why   error         // of reading
}

// lastWord is how long a failed write waits for the reason.
const lastWord = time.Second

// Read reads, and keeps what ended it.
func (c *tlsConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.once.Do(func() {
			c.why = err
			close(c.ended)
		})
	}
	return n, err
}

// Write writes. Its error is that of reading where the other side has given a reason.
func (c *tlsConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err == nil {
		return n, nil
	}
	t := time.NewTimer(lastWord)
	defer t.Stop()
	select {
	case <-c.ended:
		if isAlert(c.why) {
			return n, c.why
		}
	case <-t.C:
	}
	return n, err
}

// isAlert tells whether an error is what the other side of a connection with TLS has
// reported before it ended it; crypto/tls has no type for it.
func isAlert(err error) bool {
	var n *net.OpError
	return errors.As(err, &n) && n.Op == "remote error"
}

// dialTLS dials such connections, with what is set in a transport. (To a proxy the
// transport dials by itself.)
func dialTLS(t *http.Transport) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := t.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		config := t.TLSClientConfig.Clone()
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
		c := &tlsConn{Conn: tls.Client(raw, config), ended: make(chan struct{})}
		within, stop := context.WithTimeout(ctx, t.TLSHandshakeTimeout)
		defer stop()
		if err := c.HandshakeContext(within); err != nil {
			_ = raw.Close()
			if within.Err() != nil && ctx.Err() == nil {
				err = &net.OpError{Op: "TLS handshake", Net: network, Addr: raw.RemoteAddr(), Err: os.ErrDeadlineExceeded}
			}
			return nil, err
		}
		return c, nil
	}
}
