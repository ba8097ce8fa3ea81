package sshd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/time/rate"
)

// connectionKey finds a connection in its context.
type connectionKey struct{}

// connection is one client's.
type connection struct {
	net.Conn

	id       string
	from     string // address
	deadline *time.Timer
	channels atomic.Int32
	refusals *rate.Limiter // of audit lines
	swallow  atomic.Int64  // refusals that no line tells of

	mu      sync.Mutex
	offered []string // fingerprints, before the login
	user    string
	key     gossh.PublicKey // proven; nil before
	comment string
	open    map[*opened]struct{}
}

// opened is a forward or session to a host.
type opened struct {
	at    netip.AddrPort
	close func()
}

const (
	maxOffered     = 6  // keys that a client may try
	auditBurst     = 20 // lines of refusals of one connection, then one a second
	idBytes        = 6
	maxSources     = 4096
	burstOfSources = 3
)

// admission is who may connect at all.
type admission struct {
	limits Limits

	mu            sync.Mutex
	all, unproven int
	sources       map[netip.Addr]*rate.Limiter
	turnedAway    int64
	tell          rate.Sometimes
}

func newAdmission(l Limits) *admission {
	return &admission{limits: l, sources: map[netip.Addr]*rate.Limiter{}, tell: rate.Sometimes{First: 1, Interval: time.Minute}}
}

// enter counts a connection, or says why it is turned away.
func (a *admission) enter(from netip.Addr) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	limiter := a.sources[from]
	if limiter == nil {
		if len(a.sources) >= maxSources {
			clear(a.sources)
		}
		limiter = rate.NewLimiter(rate.Limit(a.limits.PerSecond), max(1, int(a.limits.PerSecond*burstOfSources)))
		a.sources[from] = limiter
	}
	switch {
	case !limiter.Allow():
		return "too many connections a second from this address"
	case a.all >= a.limits.Connections:
		return "too many connections"
	case a.unproven >= a.limits.Unauthenticated:
		return "too many connections before their login"
	}
	a.all++
	a.unproven++
	return ""
}

func (a *admission) count(all, unproven int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all += all
	a.unproven += unproven
}

// admit takes a connection, or none of it.
func (s *Server) admit(ctx ssh.Context, conn net.Conn) net.Conn {
	if !s.pending.enter() {
		return nil
	}
	from := addressOf(conn.RemoteAddr())
	if why := s.admits.enter(from); why != "" {
		s.turnAway(from, why)
		s.pending.leave()
		return nil
	}
	id := make([]byte, idBytes)
	_, _ = rand.Read(id)
	c := &connection{
		Conn: conn, id: hex.EncodeToString(id), from: from.String(), open: map[*opened]struct{}{},
		refusals: rate.NewLimiter(1, auditBurst), deadline: time.AfterFunc(s.o.Limits.Handshake, func() { _ = conn.Close() }),
	}
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	ctx.SetValue(connectionKey{}, c)
	context.AfterFunc(ctx, func() { s.gone(c) })
	return c
}

// turnAway tells of what was turned away once a minute, with the number.
func (s *Server) turnAway(from netip.Addr, why string) {
	a := s.admits
	a.mu.Lock()
	a.turnedAway++
	a.mu.Unlock()
	a.tell.Do(func() {
		a.mu.Lock()
		n := a.turnedAway
		a.turnedAway = 0
		a.mu.Unlock()
		s.audit.Warn("connections turned away", "count", n, "lastFrom", from.String(), "why", why)
	})
}

// gone forgets a connection, closes what it had opened, and tells of it; who only looked
// whether the port is open is not told of.
func (s *Server) gone(c *connection) {
	defer s.pending.leave()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	c.deadline.Stop()
	c.mu.Lock()
	proven, opens, offered := c.key != nil, c.open, slices.Clone(c.offered)
	c.open = nil
	c.mu.Unlock()
	for o := range opens {
		o.close()
	}
	switch {
	case proven:
		s.admits.count(-1, 0)
		s.audit.Info("logged out", append(c.who(), "notTold", c.swallow.Load())...)
	default:
		s.admits.count(-1, -1)
		if len(offered) > 0 {
			s.audit.Warn("login refused", "session", c.id, "from", c.from, "offered", offered)
		}
	}
}

// config is how the handshake goes: no password, few tries, and what the login stands for
// is set by the key that was proven.
func (s *Server) config(ctx ssh.Context) *gossh.ServerConfig {
	return &gossh.ServerConfig{
		MaxAuthTries: maxOffered,
		VerifiedPublicKeyCallback: func(conn gossh.ConnMetadata, key gossh.PublicKey, _ *gossh.Permissions, _ string) (*gossh.Permissions, error) {
			c, ok := ctx.Value(connectionKey{}).(*connection)
			if !ok || !s.loggedIn(c, conn.User(), key) {
				return nil, errors.New("permission denied")
			}
			return &gossh.Permissions{}, nil
		},
	}
}

// mayProve tells whether a key is authorised, before the client proves that it has it.
func (s *Server) mayProve(ctx ssh.Context, key ssh.PublicKey) bool {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c.mu.Lock()
		if f := gossh.FingerprintSHA256(key); len(c.offered) < maxOffered && !slices.Contains(c.offered, f) {
			c.offered = append(c.offered, f)
		}
		c.mu.Unlock()
	}
	_, ok := s.files.Load().config.Authorized(key)
	return ok
}

// loggedIn is when the key was proven; it may have been taken away meanwhile.
func (s *Server) loggedIn(c *connection, user string, key gossh.PublicKey) bool {
	c.mu.Lock()
	first := c.key == nil && c.open != nil
	if first {
		c.user, c.key = short(user), key
	}
	c.mu.Unlock()
	if !first {
		return false
	}
	s.admits.count(0, -1)
	known, ok := s.files.Load().config.Authorized(key) // after it is set: a change from now on finds it
	if !ok || !c.deadline.Stop() {
		return false
	}
	c.mu.Lock()
	c.comment = known.Comment
	c.mu.Unlock()
	s.audit.Info("logged in", c.who()...)
	return true
}

// enlist notes what a connection opens to a host; false where it may not any more.
func (s *Server) enlist(c *connection, o *opened) bool {
	c.mu.Lock()
	ok := c.open != nil
	if ok {
		c.open[o] = struct{}{}
	}
	c.mu.Unlock()
	// After it is noted: a change from now on finds it, one before is seen here.
	if f := s.files.Load(); ok && f.reaches(o.at) && f.knows(c.key) {
		return true
	}
	s.dismiss(c, o)
	return false
}

func (s *Server) dismiss(c *connection, o *opened) {
	c.mu.Lock()
	delete(c.open, o)
	c.mu.Unlock()
	o.close()
}

// who is how audit lines name a client.
func (c *connection) who() []any {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []any{"session", c.id, "from", c.from, "user", c.user}
	if c.key != nil {
		out = append(out, "key", gossh.FingerprintSHA256(c.key))
	}
	if c.comment != "" {
		out = append(out, "name", short(c.comment))
	}
	return out
}

func addressOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
