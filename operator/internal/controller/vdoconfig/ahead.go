package vdoconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

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
	return &fault.Error{
		Reason: fault.Incompatible, Op: "look ahead to", Subject: strings.Join(a.looked, ", "), Err: fmt.Errorf("%s", few(a.lacks)),
		Hint: "do that before the upgrade; what is installed stays",
	}
}

// target is an upgrade to look ahead to.
type target struct {
	name  string
	facts matrix.Facts
	// covers says why a release does not serve what comes, "" where it does.
	covers func(matrix.Release) string
}

// lookAhead asks, for the next Kubernetes minor and for the next update and the next major
// version of each vCenter, two things that are apart: whether what is installed goes on
// working, which has to before the upgrade, and whether the bundle has what is installed
// after it. Of a cloud provider only the latter counts for Kubernetes: each release serves
// one minor, and it is exchanged once all API servers are upgraded.
func lookAhead(q question, rules map[matrix.Driver]matrix.Rule, pins matrix.Pins) ahead {
	var a ahead
	for _, t := range q.targets() {
		a.looked = append(a.looked, t.name)
		for _, d := range asked(rules) {
			if why := q.installedLacks(d, t); why != "" {
				a.lacks = append(a.lacks, t.name+": "+why)
			}
		}
		if why := q.bundleLacks(t, rules, pins); why != "" {
			a.lacks = append(a.lacks, t.name+": "+why)
		}
	}
	return a
}

func (q *question) targets() []target {
	var all []target
	if t, err := kubernetesTarget(q.facts, q.facts.Kubernetes.Minor().Next()); err == nil {
		all = append(all, t)
	}
	for i, vc := range q.facts.VCenters {
		for _, next := range following(vc.Version) {
			all = append(all, vCenterTarget(q.facts, i, next))
		}
	}
	return all
}

// kubernetesTarget is an upgrade of Kubernetes to a minor.
func kubernetesTarget(facts matrix.Facts, minor matrix.Minor) (target, error) {
	v, err := matrix.ParseKubernetes(minor.String())
	facts.Kubernetes = v
	return target{name: "Kubernetes " + minor.String(), facts: facts, covers: func(r matrix.Release) string {
		if r.Driver == matrix.CPI || r.Kubernetes.Contains(minor) {
			return ""
		}
		return "serves Kubernetes " + r.Kubernetes.String()
	}}, err
}

// vCenterTarget is an upgrade of one vCenter.
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
	i := slices.IndexFunc(q.document.Releases, func(r matrix.Release) bool { return r.ReleaseID.Compare(id) == 0 })
	if i < 0 {
		return fmt.Sprintf("%s is installed, and the matrix does not list it", id)
	}
	if why := t.covers(q.document.Releases[i]); why != "" {
		return fmt.Sprintf("%s is installed and %s: upgrade it first", id, why)
	}
	return ""
}

// bundleLacks says what the bundle has to hold for a target and does not.
func (q *question) bundleLacks(t target, rules map[matrix.Driver]matrix.Rule, pins matrix.Pins) string {
	policy := matrix.Policy{Rules: rules, Refused: q.refused}
	if _, refusal := matrix.Resolve(q.document, t.facts, pins, policy, q.available); refusal == nil {
		return ""
	}
	policy.Refused = nil
	selection, refusal := matrix.Resolve(q.document, t.facts, nil, policy, nil)
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
