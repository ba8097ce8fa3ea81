package sshd_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

func TestOpenSSHGoesThroughToTheHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.runNode01()
	w.start()
	for _, target := range []string{"10.0.0.11", "node01"} {
		got := w.ssh("-J", "jump", "root@"+target, "echo here; exit 7")
		require.Equal(t, answer{7, "here\n", got.err}, got)
	}
	data := make([]byte, 8<<20)
	_, _ = rand.Read(data)
	got := w.sshWith(data, "-J", "jump", "node01", "cat")
	require.Zero(t, got.code, got.err)
	require.True(t, bytes.Equal(data, []byte(got.out)), "8 MiB go there and come back as they were")

	got = w.sshWith([]byte("hello\n"), "-W", "10.0.0.12:7000", "jump")
	require.Equal(t, answer{0, "hello\n", got.err}, got, "half-closed by the client, answered in full")

	w.localForward("node02:7000", func(c net.Conn) {
		_, err := c.Write([]byte("to and fro\n"))
		require.NoError(t, err)
		buf := make([]byte, 64)
		n, err := c.Read(buf)
		require.NoError(t, err)
		require.Equal(t, "to and fro\n", string(buf[:n]))
	})
	w.says(`"msg":"forward opened"`, `"host":"node02"`, `"to":"10.0.0.12:7000"`, `"user":"root"`, `"name":"alice@site"`, `"key":"SHA256:`)
	w.says(`"msg":"forward closed"`, `"sent":6,"received":6`)
	for _, d := range w.asked() {
		require.Contains(t, []string{"10.0.0.11:22", "[fd00::11]:22", "10.0.0.12:7000"}, d)
	}
}

// localForward runs ssh -L, hands over a connection through it, and ends it.
func (w *world) localForward(to string, use func(net.Conn)) {
	w.t.Helper()
	at := w.path("forward.sock")
	cmd := exec.Command(toolchain.Installed(w.t, "ssh"), "-F", w.path("ssh_config"), "-N", "-o", "ExitOnForwardFailure=yes", "-L", at+":"+to, "jump")
	var said lines
	cmd.Stderr = &said
	require.NoError(w.t, cmd.Start())
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var c net.Conn
	require.Eventually(w.t, func() bool {
		var err error
		c, err = net.Dial("unix", at)
		return err == nil
	}, patience, 20*time.Millisecond, "%s", &said)
	defer func() { _ = c.Close() }()
	use(c)
}

func TestOpenSSHIsRefusedEverythingElse(t *testing.T) {
	toolchain.Installed(t, "ssh")
	t.Parallel()
	w := newWorld(t)
	w.keyPair("mallory")
	w.start()
	config, err := os.ReadFile(w.path("ssh_config"))
	require.NoError(t, err)
	w.write("ssh_mallory", bytes.ReplaceAll(config, []byte(w.path("alice")), []byte(w.path("mallory"))))
	for name, c := range map[string]struct {
		args []string
		want string // in what the client says
		told string // in an audit line
	}{
		"another address":     {[]string{"-W", "10.0.0.13:22", "jump"}, "not a host and port of this cluster", `"to":"10.0.0.13","port":22`},
		"another port":        {[]string{"-W", "10.0.0.11:6443", "jump"}, "not a host and port of this cluster", `"to":"10.0.0.11","port":6443`},
		"itself":              {[]string{"-W", "127.0.0.1:22", "jump"}, "not a host and port of this cluster", `"to":"127.0.0.1"`},
		"its name":            {[]string{"-W", "localhost:22", "jump"}, "not a host and port of this cluster", `"to":"localhost"`},
		"a name of DNS":       {[]string{"-W", "kubernetes.default.svc:22", "jump"}, "not a host and port of this cluster", `"to":"kubernetes.default.svc"`},
		"the metadata":        {[]string{"-W", "169.254.169.254:7000", "jump"}, "not a host and port of this cluster", `"to":"169.254.169.254"`},
		"written differently": {[]string{"-W", "0x0a00000b:22", "jump"}, "not a host and port of this cluster", `"to":"0x0a00000b"`},
		"a host that is away": {[]string{"-W", "10.0.0.12:7001", "jump"}, "no route to host", `"msg":"forward failed"`},
		"another key":         {[]string{"-F", w.path("ssh_mallory"), "jump", "host", "list"}, "Permission denied (publickey)", `"msg":"login refused"`},
		"a password":          {[]string{"-o", "PreferredAuthentications=password,keyboard-interactive", "-o", "BatchMode=no", "-o", "NumberOfPasswordPrompts=1", "jump", "host", "list"}, "Permission denied (publickey)", ""},
		"no key":              {[]string{"-o", "PubkeyAuthentication=no", "jump", "host", "list"}, "Permission denied (publickey)", ""},
		"a remote forward":    {[]string{"-N", "-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:1", "jump"}, "remote port forwarding failed", `"type":"tcpip-forward"`},
		"a remote socket":     {[]string{"-N", "-o", "ExitOnForwardFailure=yes", "-R", "/tmp/x.sock:127.0.0.1:1", "jump"}, "remote port forwarding failed", `"type":"streamlocal-forward@openssh.com"`},
		"a shell":             {[]string{"jump"}, "This jump host has no shell.", `"msg":"shell refused"`},
		"a terminal":          {[]string{"-tt", "jump"}, "This jump host has no shell.", `"msg":"shell refused"`},
		"sftp":                {[]string{"-s", "jump", "sftp"}, "subsystem request failed", `"type":"subsystem"`},
		"a command":           {[]string{"jump", "sh", "-c", "id"}, `there is no command "sh" here`, `"command":"sh"`},
		"a tunnel":            {[]string{"-o", "Tunnel=yes", "-o", "ExitOnForwardFailure=yes", "-W", "10.0.0.99:1", "jump"}, "not a host", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.ssh(c.args...)
			require.NotZero(t, got.code)
			require.Contains(t, got.err+got.out, c.want)
			if c.told != "" {
				w.says(c.told)
			}
		})
	}
	require.Equal(t, []string{"10.0.0.12:7001"}, w.asked(), "nothing else was ever connected to")
	require.NotContains(t, w.audit.String(), `"msg":"forward opened"`)
}

func TestAgentsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	socket := w.path("agent")
	agent := exec.Command(toolchain.Installed(t, "ssh-agent"), "-D", "-a", socket)
	require.NoError(t, agent.Start())
	t.Cleanup(func() { _ = agent.Process.Kill(); _ = agent.Wait() })
	require.Eventually(t, func() bool { _, err := os.Stat(socket); return err == nil }, patience, 10*time.Millisecond)
	got := w.ssh("-A", "-o", "IdentityAgent="+socket, "jump", "host", "list")
	require.Equal(t, "node01\nnode02\n", got.out, got.err)
	w.says(`"msg":"request refused"`, `"type":"auth-agent-req@openssh.com"`)
}

func TestHostCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	for _, c := range []struct {
		command string
		code    int
		out     string // all of it
		err     string // in it
	}{
		{"host list", 0, "node01\nnode02\n", ""},
		{"host list -l", 0, "node01  ControlPlane  10.0.0.11,fd00::11\nnode02  Worker        10.0.0.12\n", ""},
		{"host power node01", 1, "", "hint: create a HostAction"},
		{"host reboot node01 --force", 1, "", "hint: create a HostAction"},
		{"host list all", 2, "", "this is not a command of host"},
		{"host", 2, "", "host list [-l]"},
	} {
		got := w.ssh("jump", c.command)
		require.Equal(t, answer{c.code, c.out, got.err}, got, c.command)
		require.Contains(t, got.err, c.err, c.command)
	}
	w.hasNoSecrets()
}

// hasNoSecrets looks for every secret of the world in what the jump host wrote.
func (w *world) hasNoSecrets() {
	w.t.Helper()
	for _, written := range []string{w.audit.String(), w.log.String()} {
		require.NotContains(w.t, written, canary)
		require.NotContains(w.t, written, "token-")
		require.NotContains(w.t, written, "PRIVATE KEY")
		for _, key := range []string{"alice", "nodekey", "files/host-keys/ssh_host_ed25519_key"} {
			data, err := os.ReadFile(w.path(key))
			if err != nil {
				continue
			}
			body := strings.Split(string(data), "\n")
			require.NotContains(w.t, written, body[len(body)/2])
		}
	}
}

func TestNodeKeysReachHostsAndNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.runNode01()
	w.start()
	got := w.ssh("jump", "ssh root@node01 id")
	require.Contains(t, got.err, "this jump host has no keys for hosts")

	key, err := os.ReadFile(w.path("nodekey"))
	require.NoError(t, err)
	w.write("files/node-keys/id_ed25519", key)
	w.says(`"msg":"configuration changed"`)
	got = w.ssh("jump", "ssh", "root@node01", "'echo here; echo there >&2; exit 7'")
	require.Equal(t, answer{127, "", got.err}, got, "the words of a command are the host's to read")
	got = w.ssh("jump", "ssh root@node01 echo "+canary+"; echo there >&2; exit 7")
	require.Equal(t, answer{7, canary + "\n", got.err}, got)
	require.Contains(t, got.err, "there\n")
	got = w.sshWith([]byte("to the host\n"), "jump", "ssh node01 cat")
	require.Equal(t, answer{0, "to the host\n", got.err}, got, "as the user of the login")
	got = w.ssh("-tt", "jump", "ssh node01 tty")
	require.Contains(t, got.out, "/dev/pts/", got.err)
	got = w.sshWith([]byte("echo from a $((40+2)) shell\n"), "jump", "ssh node01")
	require.Contains(t, got.out, "from a 42 shell", got.err)

	for command, want := range map[string]string{
		"ssh root@10.0.0.13 id":           "it is not a host of this cluster",
		"ssh root@127.0.0.1 id":           "it is not a host of this cluster",
		"ssh -oProxyCommand=id node01":    "options are not taken",
		"ssh -v@node01 id":                "options are not taken",
		"ssh nobody-there@node01 id":      "it takes none of the node keys for nobody-there",
		"ssh root@node02 id":              "no route to host",
		"ssh root@":                       "it is not a host of this cluster",
		"ssh @node01 id":                  "it is not said as whom",
		"ssh root@node01@node02 id":       "it is not a host of this cluster",
		"ssh root@kubernetes.default.svc": "it is not a host of this cluster",
	} {
		got := w.ssh("jump", command)
		require.Equal(t, 1, got.code, command)
		require.Contains(t, got.err, want, command)
	}
	w.says(`"msg":"session opened"`, `"host":"node01"`, `"as":"root"`, `"command":true`)
	w.says(`"msg":"session closed"`, `"exit":7`)
	w.hasNoSecrets()

	// Another host answers at the address.
	w.runNode01()
	got = w.ssh("jump", "ssh node01 id")
	require.Equal(t, 1, got.code)
	require.Contains(t, got.err, "its host key was SHA256:")

	// The key that is known decides, whatever was seen before.
	w.write("files/node-keys/known_hosts", []byte(w.nodeKey()))
	key, err = os.ReadFile(w.path("nodekey"))
	require.NoError(t, err)
	w.write("files/node-keys/id_ed25519", key)
	require.Eventually(t, func() bool { return w.ssh("jump", "ssh node01 echo known").out == "known\n" }, patience, 10*time.Millisecond)
	w.write("files/node-keys/known_hosts", []byte(fmt.Sprintf("node09 %s", strings.SplitN(w.nodeKey(), " ", 2)[1])))
	require.Eventually(t, func() bool {
		return strings.Contains(w.ssh("jump", "ssh node01 echo known").err, "is not in known_hosts")
	}, patience, 10*time.Millisecond)
}
