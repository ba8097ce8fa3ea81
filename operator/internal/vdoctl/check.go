package vdoctl

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/maintenance"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// checkReport is the output of check, and of each command that shows a part of it.
type checkReport struct {
	Verdict preflight.Action      `json:"verdict"` // the gravest action
	Results []preflight.Result    `json:"results"`
	Nodes   []preflight.Placement `json:"nodes,omitempty"` // with region and zone
	Zones   []preflight.Zone      `json:"zones,omitempty"`
	VMs     []maintenance.Machine `json:"vms,omitempty"` // with the changes that vms fix can make
}

// reportOf runs the checks and returns the results of those that shown selects.
func reportOf(s preflight.Snapshot, policy *v1alpha1.PreflightPolicy, shown func(preflight.ID) bool) checkReport {
	r := checkReport{Results: preflight.Only(preflight.Turned(preflight.Check(s), policy), shown)}
	r.Verdict = preflight.Worst(r.Results)
	return r
}

func refused(results []preflight.Result) error {
	if preflight.Worst(results) == preflight.BlockInstall {
		return &resultError{code: command.ExitRefused}
	}
	return nil
}

type checkOptions struct {
	*app
	siteFlags
	consentFlags

	only, nodes []string
	all, fix    bool
	isPart      bool // under the part's earlier name
}

// newPartCommand returns a command with a part of the checks, under its name in an earlier release.
func newPartCommand(a *app, short string, ids func(preflight.ID) bool) (*cobra.Command, *checkOptions) {
	o := &checkOptions{app: a, isPart: true}
	o.only = slices.DeleteFunc(idNames(), func(id string) bool { return !ids(preflight.ID(id)) })
	cmd := runs(o.run, &cobra.Command{Use: "check", Short: short + "; see check",
		Long: "The earlier name of a part of `vdoctl check`, whose -o json has nodes, zones and VMs too."})
	flags.Group(cmd, flags.Selection, o.siteFlags.bind)
	o.bindFormat(cmd)
	return cmd, o
}

func newCheckCommand(a *app) *cobra.Command {
	o := &checkOptions{app: a}
	cmd := runs(o.run, &cobra.Command{
		Use:     "check",
		Aliases: []string{"preflight"},
		Short:   "Check cluster, nodes and vCenters for the drivers",
		Long: `Checks the cluster, its nodes, their VMs and zones, and the vCenters with their accounts. Each
finding says why it matters and what to do. A vCenter that does not answer hides no result of
another. It changes nothing without --fix, which first runs ` + "`vms fix --power-off --drain`" + `.

Each result has an action:
  Pass          nothing to do
  Warn          a function will fail or be slow
  BlockInstall  install no driver: it would not start, or find no nodes or volumes`,
		Example: `  vdoctl check
  vdoctl check --from-file site.yaml --no-cluster
  vdoctl check --only vm-disk-uuid,vm-hardware
  vdoctl check --fix --username administrator@vsphere.local
  vdoctl check -o json | jq '.results[] | select(.action != "Pass")'`,
	})
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		o.siteFlags.bind(fl)
		fl.BoolVar(&o.fix, "fix", false, "put the nodes' VMs right first, as vms fix does; needs --username")
		fl.StringSliceVar(&o.only, "only", nil, "`CHECKS` to show, by their ids, with commas")
	})
	o.consentFlags.bind(cmd)
	o.bindFormat(cmd)
	flags.Group(cmd, flags.Output, func(fl *pflag.FlagSet) {
		fl.BoolVar(&o.all, "all", false, "show what passed too, one by one")
	})
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(idNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func idNames() []string {
	var out []string
	for _, id := range preflight.IDs() {
		out = append(out, string(id))
	}
	return out
}

func (o *checkOptions) run(ctx context.Context) error {
	for _, id := range o.only {
		if !slices.Contains(idNames(), id) {
			return flags.Bad("--only", id, fmt.Errorf("no check has this id"), "the checks are "+strings.Join(idNames(), ", "))
		}
	}
	if err := o.effective(o.fix); err != nil {
		return err
	}
	if o.fix {
		if err := o.fixVMs(ctx); err != nil {
			return err
		}
	}
	snapshot, policy, err := o.gather(ctx, o.siteFlags, o.nodes...)
	if err != nil {
		return err
	}
	ofBundle := func(id string) bool { return preflight.ID(id).OfBundle() }
	if o.file == "" && !o.noCluster && (len(o.only) == 0 || slices.ContainsFunc(o.only, ofBundle)) {
		snapshot.Images = o.images(ctx)
	}
	isShown := func(id preflight.ID) bool { return len(o.only) == 0 || slices.Contains(o.only, string(id)) }
	r := reportOf(snapshot, policy, isShown)
	for i := range r.Results {
		r.Results[i].Remedy = o.ofFile(r.Results[i].Remedy)
	}
	r.Nodes, r.Zones = preflight.Placements(snapshot), preflight.Zones(snapshot)
	r.VMs = maintenance.Plan(preflight.NodeMachines(snapshot), preflight.LeastHardware)
	if err := o.print(r, func(l *lines) { o.text(l, r) }); err != nil {
		return err
	}
	return refused(r.Results)
}

func (o *checkOptions) fixVMs(ctx context.Context) error {
	if o.format != flags.Text || o.noCluster {
		return flags.Bad("--fix", "", errors.New("it needs a cluster, and prints text"), "leave out --format and --no-cluster")
	}
	f := &vmsOptions{app: o.app, siteFlags: o.siteFlags, consentFlags: o.consentFlags}
	f.powerOff, f.Drain, f.Wait, f.Hardware = true, true, 15*time.Minute, preflight.LeastHardware
	return f.fix(ctx)
}

// gather reads the configuration, the cluster, and all vCenters in parallel. It also returns the configuration's
// policy for checks.
func (a *app) gather(
	ctx context.Context, f siteFlags, nodes ...string,
) (preflight.Snapshot, *v1alpha1.PreflightPolicy, error) {
	s, state, err := a.configuration(ctx, f)
	if err == nil {
		state.Nodes, err = selected(state.Nodes, nodes)
	}
	if err != nil {
		return preflight.Snapshot{}, nil, err
	}
	if s.assumed {
		_ = command.Say(a.err, "There is no VDOConfig: it is checked as if both drivers were wanted, with every vCenter. "+
			"`vdoctl configure -o site.yaml` writes a whole configuration.")
	}
	return s.snapshot(ctx, state), s.policy, nil
}

// images returns the images that the operator would install from the accepted bundle, by the operator's code. It
// returns nil without a requested driver or a DriverBundle.
func (a *app) images(ctx context.Context) *preflight.Images {
	c, config, err := a.theConfig(ctx)
	var bundles v1alpha1.DriverBundleList
	if err == nil {
		err = c.List(ctx, &bundles, client.InNamespace(a.cluster.namespace))
	}
	if err != nil || len(bundles.Items) == 0 {
		return nil
	}
	as, err := a.previewing(ctx)
	var images *preflight.Images
	if err == nil {
		images, err = as.Images(ctx, config)
	}
	if err != nil {
		return &preflight.Images{Err: err}
	}
	return images
}

// configuration reads the requested configuration and the state of the cluster. With a file, an unreachable cluster is
// a result; without one it is an error.
func (a *app) configuration(ctx context.Context, f siteFlags) (site, preflight.Cluster, error) {
	c, err := a.cluster.client()
	clusterErr := f.orWithout(err)
	var s site
	switch {
	case clusterErr != nil && !f.noCluster && (f.file == "" || a.cluster.isNamed()):
	case f.file != "":
		if s, err = f.fileSite(a); err == nil && clusterErr == nil && !f.noCluster {
			s.reader = readers{s.reader, c}
		}
	case err == nil:
		s, err = clusterSite(ctx, c, a.cluster.namespace)
	}
	if err == nil && (f.file != "" || f.instead) {
		s.preferAsked, err = len(f.usernames) > 0, f.asks(a, &s)
	}
	s.app = a
	switch {
	case err != nil:
		return s, preflight.Cluster{}, err
	case f.noCluster:
		return s, preflight.Cluster{Skipped: true}, nil
	case clusterErr != nil:
		return s, preflight.Cluster{Err: clusterErr}, nil //nolint:nilerr // it is a result beside the others
	}
	cluster := clusterstate.Read(ctx, c, s.excluded)
	cluster.Err = f.orWithout(cluster.Err)
	return s, cluster, nil
}

const sideBySide = 5

// ask reads each vCenter. It resolves accounts one after another, since that may prompt on the terminal.
func (s *site) ask(ctx context.Context, about func(configured) vcenter.Ask) []preflight.VCenter {
	out := make([]preflight.VCenter, len(s.vcenters))
	var g errgroup.Group
	g.SetLimit(sideBySide)
	for i, v := range s.vcenters {
		target, err := s.target(ctx, v)
		if err != nil {
			out[i] = preflight.VCenter{Server: target.Server(), Err: err, Unresolved: v.config == nil}
			out[i].Username, out[i].Ends = target.Username, target.Ends
			continue
		}
		g.Go(func() error {
			out[i] = vcenter.Inspect(ctx, target, about(v))
			return nil
		})
	}
	_ = g.Wait() // each vCenter's fault is in its result
	for i, v := range s.vcenters {
		out[i].Use = v.Use
	}
	return out
}

func (s *site) snapshot(ctx context.Context, cluster preflight.Cluster) preflight.Snapshot {
	about := func(v configured) vcenter.Ask {
		return vcenter.Ask{Nodes: cluster.Nodes, Features: s.wants.FeaturesAt(v.Use, &cluster), Categories: s.wants.AllCategories(),
			Policies: cluster.Policies(), Upgrade: true}
	}
	return preflight.Snapshot{Now: s.app.now(), Wants: s.wants, Cluster: cluster, VCenters: s.ask(ctx, about)}
}

// text prints findings in full, and a count of passed checks.
func (o *checkOptions) text(l *lines, r checkReport) {
	passed, first := 0, ""
	for _, x := range r.Results {
		if x.Action == preflight.Pass {
			passed++
			switch {
			case x.Override != nil:
				l.printf("off     %s: %s", x.ID, turned(x))
			case o.all:
				l.printf("pass  %s: %s", x.ID, x.Found)
			}
			continue
		}
		o.show(l, x)
		if x.Action == preflight.BlockInstall && strings.HasPrefix(string(x.ID), "vcenter-") {
			first = "; first mend " + string(x.ID)
		}
	}
	for _, id := range o.only {
		if !o.isPart && !slices.ContainsFunc(r.Results, func(x preflight.Result) bool { return string(x.ID) == id }) {
			l.printf("not run %s: nothing here needs it, or what it reads is not known%s", id, first)
		}
	}
	findings := ""
	if n := len(r.Results) - passed; n > 0 {
		findings = ", " + command.Plural(n, "finding", "findings")
	}
	l.printf("%s%s. Verdict: %s", command.Plural(passed, "check passed", "checks passed"), findings, r.Verdict)
}

const indent = "        "

func (o *checkOptions) show(l *lines, r preflight.Result) {
	word := "warn "
	if r.Severity == preflight.Error {
		word = "block"
	}
	where := ""
	if r.On != "" {
		where = " in " + r.On
	}
	l.printf("%s   %s%s: %s", word, r.ID, where, strings.ReplaceAll(r.Found, "\n", "; "))
	for _, part := range []struct{ label, text string }{{"on  ", r.Named()}, {"why ", r.Why}, {"do  ", r.Remedy}, {"was ", turned(r)}} {
		l.prose(indent+part.label, indent+"    ", part.text)
	}
}

// turned describes the result of a check without the override in spec.preflight.
func turned(r preflight.Result) string {
	if r.Override == nil {
		return ""
	}
	return fmt.Sprintf("%s, turned to %s by spec.preflight: %s", r.Override.Was, r.Override.To, r.Override.Reason)
}

type nodesReport struct {
	Nodes         int                `json:"nodes"`
	Results       []preflight.Result `json:"results"`
	Distribution  string             `json:"distribution"`
	Configuration string             `json:"configuration"` // the settings that the kubelets need
}

// kubelets has by distribution the configuration that sets the kubelet to an external cloud provider before the node
// joins.
//
//go:embed kubelet
var kubelets embed.FS

var distributions = []string{"kubeadm", "cluster-api", "k3s", "rke2", "openshift"}

// beforeV1Beta4 writes kubeadm's configuration for Kubernetes before 1.31, where arguments are a map.
var beforeV1Beta4 = strings.NewReplacer("v1beta4", "v1beta3",
	"  - name: cloud-provider\n    value: external", "    cloud-provider: external")

// kubeletOf returns the configuration for a distribution, in kubeadm's format for the oldest of the nodes.
func kubeletOf(distribution string, nodes []preflight.Node) string {
	data, _ := kubelets.ReadFile("kubelet/" + distribution + ".yaml")
	isOld := func(n preflight.Node) bool {
		minor := 0
		_, err := fmt.Sscanf(n.Kubelet, "v1.%d", &minor)
		return err == nil && minor < 31
	}
	if slices.ContainsFunc(nodes, isOld) {
		return beforeV1Beta4.Replace(string(data))
	}
	return string(data)
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
		fl.Var(&flags.Choice{To: &o.distribution, Of: distributions}, "distribution",
			"`NAME` whose configuration to show, of "+strings.Join(distributions, ", ")+" (default: that of the nodes)")
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
	r := nodesReport{Nodes: len(state.Nodes), Results: checks.Results,
		Distribution: cmp.Or(o.distribution, distributionOf(state.Nodes))}
	r.Configuration = kubeletOf(r.Distribution, state.Nodes)
	if err := o.print(r, func(l *lines) { o.text(l, r, checks) }); err != nil {
		return err
	}
	return refused(r.Results)
}

func distributionOf(nodes []preflight.Node) string {
	for _, n := range nodes {
		for _, d := range []string{"k3s", "rke2"} {
			if strings.Contains(n.Kubelet, "+"+d) {
				return d
			}
		}
	}
	return "kubeadm"
}

func (o *nodesOptions) text(l *lines, r nodesReport, checks checkReport) {
	l.printf("%s", command.Plural(r.Nodes, "node", "nodes"))
	(&checkOptions{app: o.app, all: true}).text(l, checks)
	l.printf("\nConfiguration that %s must give each kubelet:\n", r.Distribution)
	l.write(strings.TrimSuffix(r.Configuration, "\n") + "\n") // a file, printed unchanged
}
