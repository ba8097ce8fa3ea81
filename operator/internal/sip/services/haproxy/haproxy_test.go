package haproxy

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	checked := controlPlane(server("cp-0", "10.0.0.1", "fd00::1"), server("cp-1.rack-7", "fd00::2"), server("cp-2", "::ffff:10.0.0.3"))
	var many []Server
	for i := range 1000 {
		many = append(many, server(fmt.Sprintf("w-%d", i), fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)))
	}
	ports := workers(Ports{30000, 30002}, server("w", "10.0.0.1"))
	ports.PortChecks = map[uint16]Check{
		30000: {Port: 30000, Plain: true, Every: time.Second}, 30001: {Port: 30001, Plain: true, Path: "/healthz", Every: time.Second},
		30002: {Port: 30002, Path: "/healthz", Every: time.Second},
	}
	for name, c := range map[string]Config{
		"no server yet":   controlPlane(),
		"checks of ports": ports,
		"API servers":     checked,
		"a range":         workers(Ports{30000, 30999}, many...),
		"long names":      workers(Ports{9000, 9999}, server(strings.Repeat("a", 63)+"."+strings.Repeat("b", 63), "10.0.0.1")),
	} {
		for _, ip := range []string{"127.0.0.1", "::1"} {
			file := filepath.Join(t.TempDir(), "haproxy.cfg")
			require.NoError(t, os.WriteFile(file, []byte(c.Text()), 0o600))
			cmd := exec.Command(program, "-c", "-f", file)
			cmd.Env = append(os.Environ(), PodIP+"="+ip)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s: %s", name, out)
			require.NotContains(t, string(out), "WARNING", name)
		}
	}
}
