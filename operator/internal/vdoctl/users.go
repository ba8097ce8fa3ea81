package vdoctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// The scripts that a plan can be printed as.
const (
	govc     = "govc"
	powercli = "powercli"
)

// usersPlan is what users plan prints of one vCenter.
type usersPlan struct {
	VCenter string `json:"vcenter"`
	Server  string `json:"server"`

	privileges.Plan
}

// usersVerification is what users verify prints of one vCenter.
type usersVerification struct {
	VCenter   string         `json:"vcenter"`
	Server    string         `json:"server"`
	Principal string         `json:"principal"`
	Missing   []privilegesOn `json:"missing"`
	TooMuch   []privilegesOn `json:"tooMuch"`
}

// privilegesOn are privileges, and the objects that they are about.
type privilegesOn struct {
	Privileges []string `json:"privileges"`
	Objects    []string `json:"objects"`
}

type usersOptions struct {
	*app
	outputFlags
	siteFlags

	principal           string
	folders, encryption bool
}

func newUsersCommand(a *app) *cobra.Command {
	return groupOf("users", "Make, verify and change the vCenters' accounts, with the least privileges",
		append([]*cobra.Command{newUsersPlanCommand(a), newUsersVerifyCommand(a)}, newUsersChangeCommands(a)...)...)
}

func (o *usersOptions) bindSite(cmd *cobra.Command, more func(*pflag.FlagSet)) {
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		o.siteFlags.bind(fl)
		fl.Lookup("username").Usage = "`NAME@DOMAIN` to log in with (default: the account of the Secret)"
		fl.BoolVar(&o.encryption, "encryption", false, "nodes' VMs or volumes are encrypted (default: spec.storageProvider.encryption)")
		more(fl)
	})
}

func newUsersPlanCommand(a *app) *cobra.Command {
	o := &usersOptions{app: a}
	cmd := &cobra.Command{
		Use: "plan", Short: "Compute the roles that an account needs, and compare with what is there",
		Long: `Computes from the drivers and features of the configuration which roles the account
needs in each vCenter, on which objects, propagating or not, and compares it with what is
there. -o govc and -o powercli print it as a script for who may change the vCenter.
Nothing is changed.

The nodes' VMs are those behind the nodes of the cluster. What new nodes, hosts and
datastores need is found by running it again. The role for VMs is on the folders that
they are in, and counts for new ones there; with --vm-folders=false it is on each VM.`,
		Example: "  vdoctl users plan\n  vdoctl users plan -o govc > roles.sh\n  vdoctl users plan -f site.yaml --principal vdo@vsphere.local --username administrator@vsphere.local",
		Args:    flags.Exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.plan(cmd.Context()) },
	}
	o.bindSite(cmd, func(fl *pflag.FlagSet) {
		fl.StringVar(&o.principal, "principal", "", "`NAME@DOMAIN` of the account to plan for (default: the one that logs in)")
		fl.BoolVar(&o.folders, "vm-folders", true, "the role for VMs on their folders, propagating, rather than on each VM")
	})
	o.outputFlags.bind(cmd, govc, powercli)
	return cmd
}

func newUsersVerifyCommand(a *app) *cobra.Command {
	o := &usersOptions{app: a}
	cmd := &cobra.Command{
		Use: "verify", Short: "Ask the vCenters what the account lacks, and has too much; see check",
		Long: `Asks each vCenter which privileges the account of the configuration has in effect,
through groups and inheritance too, and names what is missing and what is more than the
drivers need, with the objects. What is missing is looked for on every object; what is
too much, on the first 200.`,
		Args: flags.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.verify(cmd.Context()) },
	}
	o.bindSite(cmd, func(*pflag.FlagSet) {})
	o.outputFlags.bind(cmd)
	return cmd
}

// asked is what was found of one vCenter.
type asked struct {
	found    preflight.VCenter
	access   vcenter.Access
	features privileges.Features
}

// access asks each vCenter. One that cannot be asked is a fault beside what the others
// answered; one that is named and not known is a fault of all.
func (o *usersOptions) access(ctx context.Context) (out []asked, failed error) {
	if err := o.effective(true); err != nil {
		return nil, err
	}
	if o.principal != "" && !render.QualifiedAccount(o.principal) {
		return nil, flags.Bad("--principal", o.principal, errors.New("it has no domain, or characters that the drivers do not accept"), "write NAME@DOMAIN, such as drivers@vsphere.local")
	}
	s, state, err := o.configuration(ctx, o.siteFlags, false)
	if err != nil {
		return nil, err
	}
	if err := s.unresolved(); err != nil { // roles of the rest might take away what is needed
		return nil, fault.Join(err, state.Err)
	}
	errs := []error{state.Err}
	s.preferAsked = o.username != ""
	if s.preferAsked {
		if err := o.asks(o.app, &s); err != nil {
			return nil, err
		}
	}
	for _, v := range s.vcenters {
		a, err := o.accessAt(ctx, &s, v, state.Nodes)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, a)
	}
	if len(out) == len(s.vcenters) {
		o.warn(state.Nodes, out)
	}
	return out, fault.Join(errs...)
}

// accessAt asks one vCenter.
func (o *usersOptions) accessAt(ctx context.Context, s *site, v configured, nodes []preflight.Node) (asked, error) {
	target, err := s.target(ctx, v)
	if err != nil {
		return asked{}, err
	}
	a := asked{features: o.features(s, v)}
	a.found, a.access = vcenter.InspectAccess(ctx, target, vcenter.Ask{Nodes: nodes, Features: a.features}, o.principal)
	a.found.Name, a.found.Server = v.Name, strings.TrimSuffix(target.Address(), ":443")
	return a, a.found.Err
}

// features are those that an account needs privileges for in a vCenter.
func (o *usersOptions) features(s *site, v configured) privileges.Features {
	f := s.wants.FeaturesAt(v.Use)
	f.Encryption = f.Encryption || o.encryption && f.Block
	return f
}

func (o *usersOptions) plan(ctx context.Context) error {
	list, failed := o.access(ctx)
	plans := make([]usersPlan, 0, len(list))
	for i := range list {
		a := &list[i]
		plans = append(plans, usersPlan{VCenter: a.found.Name, Server: a.found.Server, Plan: o.planOf(a)})
		if err := a.noDatastore(); err != nil {
			o.warning(err)
		}
	}
	if len(plans) == 0 && failed != nil {
		return failed
	}
	write := func(w io.Writer) error { return o.planText(w, plans) }
	switch o.format {
	case govc:
		write = func(w io.Writer) error { return govcScript(w, plans) }
	case powercli:
		write = func(w io.Writer) error { return powercliScript(w, plans) }
	}
	return fault.Join(failed, o.print(o.out, plans, write))
}

// planOf is what an account needs in a vCenter.
func (o *usersOptions) planOf(a *asked) privileges.Plan {
	objects := a.access.Objects
	if o.folders {
		objects = inFolders(objects)
	}
	return privileges.NewPlan(a.features, a.access.Principal, objects, o.folders, a.access.Existing)
}

// inFolders puts folders in the place of VMs. A VM that is in none stays.
func inFolders(objects []privileges.Object) []privileges.Object {
	byPath := map[string]privileges.Object{}
	for _, x := range objects {
		byPath[x.Path] = x
	}
	var out []privileges.Object
	for _, x := range objects {
		folder, ok := byPath[x.Path[:strings.LastIndex(x.Path, "/")]]
		if x.Kind == privileges.VM && ok {
			x = privileges.Object{Kind: privileges.VM, Path: folder.Path, ID: folder.ID}
		}
		out = append(out, x)
	}
	return out
}

// maxShown is how many permissions of one role, or objects, the text shows.
const maxShown = 10

func (o *usersOptions) planText(w io.Writer, plans []usersPlan) error {
	l := &lines{w: w}
	for i, p := range plans {
		if i > 0 {
			l.printf("")
		}
		l.printf("%s (%s), account %s\n", o.paint(bold, p.VCenter), p.Server, p.Principal)
		roles := command.NewTable("ROLE", "STATE", "PRIVILEGES")
		for _, r := range p.Roles {
			roles.Row(r.Name, r.State, strings.Join(r.Privileges, " ")+difference(r))
		}
		permissions := command.NewTable("ON", "ROLE", "PROPAGATE", "STATE")
		for _, x := range shownPermissions(p.Permissions) {
			permissions.Row(x...)
		}
		l.err = cmp.Or(l.err, roles.Write(w))
		l.printf("")
		l.err = cmp.Or(l.err, permissions.Write(w))
		if lost := p.lost(); lost != "" {
			l.printf("%s: %s", o.paint(yellow, "warning"), lost)
		}
		for _, path := range slices.Sorted(maps.Keys(p.NotNeeded)) {
			l.printf("not needed: %s on %s", p.NotNeeded[path].Role, path)
		}
	}
	return l.err
}

// lost warns of what the account has beyond the plan, where the plan takes that away; "" for
// nothing.
func (p *usersPlan) lost() string {
	cut := slices.DeleteFunc(slices.Clone(p.Permissions), func(x privileges.PlannedPermission) bool { return len(x.Loses) == 0 })
	if len(cut) == 0 {
		return ""
	}
	return fmt.Sprintf("account %s has more than the drivers need, and would lose %s; plan for an account of the drivers alone: --principal NAME@DOMAIN", p.Principal, privileges.Losses(cut))
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

// shownPermissions are the rows of the first permissions of each role and state, and how
// many more there are.
func shownPermissions(list []privileges.PlannedPermission) [][]any {
	type kind struct {
		role  string
		state privileges.State
	}
	count := map[kind]int{}
	var out [][]any
	for _, x := range list {
		k := kind{x.Role, x.State}
		if count[k]++; count[k] > maxShown {
			continue
		}
		state := string(x.State)
		if x.Has != nil {
			state += ", has " + x.Has.Role
		}
		if n := len(x.Loses); n > 0 {
			state += fmt.Sprintf(", loses %d privileges", n)
		}
		out = append(out, []any{x.Path, x.Role, x.Propagate, state})
	}
	for k, n := range count {
		if n > maxShown {
			out = append(out, []any{fmt.Sprintf("and %d more", n-maxShown), k.role, "", string(k.state)})
		}
	}
	return out
}

func (o *usersOptions) verify(ctx context.Context) error {
	list, failed := o.access(ctx)
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
	if err := fault.Join(failed, o.print(o.out, out, func(w io.Writer) error { return o.verifyText(w, out) })); err != nil {
		return err
	}
	if missing {
		return &resultError{code: command.ExitRefused}
	}
	return nil
}

func verified(a *asked) usersVerification {
	v := usersVerification{VCenter: a.found.Name, Server: a.found.Server, Principal: a.access.Principal, Missing: []privilegesOn{}, TooMuch: []privilegesOn{}}
	for _, l := range a.found.Lacking {
		v.Missing = addTo(v.Missing, l.Privileges, l.Object)
	}
	if len(a.found.Datastores) > 0 && a.features.Block && !slices.ContainsFunc(a.found.Datastores, func(d preflight.Datastore) bool { return d.MayHold }) {
		v.Missing = addTo(v.Missing, privileges.Needed(a.features, privileges.Datastore), "any datastore")
	}
	for _, object := range a.access.Objects {
		has, known := a.access.Effective[object.Path]
		if _, tooMuch := privileges.Compare(has, neededOn(a, object.Path)); known && len(tooMuch) > 0 {
			v.TooMuch = addTo(v.TooMuch, tooMuch, object.Path)
			delete(a.access.Effective, object.Path) // an object may be of two kinds
		}
	}
	for _, m := range slices.Concat(v.Missing, v.TooMuch) {
		slices.Sort(m.Objects)
	}
	return v
}

// neededOn are the privileges that an object needs, of whatever kinds it is; a folder those for its VMs.
func neededOn(a *asked, path string) []string {
	var out []string
	for _, x := range a.access.Objects {
		folder := x.Path[:strings.LastIndex(x.Path, "/")]
		if x.Path == path || x.Kind == privileges.VM && folder == path {
			out = append(out, privileges.Needed(a.features, x.Kind)...)
		}
	}
	return out
}

// addTo notes an object with the others that have the same privileges.
func addTo(list []privilegesOn, privileges []string, object string) []privilegesOn {
	for i := range list {
		if slices.Equal(list[i].Privileges, privileges) {
			list[i].Objects = append(list[i].Objects, object)
			return list
		}
	}
	return append(list, privilegesOn{Privileges: privileges, Objects: []string{object}})
}

func (o *usersOptions) verifyText(w io.Writer, list []usersVerification) error {
	l := &lines{w: w}
	for _, v := range list {
		l.printf("%s (%s), account %s", o.paint(bold, v.VCenter), v.Server, v.Principal)
		for _, m := range v.Missing {
			l.printf("  %s  %s on %s", o.paint(red, "missing "), shortList(m.Privileges), shortList(m.Objects))
		}
		for _, m := range v.TooMuch {
			l.printf("  %s  %s on %s", o.paint(yellow, "too much"), shortList(m.Privileges), shortList(m.Objects))
		}
		if len(v.Missing)+len(v.TooMuch) == 0 {
			l.printf("  %s, and no more than that", o.paint(green, "has what the drivers need"))
		}
	}
	return l.err
}

func shortList(list []string) string {
	text := strings.Join(list[:min(len(list), maxShown)], ", ")
	if more := len(list) - maxShown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
