// Package jumphost is the configuration of a tenant's jump host: the files that the SIP
// controller writes and that the program vdo-jumphost reads, with what they mean. The
// program itself is package sshd below this one.
//
// # What it does
//
// A jump host is an SSH server before the hosts of one tenant cluster. Who has the private
// half of an authorised key may, under any user name,
//
//   - go through it to a host: `ssh -J`, `-W` and `-L` (direct-tcpip) to the hosts of the
//     configuration, by address or by name, on the ports of the configuration;
//   - run `host list [-l]`;
//   - where node keys are mounted, run `ssh [USER@]NAME [COMMAND]`: a session on a host,
//     which the jump host logs in to with those keys.
//
// Everything else is refused: passwords and other keys, other addresses and ports, remote
// forwarding, sockets, tunnels, agents, X11, subsystems such as sftp, and a shell. No name is
// ever looked up in DNS: what is not in the configuration is nowhere to connect to.
//
// # The files
//
// All are below one folder, /etc/vdo-jumphost ([Dir]; flag --dir). Each sub-folder is one
// volume, mounted whole and read-only, never by subPath, which would not follow changes:
//
//	config/config.json   a ConfigMap                      [Config]; no secrets
//	host-keys/*          a Secret that outlives pods      private keys of the server itself
//	node-keys/*          the Secret that the user names   private keys that the hosts accept, optional
//	                     in nodeSSHPrivateKeys
//
// config.json:
//
//	{
//	  "apiVersion": "vdo.vmware.com/jumphost/v1",
//	  "kind": "JumpHost",
//	  "cluster": "tenants/sub-1",                    namespace/name of the SIPCluster, for audit lines
//	  "authorizedKeys": ["ssh-ed25519 AAAA… alice"], lines as in authorized_keys, without options
//	  "ports": ["22", "6443", "30000-32767"],        what may be connected to on the hosts
//	  "hosts": [
//	    {"name": "node01", "role": "ControlPlane", "addresses": ["10.0.0.11", "fd00::11"]}
//	  ]
//	}
//
// A name is a DNS subdomain (RFC 1123) and is unique, as every address is; of two
// BareMetalHosts with one name in two namespaces the caller writes NAME.NAMESPACE. There may
// be no host and no key: then nobody gets anywhere.
//
// A host key or node key is an unencrypted private key in OpenSSH's, PKCS#8's, PKCS#1's or
// SEC 1's PEM. Of node-keys, an entry called known_hosts is no key: it has the host keys of
// the hosts, as OpenSSH's file of that name, under their names or addresses. [NewHostKey]
// makes a host key. At least one is needed, at most one of each type.
//
// Whoever writes the files reads them with [ParseConfig] and [ParseHostKey] first:
// those are what the program reads them with.
//
// # Changes
//
// The program reads the files again every few seconds. What is changed holds for the next
// connection, channel and command, without a restart: the Deployment's pod template carries no
// hash of these files. What goes on:
//
//   - Sessions and forwards that the new configuration allows go on.
//   - A connection whose key is no longer authorised is closed. A forward or session to an
//     address that is no longer a host's is closed: it may be another tenant's by now.
//   - Files that cannot be understood change nothing: the last good ones hold, and the error
//     is logged once. At the start they end the program.
//
// GET /in-force on the port of the probes answers with [InForce] of the files in force, when
// what the ones before allowed has ended. The SIP controller asks before it gives a host
// back to other tenants.
//
// # Node keys
//
// The Secret of nodeSSHPrivateKeys has keys that hosts accept. The predecessor mounted them
// where each user's shell could read them, and so gave them away to whoever once logged in.
// Here they never leave the program and are offered by no agent: they authenticate
// `ssh [USER@]NAME`, and only to the addresses of a host of the configuration, port 22 (or the
// first of ports where 22 is not among them). USER is by default the name of the login at the
// jump host. With known_hosts the host's key has to be in it; without, the first key that a
// host shows is the one that it has to show until the program ends (trust on first use).
//
// # What is logged
//
// Audit lines go to standard output, one JSON object each: time, msg (what happened), session,
// from, user, key (SHA256 fingerprint) and what it was about. No password, token, private key,
// output of a command or forwarded byte is ever in them. Everything else goes to standard error.
package jumphost
