package vdoctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

const (
	govc     = "govc"
	powercli = "powercli"
)

type usersPlan struct {
	VCenter string `json:"vcenter"`
	Server  string `json:"server"`

	privileges.Plan
}

type usersVerification struct {
	VCenter   string         `json:"vcenter"`
	Server    string         `json:"server"`
	Principal string         `json:"principal"`
	Missing   []privilegesOn `json:"missing"`
	TooMuch   []privilegesOn `json:"tooMuch"`
}

type privilegesOn struct {
	Privileges []string `json:"privileges"`
	Objects    []string `json:"objects"`
}

type usersOptions struct {
	*app
	siteFlags

	principal string
	folders   bool
}

func (o *usersOptions) bindSite(cmd *cobra.Command, more func(*pflag.FlagSet)) {
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		o.siteFlags.bind(fl)
		fl.Lookup("username").Usage = "`[VCENTER=]NAME@DOMAIN` to log in with (default: the account of the Secret); may be repeated"
		more(fl)
	})
}

func (o *usersOptions) offline() bool { return o.isOffline(o.app) }

func newUsersPlanCommand(a *app) *cobra.Command {
	o := &usersOptions{app: a}
	cmd := runs(o.plan, &cobra.Command{
		Use: "plan", Short: "Compare the required roles with the vCenters",
		Long: `Computes the roles that the configuration's account needs on the objects of each vCenter, and
compares them with the existing ones. -o govc and -o powercli print the changes as a script for a
vCenter administrator. Run it again for new nodes, hosts and datastores.`,
		Example: "  vdoctl users plan\n  vdoctl users plan -o govc > roles.sh\n  vdoctl users plan -f site.yaml --principal vdo@vsphere.local --username administrator@vsphere.local",
	})
	o.bindSite(cmd, func(fl *pflag.FlagSet) {
		fl.StringVar(&o.principal, "principal", "", "`NAME@DOMAIN` of the account to plan for "+
			"(default: that of the Secret; without one, what users create will make)")
		fl.BoolVar(&o.folders, "vm-folders", true, "the role for VMs on their folders, propagating, rather than on each VM")
	})
	o.bindFormat(cmd, govc, powercli)
	return cmd
}

func newUsersVerifyCommand(a *app) *cobra.Command {
	o := &usersOptions{app: a}
	cmd := runs(o.verify, &cobra.Command{
		Use: "verify", Short: "Check the account's privileges; see check",
		Long: `The earlier name of a part of vdoctl check. Asks each vCenter for the effective privileges of the
configuration's account, and names missing and excess ones.`,
	})
	o.bindSite(cmd, func(*pflag.FlagSet) {})
	o.bindFormat(cmd)
	return cmd
}

// access reads each vCenter. A vCenter that does not answer is a fault beside the others' answers; a named but unknown
// one is a fault of all.
func (o *usersOptions) access(
	ctx context.Context, principal func(configured, client.Reader) string,
) (out []preflight.VCenter, failed error) {
	if err := o.effective(true); err != nil {
		return nil, err
	}
	if o.principal != "" && !render.QualifiedAccount(o.principal) {
		return nil, flags.Bad("--principal", o.principal, errors.New("it has no domain, or characters that the drivers do not accept"), "write NAME@DOMAIN, such as drivers@vsphere.local")
	}
	s, state, err := o.configuration(ctx, o.as(o.offline()))
	if err != nil {
		return nil, err
	}
	if err := s.unresolved(); err != nil { // roles for the rest might remove needed permissions
		return nil, fault.Join(err, state.Err)
	}
	errs := []error{state.Err}
	about := func(v configured) vcenter.Ask {
		return vcenter.Ask{Nodes: state.Nodes, Features: s.wants.FeaturesAt(v.Use, &state),
			Access: true, Principal: principal(v, s.reader)}
	}
	list, seen := s.ask(ctx, about), map[string]int{}
	account := func(i int) string { // a vCenter may have several names, and an account several Secrets
		who := list[i].Access.Principal
		if who == newAccount {
			who = s.vcenters[i].config.Spec.Credentials
		}
		return list[i].ID + " " + strings.ToLower(who)
	}
	for i := range list {
		v := &list[i]
		at, again := seen[account(i)]
		switch errs = append(errs, v.Err); {
		case v.Err != nil:
		case again:
			join(&out[at], v)
		default:
			seen[account(i)] = len(out)
			out = append(out, *v)
		}
	}
	for i := range out {
		out[i].Access.Features = s.wants.FeaturesAt(out[i].Use, &state)
	}
	return out, fault.Join(errs...)
}

// join adds what an account needs in a vCenter under a second name: it has one role on an object, for both.
func join(v, more *preflight.VCenter) {
	v.Name = v.Name + ", " + more.Name
	v.CPI, v.CSI = v.CPI || more.CPI, v.CSI || more.CSI
	v.Datastores, v.Lacking = append(v.Datastores, more.Datastores...), append(v.Lacking, more.Lacking...)
	v.Excess = append(v.Excess, more.Excess...)
	v.Access.Objects = append(v.Access.Objects, more.Access.Objects...)
	has := v.Access.Existing
	maps.Copy(has.Effective, more.Access.Existing.Effective)
	maps.Copy(has.Permissions, more.Access.Existing.Permissions)
	maps.DeleteFunc(has.Permissions, func(path string, _ privileges.Permission) bool {
		return strings.HasPrefix(path, "VirtualMachine:") // the other name may have its path
	})
}

// newAccount stands for the account that users create will make: its name is not known yet.
const newAccount = "vdo-xxxxxxxx"

func (o *usersOptions) plan(ctx context.Context) error {
	list, failed := o.access(ctx, func(v configured, c client.Reader) string {
		if o.principal != "" || len(o.usernames) == 0 {
			return o.principal
		}
		read, _ := credentials.Read(ctx, c, v.config) // users create says why it is unreadable
		return cmp.Or(read.Username, newAccount)
	})
	plans := make([]usersPlan, 0, len(list))
	for i := range list {
		v := &list[i]
		plans = append(plans, usersPlan{VCenter: v.Name, Server: v.Server, Plan: o.planOf(&v.Access)})
		if err := noDatastore(v); err != nil {
			o.warning(err)
		}
	}
	if len(plans) == 0 && failed != nil {
		return failed
	}
	text := o.planText
	switch o.format {
	case govc:
		text = govcScript
	case powercli:
		text = powercliScript
	}
	if o.format == govc || o.format == powercli {
		for _, p := range plans {
			lost := p.lost()
			switch {
			case p.Principal == newAccount:
				lost = "the name of the account is not known yet"
			case !render.QualifiedAccount(p.Principal): // of a Secret: not every shell reads what quotes it
				lost = "the account's name has no domain, or characters that the drivers do not accept"
			}
			if lost != "" {
				return fault.Join(failed, fault.Errorf(fault.Refused, "write a script for", p.Server, otherAccount, "%s", lost))
			}
		}
	}
	return fault.Join(failed, o.print(plans, func(l *lines) { text(l, plans) }))
}

const otherAccount = "plan for an account of the drivers alone: --principal NAME@DOMAIN"

func (o *usersOptions) planOf(a *preflight.Access) privileges.Plan {
	objects := a.Objects
	if o.folders {
		objects = inFolders(objects)
	}
	return privileges.NewPlan(a.Features, a.Principal, objects, o.folders, a.Existing)
}

// inFolders replaces VMs by their folders, except VMs of a vApp, an unreadable folder or a datacenter's own folder.
func inFolders(objects []privileges.Object) []privileges.Object {
	byPath := map[string]privileges.Object{}
	for _, x := range objects {
		byPath[x.Path] = x
	}
	var out []privileges.Object
	for _, x := range objects {
		folder, ok := byPath[path.Dir(x.Path)]
		if x.Kind == privileges.VM && ok && folder.Kind != privileges.Root {
			x = privileges.Object{Kind: privileges.VM, Path: folder.Path, ID: folder.ID}
		}
		out = append(out, x)
	}
	return out
}

func (o *usersOptions) planText(l *lines, plans []usersPlan) {
	for i, p := range plans {
		if i > 0 {
			l.printf("")
		}
		l.printf("%s (%s), account %s\n", p.VCenter, p.Server, p.Principal)
		roles := command.NewTable("ROLE", "STATE", "PRIVILEGES")
		for _, r := range p.Roles {
			roles.Row(r.Name, r.State, strings.Join(r.Privileges, " ")+difference(r))
		}
		permissions := command.NewTable("ON", "ROLE", "PROPAGATE", "STATE")
		for _, x := range p.Permissions {
			state := string(x.State)
			if x.Has != nil {
				state += ", has " + x.Has.Role
			}
			permissions.Row(x.Path, x.Role, x.Propagate, state)
		}
		l.table(roles)
		l.printf("")
		l.table(permissions)
		if lost := p.lost(); lost != "" {
			l.printf("warning: %s; %s", lost, otherAccount)
		}
		for _, path := range slices.Sorted(maps.Keys(p.NotNeeded)) {
			l.printf("not needed: %s on %s", p.NotNeeded[path].Role, path)
		}
	}
}

// lost describes the privileges beyond the plan that the account would lose; "" for none. It ignores roles of the
// drivers, which no longer need them.
func (p *usersPlan) lost() string {
	cut := slices.DeleteFunc(slices.Clone(p.Permissions), func(x privileges.PlannedPermission) bool {
		return len(x.Loses) == 0 || x.Has != nil && privileges.IsDriverRole(x.Has.Role)
	})
	if len(cut) == 0 {
		return ""
	}
	return fmt.Sprintf("account %s has more than the drivers need, and would lose %s", p.Principal, privileges.Losses(cut))
}

func difference(r privileges.PlannedRole) string {
	out := ""
	if len(r.Add) > 0 {
		out += "; lacks " + strings.Join(r.Add, " ")
	}
	if len(r.TooMuch) > 0 {
		out += "; too much: " + strings.Join(r.TooMuch, " ")
	}
	return out
}

func (o *usersOptions) verify(ctx context.Context) error {
	list, failed := o.access(ctx, func(configured, client.Reader) string { return "" })
	out := make([]usersVerification, 0, len(list))
	missing := false
	for i := range list {
		v := verified(&list[i])
		missing = missing || len(v.Missing) > 0
		out = append(out, v)
	}
	if len(out) == 0 && failed != nil {
		return failed
	}
	err := fault.Join(failed, o.print(out, func(l *lines) { o.verifyText(l, out) }))
	if err == nil && missing {
		return &resultError{code: command.ExitRefused}
	}
	return err
}

func verified(of *preflight.VCenter) usersVerification {
	features := of.Access.Features
	v := usersVerification{VCenter: of.Name, Server: of.Server, Principal: of.Access.Principal, Missing: []privilegesOn{}, TooMuch: []privilegesOn{}}
	for _, l := range of.Lacking {
		v.Missing = addTo(v.Missing, l.Privileges, l.Object)
	}
	if len(of.Datastores) > 0 && features.Block && !slices.ContainsFunc(of.Datastores, func(d preflight.Datastore) bool { return d.MayHold }) {
		v.Missing = addTo(v.Missing, privileges.Needed(features, privileges.Datastore), "any datastore")
	}
	for _, x := range of.Excess {
		if beyond := privileges.Beyond(features, x.Privileges); len(beyond) > 0 {
			v.TooMuch = addTo(v.TooMuch, beyond, x.Object)
		}
	}
	for _, m := range slices.Concat(v.Missing, v.TooMuch) {
		slices.Sort(m.Objects)
	}
	return v
}

func addTo(list []privilegesOn, privileges []string, object string) []privilegesOn {
	for i := range list {
		if slices.Equal(list[i].Privileges, privileges) {
			if !slices.Contains(list[i].Objects, object) {
				list[i].Objects = append(list[i].Objects, object)
			}
			return list
		}
	}
	return append(list, privilegesOn{Privileges: privileges, Objects: []string{object}})
}

func (o *usersOptions) verifyText(l *lines, list []usersVerification) {
	for _, v := range list {
		l.printf("%s (%s), account %s", v.VCenter, v.Server, v.Principal)
		for _, m := range v.Missing {
			l.printf("  missing   %s on %s", firstOf(m.Privileges), firstOf(m.Objects))
		}
		for _, m := range v.TooMuch {
			l.printf("  too much  %s on %s", firstOf(m.Privileges), firstOf(m.Objects))
		}
		if len(v.Missing)+len(v.TooMuch) == 0 {
			l.printf("  has what the drivers need, and no more than that")
		}
	}
}

func noDatastore(v *preflight.VCenter) error {
	if !v.CSI || slices.ContainsFunc(v.Access.Objects, func(x privileges.Object) bool { return x.Kind == privileges.Datastore }) {
		return nil
	}
	return &fault.Error{Reason: fault.Refused, Op: "find datastores for volumes in", Subject: v.Server,
		Err:  errors.New("none is shared by the hosts that the nodes run on"),
		Hint: "give these hosts a datastore in common, or correct spec.datacenters of VsphereCloudConfig " + fault.Quote(v.Name)}
}

// oneLine keeps a name from ending a comment.
func oneLine(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "\r", " "), "\n", " ") }

// govcScript writes plans as a shell script. It omits existing items, so that a script of a new plan can run again,
// and lists unneeded permissions only in comments. It uses ids of objects, since govc takes paths for patterns.
func govcScript(l *lines, plans []usersPlan) {
	l.command("#!/bin/sh\n# Log in by GOVC_USERNAME and GOVC_PASSWORD as who may change roles and permissions. A private\n# CA of the vCenter's certificate: GOVC_TLS_CA_CERTS=FILE.\nset -eu")
	for _, p := range plans {
		l.command("\n# %s: %s", p.VCenter, oneLine(p.Principal))
		l.command("export GOVC_URL=%s", fault.Quote(p.Server))
		for _, r := range p.Roles {
			switch r.State {
			case privileges.Create:
				l.command("govc role.create %s %s", r.Name, strings.Join(r.Privileges, " "))
			case privileges.Change:
				l.command("govc role.update -a %s %s", r.Name, strings.Join(r.Add, " "))
			}
		}
		for _, x := range p.Permissions {
			if x.State != privileges.Keep {
				l.command("govc permissions.set -principal %s -role %s -propagate=%t -i %s # %s", fault.Quote(p.Principal), x.Role, x.Propagate,
					fault.Quote(strings.Replace(x.ID, "-", ":", 1)), oneLine(x.Path))
			}
		}
		for _, where := range slices.Sorted(maps.Keys(p.NotNeeded)) {
			l.command("# not needed: %s on %s", p.NotNeeded[where].Role, oneLine(where))
		}
	}
}

// quotesPS doubles the signs that PowerShell takes for single quotes.
var quotesPS = strings.NewReplacer("'", "''", "‘", "‘‘", "’", "’’", "‚", "‚‚", "‛", "‛‛")

func quotedPS(s string) string { return "'" + quotesPS.Replace(s) + "'" }

func powercliScript(l *lines, plans []usersPlan) {
	l.command("#Requires -Modules VMware.VimAutomation.Core\n$ErrorActionPreference = 'Stop'")
	for _, p := range plans {
		l.command("\n# %s: %s", p.VCenter, oneLine(p.Principal))
		l.command("$vc = Connect-VIServer -Server %s", quotedPS(p.Server))
		for _, r := range p.Roles {
			switch r.State {
			case privileges.Create:
				l.command("New-VIRole -Server $vc -Name %s -Privilege %s | Out-Null", quotedPS(r.Name), privilegesPS(r.Privileges))
			case privileges.Change:
				l.command("Set-VIRole -Server $vc -Role %s -AddPrivilege %s | Out-Null", quotedPS(r.Name), privilegesPS(r.Add))
			}
		}
		for _, x := range p.Permissions {
			permissionPS(l, p.Principal, x)
		}
		l.command("Disconnect-VIServer -Server $vc -Confirm:$false")
	}
}

func privilegesPS(ids []string) string {
	quoted := make([]string, len(ids))
	for i, id := range ids {
		quoted[i] = quotedPS(id)
	}
	return "(Get-VIPrivilege -Server $vc -Id " + strings.Join(quoted, ", ") + ")"
}

func permissionPS(l *lines, principal string, x privileges.PlannedPermission) {
	role := "-Role (Get-VIRole -Server $vc -Name " + quotedPS(x.Role) + ") -Propagate:$" + strconv.FormatBool(x.Propagate)
	switch x.State {
	case privileges.Create:
		l.command("New-VIPermission -Entity %s -Principal %s %s | Out-Null", entityPS(x.ID), quotedPS(principal), role)
	case privileges.Change:
		l.command("Get-VIPermission -Server $vc -Entity %s -Principal %s | Where-Object EntityId -eq %s | Set-VIPermission %s | Out-Null",
			entityPS(x.ID), quotedPS(principal), quotedPS(x.ID), role)
	}
}

// entityPS returns a PowerCLI expression for an object by its id: names need not be unique.
func entityPS(id string) string {
	get := "Get-Inventory"
	if strings.HasPrefix(id, "Datastore-") {
		get = "Get-Datastore"
	}
	return "(" + get + " -Server $vc -Id " + quotedPS(id) + ")"
}
