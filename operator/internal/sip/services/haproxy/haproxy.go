// Package haproxy writes HAProxy's configuration for one load balancer before the hosts of a tenant cluster.
//
//	text := haproxy.Config{Listen: haproxy.Ports{First: 6443, Last: 6443}, Servers: servers, Check: haproxy.Check{…}}.Text()
//
// # What it makes HAProxy do
//
//   - TCP is passed through, to the port of a server that the client connected to, or to Port if that is set.
//   - A server takes connections while its check passes: see [Check]. Three failures in a row keep new
//     connections away, so that API servers which are slow together are not all taken away, and cut none.
//     The kernel ends connections to a host that is gone.
//   - A connection that a server refuses is tried on another one.
//   - The first address of a server is used as long as any server is reached at its first; the others (the second
//     IP family) stand by for clusters whose pods have that family only.
//   - A loop beside the master process sends it SIGUSR2 when the files of the configuration change: see [Command].
//     A new worker takes the sockets over, and the one before serves what is open. Until the new worker has
//     checked all servers, which count as fit before, its connections wait. A configuration that HAProxy refuses
//     is not loaded.
//   - On SIGUSR1 it goes on accepting for [Grace], since the nodes' rules lead clients to it a little longer, then
//     ends when nothing is open: see [StopCommand]. A pod has [Drain] for that.
//
// Every word that comes from outside is a number, an address, the name of an object or a path that the
// CustomResourceDefinition restricts. So there is nothing to quote. The address to listen on is the environment
// variable POD_IP, so that one text serves either IP family.
package haproxy

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// How a pod ends.
const (
	// Grace is how long connections are accepted after SIGUSR1.
	Grace = 10 * time.Second
	// Drain is how long open connections may go on after SIGUSR1, Grace included.
	Drain = 10 * time.Minute
	// maxReloads bounds the workers that serve what was open before a reload: each takes memory.
	maxReloads = 8
)

// MaxConnections that are open at once; each takes up to 35 KiB.
const MaxConnections = 8000

// PodIP is the environment variable that has the address to listen on.
const PodIP = "POD_IP"

// HealthPort is where the pod says that it runs (GET /healthz). It is outside Kubernetes' default range of node ports.
const HealthPort = 8404

// Ports is the ports from First to Last, both included.
type Ports struct{ First, Last uint16 }

func (p Ports) String() string {
	if p.First == p.Last {
		return strconv.Itoa(int(p.First))
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

// Server is one host that connections are led to.
type Server struct {
	Name      string       // a DNS subdomain, as that of an object
	Addresses []netip.Addr // at least one
}

// Check is how servers are asked whether they can take connections.
type Check struct {
	Port  uint16
	Plain bool          // without TLS; else whoever answers: clients know their servers
	Path  string        // of GET; "" for the connection, or the TLS handshake, alone
	Every time.Duration // and how long a connection and its TLS handshake may take
}

// Config is a load balancer.
type Config struct {
	Listen  Ports    // on POD_IP
	Port    uint16   // of the servers; 0 for the one that the client connected to
	Servers []Server // may be empty: connections are then closed
	Check   Check
	// PortChecks are in the place of Check for ports of Listen.
	PortChecks map[uint16]Check
}

// Command runs HAProxy with a configuration file, in the foreground. It looks every two seconds whether
// a file beside the configuration changed, as the kubelet changes those of a ConfigMap. It passes SIGUSR1
// on. (The loop is no child of the master process, which would wait for it at its end.)
func Command(file string) []string {
	const script = `cd %[1]s
haproxy -W -db -f %[2]s &
master=$!
trap 'kill -USR1 $master' USR1
loaded=$(cat * | cksum)
while sleep 2; kill -0 $master 2>/dev/null; do
    now=$(cat * | cksum)
    [ "$now" = "$loaded" ] && continue
    haproxy -c -f %[2]s && kill -USR2 $master
    loaded=$now
done
wait $master`
	return []string{"/bin/sh", "-c", fmt.Sprintf(script, path.Dir(file), path.Base(file))}
}

// StopCommand makes the process pid end softly, and returns when it has. It does not rely
// on the signal that an image names for that: Kubernetes sends SIGTERM otherwise, at
// which HAProxy drops everything.
func StopCommand(pid int) []string {
	return []string{"/bin/sh", "-c", fmt.Sprintf("kill -USR1 %[1]d; while kill -0 %[1]d 2>/dev/null; do sleep 1; done", pid)}
}

// Text returns the configuration.
func (c Config) Text() string {
	var b strings.Builder
	ports := slices.Sorted(maps.Keys(c.PortChecks))
	fmt.Fprintf(&b, `# Written by vdo-operator from the SIPCluster; changes made here are lost.
global
    log stdout format raw local0 notice
    maxconn %d
    no strict-limits
    grace %ds
    mworker-max-reloads %d
    set-var proc.started date

defaults
    mode tcp
    log global
    balance leastconn
    retries 3
    option redispatch 1
    option clitcpka
    clitcpka-idle 30s
    clitcpka-intvl 10s
    clitcpka-cnt 3
    option srvtcpka
    srvtcpka-idle 30s
    srvtcpka-intvl 10s
    srvtcpka-cnt 3
    timeout connect 5s
    timeout check 10s
    timeout queue 10s
    timeout client 4h
    timeout server 4h
    timeout client-fin 1m
    timeout server-fin 1m

frontend health
    mode http
    bind "${%[4]s}:%[5]d"
    timeout client 10s
    timeout http-request 10s
    http-request return status 200 content-type text/plain string ok if { path /healthz }
    http-request return status 404

frontend clients
    bind "${%[4]s}:%[6]s"
    tcp-request inspect-delay %[7]ds
    tcp-request content accept if { date,sub(proc.started) gt %[7]d }
    tcp-request content accept if WAIT_END
    default_backend hosts
`, MaxConnections, int(Grace.Seconds()), maxReloads, PodIP, HealthPort, c.Listen, int(c.Check.Every.Seconds())+1)
	for _, port := range ports {
		fmt.Fprintf(&b, "    use_backend hosts-%[1]d if { dst_port %[1]d }\n", port)
	}
	c.backend(&b, "hosts", c.Check)
	for _, port := range ports {
		c.backend(&b, fmt.Sprintf("hosts-%d", port), c.PortChecks[port])
	}
	return b.String()
}

func (c Config) backend(b *strings.Builder, name string, check Check) {
	fmt.Fprintf(b, "\nbackend %s\n    option allbackups\n", name)
	if check.Path != "" {
		fmt.Fprintf(b, `    option httpchk
    http-check send meth GET uri %s ver HTTP/1.1 hdr Host kubernetes hdr User-Agent sip-load-balancer
    http-check expect status 200
`, check.Path)
	}
	tls := ""
	if !check.Plain {
		tls = "check-ssl verify none "
	}
	fmt.Fprintf(b, "    default-server check port %d %sinter %dms rise 2 fall 3 tcp-ut 30s\n",
		check.Port, tls, check.Every.Milliseconds())
	for _, s := range c.Servers {
		for i, addr := range s.Addresses {
			c.server(b, s.Name, i, addr)
		}
	}
}

// server writes an address of a server; all but the first stand by.
func (c Config) server(b *strings.Builder, name string, i int, addr netip.Addr) {
	addr = addr.Unmap()
	at := "ipv4@" + addr.String()
	if addr.Is6() {
		at = "ipv6@[" + addr.String() + "]"
	}
	if c.Port != 0 {
		at += ":" + strconv.Itoa(int(c.Port))
	}
	if i > 0 { // a colon is in no name of a host
		fmt.Fprintf(b, "    server %s:%d %s backup\n", name, i+1, at)
		return
	}
	fmt.Fprintf(b, "    server %s %s\n", name, at)
}
