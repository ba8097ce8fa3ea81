package vcenter

import (
	"context"
	"slices"

	"github.com/vmware/govmomi/vapi/tags"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/topology"
)

// Tagging changes tag categories, tags, and what has them. Its API has sessions of its own.
type Tagging struct {
	a       *Admin
	m       *tags.Manager
	ids     map[string]string            // of categories, by name
	tags    map[string]map[string]string // ids of tags, by category and name
	objects map[string]preflight.Ref     // by path
}

// OpenTagging logs in to the API of tags. Close it, or the session of the vCenter.
func (a *Admin) OpenTagging(ctx context.Context) (*Tagging, error) {
	rc, err := a.automation(ctx)
	if err != nil {
		return nil, a.fault("log in to the tags of", err)
	}
	return &Tagging{a: a, m: tags.NewManager(rc)}, nil
}

// Close logs out.
func (t *Tagging) Close() { t.a.closeAutomation(context.Background()) }

// Existing reads the categories with these names. Which of their tags are on objects at these paths, v
// knows of an inspection that looked for the categories.
func (t *Tagging) Existing(ctx context.Context, v *preflight.VCenter, names, paths []string) (topology.Existing, error) {
	out := topology.Existing{Categories: map[string]topology.Category{}, Kinds: map[string]string{}, Attached: map[string]map[string][]string{}}
	t.ids, t.tags, t.objects = map[string]string{}, map[string]map[string]string{}, map[string]preflight.Ref{}
	all, err := t.m.GetCategories(ctx)
	if err != nil {
		return out, t.a.fault("read the tag categories of", err)
	}
	for _, c := range all {
		if !slices.Contains(names, c.Name) {
			continue
		}
		list, err := t.m.GetTagsForCategory(ctx, c.ID)
		if err != nil {
			return out, t.a.fault("read the tags of", err)
		}
		t.ids[c.Name], t.tags[c.Name] = c.ID, map[string]string{}
		found := topology.Category{Single: c.Cardinality == "SINGLE", Types: c.AssociableTypes}
		for i := range list {
			t.tags[c.Name][list[i].Name] = list[i].ID
			found.Tags = append(found.Tags, list[i].Name)
		}
		out.Categories[c.Name] = found
	}
	for r := range v.Objects {
		p := v.Path(r)
		if p == "" || !slices.Contains(paths, p) {
			continue
		}
		t.objects[p], out.Kinds[p], out.Attached[p] = r, r.Type, map[string][]string{}
		for _, tag := range v.Tagged[r] {
			out.Attached[p][tag.Name] = append(out.Attached[p][tag.Name], tag.Tag)
		}
	}
	return out, nil
}

// Do carries a step out, of a plan of what [Tagging.Existing] read.
func (t *Tagging) Do(ctx context.Context, s topology.Step) (err error) {
	switch s.Do {
	case topology.MakeCategory:
		t.tags[s.Category] = map[string]string{}
		t.ids[s.Category], err = t.m.CreateCategory(ctx, &tags.Category{Name: s.Category, Description: "regions and zones of the vSphere drivers", Cardinality: "SINGLE", AssociableTypes: s.Types})
	case topology.MakeTag:
		t.tags[s.Category][s.Tag], err = t.m.CreateTag(ctx, &tags.Tag{Name: s.Tag, CategoryID: t.ids[s.Category]})
	case topology.Attach:
		err = t.m.AttachTag(ctx, t.tags[s.Category][s.Tag], unref(t.objects[s.Path]))
	case topology.Detach:
		err = t.m.DetachTag(ctx, t.tags[s.Category][s.Tag], unref(t.objects[s.Path]))
	}
	return t.a.fault(s.String()+" in", err)
}
