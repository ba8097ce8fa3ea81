package services

import (
	"bufio"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/oauth2"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

const patience = 2 * time.Minute

// A user of the tenant logs in at the real Dex, which runs what was rendered, as a client that trusts what was
// rendered for that, and gets a token with the user's name.
func TestUsersLogIn(t *testing.T) {
	program := toolchain.Path(t, "dex")
	web, telemetry := freeAddress(t, "127.0.0.1"), freeAddress(t, "127.0.0.1")
	in := full(t)
	in.Now, in.Spec.Auth[0].Issuer = time.Now(), "https://"+web+"/login"
	set := rendered(t, in)
	login := set.of(t, Auth)
	trusted := []byte(object[corev1.ConfigMap](t, login, "ConfigMap", login.Name+"-trust").Data["ca.crt"])
	moved := map[string]string{
		`":5556"`: `"` + web + `"`, `":5558"`: `"` + telemetry + `"`,
		`"inCluster": true`: `"kubeConfigFile": "` + dexAccount(t) + `"`,
	}
	end := runDex(t, program, login, moved)
	user := browser(t, trusted)
	ctx := oidc.ClientContext(t.Context(), user)
	var provider *oidc.Provider
	answers := func() bool {
		found, err := oidc.NewProvider(ctx, in.Spec.Auth[0].Issuer)
		provider = found
		return err == nil
	}
	require.Eventually(t, answers, patience, 100*time.Millisecond, "dex does not answer")
	console := oauth2.Config{
		ClientID: "console", ClientSecret: clientSecret, RedirectURL: callback, Endpoint: provider.Endpoint(),
		Scopes: []string{"openid", "email", "offline_access"},
	}
	require.Empty(t, code(t, user, console, "wrong"))
	guessing := console
	guessing.ClientSecret = "guessed"
	require.ErrorContains(t, must.Err(guessing.Exchange(ctx, code(t, user, console, password))), "invalid_client")
	token := must.Have(console.Exchange(ctx, code(t, user, console, password)))(t)
	end()
	runDex(t, program, login, moved)
	require.Eventually(t, answers, patience, 100*time.Millisecond, "dex does not answer again")
	token, err := console.TokenSource(ctx, &oauth2.Token{RefreshToken: token.RefreshToken}).Token()
	require.NoError(t, err, "who was logged in is, though the pod was replaced")
	text, _ := token.Extra("id_token").(string)
	id := must.Have(provider.Verifier(&oidc.Config{ClientID: console.ClientID}).Verify(ctx, text))(t)
	var claims struct{ Email string }
	require.NoError(t, id.Claims(&claims))
	require.Equal(t, "alice@tenant.site", claims.Email)
}

// dexAccount returns the file by which Dex reaches an API server, with the shipped kinds, as the account that
// its pod has, with its rights and no more.
func dexAccount(t *testing.T) string {
	cfg := cluster.Config(t)
	namespace := cluster.Namespace(t, cfg)
	admin := cluster.Client(t, cfg)
	require.NoError(t, cluster.SIPOperator.Grant(t.Context(), admin))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: account.ObjectMeta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "vdo-sip-dex"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "default"}},
	}
	require.NoError(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), account)))
	require.NoError(t, admin.Create(t.Context(), binding))
	request := &authenticationv1.TokenRequest{}
	require.NoError(t, admin.SubResource("token").Create(t.Context(), account, request))
	return cluster.Kubeconfig(t, cfg, request.Status.Token, namespace)
}

// runDex runs what was rendered, with the pod's folders and ports moved to where a test
// can have them.
func runDex(t *testing.T, program string, s Service, moved map[string]string) (end func()) {
	dir := t.TempDir()
	certificate := object[corev1.Secret](t, s, "Secret", s.Name+"-tls").Data
	for _, key := range []string{"tls.crt", "tls.key"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, key), certificate[key], 0o600))
	}
	text := string(object[corev1.Secret](t, s, "Secret", s.Name+"-config").Data["config.json"])
	moved[dexTLS+"/tls.crt"], moved[dexTLS+"/tls.key"] = dir+"/tls.crt", dir+"/tls.key"
	for from, to := range moved {
		require.Equal(t, 1, strings.Count(text, from), from)
		text = strings.Replace(text, from, to, 1)
	}
	file := filepath.Join(dir, "config.json")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))

	container := s.deployment(t).Spec.Template.Spec.Containers[0]
	require.Equal(t, []string{"dex", "serve", dexDir + "/" + dexConfig}, container.Command)
	sh := &shell.Shell{Env: []string{"HOME=" + dir}}
	for _, e := range container.Env {
		sh.Env = append(sh.Env, e.Name+"="+e.Value)
	}
	dex := background(t, sh, program, "serve", file)
	t.Cleanup(func() {
		dex.Kill()
		for _, secret := range []string{clientSecret, bindPassword, password, string(passwordHash())} {
			require.NotContains(t, logged(dex.Log), secret)
		}
	})
	return dex.Kill
}

// background runs a command until the test ends.
func background(t *testing.T, sh *shell.Shell, command ...string) *shell.Process {
	p := must.Have(sh.Start(filepath.Join(t.TempDir(), "log"), command[0], command[1:]...))(t)
	t.Cleanup(func() {
		_ = syscall.Kill(-p.Pid(), syscall.SIGKILL) // with its children
		<-p.Ended
		if t.Failed() {
			t.Logf("%v:\n%s", command, logged(p.Log))
		}
	})
	return p
}

func ended(p *shell.Process) bool {
	select {
	case <-p.Ended:
		return true
	default:
		return false
	}
}

func logged(file string) string {
	data, err := os.ReadFile(file)
	return fmt.Sprint(string(data), err)
}

const callback = "https://console.site/callback"

// browser is a user's, who is led back to the console.
func browser(t *testing.T, trusted []byte) *http.Client {
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(trusted))
	jar := must.Have(cookiejar.New(nil))(t)
	b := &http.Client{
		Timeout: patience, Jar: jar,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			if strings.HasPrefix(r.URL.String(), callback) {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
	t.Cleanup(b.CloseIdleConnections)
	return b
}

// code logs alice in, and returns the code that the console is given; "" if the password is not
// taken.
func code(t *testing.T, user *http.Client, console oauth2.Config, password string) string {
	form := must.Have(user.Get(console.AuthCodeURL("abc", oauth2.SetAuthURLParam("connector_id", "local"))))(t)
	require.NoError(t, form.Body.Close())
	require.Equal(t, http.StatusOK, form.StatusCode, form.Request.URL)
	login := url.Values{"login": {"alice@tenant.site"}, "password": {password}}
	answer := must.Have(user.PostForm(form.Request.URL.String(), login))(t)
	require.NoError(t, answer.Body.Close())
	to, err := answer.Location()
	if errors.Is(err, http.ErrNoLocation) {
		return ""
	}
	require.NoError(t, err)
	require.Equal(t, "abc", to.Query().Get("state"))
	return to.Query().Get("code")
}

func freeAddress(t *testing.T, ip string) string {
	l := must.Have(net.Listen("tcp", net.JoinHostPort(ip, "0")))(t)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

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
		require.Equal(t, c.enter, err == nil, "%s: %v\n%s", name, err, logged(server.log))
		if err == nil {
			require.NoError(t, client.Close())
		}
	}

	client := must.Have(server.dial(jumphost.User, alice.Signer))(t)
	for to, open := range map[string]bool{
		address.String(): true, fmt.Sprintf("cp-0:%d", address.Port()): true,
		fmt.Sprintf("127.0.0.1:%d", address.Port()): false, fmt.Sprintf("localhost:%d", address.Port()): false,
		fmt.Sprintf("[::ffff:%s]:%d", address.Addr(), address.Port()): false, "unknown:22": false,
	} {
		conn, err := client.Dial("tcp", to)
		require.Equal(t, open, err == nil, "%s: %v\n%s", to, err, logged(server.log))
		if err != nil {
			require.ErrorContains(t, err, "administratively prohibited", to)
			continue
		}
		must.Have(io.WriteString(conn, "there and back\n"))(t)
		line := must.Have(bufio.NewReader(conn).ReadString('\n'))(t)
		require.Equal(t, "there and back\n", line)
	}
	listed := must.Have(session(t, client).Output("host list"))(t)
	require.Contains(t, string(listed), "cp-0\tControlPlane\t"+address.Addr().String()+"\ncp-1\t")
	for _, command := range []string{"", "id", "host list; id", "/usr/sbin/sshd"} {
		out, err := session(t, client).Output(command)
		require.Error(t, err, command)
		require.Empty(t, out, command)
	}
	require.Error(t, session(t, client).RequestPty("xterm", 80, 24, nil), "a terminal")
	require.Error(t, session(t, client).RequestSubsystem("sftp"))
	ok, err := session(t, client).SendRequest("auth-agent-req@openssh.com", true, nil)
	require.False(t, ok, err)
	require.Error(t, must.Err(client.Listen("tcp", "0.0.0.0:0")), "a remote forward")
	require.ErrorContains(t, must.Err(client.Dial("unix", "/run/vdo-jumphost/passwd")), "open failed", "a socket")
	require.Contains(t, logged(server.log), "Accepted publickey for "+jumphost.User, "who logged in")

	options := server.options(t, alice, "-W", fmt.Sprintf("cp-0:%d", address.Port()))
	through := exec.Command(toolchain.Installed(t, "ssh"), options...)
	through.Stdin = strings.NewReader("by OpenSSH\n")
	out, err := through.Output()
	require.NoError(t, err, logged(server.log))
	require.Equal(t, "by OpenSSH\n", string(out), "what ssh -J does")

	// Without load balancers of workers, SSH and the API server alone.
	in.Spec.LoadBalancerWorker, in.Kept = nil, keep(t, set)
	server = runJumpHost(t, sshd, rendered(t, in))
	client, err = server.dial(jumphost.User, alice.Signer)
	require.NoError(t, err, "with the same host key")
	require.ErrorContains(t, must.Err(client.Dial("tcp", address.String())), "administratively prohibited")
}

type jumpServer struct {
	address string
	hostKey ssh.PublicKey
	log     string // file
}

// runJumpHost runs the container of a jump host in a root directory with what the image and the kubelet
// put there. It is the pod's user in a user namespace.
func runJumpHost(t *testing.T, sshd string, set Set) jumpServer {
	service := set.of(t, JumpHost)
	pod := service.deployment(t).Spec.Template.Spec
	root := t.TempDir()
	put := func(name string, data []byte, mode os.FileMode) {
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
	libraries := must.Have(exec.Command("ldd", sshd).Output())(t)
	for _, word := range append(strings.Fields(string(libraries)), sshd) {
		if filepath.IsAbs(word) {
			data := must.Have(os.ReadFile(word))(t)
			put(word, data, 0o755)
		}
	}
	require.NoError(t, toolchain.Programs(t.Context(), root, "./operator/cmd/vdo-jumphost"))

	kept := must.Have(ssh.ParsePrivateKey(keep(t, set)[service.Name+"-host-keys"][jumphost.HostKey]))(t)
	require.Empty(t, pod.Containers[0].Command, "the image's entrypoint")
	s := jumpServer{address: freeAddress(t, "127.0.0.1"), hostKey: kept.PublicKey()}
	_, port, err := net.SplitHostPort(s.address)
	require.NoError(t, err)
	id := strconv.Itoa(int(user))
	command := append([]string{
		"unshare", "--user", "--map-user=" + id, "--map-group=" + id, "--root=" + root, "/vdo-jumphost",
	}, pod.Containers[0].Args...)
	s.log = background(t, &shell.Shell{}, append(command, "-p", port)...).Log
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", s.address)
		return err == nil && conn.Close() == nil
	}, patience, 20*time.Millisecond)
	return s
}

func (s jumpServer) dial(user string, by ssh.Signer) (*ssh.Client, error) {
	return ssh.Dial("tcp", s.address, &ssh.ClientConfig{
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(by)}, HostKeyCallback: ssh.FixedHostKey(s.hostKey), Timeout: patience,
	})
}

func (s jumpServer) options(t *testing.T, by sshUser, args ...string) []string {
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

type sshUser struct {
	ssh.Signer
	pem []byte
}

func newUser(t *testing.T) sshUser {
	key := must.Have(new(rendering).hostKey())(t)
	signer := must.Have(ssh.ParsePrivateKey(key))(t)
	return sshUser{signer, key}
}

func (u sshUser) line() string { return string(ssh.MarshalAuthorizedKey(u.PublicKey())) }

func (u sshUser) certifies(t *testing.T, other sshUser, principal string) ssh.Signer {
	cert := &ssh.Certificate{
		Key: other.PublicKey(), CertType: ssh.UserCert, ValidPrincipals: []string{principal}, ValidBefore: ssh.CertTimeInfinity,
		Permissions: ssh.Permissions{Extensions: map[string]string{"permit-port-forwarding": ""}},
	}
	require.NoError(t, cert.SignCert(rand.Reader, u))
	return must.Have(ssh.NewCertSigner(cert, other))(t)
}

// echoServer answers with what it is told, on an address that sshd does not have by itself.
func echoServer(t *testing.T) netip.AddrPort {
	l := must.Have(net.Listen("tcp", fmt.Sprintf("127.67.%d.%d:0", os.Getpid()%250, 1+os.Getpid()/250%250)))(t)
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
	s := must.Have(client.NewSession())(t)
	t.Cleanup(func() { _ = s.Close() })
	return s
}
