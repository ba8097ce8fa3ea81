package sshd

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

// directTCPIP is what a client asks for with a channel of that type (RFC 4254, 7.2).
type directTCPIP struct {
	Host       string
	Port       uint32
	Originator string
	OriginPort uint32
}

// forward connects a channel to a host.
func (s *Server) forward(c *connection, newChan gossh.NewChannel, ctx ssh.Context) {
	host, addresses, port, ok := s.target(c, newChan)
	if !ok {
		return
	}
	conn, at, err := s.dial(ctx, addresses, port)
	if err != nil {
		s.refused(c, "forward failed", "host", host.Name, "port", port, "why", plainly(err))
		_ = newChan.Reject(gossh.ConnectionFailed, plainly(err))
		return
	}
	o := &opened{at: at, close: func() { _ = conn.Close() }}
	if !s.enlist(c, o) {
		_ = newChan.Reject(gossh.Prohibited, notOurs)
		return
	}
	defer s.dismiss(c, o)
	channel, requests, err := newChan.Accept()
	if err != nil {
		return
	}
	go gossh.DiscardRequests(requests)
	about := append(c.who(), "host", host.Name, "to", at.String())
	s.audit.Info("forward opened", about...)
	began := time.Now()
	sent, received := join(channel, conn)
	s.audit.Info("forward closed", append(about, "sent", sent, "received", received, "seconds", int(time.Since(began).Seconds()))...)
}

const notOurs = "not a host and port of this cluster"

// target reads what a client asks for, and refuses what is not the cluster's.
func (s *Server) target(c *connection, newChan gossh.NewChannel) (jumphost.Host, []netip.Addr, uint16, bool) {
	var to directTCPIP
	if gossh.Unmarshal(newChan.ExtraData(), &to) != nil {
		s.refused(c, "forward refused", "why", "malformed")
		_ = newChan.Reject(gossh.ConnectionFailed, "malformed request")
		return jumphost.Host{}, nil, 0, false
	}
	config := s.files.Load().config
	host, addresses, ok := config.Find(to.Host)
	if !ok || !config.Allows(to.Port) {
		s.refused(c, "forward refused", "to", short(to.Host), "port", to.Port, "why", notOurs)
		_ = newChan.Reject(gossh.Prohibited, notOurs)
		return jumphost.Host{}, nil, 0, false
	}
	return host, addresses, uint16(to.Port), true //nolint:gosec // allowed, so below 65536
}

// dial connects to the first of a host's addresses that answers.
func (s *Server) dial(ctx context.Context, addresses []netip.Addr, port uint16) (net.Conn, netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Limits.Dial)
	defer cancel()
	err := errors.New("the host has no address")
	for i, a := range addresses {
		at := netip.AddrPortFrom(a, port)
		one, done := context.WithTimeout(ctx, s.o.Limits.Dial/time.Duration(len(addresses)-i))
		var conn net.Conn
		conn, err = s.o.Dial(one, "tcp", at.String())
		done()
		if err == nil {
			return conn, at, nil
		}
	}
	return nil, netip.AddrPort{}, err
}

// plainly says why a host could not be connected to.
func plainly(err error) string {
	var op *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &op) && op.Timeout():
		return "the host does not answer in time"
	case errors.As(err, &op):
		return op.Err.Error()
	}
	return err.Error()
}

// join copies both ways until both have ended, passing on that one has: a client that
// has sent all may still be waiting for the rest of the answer.
func join(channel gossh.Channel, conn net.Conn) (sent, received int64) {
	var up atomic.Int64
	var both sync.WaitGroup
	both.Go(func() {
		n, err := io.Copy(conn, channel)
		up.Store(n)
		half, ok := conn.(interface{ CloseWrite() error })
		if err != nil || !ok || half.CloseWrite() != nil {
			_ = conn.Close()
		}
	})
	received, err := io.Copy(channel, conn)
	if err != nil || channel.CloseWrite() != nil {
		_ = channel.Close()
	}
	both.Wait()
	_ = channel.Close()
	return up.Load(), received
}

// nodePort is where the hosts' own SSH servers are looked for.
func nodePort(c *jumphost.Config) uint16 {
	const ssh = 22
	if c.Allows(ssh) || len(c.Ports) == 0 {
		return ssh
	}
	return c.Ports[0].First
}
