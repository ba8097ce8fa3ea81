package cluster

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// mirrorKinds are OpenShift's kinds of what leads images to mirrors, with the field of their
// entries. ImageContentSourcePolicies came before the others.
var mirrorKinds = []struct {
	kind  schema.GroupVersionKind
	field string
	tags  bool
}{
	{schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ImageDigestMirrorSet"}, "imageDigestMirrors", false},
	{schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ImageTagMirrorSet"}, "imageTagMirrors", true},
	{schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1alpha1", Kind: "ImageContentSourcePolicy"}, "repositoryDigestMirrors", false},
}

// MirrorRules are where OpenShift's nodes look for images, of the kinds that are served.
func (c *Cluster) MirrorRules(ctx context.Context) ([]preflight.MirrorRule, error) {
	var all []preflight.MirrorRule
	for _, k := range mirrorKinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(k.kind.GroupVersion().WithKind(k.kind.Kind + "List"))
		if err := c.each(ctx, k.kind.Kind+"s", list, func() {
			for i := range list.Items {
				all = append(all, mirrorRules(&list.Items[i], k.field, k.tags)...)
			}
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func mirrorRules(set *unstructured.Unstructured, field string, tags bool) []preflight.MirrorRule {
	entries, _, _ := unstructured.NestedSlice(set.Object, "spec", field)
	var all []preflight.MirrorRule
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		source, _, _ := unstructured.NestedString(entry, "source")
		mirrors, _, _ := unstructured.NestedStringSlice(entry, "mirrors")
		if source != "" {
			all = append(all, preflight.MirrorRule{Set: set.GetKind() + " " + set.GetName(), Source: source, Mirrors: mirrors, Tags: tags})
		}
	}
	return all
}
