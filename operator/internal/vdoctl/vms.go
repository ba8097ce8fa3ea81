package vdoctl

import (
	"context"
	"errors"
	"fmt"
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
	siteFlags
	consentFlags
	maintenance.Run

	nodes        []string
	vms, folders []string // paths of VMs that are no nodes
	templates    []string
	powerOff     bool
}

func isVMCheck(id preflight.ID) bool { return strings.HasPrefix(string(id), "vm-") || id == "node-vm" }

func newVMsCheckCommand(a *app) *cobra.Command {
	cmd, o := newPartCommand(a, "Check the settings of the nodes' VMs", isVMCheck)
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		fl.StringSliceVar(&o.nodes, "nodes", nil, "`NODES` that it is about, with commas (default: all)")
	})
	return cmd
}

func newVMsFixCommand(a *app) *cobra.Command {
	o := &vmsOptions{app: a}
	cmd := runs(o.fix, &cobra.Command{
		Use: "fix", Short: "Correct settings of the nodes' VMs, node by node",
		Long: `Corrects disk.EnableUUID, a hardware version older than 15, and a missing paravirtual SCSI
controller. A running VM permits none of these changes, so without --power-off the command only
shows them. With it, one node at a time, workers first: cordon, evict the pods (--drain), shut
the guest down, change the settings, power on, uncordon. It powers off a node of the control
plane or etcd only if the other ready ones are a majority. Run an interrupted command again:
it continues.

With --vm, --folder or --template it changes VMs that are no nodes, also before a cluster
exists (--from-file). They stay on, off, or a template.`,
		Example: "  vdoctl vms fix --username administrator@vsphere.local\n" +
			"  vdoctl vms fix --username administrator@vsphere.local --power-off --drain --nodes worker-1\n" +
			"  vdoctl vms fix -f site.yaml --username administrator@vsphere.local --template /dc-1/vm/ubuntu --hardware-version 19",
	})
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		o.siteFlags.bind(fl)
		fl.StringSliceVar(&o.nodes, "nodes", nil, "`NODES` that it is about, with commas (default: all)")
		fl.StringArrayVar(&o.vms, "vm", nil, "inventory `PATH` of a VM that is no node; may be repeated")
		fl.StringArrayVar(&o.folders, "folder", nil, "inventory `PATH` of a folder: all VMs below it that are no templates; may be repeated")
		fl.StringArrayVar(&o.templates, "template", nil, "inventory `PATH` of a template; may be repeated")
		fl.IntVar(&o.Hardware, "hardware-version", preflight.LeastHardware, "least `NUMBER` of the hardware version")
		fl.BoolVar(&o.powerOff, "power-off", false, "shut guests down, one after another, for what cannot be changed while they run")
		fl.BoolVar(&o.Drain, "drain", false, "evict the pods of a node before")
		fl.BoolVar(&o.Force, "force", false, "evict pods too that nothing makes again")
		fl.BoolVar(&o.EmptyDirs, "delete-emptydir-data", false, "evict pods too that keep data on the node")
		fl.BoolVar(&o.Outage, "control-plane-outage", false, "work on the control plane though the others of it that are ready are no majority: the API server may be away meanwhile")
		fl.DurationVar(&o.Wait, "timeout", 15*time.Minute, "how long (`DURATION`) to wait for each thing")
	})
	cmd.Flags().Lookup("username").Usage = "`[VCENTER=]NAME@DOMAIN` of who may change the VMs; may be repeated"
	o.bindFormat(cmd)
	o.consentFlags.bind(cmd)
	return cmd
}

// selected returns the nodes with these names, each of which has to exist; all without names.
func selected(nodes []preflight.Node, names []string) ([]preflight.Node, error) {
	if len(names) == 0 {
		return nodes, nil
	}
	var errs []error
	for _, name := range names {
		if !slices.ContainsFunc(nodes, func(n preflight.Node) bool { return n.Name == name }) {
			errs = append(errs, flags.Bad("--nodes", name,
				errors.New("there is no such node, or spec.excludedNodes leaves it out"), "see `kubectl get nodes`"))
		}
	}
	return slices.DeleteFunc(nodes, func(n preflight.Node) bool { return !slices.Contains(names, n.Name) }), fault.Join(errs...)
}

func (o *vmsOptions) look(ctx context.Context, s site, state preflight.Cluster) (checkReport, error) {
	snapshot := s.snapshot(ctx, state)
	var errs []error
	for i := range snapshot.VCenters {
		errs = append(errs, snapshot.VCenters[i].Err)
	}
	r := reportOf(snapshot, nil, isVMCheck)
	r.VMs = maintenance.Plan(preflight.NodeMachines(snapshot), o.Hardware)
	for _, n := range o.nodes {
		if !slices.ContainsFunc(r.VMs, func(m maintenance.Machine) bool { return m.Node == n }) {
			errs = append(errs, flags.Bad("--nodes", n, errors.New("no VM is known behind a node of this name"), "see `vdoctl check --only node-vm`"))
		}
	}
	return r, fault.Join(errs...)
}

func (o *vmsOptions) repairs(l *lines, r checkReport) {
	left := 0
	for _, m := range r.VMs {
		name := m.Path
		if m.Node != "" {
			name = m.Node + " (" + m.Path + ")"
		}
		switch {
		case m.Begun && m.Template:
			l.printf("%s: it is no template now, and becomes one again", name)
		case m.Begun:
			l.printf("%s: an earlier run stopped here; with --power-off this one ends its work", name)
		}
		for _, f := range m.Off {
			l.printf("%s: %s, with the VM off", name, f)
		}
		for _, b := range m.ByHand {
			l.printf("%s: by hand: %s", name, b)
		}
		if m.Begun || len(m.Off) > 0 {
			left++
		}
	}
	hint := ""
	if left > 0 && !o.powerOff {
		hint = "; --power-off changes those that are on too"
	}
	l.printf("%s to put right%s", command.Plural(left, "VM", "VMs"), hint)
}

func (o *vmsOptions) fix(ctx context.Context) error {
	apart := len(o.vms)+len(o.folders)+len(o.templates) > 0
	switch {
	case apart && (o.Drain || o.Force || o.EmptyDirs || o.Outage || len(o.nodes) > 0):
		return fault.Errorf(fault.InvalidInput, "fix", strings.Join(slices.Concat(o.vms, o.folders, o.templates), ", "),
			"leave out --nodes and all flags about draining and the control plane", "no node is worked on")
	case !apart && o.noCluster:
		return flags.Bad("--no-cluster", "", errors.New("it leaves no nodes"), "name VMs with --vm, --folder or --template")
	case !o.powerOff && (o.Drain || o.Force || o.EmptyDirs || o.Outage):
		return flags.Bad("--drain", "", errors.New("nothing is powered off"), "add --power-off")
	case o.Hardware < preflight.LeastHardware:
		return flags.Bad("--hardware-version", fmt.Sprint(o.Hardware), errors.New("the drivers need a newer one"),
			fmt.Sprintf("give a number from %d on", preflight.LeastHardware))
	}
	s, state, err := o.asAdmin(ctx, o.app, "the VMs", apart && o.isOffline(o.app))
	if err = fault.Join(err, state.Err); err != nil {
		return err
	}
	if state.Nodes, err = selected(state.Nodes, o.nodes); err != nil {
		return err
	}
	look := o.look
	if apart {
		look = o.lookApart
	}
	r, err := look(ctx, s, state)
	if err != nil {
		return err
	}
	changed := slices.DeleteFunc(slices.Clone(r.VMs), func(m maintenance.Machine) bool {
		return !o.powerOff && (m.On || m.Node != "")
	})
	if o.Hardware > preflight.LeastHardware {
		if err := o.supported(ctx, &s, changed); err != nil {
			return err
		}
	}
	if err := o.print(r, func(l *lines) { o.repairs(l, r) }); err != nil || o.dryRun {
		return err
	}
	return o.work(ctx, &s, changed)
}

// lookApart finds the VMs at the given paths. It refuses nodes, since their pods would not be evicted.
func (o *vmsOptions) lookApart(ctx context.Context, s site, state preflight.Cluster) (r checkReport, err error) {
	paths := slices.Concat(o.vms, o.folders, o.templates)
	for i, p := range paths {
		paths[i] = "/" + strings.Trim(p, "/")
	}
	isTemplate := func(path string) bool { return slices.Contains(paths[len(paths)-len(o.templates):], path) }
	var machines []preflight.NodeMachine
	var errs []error
	about := func(configured) vcenter.Ask { return vcenter.Ask{Paths: paths} }
	for _, found := range s.ask(ctx, about) {
		errs = append(errs, found.Err)
		for _, m := range found.Machines {
			path := found.MachinePath(&m)
			if m.Template && !slices.Contains(paths, path) {
				continue // it is in a folder
			}
			isOf := func(n preflight.Node) bool { return preflight.SameUUID(n.UUID, m.UUID) }
			if i := slices.IndexFunc(state.Nodes, isOf); i >= 0 {
				node := state.Nodes[i].Name
				errs = append(errs, fault.Errorf(fault.Refused, "change", path,
					"name it as such: --nodes "+node, "it is node %s", node))
			}
			begun := isTemplate(path) && !m.Template && !m.On // a VM whose work was interrupted is no template now
			m.Template = m.Template || begun
			machines = append(machines, preflight.NodeMachine{VCenter: found.Name, Path: path, Machine: m,
				Node: preflight.Node{Begun: begun}})
		}
	}
	hint := "write the inventory path: `govc find / -type m`"
	if names := s.datacenters(); len(names) > 0 {
		hint += "; or add its datacenter to spec.datacenters, which has " + strings.Join(names, ", ")
	}
	for _, p := range paths {
		isAt := func(m preflight.NodeMachine) bool { return m.Path == p || strings.HasPrefix(m.Path, p+"/") }
		if !slices.ContainsFunc(machines, isAt) {
			errs = append(errs, &fault.Error{Reason: fault.NotFound, Op: "find VMs at", Subject: p,
				Err: errors.New("there is none in the configured datacenters"), Hint: hint})
		}
	}
	r.VMs, r.Results = maintenance.Plan(machines, o.Hardware), []preflight.Result{}
	return r, fault.Join(errs...)
}

// supported refuses a hardware version that the hosts of VMs do not support, before it is planned.
func (o *vmsOptions) supported(ctx context.Context, s *site, list []maintenance.Machine) error {
	var errs []error
	for _, v := range s.vcenters {
		needs := slices.DeleteFunc(slices.Clone(list), func(m maintenance.Machine) bool {
			return m.VCenter != v.Name || !slices.Contains(m.Off, preflight.Hardware)
		})
		if len(needs) == 0 {
			continue
		}
		vms, done, err := openVMs(ctx, s, v.Name)
		if err != nil {
			return err
		}
		for _, m := range needs {
			errs = append(errs, vms.CanUpgrade(ctx, m.ID, fmt.Sprintf("vmx-%d", o.Hardware)))
		}
		done()
	}
	return fault.Join(errs...)
}

func (o *vmsOptions) work(ctx context.Context, s *site, list []maintenance.Machine) error {
	list, err := maintenance.Pending(list)
	if err != nil || len(list) == 0 {
		return err
	}
	o.Open = func(ctx context.Context, name string) (maintenance.VMs, func(), error) { return openVMs(ctx, s, name) }
	o.Progress = func(node, text string) { _ = command.Say(o.err, "%s: %s", node, text) }
	if list[0].Node != "" {
		if o.API, err = o.cluster.client(); err != nil {
			return err
		}
	}
	if err := o.consent(ctx, o.consentFlags, fixQuestion(list)+o.cluster.named()+"?"); err != nil {
		return err
	}
	return o.Do(ctx, list)
}

func fixQuestion(pending []maintenance.Machine) string {
	upgrades := 0
	var where []string
	for _, m := range pending {
		where = append(where, m.VCenter)
		if slices.Contains(m.Off, preflight.Hardware) {
			upgrades++
		}
	}
	slices.Sort(where)
	text := fmt.Sprintf("Change %s, one after another, and shut down those that are on, of vCenter %s",
		command.Plural(len(pending), "VM", "VMs"), strings.Join(slices.Compact(where), ", "))
	if upgrades > 0 {
		text = command.Plural(upgrades, "hardware upgrade", "hardware upgrades") + " cannot be undone. " + text
	}
	return text
}

func openVMs(ctx context.Context, s *site, name string) (maintenance.VMs, func(), error) {
	i := slices.IndexFunc(s.vcenters, func(v configured) bool { return v.Name == name })
	a, _, err := s.open(ctx, s.vcenters[i])
	if err != nil {
		return nil, nil, err
	}
	return a, a.Close, nil
}
