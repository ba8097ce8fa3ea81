// Package sshd is the jump host: an SSH server that leads to the hosts of one tenant
// cluster and to nothing else. What it may be asked, its files and what changes of them do
// are specified by package jumphost.
//
//	s, err := sshd.New(sshd.Options{Dir: jumphost.Dir, Audit: os.Stdout, Log: log})
//	err = s.Serve(ctx, listener)
//
// Connections, handshake and the protocol are those of gliderlabs/ssh over x/crypto/ssh.
// Of the former's handlers none is used: its session answers requests for an agent with yes
// and keeps any number of variables and signals, its forwards are neither bounded nor told
// of, and the key that it remembers is the last one that was offered, not the one that was
// proven. The handlers here do what is specified, and each channel, request and connection
// is counted against a limit.
package sshd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

// Limits bound what clients may use. Zero means the default.
type Limits struct {
	Connections     int           // at once; 256
	Unauthenticated int           // of them, before the login; 64
	PerSecond       float64       // new ones of one source address; 10, with a burst of three times that
	Channels        int           // sessions and forwards of one connection; 32
	Handshake       time.Duration // until the login; 20 s
	Idle            time.Duration // without any traffic; 1 h
	Dial            time.Duration // to a host; 10 s
	Grace           time.Duration // for connections at the end of the program; 20 s
	Poll            time.Duration // how often the files are looked at; 3 s
}

func (l Limits) orDefault() Limits {
	return Limits{
		Connections: cmp.Or(l.Connections, 256), Unauthenticated: cmp.Or(l.Unauthenticated, 64), PerSecond: cmp.Or(l.PerSecond, 10),
		Channels: cmp.Or(l.Channels, 32), Handshake: cmp.Or(l.Handshake, 20*time.Second), Idle: cmp.Or(l.Idle, time.Hour),
		Dial: cmp.Or(l.Dial, 10*time.Second), Grace: cmp.Or(l.Grace, 20*time.Second), Poll: cmp.Or(l.Poll, 3*time.Second),
	}
}

// Dialer connects to hosts.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Options are what a server is made of.
type Options struct {
	Dir    string    // of the files; see package jumphost
	Audit  io.Writer // one JSON object a line
	Log    *slog.Logger
	Limits Limits
	Dial   Dialer // nil: the network
}

// Server is a jump host.
type Server struct {
	o      Options
	files  atomic.Pointer[files]
	ssh    *ssh.Server
	audit  *slog.Logger
	nodes  hostKeys
	admits *admission

	pending pending

	mu    sync.Mutex
	conns map[*connection]struct{}
	ready atomic.Bool
	// inForce is what is answered to who asks where this leads.
	inForce atomic.Pointer[string]
}

// New reads the files. It fails where they cannot be understood.
func New(o Options) (*Server, error) {
	o.Limits = o.Limits.orDefault()
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	f, err := read(o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{o: o, conns: map[*connection]struct{}{}, audit: newAudit(o.Audit), admits: newAdmission(o.Limits)}
	s.ssh = &ssh.Server{ // its host keys come with the files
		Version: "VDO", IdleTimeout: o.Limits.Idle, ConnCallback: s.admit,
		PublicKeyHandler: s.mayProve, ServerConfigCallback: s.config,
		ChannelHandlers: map[string]ssh.ChannelHandler{
			"session": s.guarded(s.session), "direct-tcpip": s.guarded(s.forward), "default": s.guarded(s.otherChannel),
		},
		RequestHandlers:   map[string]ssh.RequestHandler{"default": s.otherRequest},
		SubsystemHandlers: map[string]ssh.SubsystemHandler{},
	}
	s.take(f)
	return s, nil
}

// Serve takes connections until ctx is over; then it leaves those that are open the time
// of grace. When it returns the audit has told of the end of each.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	var follows sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer follows.Wait()
	defer cancel()
	defer s.settle()
	follows.Go(func() { s.follow(ctx) })
	ended := make(chan error, 1)
	go func() { ended <- s.ssh.Serve(l) }()
	s.ready.Store(true)
	s.audit.Info("started", "cluster", s.files.Load().config.Cluster, "listen", l.Addr().String())
	select {
	case err := <-ended:
		return fmt.Errorf("serve SSH: %w", err)
	case <-ctx.Done():
	}
	s.ready.Store(false)
	s.o.Log.Info("stopping: connections have until then to end", "grace", s.o.Limits.Grace.String())
	_ = l.Close() // the library closes only what it was already serving
	grace, done := context.WithTimeout(context.WithoutCancel(ctx), s.o.Limits.Grace)
	defer done()
	if err := s.ssh.Shutdown(grace); errors.Is(err, context.DeadlineExceeded) {
		_ = s.ssh.Close()
	}
	if err := <-ended; !errors.Is(err, ssh.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		s.o.Log.Warn("the listener ended otherwise", "error", err)
	}
	return nil
}

// Health answers /healthz, /readyz and [jumphost.InForcePath].
func (s *Server) Health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.ready.Load() {
			http.Error(w, "not serving", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET "+jumphost.InForcePath, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, *s.inForce.Load()+"\n") })
	return mux
}

// channelHandler is a handler of one channel on one connection.
type channelHandler func(c *connection, newChan gossh.NewChannel, ctx ssh.Context)

// guarded counts a channel, and keeps a fault in one from ending the others.
func (s *Server) guarded(handle channelHandler) ssh.ChannelHandler {
	return func(_ *ssh.Server, conn *gossh.ServerConn, newChan gossh.NewChannel, ctx ssh.Context) {
		c, ok := ctx.Value(connectionKey{}).(*connection)
		if !ok || !s.pending.enter() {
			_ = newChan.Reject(gossh.Prohibited, "not admitted")
			return
		}
		defer s.pending.leave()
		defer func() {
			if r := recover(); r != nil {
				s.o.Log.Error("a defect of this program: the connection is closed", "session", c.id, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
				_ = conn.Close()
			}
		}()
		if c.channels.Add(1) > int32(s.o.Limits.Channels) { //nolint:gosec // a small number
			c.channels.Add(-1)
			s.refused(c, "channel refused", "type", short(newChan.ChannelType()), "why", "too many at once")
			_ = newChan.Reject(gossh.ResourceShortage, "too many channels at once")
			return
		}
		defer c.channels.Add(-1)
		handle(c, newChan, ctx)
	}
}

// otherChannel refuses sockets, tunnels, X11 and whatever else there may be.
func (s *Server) otherChannel(c *connection, newChan gossh.NewChannel, _ ssh.Context) {
	s.refused(c, "channel refused", "type", short(newChan.ChannelType()), "why", "not offered")
	_ = newChan.Reject(gossh.UnknownChannelType, "this jump host does not offer that")
}

// otherRequest refuses remote forwarding and the like; keepalives are answered with that
// too, as sshd does.
func (s *Server) otherRequest(ctx ssh.Context, _ *ssh.Server, r *gossh.Request) (bool, []byte) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok && r.Type != "keepalive@openssh.com" {
		s.refused(c, "request refused", "type", short(r.Type))
	}
	return false, nil
}
