package services

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
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
	site := newSite(t)
	a, b, c := site.host("cp-a", ""), site.host("cp-b", "::1"), site.host("cp-c", "")

	first := site.pod(site.text(a, b))
	site.service.Store(&first.address)
	onA, onB := site.hold("cp-a"), site.hold("cp-b")

	b.die()
	require.Error(t, must.Err(onB.ask()), "a connection to a dead host cannot go on")
	for range 20 {
		require.NoError(t, must.Err(site.ask()), "another host is tried")
	}
	require.NoError(t, must.Err(onA.ask()))
	b.live()
	site.reached("cp-b")
	onB = site.hold("cp-b")
	end := site.load()

	first.load(t, site.text(a, b, c)) // as the kubelet changes a file, which the loop notices
	site.reached("cp-c")
	require.NoError(t, errors.Join(must.Err(onA.ask()), must.Err(onB.ask())), "a reload cuts nothing")
	first.load(t, "nonsense\n")
	refused := func() bool { return strings.Contains(logged(first.Log), "unknown keyword") }
	require.Eventually(t, refused, patience, time.Millisecond)
	site.reached("cp-c")

	second := site.pod(site.text(a, b, c))
	site.service.Store(&second.address)
	hook := background(t, &shell.Shell{}, balancerStop(first.Pid())...)
	told := func() bool { return strings.Contains(logged(first.Log), "stop") }
	require.Eventually(t, told, patience, time.Millisecond, "the hook has told it")
	late := must.Have(dial(first.address))(t) // by a node that does not know yet
	require.NoError(t, must.Err(late.ask()), "a pod that stops accepts for a while")
	site.reached("cp-c")
	require.NoError(t, errors.Join(must.Err(onA.ask()), must.Err(onB.ask())))
	require.False(t, ended(first.Process), "the pod ended with connections open")
	require.False(t, ended(hook), "the hook returned before the pod had ended")
	require.NoError(t, errors.Join(onA.Close(), onB.Close(), late.Close()))
	both := func() bool { return ended(first.Process) && ended(hook) }
	require.Eventually(t, both, patience, 20*time.Millisecond, "the pod ends with its last connection, then the hook")

	require.NoError(t, end())
	require.Positive(t, b.checks.Load())
}

// For workers the client's port is the host's, whichever of the range it is.
func TestWorkersKeepThePort(t *testing.T) {
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
	pod := site.pod(b.text(hosts))
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
	pod = site.pod(b.text(hosts))
	require.Eventually(t, func() bool { return !reached(first + 1) }, patience, 20*time.Millisecond)
	require.True(t, reached(first))
}

// site is a tenant's hosts, and the Service that leads clients to a pod.
type site struct {
	t       *testing.T
	program string // haproxy
	port    int32  // of all hosts
	octet   int    // of its addresses: 127.octet.octet.n, apart from those of other tests
	next    int
	service atomic.Pointer[string]
}

func newSite(t *testing.T) *site {
	free := netip.MustParseAddrPort(freeAddress(t, "::1"))
	return &site{t: t, program: toolchain.Installed(t, "haproxy"), octet: 1 + rand.IntN(250), port: int32(free.Port())}
}

func (s *site) addr() netip.Addr {
	s.next++
	return netip.AddrFrom4([4]byte{127, byte(s.octet), byte(os.Getpid()), byte(s.next)})
}

func (s *site) at(ip netip.Addr) string { return netip.AddrPortFrom(ip, uint16(s.port)).String() }

// host is a backend: an API server as far as a load balancer sees it.
type host struct {
	site   *site
	name   string
	addr   netip.Addr
	server *httptest.Server
	checks atomic.Int64
}

func (s *site) host(name, ip string) *host {
	h := &host{site: s, name: name}
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
	server := &http.Server{Handler: h, ReadHeaderTimeout: patience, ErrorLog: log.New(io.Discard, "", 0)}
	h.server = &httptest.Server{Config: server, Listener: must.Have(net.Listen("tcp", h.site.at(h.addr)))(h.site.t)}
	h.server.StartTLS()
}

func (h *host) die() { _ = h.server.Config.Close() } // with its connections

// often is also what a host has for a TLS handshake, which takes its time on a busy machine.
const often = 2 * time.Second

func (s *site) text(hosts ...*host) string {
	var all []placed
	for _, h := range hosts {
		all = append(all, balanced(h.name, h.addr.String()))
	}
	b := balancer{first: s.port, last: s.port, port: s.port, check: check{port: s.port, path: "/readyz"}, every: often}
	return b.text(all)
}

type pod struct {
	*shell.Process
	ip      netip.Addr
	address string
	file    string
}

func (p *pod) load(t *testing.T, text string) {
	require.NoError(t, os.WriteFile(p.file, []byte(text), 0o600))
}

// pod runs a load balancer's container until it serves.
func (s *site) pod(text string) *pod {
	ip := s.addr()
	p := &pod{ip: ip, address: s.at(ip), file: filepath.Join(s.t.TempDir(), balancerFile)}
	p.load(s.t, text)
	env := []string{balancerIP + "=" + ip.String(), "PATH=" + filepath.Dir(s.program) + ":" + os.Getenv("PATH")}
	p.Process = background(s.t, &shell.Shell{Env: env}, balancerCommand(p.file)...)
	health := "http://" + netip.AddrPortFrom(ip, balancerHealth).String() + "/healthz"
	require.Eventually(s.t, func() bool {
		resp, err := http.Get(health) //nolint:gosec,noctx // of the pod just started
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}, patience, 10*time.Millisecond)
	return p
}

// held is a client whose only connection, through a load balancer to one host, stays open.
type held struct{ *tls.Conn }

func dial(address string) (held, error) {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", address, &tls.Config{InsecureSkipVerify: true})
	return held{conn}, err
}

// ask returns the name of the host that answers.
func (h held) ask() (string, error) {
	_ = h.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(h, "GET / HTTP/1.1\r\nHost: any\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := http.ReadResponse(bufio.NewReader(h), nil)
	if err != nil {
		return "", err
	}
	name, err := io.ReadAll(answer.Body)
	return string(name), err
}

// hold makes connections through the Service until one leads to a host.
func (s *site) hold(name string) (h held) {
	require.Eventually(s.t, func() bool {
		conn, err := dial(*s.service.Load())
		if err != nil {
			return false
		}
		h = conn
		if got, err := h.ask(); err == nil && got == name {
			return true
		}
		_ = h.Close()
		return false
	}, patience, 10*time.Millisecond, name)
	return h
}

// ask makes a new connection through the Service and asks who answers.
func (s *site) ask() (string, error) {
	h, err := dial(*s.service.Load())
	if err != nil {
		return "", err
	}
	defer h.Close() //nolint:errcheck // read only
	return h.ask()
}

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
