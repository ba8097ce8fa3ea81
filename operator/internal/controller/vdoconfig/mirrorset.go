package vdoconfig

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// With spec.openShift.mirrorSet Write the operator writes the ImageDigestMirrorSet by which OpenShift's nodes find
// images under upstream's names. Nodes apply an added entry while they run, and are drained for a removed one. So the
// set only grows, stays if no longer requested, and goes with the VDOConfig, after all pods.

// collectOpenShift determines whether the operator configures the nodes, and gates all changes if it should and cannot.
func (p *pass) collectOpenShift(ctx context.Context) error {
	if !p.config.Spec.WritesMirrorSet() {
		return nil
	}
	kind := mirrorset.Digests
	var err error
	p.sets.leads, err = p.Cluster.Serves(schema.GroupKind{Group: kind.Group, Kind: kind.Kind})
	if err != nil {
		return err
	}
	if p.sets.leads {
		return p.collectSets(ctx)
	}
	p.gateAll(fault.Errorf(fault.Refused, "write", kind.Kind+" "+render.MirrorSetName,
		"take spec.openShift.mirrorSet out of the VDOConfig; `vdo-bundle mirror-config` writes what nodes of other runtimes need",
		"the cluster has no %ss: OpenShift has them since 4.13", kind.Kind))
	return nil
}

// mirrorSets are the mirror sets of the cluster.
type mirrorSets struct {
	leads         bool                   // the operator configures OpenShift's nodes by its own set
	own           mirrorset.Entries      // of the operator's own set
	rules, others []preflight.MirrorRule // of all sets, and of foreign ones
	mirrors       *preflight.Mirrors     // of the nodes, if pods use upstream's image names
	lacking       string                 // what nodes do not have yet of the operator's set, "" if they have it
	rolls         bool                   // nodes apply it now
}

// collectSets reads the nodes' mirror configuration: foreign sets and the operator's own. If that is unreadable, the
// set stays unchanged.
func (p *pass) collectSets(ctx context.Context) error {
	rules, err := p.Cluster.MirrorRules(ctx)
	if fault.ReasonOf(err) == fault.Forbidden {
		p.sets.leads = false
		p.gateAll(err)
		return nil
	}
	if err != nil {
		return err
	}
	id := plan.IDOf(render.MirrorSet(nil).Unstructured)
	live, _, err := p.Cluster.Read(ctx, []inventory.ID{id})
	if err != nil {
		return err
	}
	p.sets.rules, p.sets.others = rules, rules
	if set := live[id.Key]; p.isOwn(set) {
		p.sets.own = mirrorset.Union(mirrorset.Read(set.Object, mirrorset.Digests))
		isOwn := func(r preflight.MirrorRule) bool { return r.Set == id.Key.String() }
		p.sets.others = slices.DeleteFunc(slices.Clone(rules), isOwn)
		return p.collectPools(ctx, set)
	}
	return nil
}

// isOwn reports whether an existing set is the operator's: by its record, or by its labels if the records are lost.
func (p *pass) isOwn(set *unstructured.Unstructured) bool {
	if set == nil || own(set, drivers.MirrorSet) != nil {
		return set != nil
	}
	known, recorded := p.facts.inventory.Get(plan.IDOf(set).Key)
	return recorded && plan.Ours(set, known)
}

// ownEntries returns the entries of the operator's set, none if it writes none or pods do not use upstream's names.
// They cover the accepted bundle, so that nodes know it before an upgrade, and all existing entries: a rollback finds
// its images. It also returns the repositories omitted because of foreign sets, and why.
func (s *facts) ownEntries(from []*opened) (entries mirrorset.Entries, left map[string]string) {
	if !s.sets.leads {
		return nil, nil
	}
	var all []mirrorset.Entries
	if !s.bundleGated {
		from = append([]*opened{s.bundle}, from...)
	}
	for _, b := range from {
		if b != nil && b.source.Spec.ImageNames == v1alpha1.ImageNamesUpstream {
			all = append(all, b.mirrored())
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return preflight.Beside(mirrorset.Union(all...), s.sets.own, s.sets.others)
}

// mirrored maps the repositories of a bundle's drivers to their place under `push --layout paths`. It omits images that
// have no place there: they were never pushed.
func (o *opened) mirrored() mirrorset.Entries {
	mirror, err := image.ParseReference(o.reference())
	if err != nil {
		return nil
	}
	var all []mirrorset.Entries
	for _, r := range o.contents.Lock.Releases {
		if !r.Driver.Valid() {
			continue
		}
		for _, name := range r.Images {
			ref, err := image.ParseReference(name)
			if err != nil {
				continue
			}
			if e, err := mirrorset.Of([]image.Reference{ref}, mirror); err == nil {
				all = append(all, e)
			}
		}
	}
	return mirrorset.Union(all...)
}

// contentOfMirrorSet identifies the content of the set, as [facts.content] does for drivers: bundles provide all of it.
func contentOfMirrorSet(entries mirrorset.Entries) string {
	data, _ := json.Marshal(entries) //nolint:errchkjson // it cannot fail
	return mirrorset.Digests.Version + "/" + image.DigestOf(data).Hex()[:32]
}

// countOwnSet replaces the rules of the operator's existing set by the future ones, if it can write them; else it
// records why not.
func (p *pass) countOwnSet(ctx context.Context, m *preflight.Mirrors) {
	entries, left := p.ownEntries([]*opened{p.bundle})
	if m.Left = left; len(entries) == 0 {
		return
	}
	o := render.MirrorSet(entries)
	if m.Unwritten = p.mayWrite(ctx, o); m.Unwritten != nil {
		return
	}
	m.Own, m.Rules = plan.IDOf(o.Unstructured).Key.String(), slices.Clone(p.sets.others)
	for _, e := range entries {
		m.Rules = append(m.Rules, preflight.MirrorRule{Set: m.Own, Entry: e})
	}
}

// mayWrite returns why an object could not be written, as far as a read tells: it is unreadable or foreign.
func (p *pass) mayWrite(ctx context.Context, o render.Object) error {
	live, refused, err := p.Cluster.Read(ctx, []inventory.ID{plan.IDOf(o.Unstructured)})
	if err != nil {
		return err
	}
	drawn := plan.Make(plan.Input{
		Stages: []render.Stage{{Name: render.StageMirrors, Drivers: []matrix.Driver{o.Driver}, Objects: []render.Object{o}}},
		Live:   live, Refused: refused, Inventory: p.facts.inventory, Key: p.hash,
	})
	return drawn.Conflicts()
}

// OpenShift's nodes apply the operator's mirror set one after the other. Before that, pods of a new release do not find
// their images on a node, and the upgrade would be rolled back without a fault. So an upgrade waits until all
// MachineConfigPools are up to date.

func (p *pass) collectPools(ctx context.Context, set *unstructured.Unstructured) error {
	pools, err := p.Cluster.MachineConfigPools(ctx)
	if err != nil && fault.ReasonOf(err) != fault.Forbidden {
		return err
	}
	name, written := plan.IDOf(set).String(), writtenAt(set)
	p.sets.lacking = decide.PoolsChange(name, written, pools, p.now)
	if p.sets.rolls = decide.PoolsRoll(written, pools, p.now); err == nil {
		return nil
	}
	p.sets.lacking = "the operator cannot read whether nodes have applied " + name + ": " + fault.Text(err)
	if !p.ignores("MachineConfigPools") && p.namesUpstream() {
		p.notes = append(p.notes, "upgrades wait: "+p.sets.lacking)
	}
	return nil
}

// writtenAt returns the time of the last change of an object, apart from its status.
func writtenAt(o *unstructured.Unstructured) time.Time {
	at := o.GetCreationTimestamp().Time
	for _, m := range o.GetManagedFields() {
		if m.Time != nil && m.Subresource == "" && m.Time.After(at) {
			at = m.Time.Time
		}
	}
	return at
}

// namesUpstream reports whether pods of the accepted bundle use upstream's image names, which nodes find only by the
// set.
func (s *facts) namesUpstream() bool {
	return s.bundle == nil || s.bundle.source.Spec.ImageNames == v1alpha1.ImageNamesUpstream
}

// poolsChange returns what an upgrade to the accepted bundle waits for until nodes have the mirror set. It waits for
// nothing if its pods name images in the mirror.
func (s *facts) poolsChange() string {
	if !s.namesUpstream() {
		return ""
	}
	if s.sets.mirrors == nil || s.sets.mirrors.Own == "" {
		return s.sets.lacking
	}
	entries, _ := s.ownEntries([]*opened{s.bundle})
	var lacks []string
	for _, e := range entries {
		if has, _ := s.sets.own.Get(e.Source); slices.ContainsFunc(e.Mirrors, func(to string) bool { return !slices.Contains(has.Mirrors, to) }) {
			lacks = append(lacks, e.Source)
		}
	}
	if len(lacks) > 0 {
		return s.sets.mirrors.Own + " is written first, and lacks mirrors of: " + few(lacks)
	}
	return s.sets.lacking
}
