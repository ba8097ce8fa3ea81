package vdoconfig

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
)

// Move is a driver's way from one release to another.
type Move struct {
	Driver matrix.Driver `json:"driver"`
	From   string        `json:"from,omitempty"` // version; "" where it is not installed
	To     string        `json:"to"`
	// Why it was chosen.
	Why []string `json:"why,omitempty"`
	// OneWay is why To could not be gone back from, "" where it could.
	OneWay string `json:"oneWay,omitempty"`
}

// Hop is an upgrade of what drivers depend on, and what the operator does after it. The first
// hop of a route is none: it is what the operator does as things are.
type Hop struct {
	To    string `json:"to,omitempty"` // "Kubernetes 1.35", "vCenter east 9.0.0"
	Moves []Move `json:"moves,omitempty"`
	// Lacks are why it must not be made yet, and what to do.
	Lacks []string `json:"lacks,omitempty"`
}

// onward is an upgrade, from what will be known by then.
type onward func(matrix.Facts) target

type router struct {
	question
	oneWay []decide.OneWay
}

// route is what is done at each upgrade, from what is done before any: pure. What the operator
// installs at one hop is what is installed at the next.
func (r *router) route(upgrades []onward) []Hop {
	now := Hop{}
	now.Moves, now.Lacks = r.arrive(r.facts)
	hops := []Hop{now}
	for _, to := range upgrades {
		t := to(r.facts)
		h := Hop{To: t.name}
		for _, d := range asked(r.policy.Rules) {
			if why := r.installedLacks(d, t); why != "" {
				h.Lacks = append(h.Lacks, why)
			}
		}
		moves, refused := r.arrive(t.facts)
		h.Moves = moves
		if refused != nil {
			if why := r.bundleLacks(t); why != "" {
				refused = []string{why}
			}
			h.Lacks = append(h.Lacks, refused...)
		}
		hops = append(hops, h)
	}
	return hops
}

// arrive is what is done once facts are such, and why nothing can be chosen then.
func (r *router) arrive(facts matrix.Facts) (moves []Move, refused []string) {
	installed := map[matrix.Driver]matrix.Version{}
	maps.Copy(installed, r.facts.Installed)
	r.facts = facts
	selection, refusal := r.choose(facts, r.pins, r.available)
	if refusal != nil {
		return nil, []string{refusal.Error()}
	}
	for _, c := range selection.Choices {
		d, to := c.Release.Driver, c.Release.Version
		from, there := installed[d]
		if there && from.Equal(to) {
			continue
		}
		m := Move{Driver: d, To: to.String(), Why: c.Reasons}
		if there {
			m.From, m.OneWay = from.String(), decide.NoWayBack(r.oneWay, d, from, to)
		}
		moves, installed[d] = append(moves, m), to
	}
	r.facts.Installed = installed
	return moves, nil
}

// fetching are the commands that bring a bundle for a route's end: on a connected host, and
// then at the site. Names in capitals are for a person to fill in.
func (r *router) fetching(b *opened, from matrix.Minor) []string {
	var vsphere, drivers []string
	for _, vc := range r.facts.VCenters {
		vsphere = append(vsphere, vc.Version.String())
	}
	for _, d := range asked(r.policy.Rules) {
		drivers = append(drivers, string(d))
	}
	slices.Sort(vsphere)
	k8s := from.String()
	if to := r.facts.Kubernetes.Minor(); to != from {
		k8s += "-" + to.String()
	}
	words := []string{"vdo-bundle lock --drivers", strings.Join(drivers, ","), "--k8s", k8s}
	if len(vsphere) > 0 {
		words = append(words, "--vsphere", strings.Join(slices.Compact(vsphere), ","))
	}
	if b.contents.MatrixSignature != nil { // the one that vdo-bundle has built in is not signed
		words = append(words, "--matrix MATRIX")
	}
	push := "vdo-bundle push drivers.tar " + cmp.Or(b.source.Status.Repository, "REGISTRY/REPO") + ":TAG"
	if b.verified {
		push += " --key KEY.pub"
	}
	return []string{
		strings.Join(append(append(words, inside(b)...), "-o lock.yaml"), " "),
		"vdo-bundle pull --lock lock.yaml --sign-key KEY -o drivers.tar",
		push,
	}
}

// inside are the flags that take what else a bundle holds.
func inside(b *opened) (words []string) {
	services := false
	for _, rel := range b.contents.Lock.Releases {
		services = services || slices.Contains(matrix.Services(), rel.Driver)
		flag := map[matrix.Driver]string{bundle.Operator: "--operator", bundle.JumpHost: "--jump-host"}[rel.Driver]
		if flag != "" && len(rel.Images) > 0 {
			words = append(words, flag, slices.Sorted(maps.Values(rel.Images))[0])
		}
	}
	if services {
		words = append(words, "--services sip")
	}
	for _, p := range b.contents.Lock.Platforms {
		if p != (image.Platform{}) {
			words = append(words, "--platform", p.String())
		}
	}
	return words
}

// ahead is what is known of the next upgrades of what the drivers depend on.
type ahead struct {
	looked []string // at "Kubernetes 1.34", "vCenter vc 9.0.0"
	lacks  []string // why one of them cannot be upgraded yet, and what to do
}

// err is the fault of what is lacking, or nil.
func (a ahead) err() error {
	if len(a.lacks) == 0 {
		return nil
	}
	return fault.Errorf(fault.Incompatible, "look ahead to", strings.Join(a.looked, ", "),
		"do that before the upgrade; what is installed stays", "%s", few(a.lacks))
}

type target struct {
	name  string
	facts matrix.Facts
	// covers says why a release does not serve what comes, "" where it does.
	covers func(matrix.Release) string
}

// lookAhead asks, for the next Kubernetes minor and for the next update and major version of each vCenter, whether what
// is installed goes on working, which has to before the upgrade, and whether the bundle has what is installed after it.
// Of a cloud provider only the latter counts for Kubernetes: each release serves one minor.
func lookAhead(q question) ahead {
	var a ahead
	for _, t := range q.targets() {
		a.looked = append(a.looked, t.name)
		for _, d := range asked(q.policy.Rules) {
			if why := q.installedLacks(d, t); why != "" {
				a.lacks = append(a.lacks, t.name+": "+why)
			}
		}
		if why := q.bundleLacks(t); why != "" {
			a.lacks = append(a.lacks, t.name+": "+why)
		}
	}
	return a
}

func (q *question) targets() []target {
	all := []target{kubernetesTarget(q.facts, q.facts.Kubernetes.Minor().Next())}
	for i, vc := range q.facts.VCenters {
		for _, next := range following(vc.Version) {
			all = append(all, vCenterTarget(q.facts, i, next))
		}
	}
	return all
}

func kubernetesTarget(facts matrix.Facts, minor matrix.Minor) target {
	facts.Kubernetes, _ = matrix.ParseKubernetes(minor.String()) //nolint:errcheck // a minor is always a version
	return target{name: "Kubernetes " + minor.String(), facts: facts, covers: func(r matrix.Release) string {
		if r.Driver == matrix.CPI || r.Kubernetes.Contains(minor) {
			return ""
		}
		return "serves Kubernetes " + r.Kubernetes.String()
	}}
}

func vCenterTarget(facts matrix.Facts, i int, to matrix.Version) target {
	facts.VCenters = slices.Clone(facts.VCenters)
	name := facts.VCenters[i].Name
	facts.VCenters[i] = matrix.VCenter{Name: name, Version: to}
	return target{name: fmt.Sprintf("vCenter %s %s", name, to), facts: facts, covers: func(r matrix.Release) string {
		if r.VSphere.Contains(to) {
			return ""
		}
		return "serves vSphere " + r.VSphere.String()
	}}
}

// following are the next update and the next major version of vSphere.
func following(v matrix.Version) []matrix.Version {
	var major, minor, update uint64
	if _, err := fmt.Sscanf(v.String(), "%d.%d.%d", &major, &minor, &update); err != nil {
		return nil
	}
	var all []matrix.Version
	for _, text := range []string{fmt.Sprintf("%d.%d.%d", major, minor, update+1), fmt.Sprintf("%d.0.0", major+1)} {
		if next, err := matrix.ParseVSphere(text); err == nil {
			all = append(all, next)
		}
	}
	return all
}

// installedLacks says why what is installed of a driver does not serve a target.
func (q *question) installedLacks(d matrix.Driver, t target) string {
	v, there := q.facts.Installed[d]
	if !there {
		return ""
	}
	id := matrix.ReleaseID{Driver: d, Version: v}
	r, listed := q.document.Release(id)
	if !listed {
		return fmt.Sprintf("%s is installed, and the matrix does not list it", id)
	}
	if why := t.covers(r); why != "" {
		return fmt.Sprintf("%s is installed and %s: upgrade it first", id, why)
	}
	return ""
}

// bundleLacks says what the bundle has to hold for a target and does not.
func (q *question) bundleLacks(t target) string {
	if _, refusal := q.choose(t.facts, q.pins, q.available); refusal == nil {
		return ""
	}
	selection, refusal := matrix.Resolve(q.document, t.facts, nil, matrix.Policy{Rules: q.policy.Rules}, nil)
	if refusal != nil {
		return "the matrix lists no drivers for it: fetch a bundle with a newer matrix"
	}
	var missing []string
	for _, c := range selection.Choices {
		if id := c.Release.ReleaseID.String(); !q.available[id] {
			missing = append(missing, id)
		}
	}
	return "the bundle has no drivers for it: " + cmp.Or(strings.Join(missing, ", "), "a release without the pins of spec.drivers") + " would serve; push a bundle that holds it"
}
