// Package jumphost is the jump host of a tenant cluster: Debian's OpenSSH server, its configuration, and
// the entrypoint of its image.
//
// Who has the private half of an authorized key, or a certificate of a trusted CA, logs in as [User] and
// forwards TCP to the hosts of the configuration, by name or address: `ssh -J`, -W and -L. Otherwise sshd
// runs `host list`. It refuses passwords, other destinations, terminals, remote forwarding, sockets,
// tunnels, agents and X11.
//
// The pod's /etc/hosts has the hosts' names. The server asks no DNS: it refuses names that are not in
// PermitOpen before it resolves any. It runs as any user, without privileges; the entrypoint writes the
// passwd entry of the user that the cluster chose.
//
// sshd ends no open forward when its configuration changes. So each change replaces the pod.
package jumphost

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// What the image and the pod have.
const (
	User = "ubuntu" // as the original's
	Port = 2222     // a pod without privileges may not use 22

	ConfigDir  = "/etc/vdo-jumphost/config" // ConfigMap: Files
	HostKeyDir = "/etc/vdo-jumphost/host-keys"
	HostKey    = "ssh_host_ed25519_key" // in HostKeyDir
	RunDir     = "/run/vdo-jumphost"    // writable; the image's /etc/passwd leads to passwd in it

	configFile         = "sshd_config"
	authorizedKeysFile = "authorized_keys"
	trustedCAFile      = "trusted_user_ca_keys"
	principalsFile     = "authorized_principals"
	hostsFile          = "hosts"
)

// Config is what the server is to do. Keys are lines that [AuthorizedKey] returned.
type Config struct {
	Keys       []string
	CAs        []string // that sign certificates of users
	Principals []string // that such a certificate has to have one of
	Ports      []string // of hosts; none for all
	Hosts      []Host
}

// Host is one of the tenant's.
type Host struct {
	Namespace string // of the BareMetalHost
	Name      string // a DNS subdomain
	Role      string // for people
	Addresses []netip.Addr
}

// Files returns the files of [ConfigDir].
func (c Config) Files() map[string]string {
	files := map[string]string{
		configFile: c.sshd(), authorizedKeysFile: lines(c.Keys), hostsFile: c.hosts(),
	}
	if len(c.CAs) > 0 {
		files[trustedCAFile], files[principalsFile] = lines(c.CAs), lines(c.Principals)
	}
	return files
}

// sshd returns sshd_config. StrictModes would refuse the modes of mounted volumes, which nobody in the
// pod can write. There are no PerSourcePenalties: behind a NodePort all clients share the nodes' addresses.
func (c Config) sshd() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Written by vdo-operator from the SIPCluster; changes made here are lost.
Port %d
HostKey %s/%s
PidFile none
UsePAM no
StrictModes no
LogLevel VERBOSE

AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
AuthorizedKeysFile %[4]s/%[5]s
RequiredRSASize %[6]d
`, Port, HostKeyDir, HostKey, ConfigDir, authorizedKeysFile, minRSABits)
	if len(c.CAs) > 0 {
		fmt.Fprintf(&b, "TrustedUserCAKeys %[1]s/%[2]s\nAuthorizedPrincipalsFile %[1]s/%[3]s\n", ConfigDir, trustedCAFile, principalsFile)
	}
	fmt.Fprintf(&b, `
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
`, strings.Join(c.permitted(), " "))
	return b.String()
}

// permitted returns the arguments of PermitOpen.
func (c Config) permitted() []string {
	ports := c.Ports
	if len(ports) == 0 {
		ports = []string{"*"}
	}
	var all []string
	for _, h := range c.Hosts {
		if len(h.Addresses) == 0 {
			continue
		}
		names := []string{h.Name}
		for _, a := range h.Addresses {
			names = append(names, a.String())
		}
		for _, name := range names {
			for _, port := range ports {
				all = append(all, net.JoinHostPort(name, port))
			}
		}
	}
	if len(all) == 0 {
		return []string{"none"}
	}
	return all
}

// hosts returns what `host list` prints.
func (c Config) hosts() string {
	var b strings.Builder
	for _, h := range c.Hosts {
		fmt.Fprintf(&b, "%s\t%s", h.Name, h.Role)
		for _, a := range h.Addresses {
			fmt.Fprintf(&b, "\t%s", a)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// lines returns lines that end.
func lines(all []string) string { return strings.Join(slices.Concat(all, []string{""}), "\n") }
