package vcenter

import (
	"context"

	"github.com/vmware/govmomi/vapi/tags"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/topology"
)

// TagsAt returns the categories of an inspection, and the kinds and tags of objects at paths.
func TagsAt(v *preflight.VCenter, paths []string) topology.Existing {
	out := topology.Existing{Categories: v.Categories,
		Kinds: map[string]string{}, Attached: map[string]map[string][]string{}}
	for _, p := range paths {
		r, ok := v.At(p)
		if !ok {
			continue
		}
		out.Kinds[p], out.Attached[p] = r.Type, map[string][]string{}
		for _, tag := range v.Tagged[r] {
			out.Attached[p][tag.Name] = append(out.Attached[p][tag.Name], tag.Tag)
		}
	}
	return out
}

// ChangeTags executes a step of a plan for the state v. The API of tags has its own sessions.
func (a *Admin) ChangeTags(ctx context.Context, v *preflight.VCenter, s topology.Step) error {
	rc, err := a.automation(ctx)
	if err != nil {
		return a.fault("log in to the tags of", err)
	}
	m, tag := tags.NewManager(rc), &tags.Tag{}
	if s.Do == topology.Attach || s.Do == topology.Detach {
		tag, err = m.GetTagForCategory(ctx, s.Tag, s.Category)
	}
	r, _ := v.At(s.Path)
	switch {
	case err != nil:
	case s.Do == topology.MakeCategory:
		c := &tags.Category{Name: s.Category, Cardinality: "SINGLE", Description: "regions and zones of the vSphere drivers"}
		for _, kind := range s.Types {
			c.AssociableTypes = append(c.AssociableTypes, topology.Namespace+kind)
		}
		_, err = m.CreateCategory(ctx, c)
	case s.Do == topology.MakeTag:
		_, err = m.CreateTag(ctx, &tags.Tag{Name: s.Tag, CategoryID: s.Category})
	case s.Do == topology.Attach:
		err = m.AttachTag(ctx, tag.ID, r)
	case s.Do == topology.Detach:
		err = m.DetachTag(ctx, tag.ID, r)
	}
	return a.fault(s.String()+" in", err)
}
