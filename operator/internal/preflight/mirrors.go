package preflight

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Mirrors are where OpenShift's nodes look for images that pods name as upstream does.
type Mirrors struct {
	// Err is why it is not known.
	Err error
	// Repository is the bundle's, HOST/PATH, below which its images are, and Bundle the bundle
	// in it, REPOSITORY@DIGEST.
	Repository, Bundle string
	Rules              []MirrorRule
	// Own is the set that the operator writes, "Kind name", "" where it writes none. Its Rules
	// are as they are going to be: whether each node has taken them up is not known.
	Own string
	// Left are repositories that it does not lead, and why.
	Left map[string]string
	// Unwritten is why the operator cannot write it though it is asked to.
	Unwritten error
}

// MirrorRule is one entry of an ImageDigestMirrorSet, an ImageTagMirrorSet or an
// ImageContentSourcePolicy.
type MirrorRule struct {
	Set     string // Kind name
	Source  string // HOST[:PORT][/PATH…], or *.DOMAIN
	Mirrors []string
	// Policy of the source; "" is AllowContactingSource.
	Policy mirrorset.Policy
	// Tags is set of a rule for names with a tag: it leads no digest anywhere.
	Tags bool
}

func mirrorSets(s *Snapshot) []found {
	i := s.Images
	m := i.Mirrors
	if m.Err != nil {
		return []found{{what: fmt.Sprintf("the mirror sets could not be read: %v", m.Err), action: Warn, remedy: "grant the operator its rights again: vdoctl deploy BUNDLE"}}
	}
	mirror, err := image.ParseReference(m.Bundle)
	if err != nil {
		return []found{{what: fmt.Sprintf("the bundle's repository could not be read: %v", err), action: Warn, remedy: "correct spec.reference of the DriverBundle"}}
	}
	var out []found
	users := i.users()
	for _, source := range slices.Sorted(maps.Keys(users)) {
		ref, err := image.ParseReference(source)
		if err == nil {
			ref, err = ref.Below(mirror)
		}
		if err != nil {
			continue // rendering has named it so
		}
		l := leading(m.Rules, source)
		if slices.Contains(l.mirrors(), ref.Repository()) {
			continue
		}
		of := "no set has it"
		if l.source != "" {
			of = l.sets() + " leads elsewhere"
		}
		out = append(out, found{object: source, of: of, action: BlockInstall, drivers: users[source], what: m.what(source), remedy: m.remedy(source)})
	}
	return out
}

// what is wrong with repositories that no set leads to the bundle's.
func (m *Mirrors) what(source string) string {
	text := "pods name images as upstream does, and the nodes do not look for these repositories below " + m.Repository
	if why := m.Left[source]; why != "" {
		text += "; the operator does not lead them there: " + why
	}
	if m.Unwritten != nil {
		text += "; the operator cannot lead them there: " + m.Unwritten.Error()
	}
	return text
}

func (m *Mirrors) remedy(source string) string {
	if hint := fault.HintOf(m.Unwritten); hint != "" {
		return hint
	}
	return fmt.Sprintf("vdo-bundle mirror-config %s %s --runtime openshift | oc apply -f -; or set spec.imageNames of the DriverBundle to Repository", m.Bundle, m.Repository)
}

// users are the drivers that are gated with what each upstream repository has, sorted.
func (i *Images) users() map[string][]matrix.Driver {
	all := map[string][]matrix.Driver{}
	for _, w := range i.Workloads {
		for _, im := range w.Images {
			all[im.Upstream] = append(all[im.Upstream], gatedDrivers(w.Driver)...)
		}
	}
	for source, drivers := range all {
		slices.Sort(drivers)
		all[source] = slices.Compact(drivers)
	}
	return all
}

// led is what counts of all rules for a repository.
type led struct {
	source string // "" where nothing leads it
	rest   string // of the name, which follows the mirror
	rules  []MirrorRule
}

// leading knows, as the nodes' registries.conf, which the Machine Config Operator makes of all sets,
// one entry for a source, with the mirrors of all sets that have it; of the sources that a name
// begins with, the longest alone counts, be it of tags; and what follows the source in the name
// follows the mirror. An entry that has the source as its only mirror is none.
func leading(rules []MirrorRule, repository string) led {
	var l led
	for _, r := range rules {
		if n := covers(r.Source, repository); n >= 0 && len(r.Source) > len(l.source) && r.real() {
			l.source, l.rest = r.Source, repository[n:]
		}
	}
	for _, r := range rules {
		if l.source != "" && r.Source == l.source && r.real() {
			l.rules = append(l.rules, r)
		}
	}
	return l
}

// sets are the names of those that lead it.
func (l led) sets() string {
	var names []string
	for _, r := range l.rules {
		names = append(names, r.Set)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// mirrors are those for names with a digest.
func (l led) mirrors() []string {
	var all []string
	for _, r := range l.rules {
		for _, to := range r.Mirrors {
			if !r.Tags && to != r.Source {
				all = append(all, to+l.rest)
			}
		}
	}
	return all
}

func (r MirrorRule) real() bool {
	return slices.ContainsFunc(r.Mirrors, func(to string) bool { return to != r.Source })
}

// covers tells how much of a repository a source stands for, -1 where it does not. A source is
// a host, or as many whole parts of a name; *.DOMAIN is any host below it.
func covers(source, repository string) int {
	if domain, wild := strings.CutPrefix(source, "*"); wild {
		host, _, _ := strings.Cut(repository, "/")
		if strings.HasPrefix(domain, ".") && strings.HasSuffix(host, domain) {
			return len(host)
		}
		return -1
	}
	if repository == source || strings.HasPrefix(repository, source+"/") {
		return len(source)
	}
	return -1
}

// Beside returns what the operator's set has beside others' rules, and why it leaves sources out: of sources the
// longest alone counts on a node, so that an entry of one repository hides what sets of a broader source say of it.
// Nothing is taken away that the set has: nodes would be drained. The policy of an entry that is there stays for the
// nodes' sake, else it is that of others' entries: nodes take up nothing while two sets differ in it.
func Beside(desired, live mirrorset.Entries, others []MirrorRule) (entries mirrorset.Entries, left map[string]string) {
	left = map[string]string{}
	for _, e := range mirrorset.Union(desired, live) {
		l := leading(others, e.Source)
		had, isLive := live.Get(e.Source)
		switch {
		case isLive:
			e.Policy = had.Policy
		case l.source != "" && l.source != e.Source:
			left[e.Source] = "an entry of the operator would hide what " + l.sets() + " says of " + l.source
			continue
		case l.source != "":
			e.Policy = l.rules[0].Policy
		}
		entries = append(entries, e)
	}
	return entries, left
}
