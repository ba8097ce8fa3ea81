package cluster

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// MirrorRules returns the mirror rules of OpenShift's nodes, of all served kinds.
func (c *Cluster) MirrorRules(ctx context.Context) ([]preflight.MirrorRule, error) {
	var all []preflight.MirrorRule
	for _, k := range mirrorset.Kinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind + "List"})
		if err := c.each(ctx, k.Kind+"s", list, func() {
			for i := range list.Items {
				set := list.Items[i].GetKind() + " " + list.Items[i].GetName()
				for _, e := range mirrorset.Read(list.Items[i].Object, k) {
					all = append(all, preflight.MirrorRule{Set: set, Source: e.Source, Mirrors: e.Mirrors, Policy: e.Policy, Tags: k.Tags})
				}
			}
		}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// MachineConfigPools returns the pools of OpenShift's nodes, none if the kind is not served.
func (c *Cluster) MachineConfigPools(ctx context.Context) ([]decide.Pool, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "machineconfiguration.openshift.io", Version: "v1", Kind: "MachineConfigPoolList"})
	var all []decide.Pool
	err := c.each(ctx, "MachineConfigPools", list, func() {
		for i := range list.Items {
			all = append(all, poolOf(&list.Items[i]))
		}
	})
	if fault.ReasonOf(err) == fault.Forbidden {
		f := classify("list", "MachineConfigPools", err)
		f.Hint = "apply the permissions of this release: `vdo-bundle install-manifests BUNDLE --mirror-set | kubectl apply -f -`; " +
			"or add MachineConfigPools to spec.upgradePolicy.ignoreInterlocks"
		return nil, f
	}
	return all, err
}

func poolOf(o *unstructured.Unstructured) decide.Pool {
	p := decide.Pool{Name: o.GetName()}
	p.Paused, _, _ = unstructured.NestedBool(o.Object, "spec", "paused")
	p.Target, _, _ = unstructured.NestedString(o.Object, "spec", "configuration", "name")
	p.Has, _, _ = unstructured.NestedString(o.Object, "status", "configuration", "name")
	p.Updates, _, _ = unstructured.NestedInt64(o.Object, "status", "updatedMachineCount")
	p.Nodes, _, _ = unstructured.NestedInt64(o.Object, "status", "machineCount")
	observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		if condition["status"] != "True" {
			continue
		}
		switch condition["type"] {
		case "Updated":
			p.Updated = observed >= o.GetGeneration()
		case "Degraded", "RenderDegraded", "NodeDegraded":
			p.Degraded = true
		}
	}
	return p
}
