package vdoctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/topology"
)

// tagUse knows what of the cluster depends on tags: nodes by their labels, volumes by the node
// affinity of their PersistentVolumes, which nobody can change.
type tagUse struct {
	wants   preflight.Wants
	cluster preflight.Cluster
	volumes map[string][]label // by PersistentVolume
}

type label struct{ key, value string }

// is reports whether a label comes from a tag. Drivers write labels that do not name the category
// for the cloud provider's tags, and where the storage driver's labels are configured.
func (l label) is(t preflight.Category) bool {
	category, own := strings.CutPrefix(l.key, "topology.csi.vmware.com/")
	return l.value == t.Tag && (own && category == t.Name || !own && preflight.IsZoneLabel(l.key))
}

// boundVolumes returns the labels that the node affinity of each PersistentVolume requires.
func boundVolumes(ctx context.Context, c client.Reader) (map[string][]label, error) {
	out := map[string][]label{}
	var list corev1.PersistentVolumeList
	err := pages.Each(ctx, c, &list, func() {
		for i := range list.Items {
			pv := &list.Items[i]
			if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
				continue
			}
			for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
				for _, e := range term.MatchExpressions {
					for _, v := range e.Values {
						out[pv.Name] = append(out[pv.Name], label{e.Key, v})
					}
				}
			}
		}
	})
	if err != nil {
		return nil, clusterFault("read the PersistentVolumes", err)
	}
	return out, nil
}

// refuse returns why steps may not be done in a vCenter: nodes or volumes use a tag that they take
// off an object, or that a nearer one takes the place of.
func (u *tagUse) refuse(v preflight.VCenter, steps []topology.Step) error {
	lost := map[preflight.Category][]string{} // each with the nodes that lose it
	for _, s := range steps {
		if s.Do == topology.Detach {
			lost[preflight.Category{Name: s.Category, Tag: s.Tag}] = nil
		}
	}
	if len(lost) > 0 && u.cluster.Err != nil {
		return &fault.Error{Reason: fault.ReasonOf(u.cluster.Err), Op: "take tags off in", Subject: v.Name,
			Err:  fmt.Errorf("the cluster does not say whether nodes or volumes use them: %w", u.cluster.Err),
			Hint: "name the cluster with --kubeconfig and --context; before there is one, add --no-cluster"}
	}
	for node, tags := range u.moved(v, steps) {
		for _, t := range tags {
			lost[t] = append(lost[t], node)
		}
	}
	var errs []error
	for tag, nodes := range lost {
		if used := u.users(tag, nodes); len(used) > 0 {
			errs = append(errs, &fault.Error{Reason: fault.Refused, Op: "move a zone in", Subject: v.Name,
				Err:  fmt.Errorf("the tag %s of %s is used by %s", tag.Tag, tag.Name, shortList(used)),
				Hint: "move the data of these volumes and delete these nodes before you change the tag"})
		}
	}
	return fault.Join(errs...)
}

// users are the nodes among some, and the volumes, that use a tag.
func (u *tagUse) users(tag preflight.Category, nodes []string) []string {
	var out []string
	for i := range u.cluster.Nodes {
		n := &u.cluster.Nodes[i]
		for k, v := range n.Zones {
			if slices.Contains(nodes, n.Name) && (label{k, v}).is(tag) {
				out = append(out, "node "+n.Name)
			}
		}
	}
	for name, labels := range u.volumes {
		if slices.ContainsFunc(labels, func(l label) bool { return l.is(tag) }) {
			out = append(out, "PersistentVolume "+name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// moved are the tags that nodes have now, and would not have after the steps.
func (u *tagUse) moved(v preflight.VCenter, steps []topology.Step) map[string][]preflight.Category {
	after := v
	after.Tagged = stepped(&v, steps)
	now, then := u.placed(v), u.placed(after)
	for node, tags := range now {
		now[node] = slices.DeleteFunc(tags, func(t preflight.Category) bool { return slices.Contains(then[node], t) })
	}
	return now
}

// placed are the tags that nodes get.
func (u *tagUse) placed(v preflight.VCenter) map[string][]preflight.Category {
	out := map[string][]preflight.Category{}
	list := []preflight.VCenter{v}
	for _, p := range preflight.Placements(preflight.Snapshot{Wants: u.wants, Cluster: u.cluster, VCenters: list}) {
		for _, l := range p.Levels {
			if l.Tag != "" {
				out[p.Node] = append(out[p.Node], preflight.Category{Name: l.Category, Tag: l.Tag})
			}
		}
	}
	return out
}

// stepped are the tags on objects after the steps.
func stepped(v *preflight.VCenter, steps []topology.Step) map[preflight.Ref][]preflight.Category {
	byPath := map[string]preflight.Ref{}
	for r := range v.Objects {
		byPath[v.Path(r)] = r
	}
	out := maps.Clone(v.Tagged)
	for _, s := range steps {
		r, tag := byPath[s.Path], preflight.Category{Name: s.Category, Tag: s.Tag}
		switch s.Do {
		case topology.Attach:
			out[r] = append(slices.Clone(out[r]), tag)
		case topology.Detach:
			out[r] = slices.DeleteFunc(slices.Clone(out[r]), func(t preflight.Category) bool { return t == tag })
		}
	}
	return out
}

// tagUse reads what of the cluster may use tags.
func (o *topologyOptions) tagUse(ctx context.Context, s *site, state preflight.Cluster) (*tagUse, error) {
	u := &tagUse{wants: s.wants, cluster: state}
	c, err := o.cluster.client()
	if o.noCluster || state.Err != nil || err != nil {
		return u, nil //nolint:nilerr // state has it, and it matters only where a tag is taken off
	}
	u.volumes, err = boundVolumes(ctx, c)
	return u, err
}
