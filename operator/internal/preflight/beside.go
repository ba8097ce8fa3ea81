package preflight

import (
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
)

// Of sources the longest alone counts on a node, so that an entry of one repository hides what sets
// of a broader source say of it, of which images of other software may be in need. And nodes take
// up nothing at all while two sets have one source with different policies, which OpenShift says in
// its MachineConfigPools.

// OwnSet is what the operator's set is made of.
type OwnSet struct {
	Wanted mirrorset.Entries // of bundles
	Live   mirrorset.Entries // that it has on the cluster
}

// Left is why a source, or a mirror of it, is left out, and what to do.
type Left struct{ Why, Remedy string }

// Beside returns what the operator's set has beside others' rules, and the sources that it leaves
// out, or adds nothing to. Nothing is taken away that it has: nodes would be drained. Where
// others lead a source as a part of a broader one they go on doing so, after the operator's mirror,
// which it says itself, and the policy is theirs. The policy of an entry that is there stays for the
// nodes' sake.
func (o OwnSet) Beside(others []MirrorRule) (entries mirrorset.Entries, left map[string]Left) {
	left = map[string]Left{}
	for _, e := range mirrorset.Union(o.Wanted, o.Live) {
		l := leading(others, e.Source)
		_, known := o.Live.Get(e.Source)
		if tags := l.tags(); l.broader() && tags != "" && !known {
			left[e.Source] = Left{
				Why:    "an entry of the operator would hide from names with a tag what " + tags + " says of " + l.source,
				Remedy: "apply an ImageTagMirrorSet of just {} that leads where the broader one does, which drains the nodes; or lead it by a set of your own",
			}
			continue
		}
		if l.broader() {
			for _, to := range l.mirrors() {
				if to != e.Source && !slices.Contains(e.Mirrors, to) {
					e.Mirrors = append(e.Mirrors, to)
				}
			}
		}
		e.Policy = o.policy(e, l, others)
		entries = append(entries, e)
	}
	return entries, left
}

func (o OwnSet) policy(e mirrorset.Entry, l led, others []MirrorRule) mirrorset.Policy {
	if live, there := o.Live.Get(e.Source); there {
		return live.Policy
	}
	for _, r := range others {
		if r.Source == e.Source {
			return r.Policy
		}
	}
	if l.broader() && l.never() {
		return mirrorset.NeverContactSource
	}
	return e.Policy
}
