package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/maintenance"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

type vmsOptions struct {
	*app
	outputFlags
	siteFlags
	consentFlags

	nodes            []string
	powerOff, drain  bool
	force, emptyDirs bool
	outage           bool
	timeout          time.Duration
	snapshot         preflight.Snapshot
}

func newVMsCommand(a *app) *cobra.Command {
	return groupOf("vms", "Check the settings of the nodes' VMs, and put them right", newVMsCheckCommand(a), newVMsFixCommand(a))
}

func newVMsCheckCommand(a *app) *cobra.Command {
	o := &vmsOptions{app: a}
	cmd := &cobra.Command{
		Use: "check", Short: "Check the settings of the nodes' VMs; see check",
		Long: `Checks the VM behind each node: disk UUIDs, hardware version, SCSI controllers, VMware
Tools, snapshots. Says what vms fix can put right, all of which takes the VM off, and what
is left to a person. Nothing is changed.`,
		Args: flags.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.check(cmd.Context()) },
	}
	o.bindVMs(cmd)
	return cmd
}

func newVMsFixCommand(a *app) *cobra.Command {
	o := &vmsOptions{app: a}
	cmd := &cobra.Command{
		Use: "fix", Short: "Put the settings of the nodes' VMs right, node by node",
		Long: `Puts right what can be: disk.EnableUUID, a hardware version older than 15, a missing
paravirtual SCSI controller. None of it can be changed while a VM runs, so without
--power-off it is only shown. With it, node by node, workers first: cordon, evict the pods
(--drain; disruption budgets are respected), wait until volumes are detached, shut the
guest down, change the settings, power on, wait for the kubelet, uncordon. Of the control
plane one node at a time, and only where the others that are ready are a majority of it.

It can be stopped with Ctrl-C at any time; the same command goes on with the node that it
was at, known by the annotation ` + maintenance.Annotation + `. Only what was cordoned here is
uncordoned. The VMs are changed with the login that --username names.`,
		Example: "  vdoctl vms fix --username administrator@vsphere.local\n  vdoctl vms fix --username administrator@vsphere.local --power-off --drain --nodes worker-1",
		Args:    flags.Exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.fix(cmd.Context()) },
	}
	o.bindVMs(cmd)
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		fl.BoolVar(&o.powerOff, "power-off", false, "shut guests down, one after another, for what cannot be changed while they run")
		fl.BoolVar(&o.drain, "drain", false, "evict the pods of a node before")
		fl.BoolVar(&o.force, "force", false, "evict pods too that nothing makes again")
		fl.BoolVar(&o.emptyDirs, "delete-emptydir-data", false, "evict pods too that keep data on the node")
		fl.BoolVar(&o.outage, "control-plane-outage", false, "work on the control plane though the others of it that are ready are no majority: the API server may be away meanwhile")
		fl.DurationVar(&o.timeout, "timeout", 15*time.Minute, "how long (`DURATION`) to wait for each thing")
	})
	cmd.Flags().Lookup("username").Usage = "`NAME@DOMAIN` of who may change the VMs"
	o.consentFlags.bind(cmd)
	return cmd
}

func (o *vmsOptions) bindVMs(cmd *cobra.Command) {
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		o.siteFlags.bind(fl)
		fl.StringSliceVar(&o.nodes, "nodes", nil, "`NODES` that it is about, with commas (default: all)")
	})
	o.outputFlags.bind(cmd)
}

// selected are the nodes that it is about, each of which has to be there.
func (o *vmsOptions) selected(nodes []preflight.Node) ([]preflight.Node, error) {
	if len(o.nodes) == 0 {
		return nodes, nil
	}
	var names []string
	for i := range nodes {
		names = append(names, nodes[i].Name)
	}
	slices.Sort(names)
	there := "the cluster has no nodes"
	if len(names) > 0 {
		there = "the nodes are " + shortList(names)
	}
	var errs []error
	for _, n := range o.nodes {
		if !slices.Contains(names, n) {
			errs = append(errs, flags.Bad("--nodes", n, errors.New("there is no such node, or spec.excludedNodes leaves it out"), there))
		}
	}
	return slices.DeleteFunc(nodes, func(n preflight.Node) bool { return !slices.Contains(o.nodes, n.Name) }), fault.Join(errs...)
}

// look gathers what there is of the nodes' VMs.
func (o *vmsOptions) look(ctx context.Context, s site, nodes []preflight.Node, state preflight.Cluster) (checkReport, error) {
	list := inspect(ctx, s, nodes)
	o.snapshot = preflight.Snapshot{Now: o.now(), Wants: s.wants, Cluster: state, VCenters: list}
	var errs []error
	for i := range list {
		errs = append(errs, list[i].Err)
	}
	r := checkReport{VMs: maintenance.Plan(preflight.NodeMachines(o.snapshot)), Results: preflight.Check(o.snapshot)}
	r.Results = slices.DeleteFunc(r.Results, func(r preflight.Result) bool {
		return !strings.HasPrefix(string(r.ID), "vm-") && r.ID != "node-vm"
	})
	r.Verdict = preflight.Worst(r.Results)
	for _, n := range o.nodes {
		if !slices.ContainsFunc(r.VMs, func(m maintenance.Machine) bool { return m.Node == n }) {
			errs = append(errs, flags.Bad("--nodes", n, errors.New("no VM is known behind a node of this name"), "see `vdoctl check --only node-vm`"))
		}
	}
	return r, fault.Join(errs...)
}

func (o *vmsOptions) check(ctx context.Context) error {
	if err := o.effective(false); err != nil {
		return err
	}
	s, state, err := o.configuration(ctx, o.siteFlags, false)
	if err = fault.Join(err, state.Err); err != nil {
		return err
	}
	if state.Nodes, err = o.selected(state.Nodes); err != nil {
		return err
	}
	r, failed := o.look(ctx, s, state.Nodes, state)
	text := func(w io.Writer) error { return o.checkText(w, r, failed == nil) }
	if err := fault.Join(failed, o.print(o.out, r, text)); err != nil {
		return err
	}
	return refused(r.Results)
}

// checkText shows the results and, where all VMs were seen, what is to be done.
func (o *vmsOptions) checkText(w io.Writer, r checkReport, whole bool) error {
	err := (&checkOptions{app: o.app}).text(w, r)
	if err != nil || !whole {
		return err
	}
	return o.planText(w, r)
}

// planText says what is to be done, node by node.
func (o *vmsOptions) planText(w io.Writer, r checkReport) error {
	l := &lines{w: w}
	left := 0
	for _, m := range r.VMs {
		if len(m.Off) > 0 {
			left++
			fixes := make([]string, len(m.Off))
			for i, f := range m.Off {
				fixes[i] = string(f)
			}
			l.printf("%s (%s): %s, with the VM off", o.paint(bold, m.Node), m.Path, strings.Join(fixes, ", "))
		}
		for _, b := range m.ByHand {
			l.printf("%s (%s): by hand: %s", o.paint(bold, m.Node), m.Path, b)
		}
	}
	if left == 0 {
		l.printf("no VM has to be powered off")
	} else {
		l.printf("%s: `vdoctl vms fix --power-off --drain --username NAME`", command.Plural(left, "VM to put right", "VMs to put right"))
	}
	return l.err
}

func (o *vmsOptions) fix(ctx context.Context) error {
	if o.username == "" {
		return flags.Bad("--username", "", errors.New("who may change the VMs is not given"), "give it: --username administrator@vsphere.local")
	}
	if !o.powerOff && (o.drain || o.force || o.emptyDirs || o.outage) {
		return flags.Bad("--drain", "", errors.New("nothing is powered off"), "add --power-off")
	}
	s, state, err := o.configuration(ctx, o.siteFlags, false)
	if err = fault.Join(err, state.Err); err != nil {
		return err
	}
	if state.Nodes, err = o.selected(state.Nodes); err != nil {
		return err
	}
	s.preferAsked = true
	if err := o.asks(o.app, &s); err != nil {
		return err
	}
	r, err := o.look(ctx, s, state.Nodes, state)
	if err != nil {
		return err
	}
	if err := o.print(o.out, r, func(w io.Writer) error { return o.planText(w, r) }); err != nil || !o.powerOff || o.dryRun {
		return err
	}
	return o.work(ctx, &s, r.VMs)
}

// work asks and works, where there is something to be done.
func (o *vmsOptions) work(ctx context.Context, s *site, list []maintenance.Machine) error {
	c, err := o.cluster.client()
	if err != nil {
		return err
	}
	run := maintenance.Run{
		API: c, Drain: o.drain, Force: o.force, EmptyDirs: o.emptyDirs, Outage: o.outage, Wait: o.timeout,
		Open:     func(ctx context.Context, name string) (maintenance.VMs, func(), error) { return openVMs(ctx, s, name) },
		Progress: func(node, text string) { _ = command.Say(o.err, "%s: %s", node, text) },
	}
	pending, err := run.Pending(ctx, list)
	if err != nil || len(pending) == 0 {
		return err
	}
	if err := o.consent(ctx, o.consentFlags, fixQuestion(pending)+o.cluster.named()+"?"); err != nil {
		return err
	}
	return run.Nodes(ctx, list)
}

// fixQuestion asks for what is done to the VMs.
func fixQuestion(pending []maintenance.Machine) string {
	off, upgrades := 0, 0
	var where []string
	for _, m := range pending {
		off += min(len(m.Off), 1)
		where = append(where, m.VCenter)
		if slices.Contains(m.Off, maintenance.Hardware) {
			upgrades++
		}
	}
	if off == 0 {
		return "Continue with node " + pending[0].Node + ", which an earlier run began"
	}
	text := fmt.Sprintf("Shut down %s, one after another, of vCenter %s",
		command.Plural(off, "VM", "VMs"), strings.Join(slices.Compact(slices.Sorted(slices.Values(where))), ", "))
	if upgrades > 0 {
		text = command.Plural(upgrades, "hardware upgrade", "hardware upgrades") + " cannot be undone. " + text
	}
	return text
}

func openVMs(ctx context.Context, s *site, name string) (maintenance.VMs, func(), error) {
	i := slices.IndexFunc(s.vcenters, func(v configured) bool { return v.Name == name })
	target, err := s.target(ctx, s.vcenters[i])
	if err != nil {
		return nil, nil, err
	}
	a, err := vcenter.Open(ctx, target)
	if err != nil {
		return nil, nil, err
	}
	return a, a.Close, nil
}
