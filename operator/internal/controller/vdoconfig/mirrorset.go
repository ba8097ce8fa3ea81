package vdoconfig

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// Under spec.openShift.mirrorSet Write the operator writes the ImageDigestMirrorSet by which
// OpenShift's nodes find images under upstream's names. Nodes take up what is added to it as
// they run, and are drained where something is taken away: so it only grows, is neither
// changed nor removed once no one asks for it any more, and goes with the VDOConfig, after all pods.

// collectOpenShift finds out whether the operator leads the nodes, and holds everything new
// where it is asked to and there is nothing to lead them by.
func (p *pass) collectOpenShift(ctx context.Context) error {
	if !p.config.Spec.WritesMirrorSet() {
		return nil
	}
	kind := mirrorset.Digests
	if p.sets.leads = p.Cluster.Serves(schema.GroupKind{Group: kind.Group, Kind: kind.Kind}); p.sets.leads {
		return p.collectSets(ctx)
	}
	p.gateAll(fault.Errorf(fault.Refused, "write", kind.Kind+" "+render.MirrorSetName,
		"take spec.openShift.mirrorSet out of the VDOConfig; `vdo-bundle mirror-config` writes what nodes of other runtimes need",
		"the cluster has no %ss: OpenShift has them since 4.13", kind.Kind))
	return nil
}

// mirrorSets are those of the cluster.
type mirrorSets struct {
	leads         bool                   // the operator leads OpenShift's nodes to the mirror, by its own set
	own           mirrorset.Entries      // that the operator's own set has
	rules, others []preflight.MirrorRule // of all sets, and of those that are not the operator's
	taking        taking                 // how nodes take up the operator's own
	mirrors       *preflight.Mirrors     // of the nodes, where pods name images as upstream does
}

// collectSets reads by what the nodes are led, others' sets and the operator's own. Where it may not
// be read the set stays as it is.
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

// isOwn tells whether the set on the cluster is the operator's: recorded as such, or, where the records are lost,
// labelled.
func (p *pass) isOwn(set *unstructured.Unstructured) bool {
	if set == nil || own(set, drivers.MirrorSet) != nil {
		return set != nil
	}
	known, recorded := p.facts.inventory.Get(plan.IDOf(set).Key)
	return recorded && plan.Ours(set, known)
}

// ownEntries is all that the nodes are led to the mirror for, none where the operator does not lead them, or pods have
// other names than upstream's: for the accepted bundle too, so that nodes have it before an upgrade begins, and for
// all that they are led for by the operator's set, so that a rollback finds its images and nothing is taken away. It
// returns too which repositories are left out beside others' sets, with why.
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

// mirrored leads the repositories of a bundle's drivers to where `push --layout paths` puts
// them. An image whose name has no place there was never pushed, and is left out.
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

// contentOfMirrorSet identifies, as [content] does for drivers, what the set is made of: all of it
// comes from bundles.
func contentOfMirrorSet(entries mirrorset.Entries) string {
	data, _ := json.Marshal(entries) //nolint:errchkjson // none of it can fail
	sum := sha256.Sum256(data)
	return mirrorset.Digests.Version + "/" + hex.EncodeToString(sum[:16])
}

// countOwnSet has the rules that nodes have by the operator's own set be those that it is going
// to have, where it can be written; else it is noted why not.
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
		m.Rules = append(m.Rules, preflight.MirrorRule{Set: m.Own, Source: e.Source, Mirrors: e.Mirrors, Policy: e.Policy})
	}
}

// mayWrite says why an object could not be written, as far as reading it tells: it may not
// be read, or is someone else's.
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

// OpenShift's nodes take the operator's mirror set up one after the other. Where pods of a new
// release come to a node before, they do not find their images, and an upgrade would be gone back
// from for nothing. So it begins once all MachineConfigPools have what they are to have.

// taking is how nodes take up the operator's set.
type taking struct {
	waits string // that they have not taken it up, "" where they have
	rolls bool   // they take it up just now
}

// collectPools reads how far nodes are with the set.
func (p *pass) collectPools(ctx context.Context, set *unstructured.Unstructured) error {
	pools, err := p.Cluster.MachineConfigPools(ctx)
	if err != nil && fault.ReasonOf(err) != fault.Forbidden {
		return err
	}
	t, name, written := &p.sets.taking, plan.IDOf(set).String(), writtenAt(set)
	t.waits, t.rolls = decide.PoolsChange(name, written, pools, p.now), decide.PoolsRoll(written, pools, p.now)
	if err == nil {
		return nil
	}
	t.waits = "whether nodes have taken up " + name + " cannot be read: " + fault.Text(err)
	if !p.ignores("MachineConfigPools") && p.namesUpstream() {
		p.notes = append(p.notes, "upgrades wait: "+t.waits)
	}
	return nil
}

// writtenAt is when anybody has changed an object last, but for its status.
func writtenAt(o *unstructured.Unstructured) time.Time {
	at := o.GetCreationTimestamp().Time
	for _, m := range o.GetManagedFields() {
		if m.Time != nil && m.Subresource == "" && m.Time.After(at) {
			at = m.Time.Time
		}
	}
	return at
}

// namesUpstream tells whether pods of the accepted bundle name images as upstream does, which nodes
// find by the set alone.
func (s *facts) namesUpstream() bool {
	return s.bundle == nil || s.bundle.source.Spec.ImageNames == v1alpha1.ImageNamesUpstream
}

// poolsChange is what of the mirror set an upgrade to the accepted bundle waits for: the set comes
// before it. Nothing, where its pods name images in the mirror itself.
func (s *facts) poolsChange() string {
	if !s.namesUpstream() {
		return ""
	}
	if s.sets.mirrors == nil || s.sets.mirrors.Own == "" {
		return s.sets.taking.waits
	}
	entries, _ := s.ownEntries([]*opened{s.bundle})
	var lacks []string
	for _, e := range entries {
		if has, _ := s.sets.own.Get(e.Source); slices.ContainsFunc(e.Mirrors, func(to string) bool { return !slices.Contains(has.Mirrors, to) }) {
			lacks = append(lacks, e.Source)
		}
	}
	if len(lacks) > 0 {
		return s.sets.mirrors.Own + " is written first, and does not lead to all mirrors yet: " + few(lacks)
	}
	return s.sets.taking.waits
}
