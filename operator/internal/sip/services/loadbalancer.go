package services

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
)

// Ports of the tenant's hosts.
const (
	apiServerPort = 6443
	kubeletPort   = 10250
)

// maxPorts is the number of ports of all load balancers of workers together.
const maxPorts = 1000

// maxConfig is the capacity of a ConfigMap, in bytes.
const maxConfig = 1 << 20

// Paths, port and environment of a load balancer's pod.
const (
	balancerDir  = "/etc/sip-load-balancer" // ConfigMap
	balancerFile = "haproxy.cfg"
	// balancerHealth is the port of the pod's own health (GET /healthz): outside the default range of node ports.
	balancerHealth = 8404
	// balancerIP is the environment variable with the address to listen on, so that one text serves either IP family.
	balancerIP = "POD_IP"
)

const (
	// checkEvery is the time between checks of a host. settle is how many seconds a new load balancer takes to check
	// all hosts. Until its first check, a host counts as fit.
	checkEvery = 3 * time.Second
	settle     = 10
	// grace is how long HAProxy accepts connections after SIGUSR1, since the nodes' rules still send clients for a
	// while. Open connections may continue for drain.
	grace = 10 * time.Second
	drain = 10 * time.Minute
)

// balancer is the configuration of HAProxy, which passes TCP through:
//
//   - A host gets connections while its check passes. Three failures in a row stop new connections and cut none,
//     so that API servers that are slow together stay in use. The kernel ends connections to a host that is gone.
//     HAProxy tries a refused connection on another host.
//   - HAProxy uses the first address of hosts as long as it reaches any host at its first. The second one, of IPv6,
//     stands by for clusters whose pods have only that family.
//   - After a reload, a new worker lets its connections wait until it has checked all hosts.
//
// External input in the text is a number, an address, the name of an object or a path that the CRD restricts. So
// nothing needs quoting.
type balancer struct {
	first, last int32         // ports that HAProxy listens on
	port        int32         // of the hosts; 0 for the one that the client connected to
	check       check         // of hosts
	checks      []check       // of ports, instead of check
	every       time.Duration // between checks, and timeout of a connection with its TLS handshake
}

// check is the probe by which HAProxy finds out whether a host can take connections.
type check struct {
	port  int32
	plain bool   // without TLS; else any certificate passes: clients verify their servers
	path  string // of GET; "" checks only the connection or the TLS handshake
}

// controlPlane balances over the API servers that answer GET /readyz.
func (r *rendering) controlPlane(s airship.LoadBalancerControlPlane) error {
	b := balancer{first: apiServerPort, last: apiServerPort, port: apiServerPort, every: checkEvery}
	if b.check = (check{port: apiServerPort, path: "/readyz"}); s.HealthCheck == "TCP" {
		b.check = check{port: apiServerPort, plain: true}
	}
	r.serve("api", apiServerPort, s.NodePort, apiServerPort)
	return r.balance(b, airship.RoleControlPlane)
}

// workers forwards each port of the range to the same port of the hosts whose kubelet serves, or whose port passes
// its check.
func (r *rendering) workers(s airship.LoadBalancerWorker) error {
	b := balancer{
		first: s.NodePortRange.Start, last: s.NodePortRange.End, check: check{port: kubeletPort}, every: checkEvery,
	}
	total := int32(0) // a rule of the CRD would block writes of stored resources
	for _, one := range r.in.Spec.LoadBalancerWorker {
		total += one.NodePortRange.End - one.NodePortRange.Start + 1
	}
	if total > maxPorts {
		return r.wrong(".nodePortRange", fmt.Sprintf("the ranges of loadBalancerWorker have %d ports together, more than %d", total, maxPorts),
			"write fewer: all tenants share the ports of the nodes")
	}
	for p := b.first; p <= b.last; p++ {
		r.serve(fmt.Sprintf("port-%d", p), p, p, p)
	}
	for _, one := range s.HealthChecks {
		c := check{port: one.Port, plain: one.Type != "HTTPS"}
		if one.Type != "TCP" {
			c.path = cmp.Or(one.Path, "/")
		}
		b.checks = append(b.checks, c)
	}
	return r.balance(b, airship.RoleWorker)
}

// balance fills in the parts that both kinds of load balancer share. The configuration is in a ConfigMap: it has no
// secrets.
func (r *rendering) balance(b balancer, role airship.Role) error {
	if err := r.place(role); err != nil {
		return err
	}
	listens := tcpPort(b.first, b.last)
	r.ingress = []networkingv1.NetworkPolicyPort{listens, tcpPort(balancerHealth, 0)}
	ports := []networkingv1.NetworkPolicyPort{listens}
	if b.check.port != b.first {
		ports = append(ports, tcpPort(b.check.port, 0))
	}
	r.egress = to(r.leads, ports...)
	r.size(2, "512Mi")
	r.probe(balancerHealth, "/healthz", "/healthz", settle)
	text := b.text(r.hosts)
	if own, err := r.filled(); err != nil {
		return err
	} else if own != "" {
		text = balancerBase + own + "\n" // HAProxy refuses a last line without its end
	}
	r.roll()
	if len(text) > maxConfig {
		return r.wrong("", fmt.Sprintf("%d hosts make a configuration of %d bytes, more than %d", len(r.hosts),
			len(text), maxConfig), "write fewer healthChecks, or a shorter template")
	}
	r.mount("config", balancerDir, r.configMap(suffixConfig, map[string]string{balancerFile: text}))
	r.pod.TerminationGracePeriodSeconds = new(int64(drain.Seconds()))
	container := r.container()
	container.Command = balancerCommand(path.Join(balancerDir, balancerFile))
	ip := &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}
	container.Env = []corev1.EnvVar{{Name: balancerIP, ValueFrom: &corev1.EnvVarSource{FieldRef: ip}}}
	stop := &corev1.ExecAction{Command: balancerStop(1)}
	container.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: stop}}
	return nil
}

// roll replaces the pods if a host or an address leaves, or a template changes. A pod does not report whether its
// reload has stopped forwarding to a host, or has refused the template. The pods reload any other change.
func (r *rendering) roll() {
	chain, template := "", r.hash // an annotation CHAIN or CHAIN.TEMPLATE
	if running := r.in.Running[r.Name]; running != nil {
		chain, _, _ = strings.Cut(running.Spec.Template.Annotations[annotationHash], ".")
	}
	left := func(was netip.Addr) bool { return !slices.Contains(r.leads, was) }
	if chain == "" || slices.ContainsFunc(LeadsTo(r.in.Running[r.Name]), left) {
		chain = hashed(nil, []byte(chain), fmt.Append(nil, r.leads))
	}
	r.hash = strings.TrimSuffix(chain+"."+template, ".")
}

// balancerCommand runs HAProxy in the foreground. Every two seconds it looks for files that the kubelet changed, and
// reloads a valid configuration. A new worker takes over the sockets, the old one serves open connections. It passes
// SIGUSR1 on. (A loop below the master process would keep that from ending.)
func balancerCommand(file string) []string {
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

// balancerStop ends the process pid softly, and returns after its end. It does not rely on the image's stop signal:
// Kubernetes else sends SIGTERM, at which HAProxy drops all connections.
func balancerStop(pid int) []string {
	return []string{"/bin/sh", "-c", fmt.Sprintf("kill -USR1 %[1]d; while kill -0 %[1]d 2>/dev/null; do sleep 1; done", pid)}
}

func (b balancer) text(hosts []placed) string {
	listen := strconv.Itoa(int(b.first))
	if b.first != b.last {
		listen = fmt.Sprintf("%d-%d", b.first, b.last)
	}
	var backends, servers strings.Builder
	for _, h := range hosts {
		for i, addr := range h.Addresses {
			b.server(&servers, h.Name+"."+h.Namespace, i, addr)
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, `
frontend clients
    bind "${%[1]s}:%[2]s"
    tcp-request inspect-delay %[3]ds
    tcp-request content accept if { date,sub(proc.started) gt %[3]d }
    tcp-request content accept if WAIT_END
    default_backend hosts
`, balancerIP, listen, int(b.every.Seconds())+1)
	b.backend(&backends, "hosts", b.check, servers.String())
	for _, c := range b.checks {
		fmt.Fprintf(&out, "    use_backend hosts-%[1]d if { dst_port %[1]d }\n", c.port)
		b.backend(&backends, fmt.Sprintf("hosts-%d", c.port), c, servers.String())
	}
	return balancerBase + out.String() + backends.String()
}

// balancerBase begins every configuration. A connection needs at most 35 KiB. Each worker that still serves connections
// from before a reload has its own memory.
var balancerBase = fmt.Sprintf(`# Written by vdo-operator from the SIPCluster; changes made here are lost.
global
    log stdout format raw local0 notice
    maxconn 8000
    no strict-limits
    grace %[1]ds
    mworker-max-reloads 8
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
    bind "${%[2]s}:%[3]d"
    timeout client 10s
    timeout http-request 10s
    http-request return status 200 content-type text/plain string ok if { path /healthz }
    http-request return status 404
`, int(grace.Seconds()), balancerIP, balancerHealth)

func (b balancer) backend(out *strings.Builder, name string, c check, servers string) {
	fmt.Fprintf(out, "\nbackend %s\n    option allbackups\n", name)
	if c.path != "" {
		fmt.Fprintf(out, `    option httpchk
    http-check send meth GET uri %s ver HTTP/1.1 hdr Host kubernetes hdr User-Agent sip-load-balancer
    http-check expect status 200
`, c.path)
	}
	tls := "check-ssl verify none "
	if c.plain {
		tls = ""
	}
	fmt.Fprintf(out, "    default-server check port %d %sinter %dms rise 2 fall 3 tcp-ut 30s\n%s",
		c.port, tls, b.every.Milliseconds(), servers)
}

// server writes an address of a host; all but the first stand by.
func (b balancer) server(out *strings.Builder, name string, i int, addr netip.Addr) {
	at, backup := "ipv4@"+addr.String(), ""
	if addr.Is6() {
		at = "ipv6@[" + addr.String() + "]"
	}
	if b.port != 0 {
		at += ":" + strconv.Itoa(int(b.port))
	}
	if i > 0 { // names of hosts have no colon
		name, backup = fmt.Sprintf("%s:%d", name, i+1), " backup"
	}
	fmt.Fprintf(out, "    server %s %s%s\n", name, at, backup)
}
