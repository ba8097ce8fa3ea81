package main

import (
	"context"
	"crypto/ed25519"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/metal3"
)

const (
	jumpHost  = "vdo/vdo-jumphost:v0.1.0"
	showHosts = "kubectl -n metal3 get baremetalhosts -L sip.airshipit.org/cluster-name -L sip.airshipit.org/node-type -L site.example/rack"
)

// writeSIPFiles writes the site's bare-metal hosts, and the tenant clusters that want some of them.
func (d *demo) writeSIPFiles(context.Context) (err error) {
	if d.key, err = publicKey(); err != nil {
		return err
	}
	all := map[string]string{"metal3.yaml": metal3File()}
	for _, name := range []string{"hosts.yaml", "tenant.yaml", "other-tenant.yaml", "reboot.yaml"} {
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		all[name] = os.Expand(string(data), d.value)
	}
	for name, text := range all {
		if err := os.WriteFile(d.path("site/"+name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// metal3File defines the CRD of hosts, without the status subresource so that hosts.yaml sets their states, and the
// namespaces of hosts and of tenants.
func metal3File() string {
	text := strings.Replace(metal3.CRD, "      subresources: {status: {}}\n", "", 1)
	for _, ns := range []string{"metal3", "tenants", "other-tenants"} {
		text += "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: " + ns + "}\n"
	}
	return text
}

// publicKey returns an administrator's key for the jump host, as a line of authorized_keys.
func publicKey() (string, error) {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		return "", err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + " admin@site", nil
}
