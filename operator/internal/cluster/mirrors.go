package cluster

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// MirrorRules are where OpenShift's nodes look for images, of the kinds that are served.
func (c *Cluster) MirrorRules(ctx context.Context) ([]preflight.MirrorRule, error) {
	var all []preflight.MirrorRule
	for _, k := range mirrorset.Kinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind + "List"})
		if err := c.each(ctx, k.Kind+"s", list, func() {
			for i := range list.Items {
				all = append(all, mirrorRules(&list.Items[i], k)...)
			}
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func mirrorRules(set *unstructured.Unstructured, kind mirrorset.Kind) []preflight.MirrorRule {
	var all []preflight.MirrorRule
	for _, e := range mirrorset.Read(set.Object, kind) {
		all = append(all, preflight.MirrorRule{Set: set.GetKind() + " " + set.GetName(), Source: e.Source, Mirrors: e.Mirrors, Policy: e.Policy, Tags: kind.Tags})
	}
	return all
}
