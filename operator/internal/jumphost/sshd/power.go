package sshd

import (
	"context"
	"errors"

	gossh "golang.org/x/crypto/ssh"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost/redfish"
)

// running is a power command that speaks with a controller.
type running struct {
	c      *connection
	name   string
	bmc    jumphost.BMCHost
	cancel context.CancelFunc
}

// powered finds a host's controller, lets one command at a time speak with it, and tells
// what became of it.
func (s *Server) powered(ctx context.Context, c *connection, name, what string, call powerCall) error {
	refused := func(err error) error {
		s.refused(c, "power refused", "host", short(name), "action", what, "why", err.Error())
		return err
	}
	host, _, err := controller(s.files.Load(), name)
	if err != nil {
		return refused(err)
	}
	leave, err := s.power.enter(ctx, host)
	if err != nil {
		return err
	}
	defer leave()
	// The files may be others by now: what is in force counts.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := s.files.Load()
	_, bmc, err := controller(f, name)
	if err == nil && !f.knows(c.proven()) {
		err = &fault.Error{Reason: fault.Unauthorized, Op: "power", Subject: host, Err: errors.New("the key is no longer authorised"), Hint: "have it added to sshAuthorizedKeys"}
	}
	if err != nil {
		return refused(err)
	}
	defer s.power.start(&running{c: c, name: name, bmc: bmc, cancel: cancel})()
	if now := s.files.Load(); now != f {
		s.power.review(now) // they changed before the command could be found
	}
	done, err := call(ctx, &redfish.Client{CA: f.ca, Proxy: f.proxy, Refusals: &s.power.refusals}, host, bmc)
	about := append(c.who(), "host", host, "action", what, "asked", done)
	if bmc.DisableCertificateVerification {
		about = append(about, "certificateVerification", "off")
	}
	if err != nil {
		s.audit.Warn("power failed", append(about, "why", err.Error())...)
		return err
	}
	s.audit.Info("power", about...)
	return nil
}

// proven is the key of the login; nil before.
func (c *connection) proven() gossh.PublicKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.key
}

// start notes a command, and returns what forgets it.
func (p *powering) start(r *running) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[r] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.running, r)
	}
}

// review ends commands that files no longer allow.
func (p *powering) review(f *files) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.running {
		if _, bmc, err := controller(f, r.name); err != nil || bmc != r.bmc || !f.knows(r.c.proven()) {
			r.cancel()
		}
	}
}

// enter waits for a free place.
func (p *powering) enter(ctx context.Context, host string) (leave func(), err error) {
	p.mu.Lock()
	if p.busy[host] {
		p.mu.Unlock()
		return nil, &fault.Error{Reason: fault.Conflict, Op: "power", Subject: host, Err: errors.New("another command is speaking with its BMC"), Hint: "run the command again when that has ended"}
	}
	p.busy[host] = true
	p.mu.Unlock()
	free := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.busy, host)
	}
	select {
	case p.slots <- struct{}{}:
		return func() { <-p.slots; free() }, nil
	case <-ctx.Done():
		free()
		return nil, ctx.Err()
	}
}
