package vdoconfig

import (
	"cmp"
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

type rendering struct {
	*render.Rendered
	mirrored mirrorset.Entries      // that OpenShift's nodes are led for
	spec     v1alpha1.VDOConfigSpec // that it was rendered from
	decision decision               // without the drivers that had to be left as they are
	// refused are drivers that cannot be rendered as it was decided, and why.
	refused map[matrix.Driver]error
	canary  bool              // canary nodes have it first
	hashes  map[string]string // of configuration, as [inventory.Memory] has them
	// blocked are drivers that are not touched for the sake of a conflict.
	blocked map[matrix.Driver]error
}

// How far a driver that cannot be rendered gives way, one after the other.
const (
	asDecided = iota
	asItWas   // in the release that is installed, with the settings that it was last rendered with
	leftOut   // nothing of it is touched
)

// render renders what was decided, each driver as near to it as can be. So what cannot be rendered, a field of the
// spec that makes no sense or a new release that is refused, keeps no driver from being repaired, and no other one
// from anything.
func (s *decided) render(d decision) (rendering, error) {
	level, why := map[matrix.Driver]int{}, map[matrix.Driver]error{}
	for {
		r, in, err := s.input(d, level, why)
		if err == nil && len(r.decision.releases) > 0 {
			r.Rendered, err = render.Render(in)
		}
		var failed render.Failed
		if !errors.As(err, &failed) {
			if err != nil {
				r.Rendered = &render.Rendered{}
			}
			return r, err
		}
		for driver, err := range failed {
			if level[driver]++; why[driver] == nil {
				why[driver] = err
			}
		}
	}
}

// input is what is rendered from where drivers have given way, and what is known of that.
func (s *decided) input(
	d decision, level map[matrix.Driver]int, why map[matrix.Driver]error,
) (rendering, render.Input, error) {
	r := rendering{Rendered: &render.Rendered{}, spec: s.spec, decision: d, canary: s.canarying()}
	stay := *s
	stay.upgrades.gates = maps.Clone(s.upgrades.gates)
	for driver := range level {
		r.refused = joined(r.refused, driver, why[driver])
		stay.upgrades.gates = joined(stay.upgrades.gates, revision.GroupOf(driver), why[driver])
		if driver == matrix.CSI {
			r.canary = s.canaryOpen(s.upgrades.history)
		}
		r.spec = s.asRemembered(r.spec, driver)
	}
	if r.refused != nil {
		r.decision = stay.resolve()
	}
	for driver, is := range level {
		if is == leftOut {
			r.decision = r.decision.without(driver, why[driver].Error())
		}
	}
	if len(r.decision.releases) == 0 {
		return r, render.Input{}, nil
	}
	in, err := s.inputOf(&r)
	for driver := range level {
		in.Keep[driver] = true
	}
	return r, in, err
}

// asRemembered is a spec with the provider, if any, and the settings of pods that a driver which runs was last
// rendered from.
func (s *facts) asRemembered(spec v1alpha1.VDOConfigSpec, d matrix.Driver) v1alpha1.VDOConfigSpec {
	was := s.remembered()
	spec = withProvider(spec, was, d)
	if !s.runs(d) {
		return spec // nothing of it is remembered: where it is adopted as it runs, it stays so
	}
	settings, patches := ofDrivers(func(of matrix.Driver) bool { return of == d })
	spec.Drivers = instead(spec.Drivers, was.Drivers, settings)
	spec.Patches = instead(spec.Patches, was.Patches, patches)
	return spec
}

// inputOf is what a decision is rendered from with a spec.
func (s *facts) inputOf(r *rendering) (render.Input, error) {
	from := r.decision.from
	vcenters, unverified := s.verifiedVCenters(&r.spec)
	r.mirrored, _ = s.ownEntries(r.decision.sources())
	in := render.Input{
		Origin: from.origin(), Mirrored: r.mirrored,
		Releases: r.decision.releases, Spec: r.spec, VCenters: vcenters, Cluster: s.cluster,
		PullSecret: s.login.data, HashKey: s.hash,
		Keep: map[matrix.Driver]bool{}, Canary: r.canary, OtherSources: map[matrix.Driver]render.Origin{},
	}
	for d, c := range r.decision.current {
		in.OtherSources[d] = c.from.origin()
	}
	for _, d := range []matrix.Driver{matrix.CPI, matrix.CSI} {
		isUnverified := func(name string) bool { return slices.Contains(unverified, name) }
		in.Keep[d] = s.keepsConfiguration(d, &r.spec) || slices.ContainsFunc(vCentersOf(d, &r.spec), isUnverified)
	}
	_, served := s.others(r.decision)
	in.Cluster.ForeignSnapshotController = served && s.site.Distribution != openshift // there rendering knows by itself
	if wantsWebhook(&r.spec) && r.decision.version(matrix.CSI) != "" {
		if in.Webhook = s.certificate; s.certificateErr != nil {
			return in, render.Failed{matrix.CSI: s.certificateErr}
		}
	}
	return in, nil
}

// remember notes in the inventory what the drivers are rendered from.
func (s *decided) remember(inv inventory.Inventory, r rendering) inventory.Inventory {
	was := inv.Memory()
	now := was
	if s.frozen == "" {
		if !r.isUnchanged(matrix.CPI) && (r.spec.CloudProvider != nil || !inv.Has(matrix.CPI)) {
			now.CloudProvider = r.spec.CloudProvider.DeepCopy()
		}
		if !r.isUnchanged(matrix.CSI) && (r.spec.StorageProvider != nil || !inv.Has(matrix.CSI)) {
			now.StorageProvider = r.spec.StorageProvider.DeepCopy()
		}
		now.Drivers, now.Patches = r.customized(was)
	}
	s.searchedNow(&now, r, inv.Has(matrix.CPI))
	now.VCenters = s.placesNow(was.VCenters, r)
	now.Kubernetes, now.NewerSince, now.Seen = s.kubernetes.reported, s.kubernetes.newerSince, s.seenVCenters()
	now.Hashes, now.Revisions = r.hashes, s.begun(r)
	switch c := s.cluster; {
	case s.strayClusterID() != "": // what is known stays
	case c.GeneratedClusterID != "":
		now.ClusterID = c.GeneratedClusterID
	case now.ClusterID == "":
		now.ClusterID = c.ConfiguredClusterID
	}
	if now.ClusterID != "" && s.foreignClusterID() == "" {
		now.ClusterUID = cmp.Or(s.cluster.UID, now.ClusterUID)
	}
	if inv.Len() == 0 || reflect.DeepEqual(was, now) {
		return inv
	}
	return inv.WithMemory(now)
}

// customized are the settings of pods that drivers were rendered with; of those that had to
// be left as they are the ones before.
func (r rendering) customized(was inventory.Memory) ([]v1alpha1.DriverPolicy, []v1alpha1.Patch) {
	settings, patches := ofDrivers(r.isUnchanged)
	drivers := instead(podSettings(r.spec.Drivers), was.Drivers, settings)
	return drivers, instead(r.spec.Patches, was.Patches, patches)
}

func ofDrivers(are func(matrix.Driver) bool) (func(v1alpha1.DriverPolicy) bool, func(v1alpha1.Patch) bool) {
	return func(p v1alpha1.DriverPolicy) bool { return are(matrix.Driver(p.Driver)) },
		func(p v1alpha1.Patch) bool { return are(matrix.Driver(p.Target.Driver)) }
}

// instead takes what was before of some drivers, and what is now of the others.
func instead[T any](now, before []T, of func(T) bool) []T {
	others := func(v T) bool { return !of(v) }
	return slices.Concat(slices.DeleteFunc(slices.Clone(now), of), slices.DeleteFunc(slices.Clone(before), others))
}

func (r rendering) isUnchanged(d matrix.Driver) bool {
	_, gated := r.decision.gated[d]
	return gated || r.refused[d] != nil || r.blocked[d] != nil
}

// podSettings leaves out how drivers are chosen, which is always as the spec has it.
func podSettings(policies []v1alpha1.DriverPolicy) []v1alpha1.DriverPolicy {
	var all []v1alpha1.DriverPolicy
	for _, d := range policies {
		d.Policy, d.Version = "", ""
		if !reflect.DeepEqual(d, v1alpha1.DriverPolicy{Driver: d.Driver}) {
			all = append(all, *d.DeepCopy())
		}
	}
	return all
}
