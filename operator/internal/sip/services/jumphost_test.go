package services

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// Debian's sshd runs with the rendered files, as the pod's user, in a root directory like the image's.
func TestJumpHostRunsWhatIsRendered(t *testing.T) {
	sshd := toolchain.Installed(t, "sshd")
	address := echoServer(t)
	alice, mallory, bob, authority := newUser(t), newUser(t), newUser(t), newUser(t)
	in := full(t)
	in.Hosts[airship.RoleControlPlane][0] = bmHost("cp-0", address.Addr().String())
	in.Egress = append(in.Egress, netip.PrefixFrom(address.Addr(), 32))
	jump := &in.Spec.JumpHost[0]
	jump.SSHAuthorizedKeys = []string{alice.line()}
	jump.TrustedUserCAKeys, jump.AuthorizedPrincipals = []string{authority.line()}, []string{"admins"}
	set := rendered(t, in)
	server := runJumpHost(t, sshd, set)

	for name, c := range map[string]struct {
		user  string
		by    ssh.Signer
		enter bool
	}{
		"an authorized key":             {jumphost.User, alice.Signer, true},
		"another key":                   {jumphost.User, mallory.Signer, false},
		"another user":                  {"root", alice.Signer, false},
		"a certificate":                 {jumphost.User, authority.certifies(t, bob, "admins"), true},
		"a certificate for others":      {jumphost.User, authority.certifies(t, bob, jumphost.User), false},
		"a certificate of another CA":   {jumphost.User, mallory.certifies(t, bob, "admins"), false},
		"the CA's key, which is no key": {jumphost.User, authority.Signer, false},
	} {
		client, err := server.dial(c.user, c.by)
		require.Equal(t, c.enter, err == nil, "%s: %v\n%s", name, err, server.logged())
		if err == nil {
			require.NoError(t, client.Close())
		}
	}

	client, err := server.dial(jumphost.User, alice.Signer)
	require.NoError(t, err)
	for to, open := range map[string]bool{
		address.String(): true, fmt.Sprintf("cp-0:%d", address.Port()): true,
		fmt.Sprintf("127.0.0.1:%d", address.Port()): false, fmt.Sprintf("localhost:%d", address.Port()): false,
		fmt.Sprintf("[::ffff:%s]:%d", address.Addr(), address.Port()): false, "unknown:22": false,
	} {
		conn, err := client.Dial("tcp", to)
		require.Equal(t, open, err == nil, "%s: %v\n%s", to, err, server.logged())
		if err != nil {
			require.ErrorContains(t, err, "administratively prohibited", to)
			continue
		}
		_, err = io.WriteString(conn, "there and back\n")
		require.NoError(t, err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "there and back\n", line)
	}
	for command, want := range map[string]string{
		"host list": "cp-0\ncp-1\nw-0\n", "host list -l": "cp-0\tControlPlane\t" + address.Addr().String() + "\ncp-1\t",
	} {
		out, err := session(t, client).Output(command)
		require.NoError(t, err)
		require.Contains(t, string(out), want)
	}
	for _, command := range []string{"", "id", "host list; id", "/usr/sbin/sshd"} {
		out, err := session(t, client).Output(command)
		require.Error(t, err, command)
		require.Empty(t, out, command)
	}
	require.Error(t, session(t, client).RequestPty("xterm", 80, 24, nil), "a terminal")
	require.Error(t, session(t, client).RequestSubsystem("sftp"))
	ok, err := session(t, client).SendRequest("auth-agent-req@openssh.com", true, nil)
	require.False(t, ok, err)
	_, err = client.Listen("tcp", "0.0.0.0:0")
	require.Error(t, err, "a remote forward")
	_, err = client.Dial("unix", "/run/vdo-jumphost/passwd")
	require.ErrorContains(t, err, "open failed", "a socket")
	require.Contains(t, server.logged(), "Accepted publickey for "+jumphost.User, "who logged in")

	options := server.options(t, alice, "-W", fmt.Sprintf("cp-0:%d", address.Port()))
	through := exec.Command(toolchain.Installed(t, "ssh"), options...)
	through.Stdin = strings.NewReader("by OpenSSH\n")
	out, err := through.Output()
	require.NoError(t, err, server.logged())
	require.Equal(t, "by OpenSSH\n", string(out), "what ssh -J does")

	// Without load balancers of workers, SSH and the API server alone.
	in.Spec.LoadBalancerWorker, in.Kept = nil, keep(t, set)
	server = runJumpHost(t, sshd, rendered(t, in))
	client, err = server.dial(jumphost.User, alice.Signer)
	require.NoError(t, err, "with the same host key")
	_, err = client.Dial("tcp", address.String())
	require.ErrorContains(t, err, "administratively prohibited")
}

// jumpServer is a jump host that runs.
type jumpServer struct {
	address string
	hostKey ssh.PublicKey
	log     string // file
}

// runJumpHost runs the container of a jump host in a root directory with what the image and the kubelet
// put there. It is the pod's user in a user namespace.
func runJumpHost(t *testing.T, sshd string, set Set) jumpServer {
	t.Helper()
	service := set.of(t, JumpHost)
	pod := service.deployment(t).Spec.Template.Spec
	root := t.TempDir()
	put := func(name string, data []byte, mode os.FileMode) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), data, mode))
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		require.GreaterOrEqual(t, i, 0, m.Name)
		require.Empty(t, m.SubPath, "a mounted file would not follow changes")
		if v := pod.Volumes[i].ConfigMap; v != nil {
			for name, text := range object[corev1.ConfigMap](t, service, "ConfigMap", v.Name).Data {
				put(filepath.Join(m.MountPath, name), []byte(text), 0o400)
			}
		}
		if v := pod.Volumes[i].Secret; v != nil {
			for name, data := range keep(t, set)[v.SecretName] {
				put(filepath.Join(m.MountPath, name), data, 0o400)
			}
		}
	}
	var names strings.Builder
	for _, a := range pod.HostAliases {
		fmt.Fprintf(&names, "%s %s\n", a.IP, strings.Join(a.Hostnames, " "))
	}
	put("/etc/hosts", []byte(names.String()), 0o644)
	put("/dev/null", nil, 0o666)
	require.NoError(t, os.MkdirAll(filepath.Join(root, jumphost.RunDir), 0o755))
	require.NoError(t, os.Symlink(jumphost.RunDir+"/passwd", filepath.Join(root, "etc/passwd")))
	libraries, err := exec.Command("ldd", sshd).Output()
	require.NoError(t, err)
	for _, word := range append(strings.Fields(string(libraries)), sshd) {
		if filepath.IsAbs(word) {
			data, err := os.ReadFile(word)
			require.NoError(t, err)
			put(word, data, 0o755)
		}
	}
	require.NoError(t, toolchain.Programs(t.Context(), root, "./operator/cmd/vdo-jumphost"))

	kept, err := ssh.ParsePrivateKey(keep(t, set)[service.Name+"-host-keys"][jumphost.HostKey])
	require.NoError(t, err)
	s := jumpServer{address: freeAddress(t), hostKey: kept.PublicKey(), log: filepath.Join(t.TempDir(), "log")}
	_, port, err := net.SplitHostPort(s.address)
	require.NoError(t, err)
	require.Empty(t, pod.Containers[0].Command, "the image's entrypoint")
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "/vdo-jumphost", append(pod.Containers[0].Args, "-p", port)...)
	log, err := os.Create(s.log)
	require.NoError(t, err)
	t.Cleanup(func() { _ = log.Close() })
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = log, log, "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot: root, Cloneflags: syscall.CLONE_NEWUSER, Setpgid: true,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: int(user), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: int(user), HostID: os.Getgid(), Size: 1}},
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", s.address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, patience, 20*time.Millisecond)
	return s
}

func (s jumpServer) dial(user string, by ssh.Signer) (*ssh.Client, error) {
	return ssh.Dial("tcp", s.address, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(by)}, HostKeyCallback: ssh.FixedHostKey(s.hostKey), Timeout: patience,
	})
}

func (s jumpServer) logged() string {
	data, err := os.ReadFile(s.log)
	return fmt.Sprint(string(data), err)
}

// options are arguments of OpenSSH's client.
func (s jumpServer) options(t *testing.T, by sshUser, args ...string) []string {
	t.Helper()
	key, known := filepath.Join(t.TempDir(), "key"), filepath.Join(t.TempDir(), "known_hosts")
	require.NoError(t, os.WriteFile(key, by.pem, 0o600))
	host, port, err := net.SplitHostPort(s.address)
	require.NoError(t, err)
	line := fmt.Sprintf("[%s]:%s %s", host, port, ssh.MarshalAuthorizedKey(s.hostKey))
	require.NoError(t, os.WriteFile(known, []byte(line), 0o600))
	return append([]string{
		"-F", "none", "-i", key, "-o", "UserKnownHostsFile=" + known, "-o", "BatchMode=yes", "-p", port, "-l", jumphost.User,
	}, append(args, host)...)
}

// sshUser is a key pair.
type sshUser struct {
	ssh.Signer
	pem []byte
}

func newUser(t *testing.T) sshUser {
	t.Helper()
	key, err := jumphost.NewHostKey()
	require.NoError(t, err)
	signer, err := ssh.ParsePrivateKey(key)
	require.NoError(t, err)
	return sshUser{signer, key}
}

func (u sshUser) line() string { return string(ssh.MarshalAuthorizedKey(u.PublicKey())) }

// certifies signs a certificate for another's key.
func (u sshUser) certifies(t *testing.T, other sshUser, principal string) ssh.Signer {
	t.Helper()
	cert := &ssh.Certificate{
		Key: other.PublicKey(), CertType: ssh.UserCert, ValidPrincipals: []string{principal}, ValidBefore: ssh.CertTimeInfinity,
		Permissions: ssh.Permissions{Extensions: map[string]string{"permit-port-forwarding": ""}},
	}
	require.NoError(t, cert.SignCert(rand.Reader, u))
	signer, err := ssh.NewCertSigner(cert, other)
	require.NoError(t, err)
	return signer
}

// echoServer answers with what it is told, on an address that sshd does not have by itself.
func echoServer(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.67.%d.%d:0", os.Getpid()%250, 1+os.Getpid()/250%250))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

func session(t *testing.T, client *ssh.Client) *ssh.Session {
	t.Helper()
	s, err := client.NewSession()
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Who was shown a host key is shown it again, whatever else changes, and a damaged one is
// made anew.
func TestHostKeysStay(t *testing.T) {
	in := full(t)
	set := rendered(t, in)
	name := Name("one", JumpHost, 0) + "-host-keys"
	key := keep(t, set)[name][jumphost.HostKey]
	in.Kept = keep(t, set)
	in.Spec.JumpHost[0], in.Hosts = airship.JumpHost{NodePort: 30023}, nil
	require.Equal(t, key, keep(t, rendered(t, in))[name][jumphost.HostKey])
	in.Kept[name][jumphost.HostKey] = key[:50]
	anew := keep(t, rendered(t, in))[name][jumphost.HostKey]
	require.NotEqual(t, key, anew)
	require.True(t, jumphost.IsHostKey(anew))
}
