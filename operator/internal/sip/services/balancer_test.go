package services

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// originals is a template in the form of the original SIP operator's.
const originals = `global
    daemon
defaults
    timeout connect 5s
    timeout client 1m
    timeout server 1m
{{- range .ContainerPorts}}
{{- $port := .}}
frontend {{.Name}}
    bind *:{{.ContainerPort}}
    default_backend {{.Name}}-hosts
backend {{.Name}}-hosts
{{- range $.Servers}}
    server {{.Name}} {{.IP}}:{{$port.ContainerPort}} check
{{- end}}
{{- end -}}
`

// The program itself reads what is written, without a warning, for both families to
// listen on.
func TestTheRealProgramAcceptsIt(t *testing.T) {
	program := toolchain.Installed(t, "haproxy")
	cp := balancer{first: 6443, last: 6443, port: 6443, check: check{port: 6443, path: "/readyz"}, every: checkEvery}
	var many []placed
	for i := range 1000 {
		many = append(many, balanced(fmt.Sprintf("w-%d", i), fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)))
	}
	long := balanced(strings.Repeat("a", 63), "10.0.0.1")
	long.Namespace = strings.Repeat("b", 63)
	ports := balancer{first: 30000, last: 30002, check: check{port: kubeletPort}, every: checkEvery, checks: []check{
		{port: 30000, plain: true}, {port: 30001, plain: true, path: "/healthz"}, {port: 30002, path: "/healthz"},
	}}
	in := full(t)
	in.Templates = fstest.MapFS{"loadBalancerWorker.cfg": {Data: []byte(originals)}}
	filled := rendered(t, in).of(t, LoadBalancerWorker).config(t)[balancerFile]
	require.Contains(t, filled, "    server w-0.metal3 10.0.1.1:31009 check\n")
	in.Hosts = nil
	unused := rendered(t, in).of(t, LoadBalancerWorker).config(t)[balancerFile]
	for name, text := range map[string]string{
		"a template":      filled,
		"without hosts":   unused,
		"no host yet":     cp.text(nil),
		"API servers":     cp.text([]placed{balanced("cp-0", "10.0.0.1", "fd00::1"), balanced("cp-1.rack-7", "fd00::2")}),
		"checks of ports": ports.text([]placed{long}),
		"a range":         balancer{first: 30000, last: 30999, check: check{port: kubeletPort}, every: checkEvery}.text(many),
	} {
		for _, ip := range []string{"127.0.0.1", "::1"} {
			file := filepath.Join(t.TempDir(), balancerFile)
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			cmd := exec.Command(program, "-c", "-f", file)
			cmd.Env = append(os.Environ(), balancerIP+"="+ip)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s: %s", name, out)
			require.NotContains(t, string(out), "WARNING", name)
		}
	}
}

func balanced(name string, addresses ...string) placed {
	h := placed{Namespace: "metal3", Name: name}
	for _, a := range addresses {
		h.Addresses = append(h.Addresses, netip.MustParseAddr(a))
	}
	return h
}

// A host dies, comes back, another is added and the load balancer's pod is replaced for
// that: who is connected to the dead host loses the connection, and no one notices
// anything else.
func TestClientsNoticeNothingButTheDeadOnesConnections(t *testing.T) {
	program := toolchain.Installed(t, "haproxy")
	site := newSite(t)
	a, b, c := site.host("cp-a", ""), site.host("cp-b", "::1"), site.host("cp-c", "")

	first := site.pod(program, a, b)
	site.service.Store(&first.address)
	onA, onB := site.hold("cp-a"), site.hold("cp-b")

	b.die()
	require.Error(t, onB.echo(), "a connection to a dead host cannot go on")
	for range 20 {
		require.NoError(t, must.Err(site.ask()), "another host is tried")
	}
	require.NoError(t, onA.echo())
	b.live()
	site.reached("cp-b")
	onB = site.hold("cp-b")
	end := site.load()

	first.load(a, b, c) // as the kubelet changes a file, which the loop notices
	site.reached("cp-c")
	require.NoError(t, errors.Join(onA.echo(), onB.echo()), "a reload cuts nothing")
	require.NoError(t, os.WriteFile(first.file, []byte("nonsense\n"), 0o600))
	refused := func() bool { return strings.Contains(logged(first.log), "unknown keyword") }
	require.Eventually(t, refused, patience, time.Millisecond)
	site.reached("cp-c")

	second := site.pod(program, a, b, c)
	site.service.Store(&second.address)
	stopped := make(chan error, 1)
	go func() {
		stop := balancerStop(first.pid)
		stopped <- exec.Command(stop[0], stop[1:]...).Run()
	}()
	told := func() bool { return strings.Contains(logged(first.log), "stop") }
	require.Eventually(t, told, patience, time.Millisecond, "the hook has told it")
	late := site.dial(first.address) // by a node that does not know yet
	require.NoError(t, late.echo(), "a pod that stops accepts for a while")
	site.reached("cp-c")
	require.NoError(t, onA.echo())
	require.NoError(t, onB.echo())
	require.Empty(t, first.ended, "the pod ended with connections open")
	require.Empty(t, stopped, "the hook returned before the pod had ended")
	require.NoError(t, errors.Join(onA.Close(), onB.Close(), late.Close()))
	ended := func() bool { return len(first.ended)+len(stopped) == 2 }
	require.Eventually(t, ended, patience, 20*time.Millisecond, "the pod ends with its last connection, then the hook")

	require.NoError(t, end())
	require.Positive(t, b.checks.Load())
}

// For workers the client's port is the host's, whichever of the range it is.
func TestWorkersKeepThePort(t *testing.T) {
	program := toolchain.Installed(t, "haproxy")
	site := newSite(t)
	kubelet := site.host("w-a", "")
	const first = 31000
	for port := uint16(first); port < first+3; port++ {
		l := must.Have(net.Listen("tcp", netip.AddrPortFrom(kubelet.addr, port).String()))(t)
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				_, _ = fmt.Fprint(conn, port)
				_ = conn.Close()
			}
		}()
	}
	b := balancer{first: first, last: first + 2, check: check{port: site.port}, every: often}
	hosts := []placed{balanced("w-a", kubelet.addr.String())}
	pod := site.run(program, b.text(hosts), site.addr())
	reached := func(port uint16) bool {
		conn, err := net.Dial("tcp", netip.AddrPortFrom(pod.ip, port).String())
		if err != nil {
			return false
		}
		defer conn.Close() //nolint:errcheck // read only
		said, err := io.ReadAll(conn)
		return err == nil && string(said) == fmt.Sprint(port)
	}
	for port := uint16(first); port < first+3; port++ {
		require.Eventually(t, func() bool { return reached(port) }, patience, 20*time.Millisecond)
	}

	// A port with a check of its own does not ask the kubelet.
	kubelet.die()
	b.checks = []check{{port: first, plain: true}}
	pod = site.run(program, b.text(hosts), site.addr())
	require.Eventually(t, func() bool { return !reached(first + 1) }, patience, 20*time.Millisecond)
	require.True(t, reached(first))
}

// site is a tenant's hosts, and the Service that leads clients to a pod.
type site struct {
	t       *testing.T
	ca      pki.Authority
	port    int32 // of all hosts
	octet   int   // of its addresses: 127.octet.octet.n
	next    int
	service atomic.Pointer[string]
}

func newSite(t *testing.T) *site {
	s := &site{t: t, ca: pki.Root(t, "tenant"), octet: 1 + rand.IntN(250)} //nolint:gosec // addresses, to be apart from other tests
	l := must.Have(net.Listen("tcp", "[::1]:0"))(t)
	s.port = int32(l.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
	require.NoError(t, l.Close())
	return s
}

func (s *site) addr() netip.Addr {
	s.next++
	return netip.AddrFrom4([4]byte{127, byte(s.octet), byte(os.Getpid()), byte(s.next)})
}

// host is a backend: an API server as far as a load balancer sees it.
type host struct {
	site   *site
	name   string
	addr   netip.Addr
	cert   tls.Certificate
	server *http.Server
	checks atomic.Int64
}

func (s *site) host(name, ip string) *host {
	leaf := s.ca.Issue(s.t, pki.Spec{
		Name: name, DNS: []string{"kubernetes"}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	h := &host{site: s, name: name, cert: leaf.TLS()}
	if h.addr = s.addr(); ip != "" {
		h.addr = netip.MustParseAddr(ip)
	}
	h.live()
	s.t.Cleanup(h.die)
	return h
}

func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" && r.Host == "kubernetes" && r.UserAgent() == "sip-load-balancer" {
		h.checks.Add(1)
		return
	}
	_, _ = io.WriteString(w, h.name)
}

func (h *host) live() {
	l := must.Have(net.Listen("tcp", h.site.at(h.addr)))(h.site.t)
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{h.cert}, MinVersion: tls.VersionTLS12},
	}
	h.server = server
	go func() { _ = server.ServeTLS(l, "", "") }()
}

func (h *host) die() { _ = h.server.Close() }

type pod struct {
	ip      netip.Addr
	address string
	pid     int
	file    string
	site    *site
	ended   chan error
	log     string // file
}

func (s *site) pod(program string, hosts ...*host) *pod {
	return s.run(program, s.text(hosts), s.addr())
}

func (s *site) at(ip netip.Addr) string { return netip.AddrPortFrom(ip, uint16(s.port)).String() }

func (p *pod) load(hosts ...*host) {
	require.NoError(p.site.t, os.WriteFile(p.file, []byte(p.site.text(hosts)), 0o600))
}

// often is also what a host has for a TLS handshake, which takes its time on a busy machine.
const often = 2 * time.Second

func (s *site) text(hosts []*host) string {
	var all []placed
	for _, h := range hosts {
		all = append(all, balanced(h.name, h.addr.String()))
	}
	b := balancer{first: s.port, last: s.port, port: s.port, check: check{port: s.port, path: "/readyz"}, every: often}
	return b.text(all)
}

func (s *site) run(program, text string, ip netip.Addr) *pod {
	file := filepath.Join(s.t.TempDir(), ip.String()+".cfg")
	require.NoError(s.t, os.WriteFile(file, []byte(text), 0o600))
	output := filepath.Join(s.t.TempDir(), "log") // beside no file that makes it load again
	out := must.Have(os.Create(output))(s.t)
	s.t.Cleanup(func() { _ = out.Close() })
	command := balancerCommand(file)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), balancerIP+"="+ip.String(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(s.t, cmd.Start())
	p := &pod{
		site: s, file: file, ip: ip, log: output, address: s.at(ip), pid: cmd.Process.Pid, ended: make(chan error, 1),
	}
	exited := make(chan struct{})
	go func() {
		p.ended <- cmd.Wait()
		close(exited)
	}()
	s.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-exited
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", file, logged(p.log))
		}
	})
	health := "http://" + netip.AddrPortFrom(ip, balancerHealth).String() + "/healthz"
	require.Eventually(s.t, func() bool {
		resp, err := http.Get(health) //nolint:gosec,noctx // of the pod just started
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}, patience, 10*time.Millisecond)
	return p
}

// held is a client whose only connection, through a load balancer to one host, stays open.
type held struct {
	net.Conn
	ask func() (string, error)
}

func (s *site) dial(address string) *held {
	conn := must.Have(net.Dial("tcp", address))(s.t)
	s.t.Cleanup(func() { _ = conn.Close() })
	client := s.client(func(context.Context, string, string) (net.Conn, error) { return conn, nil })
	return &held{conn, func() (string, error) { return get(client, address) }}
}

func (s *site) client(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: dial, DisableKeepAlives: dial == nil,
		TLSClientConfig: &tls.Config{RootCAs: s.ca.Pool(), ServerName: "kubernetes", MinVersion: tls.VersionTLS12},
	}}
}

func get(client *http.Client, address string) (string, error) {
	resp, err := client.Get("https://" + address + "/") //nolint:noctx // a test's
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	name, err := io.ReadAll(resp.Body)
	return string(name), err
}

func (s *site) hold(name string) *held {
	for range 1000 {
		h := s.dial(*s.service.Load())
		if got, err := h.ask(); err == nil && got == name {
			return h
		}
		_ = h.Close()
		time.Sleep(20 * time.Millisecond)
	}
	s.t.Fatalf("no connection is led to %s", name)
	return nil
}

func (h *held) echo() error {
	_, err := h.ask()
	return err
}

// ask makes a new connection through the Service and asks who answers.
func (s *site) ask() (string, error) { return get(s.client(nil), *s.service.Load()) }

// reached waits until new connections are led to a host.
func (s *site) reached(name string) {
	require.Eventually(s.t, func() bool {
		got, err := s.ask()
		return err == nil && got == name
	}, patience, 10*time.Millisecond, name)
}

// load starts clients that ask all the time, each over a connection of its own, until end. Each is answered.
func (s *site) load() (end func() error) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var group errgroup.Group
	for range 4 {
		group.Go(func() error {
			for ctx.Err() == nil {
				if _, err := s.ask(); err != nil {
					return err
				}
				time.Sleep(10 * time.Millisecond) // others want the processors too
			}
			return nil
		})
	}
	return func() error {
		cancel()
		return group.Wait()
	}
}
