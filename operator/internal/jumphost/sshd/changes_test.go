package sshd_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost/sshd"
)

// alive sends a line through a forward and expects it back.
func alive(c net.Conn) bool {
	if _, err := c.Write([]byte("ping")); err != nil {
		return false
	}
	buf := make([]byte, 4)
	_, err := io.ReadFull(c, buf)
	return err == nil && string(buf) == "ping"
}

// ended waits until the other side has closed a connection.
func ended(c net.Conn) bool {
	_, err := c.Read(make([]byte, 1))
	return err != nil
}

func TestChangesCutOnlyWhatIsNoLongerAllowed(t *testing.T) {
	w := newWorld(t)
	w.keyPair("bob")
	w.config.Keys = append(w.config.Keys, w.public("bob"))
	w.writeConfig()
	node03 := netip.MustParseAddr("10.0.0.13")
	w.route("10.0.0.11:7000", w.echo())
	w.route("10.0.0.13:7000", w.echo())
	w.start()
	alice, err := w.client("alice")
	require.NoError(t, err)
	bob, err := w.client("bob")
	require.NoError(t, err)
	stays, err := alice.Dial("tcp", "10.0.0.11:7000")
	require.NoError(t, err)
	goes, err := alice.Dial("tcp", "node02:7000")
	require.NoError(t, err)
	bobs, err := bob.Dial("tcp", "10.0.0.11:7000")
	require.NoError(t, err)
	require.True(t, alive(stays) && alive(goes) && alive(bobs))
	_, err = alice.Dial("tcp", "10.0.0.13:7000")
	require.Error(t, err)

	// A host goes, another comes.
	was := w.config.Hosts
	w.config.Hosts = []jumphost.Host{was[0], {Name: "node03", Role: "Worker", Addresses: []netip.Addr{node03}}}
	w.writeConfig()
	require.True(t, ended(goes))
	w.says(`"msg":"channel closed"`, `"to":"10.0.0.12:7000"`, "it is no host of this cluster any more")
	require.True(t, alive(stays) && alive(bobs))
	_, err = alice.Dial("tcp", "node02:7000")
	require.ErrorContains(t, err, "not a host and port of this cluster")
	comes, err := alice.Dial("tcp", "node03:7000")
	require.NoError(t, err)
	require.True(t, alive(comes))

	// A key goes.
	w.config.Keys = w.config.Keys[:1]
	w.writeConfig()
	require.True(t, ended(bobs))
	require.Error(t, bob.Wait())
	_, err = w.client("bob")
	require.ErrorContains(t, err, "unable to authenticate")
	w.says(`"msg":"connection closed"`, `"name":"bob@site"`, "its key is no longer authorised")
	require.True(t, alive(stays) && alive(comes))

	// Files that cannot be understood change nothing.
	w.write("files/config/config.json", []byte(`{"kind": "Pod"}`))
	require.Eventually(t, func() bool { return strings.Contains(w.log.String(), "the last good ones hold") }, patience, 1e7)
	require.NoError(t, os.Remove(w.path("files/config/config.json")))
	require.True(t, alive(stays) && alive(comes))
	again, err := w.client("alice")
	require.NoError(t, err)
	through, err := again.Dial("tcp", "node03:7000")
	require.NoError(t, err)
	require.True(t, alive(through))

	// A port goes.
	w.config.Ports = w.config.Ports[:1]
	w.writeConfig()
	require.True(t, ended(stays) && ended(comes) && ended(through))
	_, _, err = alice.SendRequest("keepalive@openssh.com", true, nil)
	require.NoError(t, err, "the connection itself goes on")
	w.hasNoSecrets()
}

func TestTheHostKeyStaysTheSame(t *testing.T) {
	w := newWorld(t)
	stop := w.start()
	require.Equal(t, "node01\nnode02\n", w.ssh("jump", "host list").out)
	stop()
	w.start() // the client asks for the same key: StrictHostKeyChecking
	require.Equal(t, "node01\nnode02\n", w.ssh("jump", "host list").out)
}

func TestProbes(t *testing.T) {
	w := newWorld(t)
	stop := w.start()
	probe := func(path string) int {
		r := httptest.NewRecorder()
		w.server.Health().ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
		return r.Code
	}
	require.Eventually(t, func() bool { return probe("/readyz") == http.StatusOK }, patience, 1e7)
	require.Equal(t, http.StatusOK, probe("/healthz"))
	require.Equal(t, http.StatusNotFound, probe("/metrics"))
	stop()
	require.Equal(t, http.StatusServiceUnavailable, probe("/readyz"))
	require.Equal(t, http.StatusOK, probe("/healthz"))
}

func TestTheEndLeavesSessionsTheirGrace(t *testing.T) {
	w := newWorld(t)
	w.limits.Grace = patience
	stop := w.start()
	alice, err := w.client("alice")
	require.NoError(t, err)
	open, err := alice.Dial("tcp", "node02:7000")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() { stop(); close(done) }()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", w.host)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, patience, 1e7, "new connections are not taken")
	require.True(t, alive(open))
	require.NoError(t, alice.Close())
	<-done
}

// What an auditor reads has an end to each login, also where the program was ended.
func TestTheEndIsToldOfEachSession(t *testing.T) {
	const sessions = 5
	w := newWorld(t)
	w.limits.Grace = time.Nanosecond
	stop := w.start()
	for range sessions {
		alice, err := w.client("alice")
		require.NoError(t, err)
		open, err := alice.Dial("tcp", "node02:7000")
		require.NoError(t, err)
		require.True(t, alive(open))
	}
	silent, err := net.Dial("tcp", w.host) // never logs in
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	stop()
	for _, line := range []string{"logged in", "forward opened", "forward closed", "logged out"} {
		require.Equal(t, sessions, strings.Count(w.audit.String(), `"msg":"`+line+`"`), "%s:\n%s", line, &w.audit)
	}
	_, err = silent.Read(make([]byte, 256)) // the version
	for err == nil {
		_, err = silent.Read(make([]byte, 256))
	}
}

func TestTheProgram(t *testing.T) {
	w := newWorld(t)
	run := func(args ...string) (int, string, string) {
		var out, errs lines
		code := sshd.Main(context.Background(), "v1.2.3", args, &out, &errs)
		return code, out.String(), errs.String()
	}
	code, out, _ := run("--version")
	require.Equal(t, 0, code)
	require.Equal(t, "v1.2.3\n", out)
	code, _, errs := run("--shell")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "unknown flag: --shell")
	code, _, errs = run("serve")
	require.Equal(t, 2, code)
	require.Contains(t, errs, `error: unknown argument "serve"`)
	code, _, errs = run("--dir", w.path("nowhere"))
	require.Equal(t, 2, code)
	require.Contains(t, errs, "error: read config/config.json: ")
	require.Contains(t, errs, "error: read host-keys: there is no host key\nhint: mount the Secret with the host keys there\n")

	other, err := jumphost.NewHostKey()
	require.NoError(t, err)
	w.write("files/host-keys/another", other)
	w.write("files/node-keys/id", []byte(canary))
	code, _, errs = run("--dir", w.path("files"))
	require.Equal(t, 2, code)
	require.Contains(t, errs, "there are two keys of type ssh-ed25519")
	require.Contains(t, errs, "read private key node-keys/id: it is not a private key")
	require.NotContains(t, errs, canary)
	require.NoError(t, os.Remove(w.path("files/host-keys/another")))
	require.NoError(t, os.Remove(w.path("files/node-keys/id")))

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	code, _, errs = run("--dir", w.path("files"), "--listen", taken.Addr().String())
	require.Equal(t, 1, code)
	require.Contains(t, errs, "listen for SSH: ")
	code, _, errs = run("--dir", w.path("files"), "--listen", "127.0.0.1:0", "--health", taken.Addr().String())
	require.Equal(t, 1, code)
	require.Contains(t, errs, "listen for probes: ")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var audit, log lines
	require.Equal(t, 0, sshd.Main(ctx, "", []string{"--dir", w.path("files"), "--listen", "127.0.0.1:0", "--health", ""}, &audit, &log))
	require.Contains(t, audit.String(), `"msg":"started","cluster":"tenants/sub-1"`)
}
