package sshd_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	gossh "golang.org/x/crypto/ssh"
)

// Whatever strangers send, others are served after it.
func TestStrangersWhoSendAnything(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.limits.Handshake = 5 * time.Second
	w.start()
	random := make([]byte, 1<<16)
	_, _ = rand.Read(random)
	var all sync.WaitGroup
	for _, sends := range [][]byte{
		nil, []byte("\n"), []byte("GET / HTTP/1.1\r\n\r\n"), []byte("SSH-2.0-x\r\n"), []byte("SSH-1.5-x\r\n"), []byte("SSH-2.0-" + strings.Repeat("x", 1<<16)),
		append([]byte("SSH-2.0-x\r\n"), random...), append([]byte("SSH-2.0-x\r\n"), 0xff, 0xff, 0xff, 0xff), append([]byte("SSH-2.0-x\r\n"), bytes.Repeat([]byte{0}, 1<<16)...),
	} {
		c, err := net.Dial("tcp", w.host)
		require.NoError(t, err)
		all.Go(func() {
			_, _ = c.Write(sends)
			_, _ = io.Copy(io.Discard, c) // until the jump host ends it: at the latest when the time for the login is over
			_ = c.Close()
		})
	}
	all.Wait()
	w.eventually("alice")
	require.NotContains(t, w.log.String(), "defect")
	require.NotContains(t, w.audit.String(), "login refused", "none of them tried a key")
}

func TestConnectionsAreBounded(t *testing.T) {
	w := newWorld(t)
	w.limits.Connections, w.limits.Unauthenticated, w.limits.Handshake = 3, 2, patience
	w.start()
	var held []net.Conn
	hold := func() net.Conn {
		c, err := net.Dial("tcp", w.host)
		require.NoError(t, err)
		held = append(held, c)
		return c
	}
	served := func(c net.Conn) bool { // the server speaks first
		_, err := io.ReadFull(c, make([]byte, 8))
		return err == nil
	}
	require.True(t, served(hold()))
	require.True(t, served(hold()))
	require.False(t, served(hold()), "too many before their login")
	w.says(`"msg":"connections turned away"`, `"count":1`, "too many connections before their login")
	require.NoError(t, held[0].Close())
	alice := w.eventually("alice")
	require.True(t, served(hold()))
	require.False(t, served(hold()), "too many at all")
	require.NoError(t, alice.Close())
	for _, c := range held {
		_ = c.Close()
	}
	w.eventually("alice")
}

// eventually logs in, as soon as there is a place.
func (w *world) eventually(name string) *gossh.Client {
	w.t.Helper()
	var c *gossh.Client
	require.Eventually(w.t, func() bool {
		var err error
		c, err = w.client(name)
		return err == nil
	}, patience, 10*time.Millisecond)
	return c
}

func TestSourcesAreThrottled(t *testing.T) {
	w := newWorld(t)
	w.limits.PerSecond = 0.001 // a burst of one
	w.start()
	_, err := w.client("alice")
	require.NoError(t, err)
	_, err = w.client("alice")
	require.Error(t, err)
	w.says(`"msg":"connections turned away"`, `"lastFrom":"127.0.0.1"`, "too many connections a second from this address")
}

// Who has a key and means harm gets no further than the limits, and harms no one else.
func TestUsersWhoSendAnything(t *testing.T) {
	w := newWorld(t)
	w.limits.Channels = 4
	w.start()
	first := w.eventually("alice")
	require.NoError(t, first.Close())
	w.says(`"msg":"logged out"`)
	goroutines := runtime.NumGoroutine() // all that serve as long as the jump host does are there
	mallory, err := w.client("alice")
	require.NoError(t, err)

	for _, payload := range [][]byte{nil, {0}, bytes.Repeat([]byte{0xff}, 100), gossh.Marshal(struct{ A, B string }{"10.0.0.11", "22"})} {
		for _, kind := range []string{"direct-tcpip", "session", "x11", "auth-agent@openssh.com", "direct-streamlocal@openssh.com", "tun@openssh.com", "forwarded-tcpip", ""} {
			c, requests, err := mallory.OpenChannel(kind, payload)
			if kind != "session" {
				require.Error(t, err, "%q", kind)
				continue
			}
			require.NoError(t, err)
			go gossh.DiscardRequests(requests)
			for _, request := range []string{"pty-req", "exec", "window-change", "signal", "env", "subsystem", "x11-req", "auth-agent-req@openssh.com", "break", "exit-status", ""} {
				ok, err := c.SendRequest(request, true, payload)
				if err != nil {
					break // its one command has ended
				}
				require.False(t, ok && (strings.Contains(request, "agent") || request == "env" || request == "subsystem" || request == "x11-req"), request)
			}
			_ = c.Close()
		}
		for _, kind := range []string{"tcpip-forward", "cancel-tcpip-forward", "streamlocal-forward@openssh.com", "hostkeys-prove-00@openssh.com", ""} {
			ok, _, err := mallory.SendRequest(kind, true, payload)
			require.NoError(t, err)
			require.False(t, ok, kind)
		}
	}
	for _, port := range []uint32{0, 65536 + 22, 1<<32 - 1} {
		_, _, err := mallory.OpenChannel("direct-tcpip", gossh.Marshal(struct {
			Host string
			Port uint32
			From string
			At   uint32
		}{"10.0.0.11", port, "", 0}))
		require.ErrorContains(t, err, "not a host and port of this cluster", port)
	}
	require.Empty(t, w.asked())

	var open []io.Closer
	require.Eventually(t, func() bool { // what was closed above may still be ending
		if c, err := mallory.Dial("tcp", "node02:7000"); err == nil {
			open = append(open, c)
		}
		return len(open) == 4
	}, patience, 10*time.Millisecond)
	for range 4 {
		_, err := mallory.Dial("tcp", "node02:7000")
		require.ErrorContains(t, err, "too many channels at once")
	}

	// The log of refusals is bounded, and says so.
	for range 200 {
		_, err := mallory.Dial("tcp", "10.9.9.9:22")
		require.Error(t, err)
	}
	require.Less(t, strings.Count(w.audit.String(), "10.9.9.9"), 150)
	require.NoError(t, mallory.Close())
	w.says(`"msg":"logged out"`, `"notTold":`)

	bob, err := w.client("alice")
	require.NoError(t, err)
	through, err := bob.Dial("tcp", "node02:7000")
	require.NoError(t, err)
	require.True(t, alive(through))
	require.NoError(t, bob.Close())
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < goroutines+10 }, patience, 10*time.Millisecond, "goroutines are left")
	require.NotContains(t, w.log.String(), "defect")
}

func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	w.limits.Channels = 100
	w.start()
	var all sync.WaitGroup
	wrong := make(chan string, 1000)
	for n := range 8 {
		c, err := w.client("alice")
		require.NoError(t, err)
		for m := range 8 {
			all.Go(func() {
				conn, err := c.Dial("tcp", "node02:7000")
				if err != nil {
					wrong <- err.Error()
					return
				}
				defer func() { _ = conn.Close() }()
				text := strings.Repeat(fmt.Sprintf("%d-%d ", n, m), 1000)
				go func() { _, _ = io.WriteString(conn, text) }()
				got := make([]byte, len(text))
				if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
					wrong <- fmt.Sprint("mixed up: ", err)
				}
			})
		}
	}
	for range 5 { // files change meanwhile
		w.config.Cluster += "x"
		w.writeConfig()
	}
	all.Wait()
	require.Empty(t, wrong)
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.limits.Idle = 3 * time.Second
	w.start()
	require.Error(t, w.eventually("alice").Wait())
	w.says(`"msg":"logged out"`)
}
