package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
)

// conn is a connection without TLS over which the kernel sends what lies in files. The
// transport copies a request's body to it by ReadFrom; over TLS it writes, and the bytes
// pass through the program.
type conn struct{ *net.TCPConn }

type dial func(ctx context.Context, network, address string) (net.Conn, error)

// sendingFiles dials such connections.
func sendingFiles(d dial) dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d(ctx, network, address)
		if tcp, ok := c.(*net.TCPConn); ok && err == nil {
			return conn{tcp}, nil
		}
		return c, err
	}
}

// ReadFrom sends all that r gives.
func (c conn) ReadFrom(r io.Reader) (n int64, err error) {
	if limited, ok := r.(*io.LimitedReader); ok && canSendfile {
		if body, ok := limited.R.(*sending); ok && body.isFile() {
			n, err = body.sendTo(c.TCPConn, limited.N)
			if limited.N -= n; !errors.Is(err, errNotSendable) {
				return n, err
			}
		}
	}
	m, err := c.TCPConn.ReadFrom(r)
	return n + m, err
}

// FileBody is a request's body that lies in files.
type FileBody interface {
	io.ReadCloser
	// Span returns what may be sent next: n bytes of a file from an offset on; io.EOF
	// after the last. It waits until that is known to be right, where that is not yet
	// known.
	Span() (f *os.File, at, n int64, err error)
	// Sent takes note of bytes that were sent and not read.
	Sent(n int64)
}

// sendPiece is how much is sent at a time: between two pieces the watch and the pace
// have their say.
const sendPiece = 256 << 10

func (s *sending) isFile() bool {
	_, ok := s.body.(FileBody)
	return ok
}

// sendTo sends up to most bytes of a body that lies in files.
func (s *sending) sendTo(to *net.TCPConn, most int64) (sent int64, err error) {
	body := s.body.(FileBody) //nolint:forcetypeassert // isFile was asked
	for sent < most {
		f, at, n, err := s.nextSpan(body)
		if errors.Is(err, io.EOF) {
			return sent, nil
		}
		if err != nil {
			return sent, err
		}
		s.watch.start(s.watch.stall)
		n, err = sendfile(to, f, at, min(n, most-sent, sendPiece))
		s.watch.stop()
		sent += n
		if gone := s.took(body, n); gone != nil {
			return sent, gone
		}
		if err != nil {
			return sent, err
		}
		if err := s.pace.take(s.ctx, int(n)); err != nil {
			return sent, err
		}
	}
	s.watch.start(s.watch.stall)
	return sent, nil
}

// nextSpan may take as long as hashing does. Whoever closes the body does not wait for
// that: only the transport's own goroutine comes here, and nothing is read.
func (s *sending) nextSpan(body FileBody) (f *os.File, at, n int64, err error) {
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	if done {
		return nil, 0, 0, errClosedBody
	}
	s.watch.stop()
	return body.Span()
}

// took takes note of what was sent. The transport may have closed the body meanwhile:
// then nothing of it counts any more.
func (s *sending) took(body FileBody, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return errClosedBody
	}
	body.Sent(n)
	return nil
}

var errClosedBody = errors.New("read of a closed body")
