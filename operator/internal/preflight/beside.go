package preflight

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Of sources the longest alone counts on a node, so that an entry of one repository hides what sets
// of a broader source say of it, of which images of other software may be in need. And nodes take
// up nothing at all while two sets have one source with different policies.

// OwnSet is what the operator's set is made of.
type OwnSet struct {
	Wanted mirrorset.Entries // of bundles
	Was    mirrorset.Entries // that it was written with
	Live   mirrorset.Entries // that it has on the cluster
}

// Left is why a source, or a mirror of it, is left out, and what to do.
type Left struct{ Why, Remedy string }

// Beside returns what the operator's set has beside others' rules, and the sources that it leaves
// out, or adds nothing to. Nothing is taken away that it has or had: nodes would be drained. Where
// others lead a source as a part of a broader one they go on doing so, after the operator's mirror,
// which it says itself, and the policy is theirs. The policy of an entry that is there stays for the
// nodes' sake.
func (o OwnSet) Beside(others []MirrorRule) (entries mirrorset.Entries, left map[string]Left) {
	left = map[string]Left{}
	there := mirrorset.Union(o.Was, o.Live)
	for _, e := range mirrorset.Union(o.Wanted, o.Was, o.Live) {
		l := leading(others, e.Source)
		_, known := there.Get(e.Source)
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

// disagreements are sources that sets give different policies, be it of whatever images: it keeps
// all sets from the nodes.
func (m *Mirrors) disagreements(users map[string][]matrix.Driver) []found {
	by := map[string]map[mirrorset.Policy][]MirrorRule{}
	for _, r := range m.Rules {
		if by[r.Source] == nil {
			by[r.Source] = map[mirrorset.Policy][]MirrorRule{}
		}
		by[r.Source][r.Policy] = append(by[r.Source][r.Policy], r)
	}
	drivers := slices.Concat(slices.Collect(maps.Values(users))...)
	slices.Sort(drivers)
	drivers = slices.Compact(drivers)
	var out []found
	for _, source := range slices.Sorted(maps.Keys(by)) {
		if len(by[source]) < 2 {
			continue
		}
		var says []string
		for _, p := range slices.Sorted(maps.Keys(by[source])) {
			says = append(says, setsOf(by[source][p])+" "+string(cmp.Or(p, mirrorset.AllowContactingSource)))
		}
		out = append(out, found{
			object: source, action: BlockInstall, drivers: drivers,
			what:   "sets give one source different policies, and OpenShift writes nothing of any set onto the nodes until they are the same: " + strings.Join(says, ", "),
			remedy: "give {} the same mirrorSourcePolicy in all of them: nodes that have another one now are drained",
		})
	}
	return out
}

// hidden is what sets of broader sources say of a repository and a set of just that one hides.
func (m *Mirrors) hidden(repository string, drivers []matrix.Driver) []found {
	l := leading(m.Rules, repository)
	broader := leading(slices.DeleteFunc(slices.Clone(m.Rules), func(r MirrorRule) bool { return r.Source == repository }), repository)
	if l.broader() || broader.source == "" {
		return nil
	}
	lacks := slices.ContainsFunc(broader.mirrors(), func(to string) bool { return to != repository && !slices.Contains(l.mirrors(), to) })
	var hides, remedies []string
	if lacks {
		hides = append(hides, "that "+broader.sets()+" leads "+broader.source+" to "+broader.to())
		remedies = append(remedies, "add to its mirrors in "+l.sets()+" those of "+broader.source+", with the rest of the name")
	}
	if tags := broader.tags(); tags != "" && l.tags() == "" {
		hides = append(hides, "where "+tags+" leads names of "+broader.source+" with a tag")
		remedies = append(remedies, "apply an ImageTagMirrorSet of just this source, which drains the nodes")
	}
	if broader.never() && !l.never() {
		hides = append(hides, "that "+broader.sets()+" has "+broader.source+" never be asked")
		remedies = append(remedies, "set its mirrorSourcePolicy in "+l.sets()+" to NeverContactSource, which drains the nodes")
	}
	if len(hides) == 0 {
		return nil
	}
	if left := m.Left[repository]; left.Why != "" {
		hides[len(hides)-1] += "; the operator does not add that: " + left.Why
		remedies = append(remedies, left.Remedy)
	}
	return []found{{
		object: repository, action: Warn, drivers: drivers,
		what: "of sources that a name begins with the nodes know the longest alone, so that other software may not find images of these repositories: " +
			l.sets() + " hides " + strings.Join(hides, ", "),
		remedy: "of {}: " + strings.Join(remedies, "; "),
	}}
}
