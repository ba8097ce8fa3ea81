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
	mirrored mirrorset.Entries      // of OpenShift's nodes
	spec     v1alpha1.VDOConfigSpec // the rendered one
	decision decision               // without the drivers that stay unchanged
	// refused are drivers that cannot be rendered as decided, and why.
	refused map[matrix.Driver]error
	canary  bool              // canary nodes get it first
	hashes  map[string]string // of configuration, in the form of [inventory.Memory]
	// blocked are drivers that stay unchanged because of a conflict.
	blocked map[matrix.Driver]error
}

// render renders the decision, each driver as near to it as possible: else the installed release with the last rendered
// settings, else unchanged. So an invalid field of the spec or a refused new release prevents no repair of its driver.
func (s *decided) render(d decision) (rendering, error) {
	refusals, why := map[matrix.Driver]int{}, map[matrix.Driver]error{}
	for {
		r, in, err := s.input(d, refusals, why)
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
			if refusals[driver]++; why[driver] == nil {
				why[driver] = err
			}
		}
	}
}

// input returns the input of a rendering with fallbacks, and what is known about them.
func (s *decided) input(
	d decision, refusals map[matrix.Driver]int, why map[matrix.Driver]error,
) (rendering, render.Input, error) {
	r := rendering{Rendered: &render.Rendered{}, spec: s.spec, decision: d, canary: s.canarying()}
	stay := *s
	stay.upgrades.gates = maps.Clone(s.upgrades.gates)
	for driver := range refusals {
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
	for driver, times := range refusals {
		if times > 1 {
			r.decision = r.decision.without(driver, why[driver].Error())
		}
	}
	if len(r.decision.releases) == 0 {
		return r, render.Input{}, nil
	}
	in, err := s.inputOf(&r)
	for driver := range refusals {
		in.Keep[driver] = true
	}
	return r, in, err
}

// asRemembered returns a spec with the provider, if any, and the pod settings that a running driver was last rendered
// with.
func (s *facts) asRemembered(spec v1alpha1.VDOConfigSpec, d matrix.Driver) v1alpha1.VDOConfigSpec {
	was := s.remembered()
	spec = withProvider(spec, was, d)
	if !s.runs(d) {
		return spec // no record: a driver that is adopted in its running version
	}
	settings, patches := ofDrivers(func(of matrix.Driver) bool { return of == d })
	spec.Drivers = instead(spec.Drivers, was.Drivers, settings)
	spec.Patches = instead(spec.Patches, was.Patches, patches)
	return spec
}

func (s *facts) inputOf(r *rendering) (render.Input, error) {
	from := r.decision.from
	r.mirrored, _ = s.ownEntries(r.decision.sources())
	in := render.Input{
		Origin: from.origin(), Mirrored: r.mirrored,
		Releases: r.decision.releases, Spec: r.spec, VCenters: map[string]render.VCenter{}, Cluster: s.cluster,
		PullSecret: s.login.data, HashKey: s.hash,
		Keep: map[matrix.Driver]bool{}, Canary: r.canary, OtherSources: map[matrix.Driver]render.Origin{},
	}
	for d, c := range r.decision.current {
		in.OtherSources[d] = c.from.origin()
	}
	for _, name := range render.VCenters(&r.spec) {
		if vc := s.vcenters[name]; vc.verified {
			in.VCenters[name] = vc.VCenter
		}
	}
	for _, d := range checked {
		isUnverified := func(name string) bool { return !s.vcenters[name].verified }
		in.Keep[d] = s.keepsConfiguration(d, &r.spec) || slices.ContainsFunc(vCentersOf(d, &r.spec), isUnverified)
	}
	if wantsWebhook(&r.spec) && r.decision.version(matrix.CSI) != "" {
		if in.Webhook = s.certificate; s.certificateErr != nil {
			return in, render.Failed{matrix.CSI: s.certificateErr}
		}
	}
	return in, nil
}

// remember records in the inventory what the drivers are rendered from.
func (s *decided) remember(inv inventory.Inventory, r rendering) inventory.Inventory {
	was := inv.Memory()
	now := was
	if s.frozen == "" {
		if !r.isUnchanged(matrix.CPI) && (r.spec.CloudProvider != nil || !inv.Has(matrix.CPI)) {
			now.CloudProvider = r.spec.CloudProvider.DeepCopy()
		}
		if !r.isUnchanged(matrix.CSI) && (r.spec.StorageProvider != nil || !hasPods(inv, matrix.CSI)) {
			now.StorageProvider = r.spec.StorageProvider.DeepCopy()
		}
		settings, patches := ofDrivers(r.isUnchanged) // these have the earlier ones
		now.Drivers = instead(podSettings(r.spec.Drivers), was.Drivers, settings)
		now.Patches = instead(r.spec.Patches, was.Patches, patches)
	}
	s.searchedNow(&now, r, inv.Has(matrix.CPI))
	now.VCenters, now.Servers = s.placesNow(was.VCenters, r), s.serversNow(was.Servers)
	now.Kubernetes, now.NewerSince, now.Seen = s.kubernetes.reported, s.kubernetes.newerSince, s.seenVCenters()
	now.Hashes, now.Revisions = r.hashes, s.begun(r)
	switch c := s.cluster; {
	case s.strayClusterID() != "": // the record stays
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

func ofDrivers(are func(matrix.Driver) bool) (func(v1alpha1.DriverPolicy) bool, func(v1alpha1.Patch) bool) {
	return func(p v1alpha1.DriverPolicy) bool { return are(matrix.Driver(p.Driver)) },
		func(p v1alpha1.Patch) bool { return are(matrix.Driver(p.Target.Driver)) }
}

// instead returns the earlier items of some drivers, and the new ones of the others.
func instead[T any](now, before []T, of func(T) bool) []T {
	others := func(v T) bool { return !of(v) }
	return slices.Concat(slices.DeleteFunc(slices.Clone(now), of), slices.DeleteFunc(slices.Clone(before), others))
}

func (r rendering) isUnchanged(d matrix.Driver) bool {
	_, gated := r.decision.gated[d]
	return gated || r.refused[d] != nil || r.blocked[d] != nil
}

// podSettings omits the fields that choose drivers, which always come from the spec.
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
