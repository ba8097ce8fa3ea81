package vdoconfig

import (
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
)

// rendering is what came of rendering a decision.
type rendering struct {
	*render.Rendered
	mirrored mirrorset.Entries      // that OpenShift's nodes are led for
	spec     v1alpha1.VDOConfigSpec // that it was rendered from
	decision decision               // without the drivers that had to be left as they are
	// malformed are drivers whose configuration cannot be made from what is asked for, and
	// why: it is kept as it is.
	malformed map[matrix.Driver]error
	refused   error  // why what was decided first could not be rendered
	frozen    string // likewise: nothing but repairs is done
	canary    bool   // chosen nodes have it first
	// untrusted is why nothing may be installed from the accepted bundle, where that was seen only after
	// it was gathered, "" where it was not.
	untrusted string
}

// attempt is one way to render.
type attempt struct {
	spec     v1alpha1.VDOConfigSpec
	decision decision
	// leavesOut lets drivers that cannot be rendered at all be left as they are.
	leavesOut bool
	// canary has chosen nodes have the node plugin's pods first.
	canary bool
}

// render renders what was decided. Where that cannot be done (a field of the spec
// that makes no sense, a new release that is refused) it renders what is installed, so
// that it is repaired: as the spec has it, else as it was last rendered. Where there is
// no way for a driver at all, the others go on without it.
func (s *site) render(d decision) (rendering, error) {
	first, err := s.try(attempt{spec: s.spec, decision: d, canary: s.canarying()})
	if err == nil {
		return first, nil
	}
	if s.inventory.Len() == 0 {
		return s.try(attempt{spec: s.spec, decision: d, leavesOut: true}) // there is nothing to go to chosen nodes first
	}
	faults := maps.Clone(s.faults)
	for driver, why := range first.malformed {
		faults = joined(faults, driver, why)
	}
	installed := s.choose(d.from, err, faults)
	remembered := s.remembered()
	open := s.canaryOpen(s.revisions.history)
	for _, a := range []attempt{{spec: s.spec, decision: installed, canary: open}, {spec: remembered, decision: installed, canary: open}} {
		if r, again := s.try(a); again == nil {
			r.refused, r.frozen = err, err.Error()
			return r, nil
		}
	}
	last, again := s.try(attempt{spec: remembered, decision: installed, canary: open, leavesOut: true})
	last.frozen = err.Error()
	return last, again
}

// try renders in one way. Where a driver's configuration cannot be made, or is not
// proven, it is kept as it is, and all else of the driver goes on. Where that cannot be
// rendered either it is an error, or, as the last resort, the driver is left as it is.
func (s *site) try(a attempt) (rendering, error) {
	r := rendering{Rendered: &render.Rendered{}, spec: a.spec, decision: a.decision, canary: a.canary, malformed: map[matrix.Driver]error{}}
	if len(a.decision.releases) == 0 {
		return r, nil
	}
	in, err := s.input(a)
	if err != nil {
		return r, err
	}
	r.mirrored = in.Mirrored
	for {
		rendered, err := render.Render(in)
		var failed render.Failed
		if !errors.As(err, &failed) {
			if err == nil {
				r.Rendered = rendered
			}
			return r, err
		}
		for d, why := range failed {
			switch {
			case !in.Keep[d]:
				r.malformed[d], in.Keep[d] = why, true
			case a.leavesOut:
				r.decision = r.decision.without(d, why.Error())
			default:
				r.malformed = nil
				return r, err
			}
		}
		in.Releases = r.decision.releases
	}
}

// input is what an attempt renders from.
func (s *site) input(a attempt) (render.Input, error) {
	from := a.decision.from
	vcenters, unproven := s.proven(&a.spec)
	in := render.Input{
		Lock: from.contents.Lock, Manifests: from.contents.Manifests, Matrix: from.matrix, Installed: s.installed,
		Repository: from.source.Status.Repository, ImageNames: from.source.Spec.ImageNames,
		Mirrored: s.mirrored(a.decision.sources()),
		Releases: a.decision.releases, Spec: a.spec, VCenters: vcenters, Cluster: s.cluster,
		PullSecret: s.login.data, HashKey: s.hash,
		Keep: map[matrix.Driver]bool{}, Canary: a.canary, Apart: map[matrix.Driver]render.Origin{},
	}
	for d, c := range a.decision.current {
		in.Apart[d] = c.from.origin()
	}
	for _, d := range []matrix.Driver{matrix.CPI, matrix.CSI} {
		in.Keep[d] = s.holdsBack(d, &a.spec) || slices.ContainsFunc(vCentersOf(d, &a.spec), func(n string) bool { return slices.Contains(unproven, n) })
	}
	_, served := s.others(a.decision)
	in.Cluster.ForeignSnapshotController = served && s.distribution != openshift // there rendering knows by itself
	var err error
	in.Webhook, err = s.webhook(a)
	return in, err
}

// webhook is the certificate of the storage driver's webhook, where it is rendered.
func (s *site) webhook(a attempt) (*webhookcert.Certificate, error) {
	if !wantsWebhook(&a.spec) || a.decision.version(matrix.CSI) == "" {
		return nil, nil
	}
	return s.certificate, s.certificateErr
}

// remember notes in the inventory what the drivers are rendered from.
func (s *site) remember(inv inventory.Inventory, r rendering) inventory.Inventory {
	was := inv.Memory()
	now := was
	if s.frozen == "" && r.frozen == "" {
		if !r.leftAsItIs(string(matrix.CPI)) && (r.spec.CloudProvider != nil || !inv.Has(matrix.CPI)) {
			now.CloudProvider = r.spec.CloudProvider.DeepCopy()
		}
		if !r.leftAsItIs(string(matrix.CSI)) && (r.spec.StorageProvider != nil || !inv.Has(matrix.CSI)) {
			now.StorageProvider = r.spec.StorageProvider.DeepCopy()
		}
		now.Drivers, now.Patches = r.customized(was)
	}
	s.searchedNow(&now, r, inv.Has(matrix.CPI))
	now.VCenters = s.placesNow(was.VCenters, r)
	now.Dropped, now.DroppedAt = s.droppedNow(r, was)
	now.Mirrored, now.Taken = mirroredNow(was.Mirrored, r, inv), s.sets.taking.remembered(was.Taken, s.now)
	now.Kubernetes, now.NewerSince, now.Seen = s.kubernetes.reported, s.kubernetes.newerSince, s.seenVCenters()
	now.Hashes, now.Revisions = s.hashes, s.begun(r)
	if cur, ok := now.Revisions.InForce(); ok {
		now.Bundle = cur.Bundle
	}
	if from := r.decision.from; from != nil && from.reference() == now.Bundle {
		now.ImageNames = from.source.Spec.ImageNames
	}
	switch c := s.cluster; {
	case c.GeneratedClusterID != "":
		now.ClusterID = c.GeneratedClusterID
	case now.ClusterID == "":
		now.ClusterID = c.ConfiguredClusterID
	}
	if now.ClusterID != "" && s.foreignClusterID() == "" {
		now.ClusterUID = s.cluster.UID
	}
	if inv.Len() == 0 || reflect.DeepEqual(was, now) {
		return inv
	}
	return inv.WithMemory(now)
}
