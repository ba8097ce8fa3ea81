package services

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
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
	if err := errors.Join(configErr, keysErr, r.nodeKeys(s)); err != nil {
		return err
	}
	w := &r.w
	r.inForce = jumphost.InForce([]byte(config))
	w.ports = []port{{name: "ssh", service: sshPort, node: s.NodePort, pod: jumpPort}, {pod: jumpHealth, withoutService: true}}
	w.egress = to(leadsTo, r.jumpPorts()...)
	r.before = append(r.before,
		w.configMap(w.name+suffixConfig, map[string]string{path.Base(jumphost.ConfigFile): config}),
		w.secret(w.name+suffixHostKeys, keys))
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
