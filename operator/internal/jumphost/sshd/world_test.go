package sshd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	gossh "golang.org/x/crypto/ssh"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost/sshd"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

const (
	patience = time.Minute
	canary   = "canary-5b0c"
)

// lines is output that is written and read at once.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// world is a jump host, with files as a pod has them, before two hosts: node01 is OpenSSH's
// server, node02 answers every line with itself. Their addresses exist only here.
type world struct {
	t          *testing.T
	dir        string // of the test
	config     jumphost.Config
	limits     sshd.Limits
	audit, log lines
	host       string // of the jump host: HOST:PORT
	server     *sshd.Server

	mu     sync.Mutex
	routes map[string]string // address of a host → where it is
	dialed []string
}

var (
	node01 = netip.MustParseAddr("10.0.0.11")
	node02 = netip.MustParseAddr("10.0.0.12")
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), routes: map[string]string{}, limits: sshd.Limits{Poll: 20 * time.Millisecond, PerSecond: 1000, Grace: time.Second}}
	w.keyPair("alice")
	hostKey, err := jumphost.NewHostKey()
	require.NoError(t, err)
	w.write("files/host-keys/ssh_host_ed25519_key", hostKey)
	w.config = jumphost.Config{
		Cluster: "tenants/sub-1", Keys: []jumphost.Key{w.public("alice")}, Ports: []jumphost.Ports{{First: 22, Last: 22}, {First: 7000, Last: 7001}},
		Hosts: []jumphost.Host{
			{Name: "node01", Role: "ControlPlane", Addresses: []netip.Addr{node01, netip.MustParseAddr("fd00::11")}},
			{Name: "node02", Role: "Worker", Addresses: []netip.Addr{node02}},
		},
	}
	w.writeConfig()
	w.routes["10.0.0.12:7000"] = w.echo()
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// write puts a file in its place as the kubelet does: at once.
func (w *world) write(name string, data []byte) {
	w.t.Helper()
	require.NoError(w.t, os.MkdirAll(filepath.Dir(w.path(name)), 0o700))
	require.NoError(w.t, os.WriteFile(w.path("..new"), data, 0o600))
	require.NoError(w.t, os.Rename(w.path("..new"), w.path(name)))
}

func (w *world) writeConfig() {
	w.t.Helper()
	data, err := w.config.Marshal()
	require.NoError(w.t, err)
	w.write("files/config/config.json", data)
}

// keyPair makes NAME and NAME.pub, as ssh-keygen does.
func (w *world) keyPair(name string) {
	w.t.Helper()
	data, err := jumphost.NewHostKey()
	require.NoError(w.t, err)
	w.write(name, data)
	w.write(name+".pub", append(bytes.TrimSpace(gossh.MarshalAuthorizedKey(w.signer(name).PublicKey())), []byte(" "+name+"@site\n")...))
}

func (w *world) signer(name string) gossh.Signer {
	w.t.Helper()
	data, err := os.ReadFile(w.path(name))
	require.NoError(w.t, err)
	s, err := gossh.ParsePrivateKey(data)
	require.NoError(w.t, err)
	return s
}

func (w *world) public(name string) jumphost.Key {
	w.t.Helper()
	data, err := os.ReadFile(w.path(name + ".pub"))
	require.NoError(w.t, err)
	k, err := jumphost.ParseAuthorizedKey(string(data))
	require.NoError(w.t, err)
	return k
}

// dial leads to the hosts that there are, and notes who was asked for.
func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	to := w.routes[address]
	w.dialed = append(w.dialed, address)
	w.mu.Unlock()
	if to == "" {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no route to host")}
	}
	return (&net.Dialer{}).DialContext(ctx, network, to)
}

func (w *world) asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.dialed...)
}

func (w *world) route(address, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.routes[address] = to
}

// start starts the jump host, and returns what ends it.
func (w *world) start() (stop func()) {
	w.t.Helper()
	s, err := sshd.New(sshd.Options{Dir: w.path("files"), Audit: &w.audit, Log: slog.New(slog.NewJSONHandler(&w.log, nil)), Limits: w.limits, Dial: w.dial})
	require.NoError(w.t, err)
	w.server = s
	listen := "127.0.0.1:0"
	if w.host != "" {
		listen = w.host // again
	}
	l, err := net.Listen("tcp", listen)
	require.NoError(w.t, err)
	w.host = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w.t, <-ended)
	})
	w.t.Cleanup(stop)
	w.clientConfig()
	return stop
}

// clientConfig writes what OpenSSH's client needs to know the jump host.
func (w *world) clientConfig() {
	w.t.Helper()
	_, port, err := net.SplitHostPort(w.host)
	require.NoError(w.t, err)
	key := strings.TrimSpace(string(gossh.MarshalAuthorizedKey(w.signer("files/host-keys/ssh_host_ed25519_key").PublicKey())))
	w.write("known", []byte(fmt.Sprintf("[127.0.0.1]:%s %s\n%s", port, key, w.nodeKey())))
	w.write("ssh_config", []byte(fmt.Sprintf(`Host jump
  HostName 127.0.0.1
  Port %s
Host *
  User root
  IdentityFile %s
  IdentitiesOnly yes
  IdentityAgent none
  BatchMode yes
  StrictHostKeyChecking yes
  UserKnownHostsFile %s
  GlobalKnownHostsFile /dev/null
  ConnectTimeout 60
  LogLevel INFO
`, port, w.path("alice"), w.path("known"))))
}

// nodeKey is the line of known hosts for node01, "" before it runs.
func (w *world) nodeKey() string {
	data, err := os.ReadFile(w.path("node01/host_key.pub"))
	if err != nil {
		return ""
	}
	return "10.0.0.11,node01 " + string(data)
}

// echo answers every line with itself, and closes when the client has ended.
func (w *world) echo() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				buf := make([]byte, 4096)
				for {
					n, err := c.Read(buf)
					if n > 0 {
						_, _ = c.Write(buf[:n])
					}
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// runNode01 starts OpenSSH's server, which lets in alice, and the node key.
func (w *world) runNode01() {
	w.t.Helper()
	program := toolchain.Installed(w.t, "sshd")
	w.keyPair("node01/host_key")
	w.keyPair("nodekey")
	var authorized []byte
	for _, name := range []string{"alice.pub", "nodekey.pub"} {
		data, err := os.ReadFile(w.path(name))
		require.NoError(w.t, err)
		authorized = append(authorized, data...)
	}
	w.write("node01/authorized_keys", authorized)
	w.write("node01/sshd_config", []byte(fmt.Sprintf(`HostKey %s
AuthorizedKeysFile %s
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
`, w.path("node01/host_key"), w.path("node01/authorized_keys"))))
	require.NoError(w.t, os.MkdirAll("/run/sshd", 0o755)) //nolint:gosec // sshd asks for it
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	said := &lines{}
	w.t.Cleanup(func() {
		_ = l.Close()
		if w.t.Failed() {
			w.t.Log(said)
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveOne(exec.Command(program, "-i", "-e", "-f", w.path("node01/sshd_config")), c, said)
		}
	}()
	w.route("10.0.0.11:22", l.Addr().String())
}

// serveOne lets sshd serve one connection, as inetd does: no port is looked for, which
// somebody else could take meanwhile.
func serveOne(cmd *exec.Cmd, c net.Conn, said io.Writer) {
	defer func() { _ = c.Close() }()
	f, err := c.(*net.TCPConn).File() //nolint:forcetypeassert // of a TCP listener
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = f, f, said
	_ = cmd.Run() // it ends with the connection
}

// answer is what a program said.
type answer struct {
	code     int
	out, err string
}

// ssh runs OpenSSH's client.
func (w *world) ssh(args ...string) answer {
	w.t.Helper()
	return w.sshWith(nil, args...)
}

func (w *world) sshWith(stdin []byte, args ...string) answer {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, toolchain.Installed(w.t, "ssh"), append([]string{"-F", w.path("ssh_config")}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	require.True(w.t, err == nil || errors.As(err, &exit), "%v", err)
	require.NoError(w.t, ctx.Err(), "ssh %v hangs: %s", args, errs.String())
	return answer{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// client logs in as somebody, by the library.
func (w *world) client(name string) (*gossh.Client, error) {
	w.t.Helper()
	c, err := gossh.Dial("tcp", w.host, &gossh.ClientConfig{
		User: "root", Auth: []gossh.AuthMethod{gossh.PublicKeys(w.signer(name))}, Timeout: patience,
		HostKeyCallback: gossh.FixedHostKey(w.signer("files/host-keys/ssh_host_ed25519_key").PublicKey()),
	})
	if err == nil {
		w.t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// says waits for an audit line with all of these in it.
func (w *world) says(parts ...string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		for _, line := range strings.Split(w.audit.String(), "\n") {
			found := true
			for _, p := range parts {
				found = found && strings.Contains(line, p)
			}
			if found {
				return true
			}
		}
		return false
	}, patience, 10*time.Millisecond, "no audit line with %q in:\n%s", parts, &w.audit)
}
