package vdoctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

type topologyOptions struct {
	*app
	siteFlags
	consentFlags

	vcenter string
	attach  []string
	replace bool
}

func newTopologyCheckCommand(a *app) *cobra.Command {
	ids := func(id preflight.ID) bool { return slices.Contains(topologyChecks, id) }
	cmd, _ := newPartCommand(a, "Check regions and zones", ids)
	return cmd
}

func newTopologyTagCommand(a *app) *cobra.Command {
	o := &topologyOptions{app: a}
	cmd := runs(func(ctx context.Context) error { return o.hints(o.tag(ctx)) }, &cobra.Command{
		Use: "tag", Short: "Create and attach the tags of regions and zones",
		Long: `Creates the configuration's tag categories and the tags that --attach names in a vCenter, and
attaches the tags to datacenters, folders, clusters or hosts. Only --replace detaches another
tag of the same category. A tag that a node or a PersistentVolume uses stays, and no tag of its
category is attached above or below it.
` + adminHelp,
		Example: "  vdoctl topology tag --username administrator@vsphere.local --dry-run\n" +
			"  vdoctl topology tag --username administrator@vsphere.local --attach k8s-region:north=/dc-1 --attach k8s-zone:a=/dc-1/host/cluster-a",
	})
	flags.Group(cmd, flags.Selection, func(fl *pflag.FlagSet) {
		o.siteFlags.bind(fl)
		fl.Lookup("username").Usage = "`NAME@DOMAIN` of who may change tags"
		fl.StringVar(&o.vcenter, "vcenter", "", "`NAME` of the VsphereCloudConfig of the vCenter to tag in; needed where there are several")
		fl.StringArrayVar(&o.attach, "attach", nil, "`CATEGORY:TAG=PATH`: the tag that the object at the inventory path is to have; may be repeated")
		fl.BoolVar(&o.replace, "replace", false, "take another tag of the same category off the object")
	})
	o.bindFormat(cmd)
	o.consentFlags.bind(cmd)
	return cmd
}

var topologyChecks = []preflight.ID{"topology-category", "topology-tag", "topology-vcenters", "node-registered", "datastore-shared", "vcenter-connection", "vcenter-account"}

// tag plans the steps for a vCenter, shows them, and executes them; if a part is impossible, none.
func (o *topologyOptions) tag(ctx context.Context) error {
	want, err := assignments(o.attach)
	if err != nil {
		return err
	}
	s, cluster, err := o.asAdmin(ctx, o.app, "tags", o.noCluster)
	if err == nil {
		err = o.chosen(&s, want)
	}
	if err != nil {
		return err
	}
	v, categories := s.vcenters[0], s.wants.AllCategories()
	about := func(configured) vcenter.Ask { return vcenter.Ask{Categories: categories} }
	found := s.ask(ctx, about)[0]
	if err := fault.Join(found.Err, found.Failed[preflight.Tags]); err != nil {
		return err
	}
	p := planTags(&found, categories, want, o.replace)
	c, _ := o.cluster.client() // the cluster that was read
	if err := p.movesUsed(ctx, c, cluster); err != nil {
		return err
	}
	p.DryRun, p.Notes = o.dryRun, append(p.Notes, outside(want, v.config.Spec.DatacenterNames())...)
	err = fault.Join(p.wrong, o.print([]*tagPlan{p}, p.text))
	if err != nil || len(p.Steps) == 0 || o.dryRun {
		return err
	}
	changes := command.Plural(len(p.Steps), "change", "changes")
	question := fmt.Sprintf("Apply %s to vCenter %s%s?", changes, v.Name, o.cluster.named())
	if err := o.consent(ctx, o.consentFlags, question); err != nil {
		return err
	}
	admin, _, err := s.open(ctx, v)
	if err != nil {
		return err
	}
	defer admin.Close()
	for _, step := range p.Steps {
		if err := admin.ChangeTags(ctx, step); err != nil {
			return err
		}
	}
	if o.file == "" {
		err = command.Say(o.err, "The operator checks again at its next interval. At once: `kubectl -n %s annotate vdoconfigs "+
			"--all --overwrite %s=$(date +%%s)`", o.cluster.namespace, v1alpha1.AnnotationRequestedAt)
	}
	return err
}

// assignment is a tag that the object at an inventory path has to have.
type assignment struct{ category, tag, path string }

// assignments parses CATEGORY:TAG=PATH, and returns each assignment once, by category and path.
func assignments(attach []string) (out []assignment, _ error) {
	for _, text := range attach {
		name, path, ok := strings.Cut(text, "=")
		category, tag, ok2 := strings.Cut(name, ":")
		a := assignment{strings.TrimSpace(category), strings.TrimSpace(tag), strings.TrimSpace(path)}
		err := preflight.ZoneLabel(a.tag)
		switch {
		case !ok || !ok2 || a.category == "" || a.tag == "" || a.path == "":
			err = errors.New("it is not of the form CATEGORY:TAG=PATH")
		case !strings.HasPrefix(a.path, "/"):
			err = fmt.Errorf("%q is not an inventory path: it begins with /", a.path)
		}
		if err != nil {
			return nil, flags.Bad("--attach", text, err, "such as k8s-zone:a=/dc-1/host/cluster-a")
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b assignment) int {
		return cmp.Or(cmp.Compare(a.category, b.category), cmp.Compare(a.path, b.path), cmp.Compare(a.tag, b.tag))
	})
	return slices.Compact(out), nil
}

// chosen reduces a configuration to the vCenter to tag in.
func (o *topologyOptions) chosen(s *site, want []assignment) (err error) {
	if o.vcenter != "" {
		s.vcenters = slices.DeleteFunc(s.vcenters, func(v configured) bool { return v.Name != o.vcenter })
	}
	categories := s.wants.AllCategories()
	switch {
	case len(s.vcenters) == 0:
		return flags.Bad("--vcenter", o.vcenter, errors.New("no VsphereCloudConfig of the configuration has this name"), "see `kubectl get vspherecloudconfigs`")
	case len(s.vcenters) > 1:
		err = fmt.Errorf("the configuration has %d vCenters", len(s.vcenters))
		return flags.Bad("--vcenter", "", err, "say in which: --vcenter NAME")
	case len(categories) == 0:
		return &fault.Error{Reason: fault.NotFound, Op: "read the configuration", Err: errors.New("it names no tag categories"), Hint: "name them with `vdoctl configure --region-category CATEGORY --zone-category CATEGORY`"}
	}
	for _, a := range want {
		if !slices.Contains(categories, a.category) {
			return flags.Bad("--attach", a.category, errors.New("the configuration does not name this category"), "the categories are "+strings.Join(categories, ", "))
		}
	}
	return nil
}

// tagPlan is what a vCenter lacks of requested tags.
type tagPlan struct {
	VCenter  string            `json:"vcenter"`
	DryRun   bool              `json:"dryRun,omitempty"`
	Steps    []vcenter.TagStep `json:"steps"` // none if an assignment is impossible
	Problems []string          `json:"problems,omitempty"`
	Notes    []string          `json:"notes,omitempty"`

	wrong error                                  // the impossible assignments
	moved map[preflight.Category]map[string]bool // tags that objects lose, with the nodes and volumes that use them
}

// planTags computes the steps that create the categories and tag the objects. A driver walks up from a host, and a tag
// on a higher object replaces a lower one. Each vCenter needs each category: without one the storage driver's
// controller ends.
func planTags(v *preflight.VCenter, categories []string, want []assignment, replace bool) *tagPlan {
	p := &tagPlan{VCenter: v.Name, Steps: []vcenter.TagStep{}, moved: map[preflight.Category]map[string]bool{}}
	for _, name := range categories {
		switch now, ok := v.Categories[name]; {
		case !ok:
			step := vcenter.TagStep{Do: vcenter.MakeCategory, Category: name, Types: preflight.ZoneTypes()}
			p.Steps = append(p.Steps, step)
		case !now.Single:
			p.Notes = append(p.Notes, "category "+name+" allows an object several tags, of which a driver takes any one, "+
				"and that cannot be changed: see that no object has two")
		}
	}
	var errs []error
	for i, a := range want {
		if i > 0 && want[i-1].category == a.category && want[i-1].path == a.path {
			errs = append(errs, fault.Errorf(fault.Refused, "tag in", v.Name, wrongAttach,
				"%s is given two tags of %s: %s and %s", a.path, a.category, want[i-1].tag, a.tag))
			continue
		}
		errs = append(errs, p.assign(v, a, replace))
	}
	if p.wrong = fault.Distinct(fault.Join(errs...)); p.wrong != nil {
		p.Steps = []vcenter.TagStep{}
	}
	for _, err := range fault.All(p.wrong) {
		p.Problems = append(p.Problems, err.Err.Error())
	}
	return p
}

const wrongAttach = "correct --attach"

// assign adds the steps for an assignment, or returns why it is impossible.
func (p *tagPlan) assign(v *preflight.VCenter, a assignment, replace bool) error {
	on, ok := v.At(a.path)
	kind, category := on.Type, v.Categories[a.category]
	if kind == "Folder" && !v.HasHosts(on) {
		kind = "folder without hosts"
	}
	isKind := func(t string) bool { return strings.TrimPrefix(t, preflight.TypeNamespace) == kind }
	var has []string
	for _, t := range v.Tagged[on] {
		if t.Name == a.category {
			has = append(has, t.Tag)
		}
	}
	others := slices.DeleteFunc(slices.Clone(has), func(t string) bool { return t == a.tag })
	switch {
	case !ok:
		return fault.Errorf(fault.NotFound, "tag in", v.Name,
			"correct the path in --attach, as the vCenter's inventory has it", "there is no object %s", a.path)
	case !slices.Contains(preflight.ZoneTypes(), kind):
		return fault.Errorf(fault.Refused, "tag in", v.Name, wrongAttach,
			"%s is a %s: tags of zones are on a datacenter, folder, cluster or host", a.path, kind)
	case len(category.Types) > 0 && !slices.ContainsFunc(category.Types, isKind):
		return fault.Errorf(fault.Refused, "tag in", v.Name, wrongAttach,
			"category %s is not for a %s, as %s is one: associate it with that kind of object first", a.category, kind, a.path)
	case len(others) > 0 && !replace:
		return fault.Errorf(fault.Refused, "tag in", v.Name, wrongAttach+", or add --replace",
			"%s has the tag %s of %s, not %s: --replace takes it off", a.path, strings.Join(others, ", "), a.category, a.tag)
	}
	step := vcenter.TagStep{Do: vcenter.MakeTag, Category: a.category, Tag: a.tag}
	isMade := func(s vcenter.TagStep) bool { return s.String() == step.String() }
	if !slices.Contains(category.Tags, a.tag) && !slices.ContainsFunc(p.Steps, isMade) {
		p.Steps = append(p.Steps, step)
	}
	step.Path, step.On = a.path, on
	for _, t := range others {
		step.Do, step.Tag = vcenter.DetachTag, t
		p.Steps = append(p.Steps, step)
		p.moved[preflight.Category{Name: a.category, Tag: t}] = map[string]bool{}
	}
	if !slices.Contains(has, a.tag) {
		step.Do, step.Tag = vcenter.AttachTag, a.tag
		p.Steps = append(p.Steps, step)
		p.overrules(v, on, a)
	}
	return nil
}

// overrules notes the other tags of the category above and below a new one: drivers differ in which of two they use.
func (p *tagPlan) overrules(v *preflight.VCenter, on preflight.Ref, a assignment) {
	for object, tags := range v.Tagged {
		isNested := slices.Contains(v.Ancestors(object), on) || slices.Contains(v.Ancestors(on), object)
		if !isNested || !v.HasHosts(object) {
			continue // a VM, its groups, or storage: their tags define no zone
		}
		for _, t := range tags {
			if t.Name == a.category && t.Tag != a.tag {
				p.moved[t] = map[string]bool{}
			}
		}
	}
}

// outside returns a note for each path that is neither in one of the configured datacenters nor a folder of one.
func outside(want []assignment, datacenters []string) (notes []string) {
	for _, a := range want {
		in := func(name string) bool {
			d := "/" + strings.Trim(name, "/") + "/"
			return strings.HasPrefix(a.path+"/", d) || strings.HasPrefix(d, strings.TrimSuffix(a.path, "/")+"/")
		}
		if len(datacenters) > 0 && !slices.ContainsFunc(datacenters, in) {
			notes = append(notes, a.path+" is outside of the configured datacenters: the drivers do not use it")
		}
	}
	return notes
}

func (p *tagPlan) text(l *lines) {
	if len(p.Steps) == 0 && len(p.Problems) == 0 {
		l.printf("%s: nothing to do", p.VCenter)
	}
	for _, s := range p.Steps {
		l.printf("%s: %s", p.VCenter, s)
	}
	for _, n := range p.Notes {
		l.printf("%s: note: %s", p.VCenter, n)
	}
	if p.DryRun {
		l.printf("Nothing was changed: --dry-run.")
	}
}

// movesUsed refuses a plan that moves a tag in use. Nodes use it by their labels, volumes by the immutable node
// affinity of their PersistentVolumes.
func (p *tagPlan) movesUsed(ctx context.Context, c client.Reader, cluster preflight.Cluster) error {
	switch {
	case len(p.moved) == 0:
		return nil
	case cluster.Err != nil:
		return &fault.Error{Reason: fault.ReasonOf(cluster.Err), Op: "move a zone in", Subject: p.VCenter,
			Err:  fmt.Errorf("the cluster does not say whether nodes or volumes use its tags: %w", cluster.Err),
			Hint: "name the cluster with --kubeconfig and --context; before there is one, add --no-cluster"}
	case !cluster.Skipped:
		if err := eachVolume(ctx, c, p.usedByVolume); err != nil {
			return err
		}
	}
	for i := range cluster.Nodes {
		for key, value := range cluster.Nodes[i].Zones {
			p.used("node "+cluster.Nodes[i].Name, key, value)
		}
	}
	var errs []error
	for tag, by := range p.moved {
		if len(by) > 0 {
			errs = append(errs, fault.Errorf(fault.Refused, "move a zone in", p.VCenter,
				"move the data of these volumes and delete these nodes before you change the tag",
				"the tag %s of %s is used by %s", tag.Tag, tag.Name, firstOf(slices.Sorted(maps.Keys(by)))))
		}
	}
	return fault.Join(errs...)
}

func (p *tagPlan) usedByVolume(pv *corev1.PersistentVolume) {
	affinity := ptr.Deref(pv.Spec.NodeAffinity, corev1.VolumeNodeAffinity{})
	for _, term := range ptr.Deref(affinity.Required, corev1.NodeSelector{}).NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			for _, v := range e.Values {
				p.used("PersistentVolume "+pv.Name, e.Key, v)
			}
		}
	}
}

// used notes who uses a moved tag by a label. Drivers write labels without the category for the cloud provider's tags,
// and if labels are configured for the storage driver.
func (p *tagPlan) used(by, key, value string) {
	category, own := strings.CutPrefix(key, "topology.csi.vmware.com/")
	for t, users := range p.moved {
		if value == t.Tag && (own && category == t.Name || !own && preflight.IsZoneLabel(key)) {
			users[by] = true
		}
	}
}
