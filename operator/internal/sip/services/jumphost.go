package services

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

const sshPort = 22

// jumpHost is the SSH server before all hosts of the tenant. Each change replaces its pod, which ends what
// is open to a host that leaves and what a removed key opened.
func (r *rendering) jumpHost(s airship.JumpHost) error {
	placeErr := r.place(airship.RoleControlPlane, airship.RoleWorker)
	keys, keysErr := r.publicKeys(".sshAuthorizedKeys", s.SSHAuthorizedKeys)
	authorities, authoritiesErr := r.publicKeys(".trustedUserCAKeys", s.TrustedUserCAKeys)
	hostKey, hostKeyErr := r.hostKey()
	if err := errors.Join(placeErr, keysErr, authoritiesErr, hostKeyErr); err != nil {
		return err
	}
	principals := s.AuthorizedPrincipals
	if len(principals) == 0 {
		principals = []string{jumphost.User}
	}
	config := jumphost.Config{Keys: keys, CAs: authorities, Principals: principals, Hosts: r.hosts}
	if len(r.in.Spec.LoadBalancerWorker) == 0 {
		config.Ports = []string{strconv.Itoa(sshPort), strconv.Itoa(apiServerPort)}
	} // else the NetworkPolicy alone bounds the ports: sshd knows no ranges
	files := config.Files()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		r.hash = hashed(nil, []byte(r.hash), []byte(name), []byte(files[name]))
	}
	r.size(1, "256Mi")
	r.pod.TerminationGracePeriodSeconds, r.service.ExternalTrafficPolicy = new(int64(30)), s.ExternalTrafficPolicy
	r.serve("ssh", sshPort, s.NodePort, jumphost.Port)
	r.probe(jumphost.Port, "", "", 0)
	r.mount("config", jumphost.ConfigDir, r.configMap(suffixConfig, files))
	r.mount("host-keys", jumphost.HostKeyDir, r.keep(suffixHostKeys, corev1.SecretTypeOpaque, Secret{jumphost.HostKey: hostKey}))
	r.mount("run", jumphost.RunDir, corev1.VolumeSource{})
	r.pod.HostAliases = aliases(r.hosts)
	r.ingress = []networkingv1.NetworkPolicyPort{tcpPort(jumphost.Port, 0)}
	reached := []networkingv1.NetworkPolicyPort{tcpPort(sshPort, 0), tcpPort(apiServerPort, 0)}
	for _, lb := range r.in.Spec.LoadBalancerWorker {
		reached = append(reached, tcpPort(lb.NodePortRange.Start, lb.NodePortRange.End))
	}
	r.egress = to(r.leads, reached...)
	return nil
}

// aliases has each address once, with all its names: the API server takes no two aliases of one address.
func aliases(hosts []jumphost.Host) (all []corev1.HostAlias) {
	for _, h := range hosts {
		for _, a := range h.Addresses {
			ip := a.String()
			i := slices.IndexFunc(all, func(alias corev1.HostAlias) bool { return alias.IP == ip })
			if i < 0 {
				i, all = len(all), append(all, corev1.HostAlias{IP: ip})
			}
			all[i].Hostnames = append(all[i].Hostnames, h.Name)
		}
	}
	return all
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

// hostKey is made once and kept: one that changed would look like an attack to every client.
func (r *rendering) hostKey() ([]byte, error) {
	if kept := r.in.Kept[r.Name+suffixHostKeys][jumphost.HostKey]; len(kept) > 0 {
		return kept, nil
	}
	key, err := jumphost.NewHostKey()
	if err != nil {
		return nil, r.defect(err)
	}
	return key, nil
}
