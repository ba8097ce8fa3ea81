package haproxy

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

func server(name string, addresses ...string) Server {
	s := Server{Name: name}
	for _, a := range addresses {
		s.Addresses = append(s.Addresses, netip.MustParseAddr(a))
	}
	return s
}

func controlPlane(servers ...Server) Config {
	return Config{Listen: Ports{6443, 6443}, Port: 6443, Servers: servers, Check: Check{Port: 6443, Path: "/readyz", Every: 2 * time.Second}}
}

func workers(ports Ports, servers ...Server) Config {
	return Config{Listen: ports, Servers: servers, Check: Check{Port: 10250, Every: 5 * time.Second}}
}

// The program itself reads what is written, without a warning, for both families to
// listen on.
func TestTheRealProgramAcceptsIt(t *testing.T) {
	program := toolchain.Installed(t, "haproxy")
	ca := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, pemOf(pki.Root(t, "tenant")), 0o600))
	checked := controlPlane(server("cp-0", "10.0.0.1", "fd00::1"), server("cp-1.rack-7", "fd00::2"), server("cp-2", "::ffff:10.0.0.3"))
	checked.Check.CAFile = ca
	var many []Server
	for i := range 1000 {
		many = append(many, server(fmt.Sprintf("w-%d", i), fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)))
	}
	ports := workers(Ports{30000, 30002}, server("w", "10.0.0.1"))
	ports.PortChecks = map[uint16]Check{
		30000: {Port: 30000, Plain: true, Every: time.Second}, 30001: {Port: 30001, Plain: true, Path: "/healthz", Every: time.Second},
		30002: {Port: 30002, Path: "/healthz", Every: time.Second},
	}
	both := workers(Ports{30000, 30002})
	both.Both = true
	for name, c := range map[string]Config{
		"both families":    both,
		"no server yet":    controlPlane(),
		"checks of ports":  ports,
		"API servers":      checked,
		"a range":          workers(Ports{30000, 30999}, many...),
		"over health port": workers(Ports{8000, 8999}, server(strings.Repeat("a", 63)+"."+strings.Repeat("b", 63), "10.0.0.1")),
	} {
		for _, ip := range []string{"127.0.0.1", "::1"} {
			text, err := c.Text()
			require.NoError(t, err, name)
			file := filepath.Join(t.TempDir(), "haproxy.cfg")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			cmd := exec.Command(program, "-c", "-f", file)
			cmd.Env = append(os.Environ(), PodIP+"="+ip)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s: %s", name, out)
			require.NotContains(t, string(out), "WARNING", name)
		}
	}
}

// What a line may be, whatever hosts are called; a name or address that is let through
// can add no other.
var hostLine = regexp.MustCompile(`^    server [a-z0-9.:-]+ (ipv4@[0-9.]+|ipv6@\[[0-9a-f:]+\]|ipv6@\[::ffff:[0-9.]+\])(:\d+)?( backup)?$`)

func FuzzNothingIsInjected(f *testing.F) {
	for _, name := range []string{
		"cp-0", "a.b", "", "A", "cp 0", "cp-0\n    server evil 10.6.6.6:6443", "cp-0\r", "cp-0#", `cp-0"`, "${HOME}", "cp:2", "-a", "a-", "a..b", "cp-0 10.0.0.1:22 #",
		strings.Repeat("a", 254), "cp-0\x00", "é",
	} {
		f.Add(name, "10.0.0.1", "/readyz")
	}
	for _, addr := range []string{"fd00::1", "::ffff:10.0.0.1", "fe80::1%eth0", "fe80::1%eth0\n    bind :22", "0.0.0.0", "::", "224.0.0.1", "ff02::1"} {
		f.Add("cp-0", addr, "/readyz")
	}
	for _, path := range []string{"", "/", "readyz", "/readyz # x", "/readyz\n", "/$HOME", `/"`, "/a\\ b"} {
		f.Add("cp-0", "10.0.0.1", path)
	}
	empty, err := controlPlane().Text()
	require.NoError(f, err)
	before := strings.Split(empty, "\n")
	f.Fuzz(func(t *testing.T, name, addr, path string) {
		ip, err := netip.ParseAddr(addr)
		if err != nil {
			return
		}
		c := controlPlane(Server{Name: name, Addresses: []netip.Addr{ip}})
		c.Check.CAFile = path
		text, err := c.Text()
		if err != nil {
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
			require.NotEmpty(t, fault.HintOf(err))
			return
		}
		lines := strings.Split(text, "\n")
		require.Len(t, lines, len(before)+1, text)
		var added []string
		for i, line := range lines[:len(before)-1] {
			if line != before[i] {
				added = append(added, line)
			}
		}
		var want []string
		if path != "" {
			want = []string{strings.Replace(before[len(before)-2], "verify none", "verify required ca-file "+path, 1)}
		}
		require.Equal(t, want, added)
		require.Regexp(t, hostLine, lines[len(lines)-2])
		require.Empty(t, lines[len(lines)-1])
	})
}

func TestBadInputIsRefusedTogether(t *testing.T) {
	c := controlPlane(server("cp-0", "10.0.0.1"), server("cp-0", "10.0.0.2"), server("cp-1"), server("cp-2", "::ffff:10.0.0.1"))
	c.Listen = Ports{30005, 30001}
	_, err := c.Text()
	for _, part := range []string{
		`ports 30005-30001: expected a range`, `host "cp-0": it is listed twice`, `host "cp-1": it has no address`,
		`host "cp-2": it has the address 10.0.0.1, as "cp-0" has`,
	} {
		require.ErrorContains(t, err, part)
	}
	for name, ports := range map[string]Ports{"too many": {30000, 31000}, "privileged": {1023, 1025}, "none": {}} {
		_, err := workers(ports).Text()
		require.ErrorContains(t, err, "expected a range of 1 to 1000 ports", name)
	}
}

// The pod's own port is apart from those of the tenant.
func TestHealthPortIsNotOneOfTheTenants(t *testing.T) {
	for first := 1; first <= 65535-maxPorts; first += 333 {
		c := workers(Ports{uint16(first), uint16(first + maxPorts - 1)})
		require.False(t, c.Listen.Has(c.HealthPort()), c.Listen)
	}
}
