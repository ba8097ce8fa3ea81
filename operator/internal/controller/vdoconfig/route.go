package vdoconfig

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/upgrade"
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

// router finds the way through several upgrades, one after the other.
type router struct {
	question
	rules  map[matrix.Driver]matrix.Rule
	pins   matrix.Pins
	oneWay []upgrade.OneWay
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
		for _, d := range asked(r.rules) {
			if why := r.installedLacks(d, t); why != "" {
				h.Lacks = append(h.Lacks, why+"; "+r.bridge(d, t))
			}
		}
		moves, refused := r.arrive(t.facts)
		h.Moves = moves
		if refused != nil {
			if why := r.bundleLacks(t, r.rules, r.pins); why != "" {
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
	installed := maps.Clone(r.facts.Installed)
	if installed == nil {
		installed = map[matrix.Driver]matrix.Version{}
	}
	r.facts = facts
	selection, refusal := matrix.Resolve(r.document, facts, r.pins, matrix.Policy{Rules: r.rules, Refused: r.refused}, r.available)
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
			m.From, m.OneWay = from.String(), upgrade.NoWayBack(r.oneWay, d, from, to)
		}
		moves, installed[d] = append(moves, m), to
	}
	r.facts.Installed = installed
	return moves, nil
}

// bridge says how a driver comes to a release that serves both what is there now and what comes.
func (r *router) bridge(d matrix.Driver, t target) string {
	if v := r.serving(d, t, r.available); !v.IsZero() {
		return fmt.Sprintf("%[1]s@%[2]s of the bundle serves before and after: pin it first, in spec.drivers of the VDOConfig", d, v)
	}
	if v := r.serving(d, t, nil); !v.IsZero() {
		return fmt.Sprintf("%s@%s of the matrix serves before and after, and the bundle does not hold it", d, v)
	}
	return "the matrix lists no release that serves before and after: fetch a bundle with a newer matrix"
}

// serving is the newest release of a driver that may be chosen now and serves what comes.
func (r *router) serving(d matrix.Driver, t target, available matrix.Available) matrix.Version {
	var best matrix.Version
	for _, release := range r.document.Releases {
		if release.Driver != d || t.covers(release) != "" || !best.LessThan(release.Version) {
			continue
		}
		pins := maps.Clone(r.pins)
		pins[d] = release.Version
		if _, refusal := matrix.Resolve(r.document, r.facts, pins, matrix.Policy{Rules: r.rules, Refused: r.refused}, available); refusal == nil {
			best = release.Version
		}
	}
	return best
}

// fetching are the commands that bring a bundle for a route's end: on a connected host, and
// then at the site. Names in capitals are for a person to fill in.
func (r *router) fetching(b *opened, from matrix.Minor) []string {
	var vsphere, drivers []string
	for _, vc := range r.facts.VCenters {
		vsphere = append(vsphere, vc.Version.String())
	}
	for _, d := range asked(r.rules) {
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

// ownMatrix is what to know before fetching, where the matrix of the bundle bears no signature and is
// not the one that is built in: it may be the site's own, which lock does not take by itself.
func ownMatrix(c *bundle.Contents) string {
	if c.MatrixSignature != nil || bytes.Equal(c.Matrix, matrix.Default()) {
		return ""
	}
	return "vdo-bundle lock takes the matrix that is built into it: if the bundle's, which is not signed, is your own, give it with --matrix FILE"
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
