package services

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

const (
	sshPort     = 22
	jumpPort    = 2222 // in the pod, which may not use those below 1024
	jumpHealth  = 8080
	hostKeyFile = "ssh_host_ed25519_key"
)

var roles = []airship.Role{airship.RoleControlPlane, airship.RoleWorker}

// jumpHost is the SSH server before all hosts of the tenant. It follows its files by
// itself, so that nothing of them rolls its pod, which would end every session.
func (r *rendering) jumpHost(s airship.JumpHost) error {
	config, leadsTo, configErr := r.jumpConfig(s)
	keys, keysErr := r.hostKeys()
	bmc, bmcErr := r.bmcs(s)
	if err := errors.Join(configErr, keysErr, bmcErr, r.nodeKeys(s)); err != nil {
		return err
	}
	w := &r.w
	r.inForce = jumphost.InForce([]byte(config), bmc)
	w.ports = []port{{name: "ssh", service: sshPort, node: s.NodePort, pod: jumpPort}, {pod: jumpHealth, withoutService: true}}
	w.egress = to(leadsTo, r.jumpPorts()...)
	r.before = append(r.before,
		w.configMap(w.name+suffixConfig, map[string]string{path.Base(jumphost.ConfigFile): config}),
		w.secret(w.name+suffixHostKeys, keys))
	if bmc != nil {
		w.egress = append(w.egress, bmcReach(*bmc)...)
		data, err := r.bmcSecret(s, bmc)
		if err != nil {
			return err
		}
		r.before = append(r.before, w.secret(w.name+suffixBMC, data))
	}
	r.jumpPod(s)
	return nil
}

func (r *rendering) jumpPod(s airship.JumpHost) {
	w := &r.w
	w.replicas, w.memory, w.grace, w.trafficPolicy = 1, "256Mi", 30, s.ExternalTrafficPolicy
	w.args = []string{"--listen", ":" + strconv.Itoa(jumpPort), "--health", ":" + strconv.Itoa(jumpHealth), "--dir", jumphost.Dir}
	w.health = health{port: jumpHealth, live: "/healthz", ready: "/readyz"}
	w.mounts = []mount{
		{name: "config", path: path.Join(jumphost.Dir, path.Dir(jumphost.ConfigFile)), configMap: w.name + suffixConfig},
		{name: "host-keys", path: path.Join(jumphost.Dir, jumphost.HostKeys), secret: w.name + suffixHostKeys},
	}
	if s.BMC != nil {
		w.mounts = append(w.mounts, mount{name: "bmc", path: path.Join(jumphost.Dir, path.Dir(jumphost.BMCFile)), secret: w.name + suffixBMC})
	}
	if s.NodeSSHPrivateKeys != "" {
		w.mounts = append(w.mounts, mount{name: "node-keys", path: path.Join(jumphost.Dir, jumphost.NodeKeys), secret: string(s.NodeSSHPrivateKeys)})
	}
}

// jumpConfig is what has no secrets, and the addresses that the jump host leads to.
func (r *rendering) jumpConfig(s airship.JumpHost) (string, []netip.Addr, error) {
	config := jumphost.Config{Cluster: r.in.Cluster.String()}
	keys, keysErr := r.authorizedKeys(s)
	errs := []error{keysErr}
	config.Keys = keys
	for _, p := range r.jumpPorts() {
		last := p.Port.IntVal
		if p.EndPort != nil {
			last = *p.EndPort
		}
		config.Ports = append(config.Ports, jumphost.Ports{First: uint16(p.Port.IntVal), Last: uint16(last)}) //nolint:gosec // ports
	}
	var all []reached
	for _, role := range roles {
		hosts, err := r.hosts(role)
		errs, all = append(errs, err), append(all, hosts...)
		for _, h := range hosts {
			config.Hosts = append(config.Hosts, jumphost.Host{Name: h.name, Role: string(role), Addresses: h.addresses})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return "", nil, err
	}
	text, err := config.Marshal()
	if err == nil {
		_, err = jumphost.ParseConfig(r.field, text) // as the program will
	}
	return string(text), addresses(all), err
}

// authorizedKeys are those that may log in.
func (r *rendering) authorizedKeys(s airship.JumpHost) (keys []jumphost.Key, err error) {
	var errs []error
	for i, line := range s.SSHAuthorizedKeys {
		key, err := jumphost.ParseAuthorizedKey(line)
		if err != nil {
			errs = append(errs, r.wrong(fmt.Sprintf(".sshAuthorizedKeys[%d]", i), err.Error(), "write a public key as ssh-keygen makes it: TYPE KEY COMMENT, without options"))
			continue
		}
		keys = append(keys, key)
	}
	return keys, errors.Join(errs...)
}

// jumpPorts are those of the hosts that the jump host leads to: SSH, the API server, and
// what worker load balancers lead to.
func (r *rendering) jumpPorts() []networkingv1.NetworkPolicyPort {
	ports := []networkingv1.NetworkPolicyPort{tcpPort(sshPort, 0), tcpPort(apiServerPort, 0)}
	for _, lb := range r.in.Spec.LoadBalancerWorker {
		if s := lb.NodePortRange; s.Start >= 1 && s.End <= 65535 && s.Start <= s.End {
			ports = append(ports, tcpPort(s.Start, s.End))
		}
	}
	return ports
}

// hostKeys are made once and kept: a key that changed would look like an attack to every
// client.
func (r *rendering) hostKeys() (Secret, error) {
	kept := r.in.Kept[r.w.name+suffixHostKeys]
	if _, err := jumphost.ParseHostKey(hostKeyFile, kept[hostKeyFile]); err == nil {
		return Secret{hostKeyFile: kept[hostKeyFile]}, nil
	}
	key, err := jumphost.NewHostKey()
	if err != nil {
		return nil, r.defect(err)
	}
	return Secret{hostKeyFile: key}, nil
}

// nodeKeys checks the keys that hosts accept, which the pod gets as they are.
func (r *rendering) nodeKeys(s airship.JumpHost) error {
	if s.NodeSSHPrivateKeys == "" {
		return nil
	}
	const field = ".nodeSSHPrivateKeys"
	data, err := r.secret(field, s.NodeSSHPrivateKeys)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if name == jumphost.KnownHosts {
			continue
		}
		if _, err := jumphost.ParseHostKey(name, data[name]); err != nil {
			errs = append(errs, r.wrong(field, fmt.Sprintf("in the Secret %s/%s: %s", r.in.Cluster.Namespace, s.NodeSSHPrivateKeys, err), "write private keys in PEM, without a passphrase"))
		}
	}
	return errors.Join(errs...)
}

// bmcs are the logins of the hosts' management controllers, and where those are; nil where
// the jump host has no power commands.
func (r *rendering) bmcs(s airship.JumpHost) (*jumphost.BMC, error) {
	if s.BMC == nil {
		return nil, nil //nolint:nilnil // none is an answer
	}
	proxy, err := r.bmcProxy(*s.BMC)
	if err != nil {
		return nil, err
	}
	r.place()
	bmc := &jumphost.BMC{Proxy: proxy, Hosts: map[string]jumphost.BMCHost{}}
	for _, role := range roles {
		for _, h := range r.in.Hosts[role] {
			if h.BMC != nil {
				bmc.Hosts[r.names[h.key()]] = jumphost.BMCHost{
					Address: h.BMC.Address, Username: h.BMC.Credentials.Username, Password: h.BMC.Credentials.Password,
					DisableCertificateVerification: h.BMC.DisableCertificateVerification,
				}
			}
		}
	}
	return bmc, nil
}

// bmcSecret is what the jump host reads of them.
func (r *rendering) bmcSecret(s airship.JumpHost, bmc *jumphost.BMC) (Secret, error) {
	data, err := bmc.Marshal()
	if err == nil {
		_, err = jumphost.ParseBMC(r.field+".bmc", data) // as the program will
	}
	if err != nil {
		return nil, err
	}
	out := Secret{path.Base(jumphost.BMCFile): data}
	if s.BMC.CASecret == "" {
		return out, nil
	}
	ca, err := r.secret(".bmc.caSecret", s.BMC.CASecret, balancerCA)
	if err != nil {
		return nil, err
	}
	public, err := r.authorities(".bmc.caSecret", ca[balancerCA])
	out[path.Base(jumphost.BMCCAFile)] = []byte(public)
	return out, err
}

// bmcProxy is what the jump host reaches them through; "" for nothing.
func (r *rendering) bmcProxy(s airship.BMC) (string, error) {
	switch {
	case !s.Proxy:
		return "", nil
	case s.ProxyURL != "":
		// A login would be in the SIPCluster, which more people read than Secrets.
		if u, err := jumphost.ParseProxy(s.ProxyURL); err != nil || u.User != nil {
			return "", r.wrong(".bmc.proxyURL", "it is not http://HOST:PORT or https://HOST:PORT, or has a login in it", "name a proxy that asks for none")
		}
		return s.ProxyURL, nil
	case r.in.BMCProxy != "":
		return r.in.BMCProxy, nil
	}
	return "", r.wrong(".bmc.proxy", "no proxy is known", "write bmc.proxyURL, or give the operator one")
}

// bmcReach lets the jump host out to the management controllers, or to the proxy alone
// where there is one. One whose address is a name can be anywhere on its port.
func bmcReach(bmc jumphost.BMC) []networkingv1.NetworkPolicyEgressRule {
	endpoints := map[string]bool{}
	for _, h := range bmc.Hosts {
		if redfish, err := h.Redfish(); err == nil {
			endpoints[redfish.Endpoint] = true
		}
	}
	if bmc.Proxy != "" {
		endpoints = map[string]bool{bmc.Proxy: true}
	}
	byPort := map[int32][]netip.Addr{}
	named := map[int32]bool{}
	for endpoint := range endpoints {
		host, port, err := hostPort(endpoint)
		if err != nil {
			continue
		}
		if addr, err := netip.ParseAddr(host); err == nil && addr.Zone() == "" {
			byPort[port] = append(byPort[port], addr.Unmap())
		} else {
			named[port] = true
		}
	}
	return egressTo(byPort, named)
}

// egressTo lets a pod out to addresses by port, and by ports to anywhere, with DNS for
// that.
func egressTo(byPort map[int32][]netip.Addr, named map[int32]bool) []networkingv1.NetworkPolicyEgressRule {
	var out []networkingv1.NetworkPolicyEgressRule
	for _, port := range slices.Sorted(maps.Keys(byPort)) {
		addresses := byPort[port]
		slices.SortFunc(addresses, netip.Addr.Compare)
		out = append(out, to(slices.Compact(addresses), tcpPort(port, 0))...)
	}
	if len(named) == 0 {
		return out
	}
	var ports []networkingv1.NetworkPolicyPort
	for _, port := range slices.Sorted(maps.Keys(named)) {
		ports = append(ports, tcpPort(port, 0))
	}
	return append(out, dns(), networkingv1.NetworkPolicyEgressRule{Ports: ports})
}

// dns lets a pod ask for names. Policies see the port of the pod behind the Service, which is
// 5353 on OpenShift.
func dns() networkingv1.NetworkPolicyEgressRule {
	var rule networkingv1.NetworkPolicyEgressRule
	for _, port := range []int32{53, 5353} {
		udp := tcpPort(port, 0)
		udp.Protocol = ptr(corev1.ProtocolUDP)
		rule.Ports = append(rule.Ports, udp, tcpPort(port, 0))
	}
	return rule
}

// hostPort are those of a URL, with the port of its scheme where it names none.
func hostPort(text string) (string, int32, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return "", 0, errors.New("not a URL with a host")
	}
	port := u.Port()
	if port == "" {
		port = u.Scheme
	}
	n, err := net.LookupPort("tcp", port)
	return u.Hostname(), int32(n), err //nolint:gosec // a port
}
