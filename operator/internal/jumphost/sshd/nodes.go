package sshd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

// hostKeys remembers the first key that each address showed.
type hostKeys struct {
	mu    sync.Mutex
	first map[netip.AddrPort]string // fingerprint
}

// enter runs `ssh [USER@]NAME [COMMAND]`: a session on a host, which the jump host logs in
// to with the node keys.
func (s *Server) enter(ctx context.Context, x *session, args string) int {
	target, command := word(args)
	user, name, named := strings.Cut(target, "@")
	if !named {
		user, name = x.c.user, target
	}
	f := s.files.Load()
	host, err := s.reachable(f, user, name)
	if err != nil {
		s.refused(x.c, "session refused", "host", short(name), "why", err.Error())
		return x.fail(err)
	}
	client, o, err := s.logInTo(ctx, x.c, f, host, user)
	if err != nil {
		s.refused(x.c, "session failed", "host", host.Name, "as", short(user), "why", err.Error())
		return x.fail(err)
	}
	defer s.dismiss(x.c, o)
	about := append(x.c.who(), "host", host.Name, "to", o.at.String(), "as", short(user), "command", command != "") // what it is may hold secrets
	s.audit.Info("session opened", about...)
	code, err := x.relay(ctx, client, command)
	s.audit.Info("session closed", append(about, "exit", code)...)
	if err != nil {
		return x.fail(&fault.Error{Reason: fault.Unreachable, Op: "run on", Subject: host.Name, Err: err, Hint: "try again"})
	}
	return code
}

func (x *session) fail(err error) int {
	text := told(err)
	if x.terminal != nil {
		_, _ = io.WriteString(crlf{x.Stderr()}, text)
	} else {
		_, _ = io.WriteString(x.Stderr(), text)
	}
	return exitFailed
}

func (s *Server) reachable(f *files, user, name string) (jumphost.Host, error) {
	bad := func(why, hint string) (jumphost.Host, error) {
		return jumphost.Host{}, &fault.Error{Reason: fault.InvalidInput, Op: "ssh to", Subject: short(name), Err: errors.New(why), Hint: hint}
	}
	host, addresses, ok := f.config.Find(name)
	switch {
	case strings.HasPrefix(user, "-") || strings.HasPrefix(name, "-"):
		return bad("options are not taken", "write ssh [USER@]NAME [COMMAND]")
	case !ok:
		return bad("it is not a host of this cluster", "host list")
	case len(f.nodeKeys) == 0:
		return bad("this jump host has no keys for hosts", "use your own through it: ssh -J JUMPHOST USER@NAME")
	case user == "" || user != short(user):
		return bad("it is not said as whom", "write ssh USER@NAME")
	}
	host.Addresses = addresses
	return host, nil
}

func cannotEnter(host string, reason fault.Reason, why, hint string) error {
	return &fault.Error{Reason: reason, Op: "ssh to", Subject: host, Err: errors.New(why), Hint: hint}
}

// logInTo connects to a host's SSH server.
func (s *Server) logInTo(ctx context.Context, c *connection, f *files, host jumphost.Host, user string) (*gossh.Client, *opened, error) {
	conn, at, err := s.dial(ctx, host.Addresses, nodePort(f.config))
	if err != nil {
		return nil, nil, cannotEnter(host.Name, fault.Unreachable, plainly(err), "see `host power "+host.Name+"`")
	}
	o := &opened{at: at, close: func() { _ = conn.Close() }}
	if !s.enlist(c, o) {
		return nil, nil, cannotEnter(host.Name, fault.Refused, "it is no host of this cluster any more", "host list")
	}
	context.AfterFunc(ctx, o.close)
	client, err := s.greet(ctx, f, conn, login{host.Name, user, at})
	if err != nil {
		s.dismiss(c, o)
		return nil, nil, err
	}
	return client, o, nil
}

// login is who logs in where.
type login struct {
	host, user string
	at         netip.AddrPort
}

// greet is the handshake and the login, within a time.
func (s *Server) greet(ctx context.Context, f *files, conn net.Conn, l login) (*gossh.Client, error) {
	var wrongKey error
	config := &gossh.ClientConfig{
		User: l.user, Auth: []gossh.AuthMethod{gossh.PublicKeys(f.nodeKeys...)}, ClientVersion: "SSH-2.0-VDO",
		HostKeyCallback: func(_ string, _ net.Addr, key gossh.PublicKey) error {
			wrongKey = s.nodes.check(f.known, l.host, l.at, key)
			return wrongKey
		},
	}
	deadline, cancel := context.WithTimeout(ctx, s.o.Limits.Handshake)
	defer cancel()
	unstick := context.AfterFunc(deadline, func() { _ = conn.Close() })
	inner, channels, requests, err := gossh.NewClientConn(conn, l.at.String(), config)
	switch inTime := unstick(); {
	case wrongKey != nil:
		return nil, wrongKey
	case !inTime:
		return nil, cannotEnter(l.host, fault.Unreachable, "its SSH server does not answer in time", "try again")
	case err != nil && strings.Contains(err.Error(), "unable to authenticate"):
		return nil, cannotEnter(l.host, fault.Unauthorized, "it takes none of the node keys for "+short(l.user), "see nodeSSHPrivateKeys of the jump host, and the host's authorized_keys")
	case err != nil:
		return nil, cannotEnter(l.host, fault.Unreachable, "no SSH server answers there", "try again")
	}
	return gossh.NewClient(inner, channels, requests), nil
}

// check holds a host's key against known_hosts, or against the first that it showed.
func (k *hostKeys) check(known gossh.HostKeyCallback, name string, at netip.AddrPort, key gossh.PublicKey) error {
	shown := gossh.FingerprintSHA256(key)
	if known == nil {
		if first := k.firstOf(at, shown); first != shown {
			return cannotEnter(name, fault.Untrusted, "its host key was "+first+" and is "+shown,
				"if the host was installed anew, restart the jump host, or put its key into known_hosts of the Secret of nodeSSHPrivateKeys")
		}
		return nil
	}
	remote := net.TCPAddrFromAddrPort(at)
	err := known(net.JoinHostPort(name, fmt.Sprint(at.Port())), remote, key)
	var unknown *knownhosts.KeyError
	if errors.As(err, &unknown) && len(unknown.Want) == 0 {
		err = known(at.String(), remote, key)
	}
	if err != nil {
		return cannotEnter(name, fault.Untrusted, "its host key "+shown+" is not in known_hosts", "put the host's key into known_hosts of the Secret of nodeSSHPrivateKeys")
	}
	return nil
}

func (k *hostKeys) firstOf(at netip.AddrPort, shown string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.first == nil {
		k.first = map[netip.AddrPort]string{}
	}
	if k.first[at] == "" {
		k.first[at] = shown
	}
	return k.first[at]
}

// relay runs the command, or a shell, of a host on the client's channel.
func (x *session) relay(ctx context.Context, client *gossh.Client, command string) (int, error) {
	defer func() { _ = client.Close() }()
	inner, requests, err := client.OpenChannel("session", nil)
	if err != nil {
		return exitFailed, errors.New("the host opens no session")
	}
	if err := x.start(inner, command); err != nil {
		return exitFailed, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(inner, x)
		_ = inner.CloseWrite()
	}()
	go x.passRequests(ctx, inner)
	var output sync.WaitGroup
	output.Go(func() { _, _ = io.Copy(x, inner) })
	output.Go(func() { _, _ = io.Copy(x.Stderr(), inner.Stderr()) })
	code := exitCode(requests)
	output.Wait()
	return code, nil
}

// exitCode waits for the end of a host's session.
func exitCode(requests <-chan *gossh.Request) int {
	code := exitFailed
	for r := range requests {
		var status struct{ Code uint32 }
		if r.Type == "exit-status" && gossh.Unmarshal(r.Payload, &status) == nil {
			code = int(status.Code)
		}
		reply(r, false)
	}
	return code
}

// start asks the host for a terminal, where the client has one, and for the command.
func (x *session) start(inner gossh.Channel, command string) error {
	if x.terminal != nil {
		if ok, err := inner.SendRequest("pty-req", true, gossh.Marshal(x.terminal)); err != nil || !ok {
			return errors.New("the host gives no terminal")
		}
	}
	kind, payload := "shell", []byte(nil)
	if command != "" {
		kind, payload = "exec", gossh.Marshal(struct{ Command string }{command})
	}
	if ok, err := inner.SendRequest(kind, true, payload); err != nil || !ok {
		return errors.New("the host refuses the command")
	}
	return nil
}

// passRequests passes on what the client's terminal does.
func (x *session) passRequests(ctx context.Context, inner gossh.Channel) {
	for {
		select {
		case r := <-x.requests:
			_, _ = inner.SendRequest(r.Type, false, r.Payload)
			reply(r, true)
		case <-ctx.Done():
			return
		}
	}
}
