package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	_ "embed"
	"os"
	"strings"
	"text/template"

	"golang.org/x/crypto/ssh"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/metal3"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
)

const (
	sipNamespace = "vmware-system-sip"
	jumpHost     = "vdo/vdo-jumphost:v0.1.0"
	permission   = "sip.airshipit.org/allowed-namespaces"
)

// The site's bare-metal hosts, and the tenant cluster that wants some of them.
var (
	//go:embed hosts.yaml
	hostsFile string
	//go:embed tenant.yaml
	tenantFile string
	//go:embed other-tenant.yaml
	otherTenantFile string
	//go:embed reboot.yaml
	rebootFile string
)

// sipSteps are the steps of SIP=1 after the main job: the hosts and services of a tenant cluster. They have their own
// bundle, and another operator under another account.
func (d *demo) sipSteps() []func(context.Context) error {
	steps := []func(context.Context) error{d.servicesBundle, d.startSIP}
	for _, s := range sipScenes {
		steps = append(steps, func(ctx context.Context) error {
			d.out.heading("SIP: %s", s.heading)
			return d.sequence(ctx, d.isolated, s.lines...)
		})
	}
	return steps
}

func (d *demo) servicesReference() string { return d.registries.Mirror + "/vdo/services:stable" }

// servicesBundle locks, signs, carries and lands the services' images.
func (d *demo) servicesBundle(ctx context.Context) error {
	d.out.heading("SIP: a bundle of the services that stand before tenant clusters")
	if err := d.sequence(ctx, d.connected,
		"vdo-bundle lock --drivers none --services sip --jump-host "+d.registries.Upstream+"/"+jumpHost+" -o services.yaml "+d.flags(),
		"vdo-bundle pull --lock services.yaml --sign-key vdo.key -o services.tar "+d.flags(),
	); err != nil {
		return err
	}
	if err := copyFile(d.path("connected/services.tar"), d.path("site/services.tar")); err != nil {
		return err
	}
	return d.sequence(ctx, d.isolated, "vdo-bundle push services.tar "+d.servicesReference()+" --key vdo.pub --ca-file mirror-ca.crt")
}

// startSIP installs the CRDs and permissions of the operator for SIPClusters, and runs it beside the cluster under
// its own account.
func (d *demo) startSIP(ctx context.Context) error {
	d.out.heading("SIP: its operator, with the rights of an account that reads no vCenter's login")
	if err := d.writeSIPFiles(); err != nil {
		return err
	}
	if err := d.sequence(ctx, d.isolated,
		"kubectl apply -f deploy/sip/crds -f deploy/sip/namespace.yaml -f deploy/sip/rbac.yaml -f deploy/sip/policy.yaml",
		"kubectl apply -f metal3.yaml",
		"kubectl wait --for=condition=Established crd/baremetalhosts.metal3.io crd/sipclusters.airship.airshipit.org --timeout=60s",
		"kubectl apply -f hosts.yaml",
		"kubectl -n metal3 annotate baremetalhosts --all "+permission+"=tenants",
		"kubectl -n metal3 annotate baremetalhost worker-2 --overwrite "+permission+"=other-tenants",
		"kubectl apply -f deploy/sip/bindings.yaml",
		"kubectl -n "+sipNamespace+" create configmap vdo-trust --from-file=vdo.pub",
		"kubectl -n "+sipNamespace+" create configmap vdo-registry-ca --from-file=ca.crt=mirror-ca.crt",
		"kubectl -n "+sipNamespace+" create secret generic vdo-registry --type=kubernetes.io/dockerconfigjson --from-file=.dockerconfigjson=docker/config.json",
	); err != nil {
		return err
	}
	kubeconfig, err := d.kubeconfigOf(ctx, sipNamespace, "vdo-operator-sip")
	if err != nil {
		return err
	}
	args := strings.Fields("--controllers=sip --kubeconfig " + kubeconfig + " --metrics-bind-address 0 --health-probe-bind-address 127.0.0.1:0")
	d.out.command(shell.CommandLine("vdo-operator", args) + " &")
	return d.start(ctx, program{name: "vdo-operator", log: "vdo-operator-sip", args: args, env: d.isolated.Env})
}

func (d *demo) writeSIPFiles() error {
	key, err := publicKey()
	if err != nil {
		return err
	}
	var tenant bytes.Buffer
	values := map[string]string{"Reference": d.servicesReference(), "Key": key}
	if err := template.Must(template.New("tenant").Parse(tenantFile)).Execute(&tenant, values); err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"metal3.yaml": []byte(metal3File()), "hosts.yaml": []byte(hostsFile), "tenant.yaml": tenant.Bytes(),
		"other-tenant.yaml": []byte(otherTenantFile), "reboot.yaml": []byte(rebootFile),
	} {
		if err := os.WriteFile(d.path("site/"+name), data, 0o600); err != nil {
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

const (
	showHosts = "kubectl -n metal3 get baremetalhosts -L sip.airshipit.org/cluster-name -L sip.airshipit.org/node-type -L site.example/rack"
	showSIP   = "kubectl -n tenants get sipclusters"
)

const (
	ofTenant1 = "kubectl -n tenants "
	sipReady  = ofTenant1 + "wait --for=condition=Ready sipcluster/tenant-1 --timeout=120s"
	hasHosts  = ofTenant1 + "wait sipcluster/tenant-1 --timeout=120s --for=jsonpath={.status.held}="
	patch     = ofTenant1 + "patch sipcluster tenant-1 --type=merge -p "
	worker1Is = `kubectl -n metal3 patch baremetalhost worker-1 --type=merge -p {"status":`
	reasonIs  = `--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=`
)

// sipScenes are the steps of tenants that share the hosts. The demo simulates Metal3.
var sipScenes = []struct {
	heading string
	lines   []string
}{
	{"a tenant cluster gets its hosts, load balancers and jump host", []string{
		"kubectl apply -f tenant.yaml",
		"kubectl -n " + sipNamespace + " wait --for=condition=Ready driverbundle/services --timeout=120s",
		sipReady, showSIP, showHosts,
		"kubectl get deployments,services -A -l sip.airshipit.org/cluster-name=tenant-1",
		ofTenant1 + `get sipcluster tenant-1 -o jsonpath={range.status.services[*]}{.kind}{"\t"}{.endpoints}{"\t"}{.image}{"\n"}{end}`,
	}},
	{"another tenant gets the one host that is permitted to it", []string{
		"kubectl apply -f other-tenant.yaml",
		"kubectl -n other-tenants wait --for=jsonpath={.status.held}=1 sipcluster/tenant-2 --timeout=120s",
		`kubectl -n other-tenants get sipcluster tenant-2 -o jsonpath={range.status.missing[*].refused[*]}{.count}{"\t"}{.reason}{"\n"}{end}`,
		showHosts,
	}},
	{"it grows by one worker; only the missing host is taken", []string{
		patch + `{"spec":{"nodes":{"Worker":{"count":{"active":2}}}}}`,
		hasHosts + "4", sipReady, showHosts,
	}},
	{"the tenant reboots a host through Metal3, which this demo plays", []string{
		worker1Is + `{"provisioning":{"state":"provisioned"},"poweredOn":true}}`, // Metal3 reboots no others
		"kubectl apply -f reboot.yaml",
		ofTenant1 + "wait hostaction/reboot-worker-1 --timeout=60s " + reasonIs + "Requested",
		`kubectl -n metal3 get baremetalhost worker-1 -o jsonpath={.metadata.annotations.reboot\.metal3\.io}{"\n"}`,
		"kubectl -n metal3 annotate baremetalhost worker-1 reboot.metal3.io-",
		ofTenant1 + "wait --for=condition=Ready hostaction/reboot-worker-1 --timeout=60s",
		ofTenant1 + "get hostactions",
		worker1Is + `{"provisioning":{"state":"available"}}}`,
	}},
	{"a host fails, and one that is free takes its place", []string{
		patch + `{"spec":{"nodes":{"Worker":{"count":{"standby":1}}}}}`,
		hasHosts + "5", sipReady,
		"kubectl -n metal3 annotate baremetalhost worker-1 capm3.metal3.io/unhealthy=",
		`kubectl -n metal3 wait --for=jsonpath={.metadata.labels.sip\.airshipit\.org/cluster-name}=tenant-1 baremetalhost/worker-5 --timeout=120s`,
		sipReady, showHosts,
	}},
	{"the tenant cluster goes, but not while a host is in use; then its hosts are free again", []string{
		`kubectl -n metal3 patch baremetalhost worker-3 --type=merge` +
			` -p {"spec":{"consumerRef":{"kind":"Metal3Machine","namespace":"tenants","name":"machine-1"}}}`,
		ofTenant1 + "delete sipcluster tenant-1 --wait=false",
		ofTenant1 + "wait sipcluster/tenant-1 --timeout=60s " + reasonIs + "UnableToDecommission",
		ofTenant1 + `get sipcluster tenant-1 -o jsonpath={.status.conditions[?(@.type=="Ready")].message}{"\n"}`,
		`kubectl -n metal3 patch baremetalhost worker-3 --type=merge -p {"spec":{"consumerRef":null}}`,
		ofTenant1 + "wait --for=delete sipcluster/tenant-1 --timeout=120s",
		showHosts,
		"kubectl get namespaces -l sip.airshipit.org/cluster-namespace",
	}},
}
