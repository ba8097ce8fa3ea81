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

// Mirrors says where OpenShift's nodes look for images with upstream names.
type Mirrors struct {
	// Err is why it is unknown.
	Err error
	// Repository is the bundle's, HOST/PATH, which has the images below it. Bundle is the bundle there,
	// REPOSITORY@DIGEST.
	Repository, Bundle string
	Rules              []MirrorRule
	// Own is the set that the operator writes, "Kind name", "" if it writes none. Rules has its desired entries; nodes
	// may not have applied them yet.
	Own string
	// Left are repositories that Own does not map, and why.
	Left map[string]string
	// Unwritten is why the operator cannot write the requested set.
	Unwritten error
}

// MirrorRule is one entry of an ImageDigestMirrorSet, an ImageTagMirrorSet or an ImageContentSourcePolicy.
type MirrorRule struct {
	Set             string // Kind name
	mirrorset.Entry        // of a HOST[:PORT][/PATH…], or of *.DOMAIN
	// Tags is set for a rule for names with a tag: it maps no digest.
	Tags bool
}

func mirrorSets(s *Snapshot) []found {
	i := s.Images
	m := i.Mirrors
	if m.Err != nil {
		return []found{{what: fmt.Sprintf("the mirror sets could not be read: %v", m.Err), action: Warn, remedy: "grant the operator its permissions again: `vdoctl deploy BUNDLE`"}}
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
			continue // rendering has reported it
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

// what describes repositories that no set maps to the bundle's.
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
	return fmt.Sprintf("`vdo-bundle mirror-config %s %s --runtime openshift | oc apply -f -`; or set spec.imageNames of the DriverBundle to Repository", m.Bundle, m.Repository)
}

// users returns the drivers that are gated with each upstream repository, sorted.
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

type led struct {
	source string // "" if no rule maps it
	rest   string // the rest of the name, which is appended to the mirror
	rules  []MirrorRule
}

// leading returns the rules for a repository as in the nodes' registries.conf, which the Machine Config Operator
// merges from all sets. The longest matching source applies, even one for tags, with the mirrors of all sets. The rest
// of the name follows the mirror. An entry with its source as the only mirror does not count.
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

func (l led) sets() string {
	var names []string
	for _, r := range l.rules {
		names = append(names, r.Set)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

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

// covers returns the length of the part of a repository that a source matches, or -1. A source is a host or whole
// leading parts of a name; *.DOMAIN is any host below it.
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

// Beside returns the operator's entries next to others' rules, and why it omits sources. An entry for a longer source
// hides other sets' rules for a shorter one. Live entries and their policies stay, since a removal drains nodes. New
// ones get others' policy: nodes apply nothing while two sets differ in it.
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
