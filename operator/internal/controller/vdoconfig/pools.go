package vdoconfig

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
)

// OpenShift's nodes take the operator's mirror set up one after the other. Where pods of a new
// release come to a node before, they do not find their images, and an upgrade would be gone back
// from for nothing. So it begins once all MachineConfigPools have what was written. That is
// remembered of the set as it is then: what pools are given later is not the set's.

// taking is how nodes take up the operator's set.
type taking struct {
	set     string // UID/GENERATION of the set that is there, "" where there is none
	known   bool   // they have taken it up
	written time.Time
	pools   []upgrade.Pool
	unread  error // why the pools are not known
}

// gatherPools reads how far nodes are with the set, until they have it.
func (g *gatherer) gatherPools(ctx context.Context, set *unstructured.Unstructured) error {
	t := &g.sets.taking
	t.set, t.written = fmt.Sprintf("%s/%d", set.GetUID(), set.GetGeneration()), writtenAt(set)
	if t.known = g.inventory.Memory().Taken == t.set; t.known {
		return nil
	}
	var err error
	if t.pools, err = g.Cluster.MachineConfigPools(ctx); fault.ReasonOf(err) != fault.Forbidden {
		return err
	}
	t.unread = err
	if !g.ignores("MachineConfigPools") && g.namesUpstream() {
		g.notes = append(g.notes, "upgrades wait: "+t.change(g.now))
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

// change says that nodes have not taken up the set that is there, "" where they have.
func (t *taking) change(now time.Time) string {
	name := plan.IDOf(render.MirrorSet(nil).Unstructured).String()
	switch {
	case t.set == "" || t.known:
		return ""
	case t.unread != nil:
		return "whether nodes have taken up " + name + " cannot be read: " + fault.Text(t.unread)
	}
	return upgrade.PoolsChange(name, t.written, t.pools, now)
}

// rolls tells whether nodes take it up just now.
func (t *taking) rolls(now time.Time) bool {
	return t.set != "" && !t.known && upgrade.PoolsRoll(t.written, t.pools, now)
}

// remembered is the set that nodes are known to have taken up.
func (t *taking) remembered(was string, now time.Time) string {
	if t.set != "" && t.change(now) == "" {
		return t.set
	}
	return was
}

// namesUpstream tells whether pods of the accepted bundle name images as upstream does, which nodes
// find by the set alone.
func (s *site) namesUpstream() bool {
	return s.bundle == nil || s.bundle.source.Spec.ImageNames == v1alpha1.ImageNamesUpstream
}

// poolsChange is what of the mirror set an upgrade to the accepted bundle waits for: the set comes
// before it. Nothing, where its pods name images in the mirror itself.
func (s *site) poolsChange() string {
	if !s.namesUpstream() {
		return ""
	}
	if s.mirrors == nil || s.mirrors.Own == "" {
		return s.sets.taking.change(s.now)
	}
	entries, _ := s.ownEntries([]*opened{s.bundle})
	var lacks []string
	for _, e := range entries {
		if has, _ := s.sets.own.Get(e.Source); slices.ContainsFunc(e.Mirrors, func(to string) bool { return !slices.Contains(has.Mirrors, to) }) {
			lacks = append(lacks, e.Source)
		}
	}
	if len(lacks) > 0 {
		return s.mirrors.Own + " is written first, and does not lead to all mirrors yet: " + few(lacks)
	}
	return s.sets.taking.change(s.now)
}
