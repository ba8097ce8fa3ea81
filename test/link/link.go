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
	up, down lane
}

// New relays a free loopback port to an address until Close.
func New(to string, o Options) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Link{Host: listener.Addr().String(), to: to, o: o, listener: listener, cancel: cancel}
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
	both.Go(func() { l.carry(ctx, &l.up, server, client) })
	both.Go(func() { l.carry(ctx, &l.down, client, server) })
	both.Wait()
}

// A lane is one direction, shared by all connections.
type lane struct {
	mu   sync.Mutex
	free time.Time // when the last accepted bytes have left
}

// take returns when n more bytes have left.
func (l *lane) take(n int, bitsPerSecond float64) time.Time {
	now := time.Now()
	if bitsPerSecond <= 0 {
		return now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if earliest := now.Add(-slip); l.free.Before(earliest) {
		l.free = earliest
	}
	l.free = l.free.Add(time.Duration(float64(n) * 8 / bitsPerSecond * float64(time.Second)))
	return l.free
}

type parcel struct {
	data []byte
	at   time.Time // of arrival
}

var chunks = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}

// carry moves one direction of a connection until it ends.
func (l *Link) carry(ctx context.Context, by *lane, to, from net.Conn) {
	under := make(chan parcel, window/chunk)
	var arriving sync.WaitGroup
	arriving.Go(func() { l.deliver(ctx, to, from, under) })
	for {
		b := *chunks.Get().(*[]byte)
		n, err := from.Read(b)
		if n > 0 {
			left := by.take(n, l.o.BitsPerSecond)
			sleep(ctx, left)
			under <- parcel{b[:n], left.Add(l.o.RoundTrip / 2)}
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
		full := p.data[:cap(p.data)]
		chunks.Put(&full)
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
