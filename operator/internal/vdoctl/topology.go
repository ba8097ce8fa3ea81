package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/flags"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/topology"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

type tagReport struct {
	VCenter  string          `json:"vcenter"`
	DryRun   bool            `json:"dryRun,omitempty"`
	Steps    []topology.Step `json:"steps"`
	Problems []string        `json:"problems,omitempty"`
	Notes    []string        `json:"notes,omitempty"`
}

type topologyOptions struct {
	*app
	siteFlags
	consentFlags

	vcenter string
	attach  []string
	replace bool
	use     *tagUse
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

// tag plans the steps for a vCenter, shows them, and executes them; if a part is impossible, none.
func (o *topologyOptions) tag(ctx context.Context) error {
	s, want, err := o.tagSite(ctx)
	if err != nil {
		return err
	}
	v, categories := s.vcenters[0], s.wants.AllCategories()
	about := func(configured) vcenter.Ask {
		return vcenter.Ask{Nodes: o.use.cluster.Nodes, Categories: categories}
	}
	found := s.ask(ctx, about)[0]
	if err := fault.Join(found.Err, found.Failed[preflight.Tags]); err != nil {
		return err
	}
	r, err := o.planTags(&found, v.config.Spec.DatacenterNames(), categories, want)
	if err != nil || len(r.Steps) == 0 || o.dryRun {
		return err
	}
	changes := command.Plural(len(r.Steps), "change", "changes")
	question := fmt.Sprintf("Apply %s to vCenter %s%s?", changes, v.Name, o.cluster.named())
	if err := o.consent(ctx, o.consentFlags, question); err != nil {
		return err
	}
	admin, _, err := s.open(ctx, v)
	if err != nil {
		return err
	}
	defer admin.Close()
	for _, s := range r.Steps {
		if err := admin.ChangeTags(ctx, &found, s); err != nil {
			return err
		}
	}
	if o.file == "" {
		err = command.Say(o.err, "The operator checks again at its next interval. At once: `kubectl -n %s annotate vdoconfigs "+
			"--all --overwrite %s=$(date +%%s)`", o.cluster.namespace, v1alpha1.AnnotationRequestedAt)
	}
	return err
}

// tagSite returns the configuration, with the vCenter to tag, and the requested tags.
func (o *topologyOptions) tagSite(ctx context.Context) (site, []topology.Assignment, error) {
	var want []topology.Assignment
	for _, text := range o.attach {
		a, err := topology.ParseAssignment(text)
		if err != nil {
			return site{}, nil, flags.Bad("--attach", text, err, "such as k8s-zone:a=/dc-1/host/cluster-a")
		}
		want = append(want, a)
	}
	s, state, err := o.asAdmin(ctx, o.app, "tags", o.noCluster)
	if err != nil {
		return s, nil, err
	}
	if o.use, err = o.tagUse(ctx, state); err != nil {
		return s, nil, err
	}
	if o.vcenter != "" {
		s.vcenters = slices.DeleteFunc(s.vcenters, func(v configured) bool { return v.Name != o.vcenter })
	}
	categories := s.wants.AllCategories()
	switch {
	case len(s.vcenters) == 0:
		err = flags.Bad("--vcenter", o.vcenter, errors.New("no VsphereCloudConfig of the configuration has this name"), "see `kubectl get vspherecloudconfigs`")
	case len(s.vcenters) > 1:
		err = fmt.Errorf("the configuration has %d vCenters", len(s.vcenters))
		err = flags.Bad("--vcenter", "", err, "say in which: --vcenter NAME")
	case len(categories) == 0:
		err = &fault.Error{Reason: fault.NotFound, Op: "read the configuration", Err: errors.New("it names no tag categories"), Hint: "name them with `vdoctl configure --region-category CATEGORY --zone-category CATEGORY`"}
	}
	for _, a := range want {
		if err == nil && !slices.Contains(categories, a.Category) {
			err = flags.Bad("--attach", a.Category, errors.New("the configuration does not name this category"), "the categories are "+strings.Join(categories, ", "))
		}
	}
	return s, want, err
}

// planTags plans and shows the steps. An impossible assignment is an error.
func (o *topologyOptions) planTags(
	found *preflight.VCenter, datacenters, categories []string, want []topology.Assignment,
) (tagReport, error) {
	r := tagReport{VCenter: found.Name, DryRun: o.dryRun, Steps: []topology.Step{}}
	paths := make([]string, len(want))
	for i, a := range want {
		paths[i] = a.Path
	}
	steps, problems, notes := topology.Plan(categories, want, vcenter.TagsAt(found, paths), o.replace)
	if err := o.use.refuse(*found, steps); err != nil {
		return r, err
	}
	if len(problems) == 0 { // otherwise nothing is done
		r.Steps = append(r.Steps, steps...)
	}
	r.Notes = slices.Concat(notes, outside(paths, datacenters))
	var errs []error
	for _, p := range problems {
		r.Problems = append(r.Problems, p.Text)
		errs = append(errs, problemIn(found.Name, p))
	}
	return r, fault.Join(append(errs, o.print([]tagReport{r}, func(l *lines) { tagText(l, r) }))...)
}

// outside returns a note for each path that is neither in one of the configured datacenters nor a folder of one.
func outside(paths, datacenters []string) (notes []string) {
	for _, p := range paths {
		in := func(name string) bool {
			d := "/" + strings.Trim(name, "/") + "/"
			return strings.HasPrefix(p+"/", d) || strings.HasPrefix(d, strings.TrimSuffix(p, "/")+"/")
		}
		if len(datacenters) > 0 && !slices.ContainsFunc(datacenters, in) {
			notes = append(notes, p+" is outside of the configured datacenters: the drivers do not use it")
		}
	}
	return notes
}

func tagText(l *lines, r tagReport) {
	if len(r.Steps) == 0 && len(r.Problems) == 0 {
		l.printf("%s: nothing to do", r.VCenter)
	}
	for _, s := range r.Steps {
		l.printf("%s: %s", r.VCenter, s)
	}
	for _, n := range r.Notes {
		l.printf("%s: note: %s", r.VCenter, n)
	}
	if r.DryRun {
		l.printf("Nothing was changed: --dry-run.")
	}
}

// tagUse is the cluster's use of tags: nodes by their labels, and volumes by the node affinity of their
// PersistentVolumes, which is immutable.
type tagUse struct {
	cluster preflight.Cluster
	labels  map[string][]label // by node or PersistentVolume
}

type label struct{ key, value string }

// is reports whether a label comes from a tag. Drivers write labels without the category for the cloud provider's
// tags, and if labels are configured for the storage driver.
func (l label) is(t preflight.Category) bool {
	category, own := strings.CutPrefix(l.key, "topology.csi.vmware.com/")
	return l.value == t.Tag && (own && category == t.Name || !own && preflight.IsZoneLabel(l.key))
}

// refuse returns why steps are not allowed: nodes or volumes use an affected tag. The steps detach it, or it is above
// or below an object with another new tag of the category. Drivers differ in which of those two they use.
func (u *tagUse) refuse(v preflight.VCenter, steps []topology.Step) error {
	lost := map[preflight.Category]bool{}
	for _, s := range steps {
		switch s.Do {
		case topology.Detach:
			lost[preflight.Category{Name: s.Category, Tag: s.Tag}] = true
		case topology.Attach:
			for object, tags := range v.Tagged {
				if !v.HasHosts(object) {
					continue // a VM, its groups, or storage: their tags define no zone
				}
				path := v.Path(object)
				for _, t := range tags {
					nested := strings.HasPrefix(path+"/", s.Path+"/") || strings.HasPrefix(s.Path+"/", path+"/")
					lost[t] = lost[t] || nested && t.Name == s.Category && t.Tag != s.Tag
				}
			}
		}
	}
	var errs []error
	for tag, gone := range lost {
		if gone && u.cluster.Err != nil {
			return &fault.Error{Reason: fault.ReasonOf(u.cluster.Err), Op: "move a zone in", Subject: v.Name,
				Err:  fmt.Errorf("the cluster does not say whether nodes or volumes use its tags: %w", u.cluster.Err),
				Hint: "name the cluster with --kubeconfig and --context; before there is one, add --no-cluster"}
		}
		if used := u.users(tag); gone && len(used) > 0 {
			errs = append(errs, &fault.Error{Reason: fault.Refused, Op: "move a zone in", Subject: v.Name,
				Err:  fmt.Errorf("the tag %s of %s is used by %s", tag.Tag, tag.Name, firstOf(used)),
				Hint: "move the data of these volumes and delete these nodes before you change the tag"})
		}
	}
	return fault.Join(errs...)
}

func (u *tagUse) users(tag preflight.Category) (out []string) {
	for name, labels := range u.labels {
		if slices.ContainsFunc(labels, func(l label) bool { return l.is(tag) }) {
			out = append(out, name)
		}
	}
	return slices.Sorted(slices.Values(out))
}

func tagUseOf(cluster preflight.Cluster) *tagUse {
	u := &tagUse{cluster: cluster, labels: map[string][]label{}}
	for i := range cluster.Nodes {
		name := "node " + cluster.Nodes[i].Name
		for key, value := range cluster.Nodes[i].Zones {
			u.labels[name] = append(u.labels[name], label{key, value})
		}
	}
	return u
}

func (o *topologyOptions) tagUse(ctx context.Context, state preflight.Cluster) (*tagUse, error) {
	u := tagUseOf(state)
	c, err := o.cluster.client()
	if o.noCluster || state.Err != nil || err != nil {
		return u, nil //nolint:nilerr // state has it, and it matters only where a tag is taken off
	}
	return u, eachVolume(ctx, c, func(pv *corev1.PersistentVolume) {
		name, affinity := "PersistentVolume "+pv.Name, ptr.Deref(pv.Spec.NodeAffinity, corev1.VolumeNodeAffinity{})
		for _, term := range ptr.Deref(affinity.Required, corev1.NodeSelector{}).NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				for _, v := range e.Values {
					u.labels[name] = append(u.labels[name], label{e.Key, v})
				}
			}
		}
	})
}
