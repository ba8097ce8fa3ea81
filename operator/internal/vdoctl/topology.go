package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/topology"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// tagReport is what topology tag prints of one vCenter.
type tagReport struct {
	VCenter  string          `json:"vcenter"`
	DryRun   bool            `json:"dryRun,omitempty"`
	Steps    []topology.Step `json:"steps"`
	Problems []string        `json:"problems,omitempty"`
	Notes    []string        `json:"notes,omitempty"`
}

type topologyOptions struct {
	*app
	outputFlags
	siteFlags
	consentFlags

	vcenter   string
	attach    []string
	replace   bool
	noCluster bool
	use       *tagUse
}

func newTopologyCommand(a *app) *cobra.Command {
	return groupOf("topology", "Check and tag regions and zones", newTopologyCheckCommand(a), newTopologyTagCommand(a))
}

func newTopologyCheckCommand(a *app) *cobra.Command {
	o := &topologyOptions{app: a}
	cmd := &cobra.Command{
		Use: "check", Short: "Show each node's region and zone, and each zone's datastores; see check",
		Long: `Shows for each node which tags of the configured categories it gets, from which object
that its VM's host is in, which other tags further up are overruled by that, and which
datastores all hosts of a zone have in common. Checks what preflight checks of topology.
Nothing is changed.`,
		Args: flags.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.check(cmd.Context()) },
	}
	flags.Group(cmd, flags.Selection, o.siteFlags.bind)
	o.outputFlags.bind(cmd)
	return cmd
}

func newTopologyTagCommand(a *app) *cobra.Command {
	o := &topologyOptions{app: a}
	cmd := &cobra.Command{
		Use: "tag", Short: "Make the tag categories and tags of regions and zones, and attach them",
		Long: `Makes the tag categories of the configuration in each vCenter that lacks them, the tags
that --attach names, and attaches those to datacenters, folders, clusters or hosts. What
is there is left as it is, so that it can be run again. A tag of the same category that
an object has is taken off with --replace only. No node loses a tag that it or a
PersistentVolume uses. Other clusters that use the vCenter are not asked.

The vCenters are changed with the login that --username names. Its password comes by
--password-file, ` + passwordEnv + ` or a prompt, is used for this call alone, and is stored
nowhere.`,
		Example: "  vdoctl topology tag --username administrator@vsphere.local --dry-run\n" +
			"  vdoctl topology tag --username administrator@vsphere.local --attach k8s-region:north=/dc-1 --attach k8s-zone:a=/dc-1/host/cluster-a",
		Args: flags.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.tag(cmd.Context()) },
	}
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		o.siteFlags.bind(fl)
		fl.Lookup("username").Usage = "`NAME@DOMAIN` of who may change tags"
		fl.StringVar(&o.vcenter, "vcenter", "", "`NAME` of the VsphereCloudConfig of the one vCenter to tag in (default: all; needed for --attach where there are several)")
		fl.StringArrayVar(&o.attach, "attach", nil, "`CATEGORY:TAG=PATH`: the tag that the object at the inventory path is to have; may be repeated")
		fl.BoolVar(&o.replace, "replace", false, "take another tag of the same category off the object")
		fl.BoolVar(&o.noCluster, "no-cluster", false, "do not ask the cluster which tags are in use; with --from-file")
	})
	o.outputFlags.bind(cmd)
	o.consentFlags.bind(cmd)
	return cmd
}

// topologyChecks are the checks that are about topology.
var topologyChecks = []preflight.ID{"topology-category", "topology-tag", "topology-vcenters", "node-zone-labels", "node-registered", "datastore-shared", "vcenter-connection", "vcenter-account"}

func (o *topologyOptions) check(ctx context.Context) error {
	if err := o.effective(false); err != nil {
		return err
	}
	snapshot, _, err := o.gather(ctx, o.siteFlags, false)
	if err != nil {
		return err
	}
	r := checkReport{Nodes: preflight.Placements(snapshot), Zones: preflight.Zones(snapshot)}
	r.Results = snapshot.Only(preflight.Check(snapshot), func(id preflight.ID) bool { return slices.Contains(topologyChecks, id) })
	r.Verdict = preflight.Worst(r.Results)
	if err := o.print(o.out, r, func(w io.Writer) error { return o.checkText(w, r) }); err != nil {
		return err
	}
	return refused(r.Results)
}

func (o *topologyOptions) checkText(w io.Writer, r checkReport) error {
	nodes := command.NewTable("NODE", "VCENTER", "TAGS", "HOST")
	for _, n := range r.Nodes {
		nodes.Row(n.Node, n.VCenter, levelsText(n.Levels), n.Host)
	}
	l := &lines{w: w}
	if len(r.Nodes) > 0 {
		l.err = nodes.Write(w)
		l.printf("")
	}
	for _, z := range r.Zones {
		name, stores := strings.Join(z.Tags, "/"), strings.Join(z.Datastores, ", ")
		if name == "" {
			name = "all nodes"
		}
		if stores == "" {
			stores = o.paint(red, "none")
		}
		l.printf("%s in %s: %s, shared datastores: %s", o.paint(bold, name), z.VCenter, command.Plural(z.Nodes, "node", "nodes"), stores)
	}
	if len(r.Zones) > 0 {
		l.printf("")
	}
	if l.err != nil {
		return l.err
	}
	return (&checkOptions{app: o.app}).text(w, r)
}

func levelsText(list []preflight.Level) string {
	var levels, overruled []string
	for _, l := range list {
		text := l.Category + ": none"
		if l.Tag != "" {
			text = fmt.Sprintf("%s: %s (on %s)", l.Category, l.Tag, l.On)
		}
		levels = append(levels, text)
		overruled = append(overruled, l.Overruled...)
	}
	text := strings.Join(levels, ", ")
	if len(overruled) > 0 {
		text += "; overruled: " + strings.Join(overruled, ", ")
	}
	return text
}

// problemIn says what is to be done about what cannot be done in a vCenter.
func problemIn(vCenter string, p topology.Problem) error {
	f := &fault.Error{Reason: fault.Refused, Op: "tag in", Subject: vCenter, Err: errors.New(p.Text), Hint: "correct --attach"}
	switch {
	case p.Absent:
		f.Reason, f.Hint = fault.NotFound, "correct the path in --attach, as the vCenter's inventory has it"
	case p.Replaceable:
		f.Hint = "correct --attach, or add --replace"
	}
	return f
}

// tagged is one vCenter that is to be tagged.
type tagged struct {
	report   tagReport
	problems []topology.Problem
	admin    *vcenter.Admin
	tagging  *vcenter.Tagging
}

func (t *tagged) close() {
	if t.tagging != nil {
		t.tagging.Close()
	}
	if t.admin != nil {
		t.admin.Close()
	}
}

// tag plans for all vCenters, shows it, and does it; where a part cannot be done, nothing.
func (o *topologyOptions) tag(ctx context.Context) error {
	s, want, err := o.tagSite(ctx)
	if err != nil {
		return err
	}
	var list []*tagged
	defer func() {
		for _, t := range list {
			t.close()
		}
	}()
	var errs []error
	for _, v := range s.vcenters {
		t, err := o.planTags(ctx, &s, v, want)
		list = append(list, t)
		errs = append(errs, err)
	}
	if err := fault.Join(errs...); err != nil {
		return err
	}
	left, err := o.showTags(list)
	if err != nil || left == 0 || o.dryRun {
		return err
	}
	where := make([]string, len(list))
	for i, t := range list {
		where[i] = t.report.VCenter
	}
	changes := command.Plural(left, "change", "changes")
	question := fmt.Sprintf("Apply %s to vCenter %s%s?", changes, strings.Join(where, ", "), o.cluster.named())
	if err := o.consent(ctx, o.consentFlags, question); err != nil {
		return err
	}
	for _, t := range list {
		errs = append(errs, t.do(ctx))
	}
	return fault.Join(errs...)
}

// showTags prints what is left to do, counts it, and says what cannot be done.
func (o *topologyOptions) showTags(list []*tagged) (left int, err error) {
	reports := make([]tagReport, len(list))
	var errs []error
	for i, t := range list {
		reports[i] = t.report
		left += len(t.report.Steps)
		for _, p := range t.problems {
			errs = append(errs, problemIn(t.report.VCenter, p))
		}
	}
	errs = append(errs, o.print(o.out, reports, func(w io.Writer) error { return tagText(w, reports) }))
	return left, fault.Join(errs...)
}

func (t *tagged) do(ctx context.Context) error {
	for _, s := range t.report.Steps {
		if err := t.tagging.Do(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// tagSite is the configuration, with the vCenters that are to be tagged, and what tags are
// asked for.
func (o *topologyOptions) tagSite(ctx context.Context) (site, []topology.Assignment, error) {
	if o.username == "" {
		return site{}, nil, flags.Bad("--username", "", errors.New("who may change tags is not given"), "give it: --username administrator@vsphere.local")
	}
	var want []topology.Assignment
	for _, text := range o.attach {
		a, err := topology.ParseAssignment(text)
		if err != nil {
			return site{}, nil, flags.Bad("--attach", text, err, "such as k8s-zone:a=/dc-1/host/cluster-a")
		}
		want = append(want, a)
	}
	if o.noCluster && o.file == "" {
		err := errors.New("the configuration is in the cluster")
		return site{}, nil, flags.Bad("--no-cluster", "", err, "add --from-file site.yaml")
	}
	s, state, err := o.configuration(ctx, o.siteFlags, o.noCluster)
	if err != nil {
		return s, nil, err
	}
	if o.use, err = o.tagUse(ctx, &s, state); err != nil {
		return s, nil, err
	}
	s.preferAsked = true
	if err := o.asks(o.app, &s); err != nil {
		return s, nil, err
	}
	if o.vcenter != "" {
		s.vcenters = slices.DeleteFunc(s.vcenters, func(v configured) bool { return v.Name != o.vcenter })
	}
	return s, want, o.taggable(&s, want)
}

// taggable says whether the tags that are asked for fit the configuration.
func (o *topologyOptions) taggable(s *site, want []topology.Assignment) error {
	categories := s.wants.AllCategories()
	switch {
	case len(s.vcenters) == 0:
		return flags.Bad("--vcenter", o.vcenter, errors.New("no VsphereCloudConfig of the configuration has this name"), "see kubectl get vspherecloudconfigs")
	case len(want) > 0 && len(s.vcenters) > 1:
		return flags.Bad("--attach", o.attach[0], fmt.Errorf("the configuration has %d vCenters", len(s.vcenters)), "say in which: --vcenter NAME")
	case len(categories) == 0:
		return &fault.Error{Reason: fault.NotFound, Op: "read the configuration", Err: errors.New("it names no tag categories"), Hint: "name them in the VDOConfig: spec.cloudProvider.topology, spec.storageProvider.topologyCategories"}
	}
	for _, a := range want {
		if !slices.Contains(categories, a.Category) {
			return flags.Bad("--attach", a.Category, errors.New("the configuration does not name this category"), "the categories are "+strings.Join(categories, ", "))
		}
	}
	return nil
}

func (o *topologyOptions) planTags(ctx context.Context, s *site, v configured, want []topology.Assignment) (*tagged, error) {
	t := &tagged{report: tagReport{VCenter: v.Name, DryRun: o.dryRun, Steps: []topology.Step{}}}
	target, err := s.target(ctx, v)
	if err != nil {
		return t, err
	}
	found := vcenter.Inspect(ctx, target, vcenter.Ask{Nodes: o.use.cluster.Nodes, Categories: s.wants.AllCategories()})
	if err := fault.Join(found.Err, found.Failed[preflight.Inventory], found.Failed[preflight.Tags]); err != nil {
		return t, err
	}
	found.Name = v.Name
	if t.admin, err = vcenter.Open(ctx, target); err != nil {
		return t, err
	}
	if t.tagging, err = t.admin.OpenTagging(ctx); err != nil {
		return t, err
	}
	paths := make([]string, len(want))
	for i, a := range want {
		paths[i] = a.Path
	}
	has, err := t.tagging.Existing(ctx, &found, s.wants.AllCategories(), paths)
	if err != nil {
		return t, err
	}
	steps, problems, notes := topology.Plan(s.wants.AllCategories(), want, has, o.replace)
	t.report.Steps, t.report.Notes, t.problems = append(t.report.Steps, steps...), notes, append(t.problems, problems...)
	for _, p := range problems {
		t.report.Problems = append(t.report.Problems, p.Text)
	}
	return t, o.use.refuse(found, steps)
}

func tagText(w io.Writer, list []tagReport) error {
	l := &lines{w: w}
	for _, r := range list {
		if len(r.Steps) == 0 && len(r.Problems) == 0 {
			l.printf("%s: nothing to do", r.VCenter)
		}
		for _, s := range r.Steps {
			l.printf("%s: %s", r.VCenter, s)
		}
		for _, n := range r.Notes {
			l.printf("%s: note: %s", r.VCenter, n)
		}
	}
	return l.err
}
