package sshd

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"
)

// Exit codes of commands.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitUnknown = 127 // no such command
)

const maxCommand = 32 << 10 // bytes

// terminal is what a client says of its, to be passed on to a host.
type terminal struct {
	Name          string
	Columns, Rows uint32
	Width, Height uint32 // pixels
	Modes         string
}

// session is one channel on which at most one command runs.
type session struct {
	gossh.Channel
	c        *connection
	terminal *terminal
	requests chan *gossh.Request // of the running command: window-change and signal

	started bool
}

// session answers the requests of a session: one command, nothing else. Variables, agents,
// X11 and subsystems are refused; a shell is told that there is none.
func (s *Server) session(c *connection, newChan gossh.NewChannel, ctx ssh.Context) {
	channel, requests, err := newChan.Accept()
	if err != nil {
		return
	}
	defer func() { _ = channel.Close() }()
	running, cancel := context.WithCancel(ctx)
	var command sync.WaitGroup
	defer command.Wait()
	defer cancel()
	x := &session{Channel: channel, c: c, requests: make(chan *gossh.Request)}
	for r := range requests {
		switch r.Type {
		case "pty-req":
			reply(r, x.takeTerminal(r.Payload))
		case "exec", "shell":
			if text, ok := x.takeCommand(r); ok {
				command.Go(func() {
					defer cancel()
					s.run(running, x, text)
				})
			}
		case "window-change", "signal":
			x.passOn(running, r)
		default:
			s.refused(c, "request refused", "type", short(r.Type))
			reply(r, false)
		}
	}
}

// takeCommand takes the one command that a session has.
func (x *session) takeCommand(r *gossh.Request) (string, bool) {
	text, ok := commandOf(r)
	ok = ok && !x.started
	x.started = x.started || ok
	reply(r, ok)
	return text, ok
}

func reply(r *gossh.Request, ok bool) {
	if r.WantReply {
		_ = r.Reply(ok, nil)
	}
}

// commandOf returns the text of an exec request, "" for a shell.
func commandOf(r *gossh.Request) (string, bool) {
	if r.Type == "shell" {
		return "", true
	}
	var payload struct{ Command string }
	if gossh.Unmarshal(r.Payload, &payload) != nil || len(payload.Command) > maxCommand {
		return "", false
	}
	return payload.Command, true
}

func (x *session) takeTerminal(payload []byte) bool {
	var t terminal
	if x.terminal != nil || x.started || gossh.Unmarshal(payload, &t) != nil {
		return false
	}
	x.terminal = &t
	return true
}

// passOn hands a request to the command that runs, if it takes any.
func (x *session) passOn(running context.Context, r *gossh.Request) {
	if x.started {
		select {
		case x.requests <- r:
			return
		case <-running.Done():
		}
	}
	reply(r, false)
}

// run runs a command and tells its exit code.
func (s *Server) run(ctx context.Context, x *session, text string) {
	defer func() { _ = x.Close() }()
	defer func() {
		if r := recover(); r != nil {
			s.o.Log.Error("a defect of this program: the session is closed", "session", x.c.id, "panic", fmt.Sprint(r))
			x.exit(exitFailed)
		}
	}()
	name, rest := word(text)
	if name == "ssh" {
		x.exit(s.enter(ctx, x, rest))
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go x.ignore(ctx)
	x.exit(s.own(ctx, x, name, strings.Fields(rest)))
}

// ignore takes what a short command has no use for: input, signals, sizes of windows.
func (x *session) ignore(ctx context.Context) {
	go func() { _, _ = io.Copy(io.Discard, x) }()
	for {
		select {
		case r := <-x.requests:
			reply(r, false)
		case <-ctx.Done():
			return
		}
	}
}

// own runs one of the jump host's own commands.
func (s *Server) own(ctx context.Context, x *session, name string, args []string) int {
	var out, errs io.Writer = x, x.Stderr()
	if x.terminal != nil {
		out, errs = crlf{out}, crlf{errs}
	}
	switch name {
	case "host":
		return s.host(args, out, errs)
	case "":
		s.refused(x.c, "shell refused")
		_, _ = io.WriteString(errs, "This jump host has no shell.\n"+help)
		return exitFailed
	}
	s.refused(x.c, "command refused", "command", short(name))
	_, _ = fmt.Fprintf(errs, "error: there is no command %q here\n%s", short(name), help)
	return exitUnknown
}

func (x *session) exit(code int) {
	_, _ = x.SendRequest("exit-status", false, gossh.Marshal(struct{ Code uint32 }{uint32(code)})) //nolint:gosec // small
}

// word cuts the first word off a command.
func word(text string) (first, rest string) {
	first, rest, _ = strings.Cut(strings.TrimLeft(text, " \t"), " ")
	return first, rest
}

// crlf ends lines as a terminal in raw mode wants it.
type crlf struct{ io.Writer }

func (w crlf) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.Writer, strings.ReplaceAll(string(p), "\n", "\r\n")); err != nil {
		return 0, err
	}
	return len(p), nil
}
