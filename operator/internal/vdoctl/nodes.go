package vdoctl

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

type nodesReport struct {
	Nodes         int                `json:"nodes"`
	Results       []preflight.Result `json:"results"`
	Distribution  string             `json:"distribution"`
	Configuration string             `json:"configuration"` // the settings that the kubelets need
}

const (
	kubeadm = "kubeadm"
	k3s     = "k3s"
	rke2    = "rke2"

	clusterAPI = "cluster-api"
	openShift  = "openshift"
)

// kubeadmFormats are the kubelet arguments by kubeadm's API version: they are a map before v1beta4.
var kubeadmFormats = map[string]string{"v1beta3": `
    cloud-provider: external
`, "v1beta4": `
  - name: cloud-provider
    value: external
`}

// kubeadmConfiguration returns the configuration for the oldest of the nodes: v1beta4 came with Kubernetes 1.31.
func kubeadmConfiguration(nodes []preflight.Node) string {
	api := "v1beta4"
	for _, n := range nodes {
		minor := 0
		if _, err := fmt.Sscanf(n.Kubelet, "v1.%d", &minor); err == nil && minor < 31 {
			api = "v1beta3"
		}
	}
	out := "# kubeadm, on each node before it joins: the kubelet waits for the cloud provider.\n"
	for _, x := range [][3]string{{"init", "the first node", "Init"}, {"join", "each other node", "Join"}} {
		out += fmt.Sprintf("# In the file of 'kubeadm %s --config', for %s:\napiVersion: kubeadm.k8s.io/%s\n"+
			"kind: %sConfiguration\nnodeRegistration:\n  kubeletExtraArgs:%s---\n", x[0], x[1], api, x[2], kubeadmFormats[api])
	}
	return strings.TrimSuffix(out, "---\n")
}

// configurations set the kubelet to an external cloud provider before the node joins, by distribution.
var configurations = map[string]string{
	clusterAPI: `# Cluster API, in spec.kubeadmConfigSpec of the KubeadmControlPlane, and in
# spec.template.spec of each KubeadmConfigTemplate, which has no initConfiguration.
# In its API version v1beta2 kubeletExtraArgs is a list of name and value.
initConfiguration:
  nodeRegistration:
    kubeletExtraArgs:
      cloud-provider: external
joinConfiguration:
  nodeRegistration:
    kubeletExtraArgs:
      cloud-provider: external
`,
	openShift: `# OpenShift 4.14 or later, install-config.yaml, before the cluster is made:
platform:
  external:
    platformName: vsphere
    cloudControllerManager: External
`,
	k3s: `# k3s, /etc/rancher/k3s/config.yaml. On servers, before the cluster is made:
disable-cloud-controller: true
disable:
- servicelb
kubelet-arg:
- cloud-provider=external
# On agents the kubelet-arg alone. An id that k3s has set (k3s://) cannot be changed.
`,
	rke2: `# RKE2, /etc/rancher/rke2/config.yaml. On servers, before the cluster is made:
cloud-provider-name: external
disable-cloud-controller: true
# On agents:
#   kubelet-arg:
#   - cloud-provider=external
`,
}

type nodesOptions struct {
	*app
	siteFlags

	distribution string
}

func newNodesCheckCommand(a *app) *cobra.Command {
	o := &nodesOptions{app: a}
	check := runs(o.run, &cobra.Command{
		Use: "check", Short: "Check kubelets and nodes, and show their configuration",
		Long: `Checks kubelets by the cluster alone: taints, provider IDs, labels, and the registration of the
storage driver. Shows the configuration that gives a kubelet an external cloud provider. It asks
no vCenter; vdoctl check has the VMs.`,
		Example: "  vdoctl nodes check\n  vdoctl nodes check --distribution rke2",
	})
	flags.Group(check, flags.Selection, func(fl *pflag.FlagSet) {
		fl.StringVarP(&o.file, "from-file", "f", "", "`FILE` with the VDOConfig and VsphereCloudConfigs (default: what is in the cluster)")
		fl.Var(&flags.Choice{To: &o.distribution, Of: []string{kubeadm, clusterAPI, k3s, rke2, openShift}}, "distribution", "whose configuration to show (default: that of the nodes)")
	})
	o.bindFormat(check)
	return check
}

func (o *nodesOptions) run(ctx context.Context) error {
	s, state, err := o.configuration(ctx, o.siteFlags)
	if err != nil {
		return err
	}
	if state.Err != nil {
		return state.Err
	}
	snapshot := preflight.Snapshot{Now: o.now(), Wants: s.wants, Cluster: state}
	checks := reportOf(snapshot, nil, func(id preflight.ID) bool { return strings.HasPrefix(string(id), "node-") })
	r := nodesReport{Nodes: len(state.Nodes), Distribution: o.distribution, Results: checks.Results}
	if r.Distribution == "" {
		r.Distribution = distributionOf(state.Nodes)
	}
	if r.Configuration = configurations[r.Distribution]; r.Distribution == kubeadm {
		r.Configuration = kubeadmConfiguration(state.Nodes)
	}
	if err := o.print(r, func(l *lines) { o.text(l, r, checks) }); err != nil {
		return err
	}
	return refused(r.Results)
}

func distributionOf(nodes []preflight.Node) string {
	for _, n := range nodes {
		for _, d := range []string{k3s, rke2} {
			if strings.Contains(n.Kubelet, "+"+d) {
				return d
			}
		}
	}
	return kubeadm
}

func (o *nodesOptions) text(l *lines, r nodesReport, checks checkReport) {
	l.printf("%s", command.Plural(r.Nodes, "node", "nodes"))
	(&checkOptions{app: o.app, all: true}).text(l, checks)
	l.printf("\nConfiguration that %s must give each kubelet:\n", r.Distribution)
	l.write(strings.TrimSuffix(r.Configuration, "\n") + "\n") // a file, printed unchanged
}
