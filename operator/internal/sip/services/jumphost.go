package services

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

const sshPort = 22

// maxSSHConfig is the largest sshd_config, in bytes. sshd hands it to the process of each connection in a message of
// 256 KiB at most. With a larger one, all logins fail.
const maxSSHConfig = 200 << 10

// Files beside those that the entrypoint reads.
const (
	authorizedKeysFile = "authorized_keys"
	trustedCAFile      = "trusted_user_ca_keys"
	principalsFile     = "authorized_principals"
)

// jumpHost renders the SSH server in front of the hosts. Each change replaces its pod, to end sessions of removed hosts
// and keys. A client with an authorized key or a trusted CA's certificate logs in as [jumphost.User] and forwards TCP
// to the hosts (`ssh -J`, -W, -L). Other sessions run `host list`, and sshd refuses all else.
func (r *rendering) jumpHost(s airship.JumpHost) error {
	files := r.access(s)
	hostKey, hostKeyErr := r.hostKey()
	if err := errors.Join(r.place(airship.RoleControlPlane, airship.RoleWorker), hostKeyErr); err != nil {
		return err
	}
	config := r.sshd(files[trustedCAFile] != "")
	if len(config) > maxSSHConfig {
		return r.wrong("", fmt.Sprintf("%d hosts make an sshd_config of %d bytes, more than %d",
			len(r.hosts), len(config), maxSSHConfig), "divide the hosts among several SIPClusters")
	}
	files[jumphost.ConfigFile], files[jumphost.HostsFile] = config, hostList(r.hosts)
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

// access returns the files that say who may log in. The CRD refuses what is no public key, and sshd weak ones.
func (r *rendering) access(s airship.JumpHost) map[string]string {
	files := map[string]string{authorizedKeysFile: lines(s.SSHAuthorizedKeys)}
	if len(s.TrustedUserCAKeys) > 0 {
		principals := s.AuthorizedPrincipals
		if len(principals) == 0 {
			principals = []string{jumphost.User}
		}
		files[trustedCAFile], files[principalsFile] = lines(s.TrustedUserCAKeys), lines(principals)
	} else if len(s.SSHAuthorizedKeys) == 0 {
		r.Err = r.wrong("", "no user can log in: it has no key", "write sshAuthorizedKeys or trustedUserCAKeys")
	}
	return files
}

// sshd returns sshd_config. StrictModes would refuse the modes of mounted volumes, which nothing in the pod can
// write. From OpenSSH 9.8 on it needs PerSourcePenalties no: behind a NodePort all clients share the nodes' addresses.
func (r *rendering) sshd(trustsCAs bool) string {
	authorities := ""
	if trustsCAs {
		authorities = fmt.Sprintf("TrustedUserCAKeys %[1]s/%[2]s\nAuthorizedPrincipalsFile %[1]s/%[3]s\n",
			jumphost.ConfigDir, trustedCAFile, principalsFile)
	}
	access := fmt.Sprintf(`# Written by vdo-operator from the SIPCluster; changes made here are lost.
Port %d
HostKey %s/%s
PidFile none
UsePAM no
StrictModes no
LogLevel VERBOSE

AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
AuthorizedKeysFile %s/%s
RequiredRSASize 2048
%s`, jumphost.Port, jumphost.HostKeyDir, jumphost.HostKey, jumphost.ConfigDir, authorizedKeysFile, authorities)
	return access + fmt.Sprintf(`
AllowTcpForwarding local
PermitOpen %s
PermitListen none
AllowStreamLocalForwarding no
AllowAgentForwarding no
X11Forwarding no
PermitTunnel no
PermitTTY no
PermitUserRC no
ForceCommand host list
PrintLastLog no

LoginGraceTime 20
MaxStartups 64
PerSourceMaxStartups 32
MaxSessions 32
ChannelTimeout direct-tcpip=1h
ClientAliveInterval 30
ClientAliveCountMax 3
`, strings.Join(r.permitted(), " "))
}

// permitted returns the arguments of PermitOpen. With load balancers of workers only the NetworkPolicy bounds the
// ports: sshd knows no ranges.
func (r *rendering) permitted() (all []string) {
	ports := []string{"*"}
	if len(r.in.Spec.LoadBalancerWorker) == 0 {
		ports = []string{strconv.Itoa(sshPort), strconv.Itoa(apiServerPort)}
	}
	for _, h := range r.hosts {
		names := []string{h.Name}
		for _, a := range h.Addresses {
			names = append(names, a.String())
		}
		for _, name := range names {
			for _, port := range ports {
				if len(h.Addresses) > 0 {
					all = append(all, net.JoinHostPort(name, port))
				}
			}
		}
	}
	if len(all) == 0 {
		return []string{"none"}
	}
	return all
}

// hostList returns the output of `host list`.
func hostList(hosts []placed) string {
	var b strings.Builder
	for _, h := range hosts {
		fmt.Fprintf(&b, "%s\t%s", h.Name, h.Role)
		for _, a := range h.Addresses {
			fmt.Fprintf(&b, "\t%s", a)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func lines(all []string) string { return strings.Join(slices.Concat(all, []string{""}), "\n") }

// aliases lists each address once, with all its names: the API server refuses two aliases of one address. They make
// the pod's /etc/hosts, so that sshd needs no DNS. It refuses other names before it resolves any.
func aliases(hosts []placed) (all []corev1.HostAlias) {
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

// hostKey returns the kept key, or a new one in OpenSSH's PEM. A key that changed would look like an attack to
// clients.
func (r *rendering) hostKey() ([]byte, error) {
	if kept := r.in.Kept[r.Name+suffixHostKeys][jumphost.HostKey]; len(kept) > 0 {
		return kept, nil
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, r.defect(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, r.defect(err)
	}
	return pem.EncodeToMemory(block), nil
}
