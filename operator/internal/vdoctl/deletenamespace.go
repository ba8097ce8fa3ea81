package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// namespacedKinds are all kinds whose objects go with a namespace.
func (o *deleteOptions) namespacedKinds() ([]schema.GroupVersionKind, error) {
	cfg, err := o.cluster.config()
	if err != nil {
		return nil, err
	}
	asked, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, clusterFault("reach the cluster", err)
	}
	lists, err := asked.ServerPreferredNamespacedResources()
	if err != nil {
		return nil, clusterFault("read which kinds there are, to see what is in the namespaces", err)
	}
	var out []schema.GroupVersionKind
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists) {
		for _, r := range list.APIResources {
			out = append(out, schema.FromAPIVersionAndKind(list.GroupVersion, r.Kind))
		}
	}
	return out, nil
}

// keepNamespaces takes out of the plan the namespaces in which something is that is not of
// this installation, and says why they stay.
func (o *deleteOptions) keepNamespaces(ctx context.Context, c client.Reader, r *removal) ([]string, error) {
	var stays []string
	planned := plannedIn(*r)
	for i := range r.Stages {
		if r.Stages[i].Name != stageNamespaces {
			continue
		}
		var empty []client.Object
		for _, ns := range r.Stages[i].objects {
			left, err := o.foreign(ctx, c, ns.GetName(), planned)
			if err != nil {
				return nil, err
			}
			if len(left) == 0 {
				empty = append(empty, ns)
				continue
			}
			stays = append(stays, "Namespace "+ns.GetName()+": it holds what is not of this installation: "+firstOf(left))
		}
		r.Stages[i] = newStage(stageNamespaces, empty)
	}
	r.Stages = slices.DeleteFunc(r.Stages, func(s stage) bool { return len(s.objects) == 0 })
	return stays, nil
}

// stillEmpty looks into the namespaces again, right before they go.
func (o *deleteOptions) stillEmpty(ctx context.Context, c client.Reader, r removal, s stage) error {
	if s.Name != stageNamespaces {
		return nil
	}
	for _, ns := range s.objects {
		left, err := o.foreign(ctx, c, ns.GetName(), plannedIn(r))
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return &fault.Error{Reason: fault.Conflict, Op: "delete", Subject: "Namespace " + ns.GetName(), Err: errors.New("it now holds what is not of this installation: " + firstOf(left)),
				Hint: "all before it is deleted; run the same command again, and it stays"}
		}
	}
	return nil
}

func firstOf(names []string) string {
	text := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if n := len(names) - maxNamed; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// plannedIn are the objects of a plan, by describeObject.
func plannedIn(r removal) map[string]bool {
	out := map[string]bool{}
	for _, s := range r.Stages {
		for _, d := range s.Objects {
			out[d] = true
		}
	}
	return out
}

// foreign are the objects of a namespace that would go with it though nobody asked for that.
func (o *deleteOptions) foreign(ctx context.Context, c client.Reader, ns string, planned map[string]bool) ([]string, error) {
	find := o.namespacedKinds
	if o.kinds != nil {
		find = o.kinds
	}
	kinds, err := find()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, kind := range kinds {
		some, err := o.foreignOf(ctx, c, kind, ns, planned)
		if err != nil {
			return nil, clusterFault("see what is in the namespace "+ns+": "+kind.Kind, err)
		}
		out = append(out, some...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// foreignOf are those of one kind.
func (o *deleteOptions) foreignOf(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, ns string, planned map[string]bool) (out []string, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err = pages.Each(ctx, c, list, func() {
		for i := range list.Items {
			x := &list.Items[i]
			x.SetGroupVersionKind(kind)
			if d := describeObject(x); !planned[d] && !isDefault(x) && !isOfInstallation(x) {
				out = append(out, d)
			}
		}
	}, client.InNamespace(ns))
	if isGone(err) {
		return out, nil
	}
	return out, err
}

// isDefault is what a cluster makes itself in each namespace, or for another object.
func isDefault(x *metav1.PartialObjectMetadata) bool {
	if owner := metav1.GetControllerOf(x); owner != nil && owner.Kind != "Node" {
		return true // it goes with its owner, which is looked at
	}
	switch x.Kind {
	case "Event", "Lease", "Endpoints", "EndpointSlice", "ControllerRevision":
		return true
	case "ConfigMap":
		return slices.Contains([]string{"kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert"}, x.Name)
	case "ServiceAccount":
		return slices.Contains([]string{"default", "builder", "deployer"}, x.Name)
	case "RoleBinding":
		return slices.Contains([]string{"system:deployers", "system:image-builders", "system:image-pullers"}, x.Name)
	case "Secret":
		return strings.HasPrefix(x.Name, "default-token-") || strings.HasPrefix(x.Name, "default-dockercfg-")
	}
	return false
}

// isOfInstallation is what the operator made: with its label, or in its records' names.
func isOfInstallation(x *metav1.PartialObjectMetadata) bool {
	records := (x.Kind == "ConfigMap" || x.Kind == "Secret") && strings.HasPrefix(x.Name, "vdo-") && !strings.HasPrefix(x.Name, accountRecord)
	return records || x.Labels[render.LabelManagedBy] == "vdo-operator"
}
