// Package topology computes which tags regions and zones need in a vCenter, and the changes for them. It has pure
// functions only.
//
// The drivers read regions and zones from tags: each level is a tag category. They walk up from a host, and a tag on a
// higher object replaces one on a lower object until each category has one. So tag each category at one height only.
// Every vCenter needs each category, or the storage driver's controller ends at its start. A category is created with
// at most one tag an object, for the types that nodes' VMs are in: datacenters, folders, clusters and hosts.
package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Namespace is before the types of a category. Since vSphere 7.0 U1 the Client needs it to assign the category's tags.
const Namespace = "urn:vim25:"

// Types returns the object types of a new category, as the API names them.
func Types() []string {
	return []string{"ClusterComputeResource", "Datacenter", "Folder", "HostSystem"}
}

// Assignment is a tag that an object has to have.
type Assignment struct{ Category, Tag, Path string }

// ParseAssignment parses CATEGORY:TAG=PATH.
func ParseAssignment(s string) (Assignment, error) {
	name, path, ok := strings.Cut(s, "=")
	category, tag, ok2 := strings.Cut(name, ":")
	a := Assignment{strings.TrimSpace(category), strings.TrimSpace(tag), strings.TrimSpace(path)}
	switch {
	case !ok || !ok2 || a.Category == "" || a.Tag == "" || a.Path == "":
		return a, fmt.Errorf("it is not of the form CATEGORY:TAG=PATH")
	case !strings.HasPrefix(a.Path, "/"):
		return a, fmt.Errorf("%q is not an inventory path: it begins with /", a.Path)
	}
	return a, Label(a.Tag)
}

// Label returns why a tag cannot be a zone: the drivers write it as the value of a node's label.
func Label(tag string) error {
	if why := validation.IsValidLabelValue(tag); len(why) > 0 {
		return fmt.Errorf("the tag %q is no value of a node's label: %s", tag, why[0])
	}
	return nil
}

// Key returns why the storage driver cannot use a category: it writes its name into the key of a node's label.
func Key(category string) error {
	if why := validation.IsQualifiedName("topology.csi.vmware.com/" + category); len(why) > 0 {
		return fmt.Errorf("its name cannot be in the key of a node's label: %s", why[0])
	}
	return nil
}

// Category is an existing tag category.
type Category struct {
	Single bool     // an object has at most one tag of it
	Types  []string // allowed object types, with or without Namespace; none for all
	Tags   []string
}

// Existing is the tags and categories of a vCenter.
type Existing struct {
	Categories map[string]Category
	// Kinds are the types of the assignments' objects, by path, as the API names them.
	Kinds map[string]string
	// Attached are the tags of objects by path and category.
	Attached map[string]map[string][]string
}

// Do is the kind of a step.
type Do string

// The kinds of steps.
const (
	MakeCategory Do = "make category"
	MakeTag      Do = "make tag"
	Detach       Do = "detach"
	Attach       Do = "attach"
)

// Step is one change.
type Step struct {
	Do       Do       `json:"do"`
	Category string   `json:"category"`
	Tag      string   `json:"tag,omitempty"`
	Path     string   `json:"path,omitempty"`
	Types    []string `json:"types,omitempty"` // of a category
}

// String returns the step as text.
func (s Step) String() string {
	switch s.Do {
	case MakeCategory:
		return fmt.Sprintf("%s %s (%s)", s.Do, s.Category, strings.Join(s.Types, ", "))
	case MakeTag:
		return fmt.Sprintf("%s %s of %s", s.Do, s.Tag, s.Category)
	case Detach:
		return fmt.Sprintf("%s %s:%s from %s", s.Do, s.Category, s.Tag, s.Path)
	}
	return fmt.Sprintf("%s %s:%s to %s", s.Do, s.Category, s.Tag, s.Path)
}

// Problem is the reason why an assignment is impossible.
type Problem struct {
	Text        string
	Absent      bool // the object does not exist
	Replaceable bool // it is possible with replace
}

// Plan computes the steps that create the categories and tag the objects. With replace, it detaches another tag of the
// category, otherwise that is a problem. Problems are sorted; their assignments have no steps. Notes are about harmful
// settings that cannot be changed.
func Plan(categories []string, want []Assignment, has Existing, replace bool) (steps []Step, problems []Problem, notes []string) {
	p := &planner{has: has, replace: replace, tags: map[string]bool{}}
	for _, a := range want {
		categories = append(categories, a.Category)
	}
	categories = slices.Compact(slices.Sorted(slices.Values(categories)))
	for _, c := range categories {
		p.category(c)
	}
	want = slices.SortedFunc(slices.Values(want), func(a, b Assignment) int {
		return cmp.Or(cmp.Compare(a.Category, b.Category), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Tag, b.Tag))
	})
	want = slices.Compact(want)
	for i, a := range want {
		if i > 0 && want[i-1].Category == a.Category && want[i-1].Path == a.Path {
			p.problem("%s is given two tags of %s: %s and %s", a.Path, a.Category, want[i-1].Tag, a.Tag)
			continue
		}
		p.assign(a)
	}
	slices.SortFunc(p.problems, func(a, b Problem) int { return cmp.Compare(a.Text, b.Text) })
	return p.steps, slices.Compact(p.problems), p.notes
}

type planner struct {
	has      Existing
	replace  bool
	tags     map[string]bool // that have to be created
	steps    []Step
	problems []Problem
	notes    []string
}

func (p *planner) problem(format string, args ...any) {
	p.problems = append(p.problems, Problem{Text: fmt.Sprintf(format, args...)})
}

// category plans a missing category. An existing one that allows several tags an object cannot be changed.
func (p *planner) category(name string) {
	now, ok := p.has.Categories[name]
	switch {
	case !ok:
		p.steps = append(p.steps, Step{Do: MakeCategory, Category: name, Types: Types()})
	case !now.Single:
		p.notes = append(p.notes, fmt.Sprintf("category %s allows an object several tags, of which a driver takes any one, and that cannot be changed: see that no object has two", name))
	}
}

func (p *planner) assign(a Assignment) {
	kind, ok := p.has.Kinds[a.Path]
	types := p.has.Categories[a.Category].Types
	switch {
	case !ok:
		p.problems = append(p.problems, Problem{Text: "there is no object " + a.Path, Absent: true})
		return
	case !slices.Contains(Types(), kind):
		p.problem("%s is a %s: tags of zones are on a datacenter, folder, cluster or host", a.Path, kind)
		return
	case len(types) > 0 && !slices.Contains(types, kind) && !slices.Contains(types, Namespace+kind):
		p.problem("category %s is not for a %s, as %s is one: associate it with that kind of object first", a.Category, kind, a.Path)
		return
	}
	on := p.has.Attached[a.Path][a.Category]
	others := slices.DeleteFunc(slices.Clone(on), func(t string) bool { return t == a.Tag })
	if len(others) > 0 && !p.replace {
		p.problems = append(p.problems, Problem{Replaceable: true,
			Text: fmt.Sprintf("%s has the tag %s of %s, not %s: --replace takes it off", a.Path, strings.Join(others, ", "), a.Category, a.Tag)})
		return
	}
	if !slices.Contains(p.has.Categories[a.Category].Tags, a.Tag) && !p.tags[a.Category+":"+a.Tag] {
		p.tags[a.Category+":"+a.Tag] = true
		p.steps = append(p.steps, Step{Do: MakeTag, Category: a.Category, Tag: a.Tag})
	}
	for _, t := range others {
		p.steps = append(p.steps, Step{Do: Detach, Category: a.Category, Tag: t, Path: a.Path})
	}
	if !slices.Contains(on, a.Tag) {
		p.steps = append(p.steps, Step{Do: Attach, Category: a.Category, Tag: a.Tag, Path: a.Path})
	}
}
