// Package link is a slow network in one process: a TCP relay with a round trip time and a bandwidth. It serves
// benchmarks and tests of programs over such a link.
//
//	l, err := link.New(registryHost, link.Options{RoundTrip: 20 * time.Millisecond, BitsPerSecond: 1e9})
//	l.Host     // instead of the registry's host
//	l.Close()
//
// Each direction has its own bandwidth, shared by all connections. A byte arrives half a round trip after it was
// sent. A connection costs one round trip before its first byte. There is no loss and no slow start: it is a line
// with well-tuned windows, which favours programs that use few connections.
package link

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Options say how slow the link is. Zero is as fast as the machine.
type Options struct {
	RoundTrip     time.Duration
	BitsPerSecond float64
}

const (
	chunk  = 32 << 10             // bytes that travel together
	window = 4 << 20              // bytes in transit of one connection and direction
	slip   = 8 * time.Millisecond // delay of a sender without loss of bandwidth
)

// Link is a running relay.
type Link struct {
	// Host is the address to connect to: 127.0.0.1:40123.
	Host string

	to       string
	o        Options
	listener net.Listener
	cancel   context.CancelFunc
	running  sync.WaitGroup
	up, down *rate.Limiter // of the bytes in each direction
}

// New relays a free loopback port to an address until Close.
func New(to string, o Options) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	bytes, burst := rate.Inf, chunk
	if o.BitsPerSecond > 0 {
		bytes = rate.Limit(o.BitsPerSecond / 8)
		burst = max(burst, int(float64(bytes)*slip.Seconds()))
	}
	l := &Link{
		Host: listener.Addr().String(), to: to, o: o, listener: listener, cancel: cancel,
		up: rate.NewLimiter(bytes, burst), down: rate.NewLimiter(bytes, burst),
	}
	l.running.Go(func() { l.accept(ctx) })
	return l, nil
}

// Close ends the relay and its connections.
func (l *Link) Close() error {
	l.cancel()
	err := l.listener.Close()
	l.running.Wait()
	return err
}

func (l *Link) accept(ctx context.Context) {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.running.Go(func() { l.relay(ctx, client) })
	}
}

func (l *Link) relay(ctx context.Context, client net.Conn) {
	defer client.Close() //nolint:errcheck // the end of the relay
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.to)
	if err != nil {
		return
	}
	defer server.Close() //nolint:errcheck // the end of the relay
	stop := context.AfterFunc(ctx, func() {
		_, _ = client.Close(), server.Close()
	})
	defer stop()
	sleep(ctx, time.Now().Add(l.o.RoundTrip)) // the handshake
	var both sync.WaitGroup
	both.Go(func() { l.carry(ctx, l.up, server, client) })
	both.Go(func() { l.carry(ctx, l.down, client, server) })
	both.Wait()
}

type parcel struct {
	data []byte
	at   time.Time // of arrival
}

// carry moves one direction of a connection until it ends.
func (l *Link) carry(ctx context.Context, by *rate.Limiter, to, from net.Conn) {
	under := make(chan parcel, window/chunk)
	var arriving sync.WaitGroup
	arriving.Go(func() { l.deliver(ctx, to, from, under) })
	for {
		b := make([]byte, chunk)
		n, err := from.Read(b)
		if n > 0 && by.WaitN(ctx, n) == nil {
			under <- parcel{b[:n], time.Now().Add(l.o.RoundTrip / 2)}
		}
		if err != nil {
			break
		}
	}
	close(under)
	arriving.Wait()
}

// deliver writes the bytes that arrive, and closes after them.
func (l *Link) deliver(ctx context.Context, to, from net.Conn, under <-chan parcel) {
	failed := false
	for p := range under {
		sleep(ctx, p.at)
		if !failed {
			if _, err := to.Write(p.data); err != nil {
				failed = true
				_ = from.Close()
			}
		}
	}
	if tcp, ok := to.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}

// sleep waits until a time, or until ctx is done.
func sleep(ctx context.Context, until time.Time) {
	if d := time.Until(until); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}
