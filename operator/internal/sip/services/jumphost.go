package services

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

const sshPort = 22

var roles = []airship.Role{airship.RoleControlPlane, airship.RoleWorker}

// jumpHost is the SSH server before all hosts of the tenant. Each change replaces its pod, which ends what
// is open to a host that leaves and what a removed key opened.
func (r *rendering) jumpHost(s airship.JumpHost) error {
	hosts, hostsErr := r.jumpHosts()
	keys, keysErr := r.publicKeys(".sshAuthorizedKeys", s.SSHAuthorizedKeys)
	authorities, authoritiesErr := r.publicKeys(".trustedUserCAKeys", s.TrustedUserCAKeys)
	hostKey, hostKeyErr := r.hostKey()
	if err := errors.Join(hostsErr, keysErr, authoritiesErr, hostKeyErr); err != nil {
		return err
	}
	principals := s.AuthorizedPrincipals
	if len(principals) == 0 {
		principals = []string{jumphost.User}
	}
	config := jumphost.Config{Keys: keys, CAs: authorities, Principals: principals, Hosts: hosts}
	if len(r.in.Spec.LoadBalancerWorker) == 0 {
		config.Ports = []uint16{sshPort, apiServerPort}
	} // else the NetworkPolicy alone bounds the ports: sshd knows no ranges
	files := config.Files()
	r.before = append(r.before, r.w.configMap(r.w.name+suffixConfig, files), r.w.secret(r.w.name+suffixHostKeys, hostKey))
	r.jumpPod(s, hosts)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		r.w.hash = hashed(nil, []byte(r.w.hash), []byte(name), []byte(files[name]))
	}
	return nil
}

func (r *rendering) jumpPod(s airship.JumpHost, hosts []jumphost.Host) {
	w := &r.w
	w.replicas, w.memory, w.grace, w.trafficPolicy = 1, "256Mi", 30, s.ExternalTrafficPolicy
	w.ports = []port{{name: "ssh", service: sshPort, node: s.NodePort, pod: jumphost.Port}}
	w.health = health{port: jumphost.Port}
	w.mounts = []mount{
		{name: "config", path: jumphost.ConfigDir, configMap: w.name + suffixConfig},
		{name: "host-keys", path: jumphost.HostKeyDir, secret: w.name + suffixHostKeys},
		{name: "run", path: jumphost.RunDir},
	}
	var all []netip.Addr
	for _, h := range hosts {
		for _, a := range h.Addresses {
			all = append(all, a)
			w.aliases = append(w.aliases, corev1.HostAlias{IP: a.String(), Hostnames: []string{h.Name}})
		}
	}
	w.egress = to(sortedAddresses(all), r.jumpPorts()...)
}

// jumpHosts are those of all roles.
func (r *rendering) jumpHosts() (all []jumphost.Host, err error) {
	var errs []error
	for _, role := range roles {
		hosts, err := r.hosts(role)
		errs = append(errs, err)
		for _, h := range hosts {
			all = append(all, jumphost.Host{Name: h.name, Role: string(role), Addresses: h.addresses})
		}
	}
	return all, errors.Join(errs...)
}

// publicKeys are the lines of a field.
func (r *rendering) publicKeys(field string, in []string) (lines []string, err error) {
	var errs []error
	for i, one := range in {
		line, err := jumphost.AuthorizedKey(one)
		if err != nil {
			errs = append(errs, r.wrong(fmt.Sprintf("%s[%d]", field, i), err.Error(), "write a public key as `ssh-keygen -t ed25519` makes it: TYPE KEY COMMENT, without options"))
		}
		lines = append(lines, line)
	}
	return lines, errors.Join(errs...)
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

// hostKey is made once and kept: one that changed would look like an attack to every client.
func (r *rendering) hostKey() (Secret, error) {
	kept := r.in.Kept[r.w.name+suffixHostKeys][jumphost.HostKey]
	if jumphost.IsHostKey(kept) {
		return Secret{jumphost.HostKey: kept}, nil
	}
	key, err := jumphost.NewHostKey()
	if err != nil {
		return nil, r.defect(err)
	}
	return Secret{jumphost.HostKey: key}, nil
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
