package vcenter

import (
	"context"
	"net/url"
	"slices"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/mo"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/topology"
)

// Tagging changes tag categories, tags, and what has them. Its API has sessions of its own.
type Tagging struct {
	a       *Admin
	rc      *rest.Client
	m       *tags.Manager
	ids     map[string]string            // of categories, by name
	tags    map[string]map[string]string // ids of tags, by category and name
	types   map[string][]string          // of categories, by name
	objects map[string]preflight.Ref     // by path
}

// OpenTagging logs in to the API of tags. Close it.
func (a *Admin) OpenTagging(ctx context.Context) (*Tagging, error) {
	rc := rest.NewClient(a.c)
	bindTo(a.c, rc.Client)
	if err := rc.Login(ctx, url.UserPassword(a.target.Username, string(a.target.Password))); err != nil {
		return nil, a.fault("log in to the tags of", err)
	}
	return &Tagging{a: a, rc: rc, m: tags.NewManager(rc)}, nil
}

// Close logs out.
func (t *Tagging) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), logoutTimeout)
	defer cancel()
	_ = t.rc.Logout(ctx) // the vCenter ends idle sessions by itself
}

// Existing reads the categories with these names, and which of their tags are on objects at
// these paths, which v knows.
func (t *Tagging) Existing(ctx context.Context, v *preflight.VCenter, names, paths []string) (topology.Existing, error) {
	out := topology.Existing{Categories: map[string]topology.Category{}, Kinds: map[string]string{}, Attached: map[string]map[string][]string{}}
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	t.ids, t.types = map[string]string{}, map[string][]string{}
	t.tags, t.objects = map[string]map[string]string{}, map[string]preflight.Ref{}
	all, err := t.m.GetCategories(ctx)
	if err != nil {
		return out, t.a.fault("read the tag categories of", err)
	}
	tagOf := map[string]topology.Assignment{}
	for i := range all {
		if !wanted[all[i].Name] {
			continue
		}
		if err := t.category(ctx, &all[i], &out, tagOf); err != nil {
			return out, t.a.fault("read the tags of", err)
		}
	}
	if err := t.attached(ctx, v, paths, &out, tagOf); err != nil {
		return out, t.a.fault("read the tags of", err)
	}
	return out, nil
}

func (t *Tagging) category(ctx context.Context, c *tags.Category, out *topology.Existing, tagOf map[string]topology.Assignment) error {
	list, err := t.m.GetTagsForCategory(ctx, c.ID)
	if err != nil {
		return err
	}
	t.ids[c.Name], t.types[c.Name], t.tags[c.Name] = c.ID, c.AssociableTypes, map[string]string{}
	found := topology.Category{Single: c.Cardinality == "SINGLE", Types: c.AssociableTypes}
	for i := range list {
		t.tags[c.Name][list[i].Name] = list[i].ID
		found.Tags = append(found.Tags, list[i].Name)
		tagOf[list[i].ID] = topology.Assignment{Category: c.Name, Tag: list[i].Name}
	}
	out.Categories[c.Name] = found
	return nil
}

func (t *Tagging) attached(ctx context.Context, v *preflight.VCenter, paths []string, out *topology.Existing, tagOf map[string]topology.Assignment) error {
	byPath := map[string]preflight.Ref{}
	for r := range v.Objects {
		byPath[v.Path(r)] = r
	}
	var refs []mo.Reference
	pathOf := map[preflight.Ref]string{}
	for _, p := range paths {
		if r, ok := byPath[p]; ok && p != "" {
			t.objects[p], out.Kinds[p], pathOf[r] = r, r.Type, p
			out.Attached[p] = map[string][]string{}
			refs = append(refs, unref(r))
		}
	}
	if len(refs) == 0 {
		return nil
	}
	list, err := t.m.ListAttachedTagsOnObjects(ctx, refs)
	if err != nil {
		return err
	}
	for _, x := range list {
		path := pathOf[ref(x.ObjectID.Reference())]
		for _, id := range x.TagIDs {
			if a, ours := tagOf[id]; ours {
				out.Attached[path][a.Category] = append(out.Attached[path][a.Category], a.Tag)
			}
		}
	}
	return nil
}

// Do carries a step out, of a plan of what [Tagging.Existing] read.
func (t *Tagging) Do(ctx context.Context, s topology.Step) (err error) {
	switch s.Do {
	case topology.MakeCategory:
		t.tags[s.Category] = map[string]string{}
		t.ids[s.Category], err = t.m.CreateCategory(ctx, &tags.Category{Name: s.Category, Description: "regions and zones of the vSphere drivers", Cardinality: "SINGLE", AssociableTypes: s.Types})
	case topology.ExtendCategory:
		all := slices.Concat(t.types[s.Category], s.Types) // those before have to stay
		err = t.m.UpdateCategory(ctx, &tags.Category{ID: t.ids[s.Category], AssociableTypes: all})
	case topology.MakeTag:
		t.tags[s.Category][s.Tag], err = t.m.CreateTag(ctx, &tags.Tag{Name: s.Tag, CategoryID: t.ids[s.Category]})
	case topology.Attach:
		err = t.m.AttachTag(ctx, t.tags[s.Category][s.Tag], unref(t.objects[s.Path]))
	case topology.Detach:
		err = t.m.DetachTag(ctx, t.tags[s.Category][s.Tag], unref(t.objects[s.Path]))
	}
	return t.a.fault(s.String()+" in", err)
}
