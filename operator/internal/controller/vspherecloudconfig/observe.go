package vspherecloudconfig

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// inputs are what a resource refers to.
type inputs struct {
	target  vcenter.Target
	version string // identifies the objects read, whatever is in them
}

// observe reads the Secret and the CA.
func observe(ctx context.Context, c client.Reader, vcc *v1alpha1.VsphereCloudConfig) (inputs, error) {
	read, err := credentials.Read(ctx, c, vcc)
	return inputs{version: read.Version, target: vcenter.TargetOf(vcc, read.Username, read.Password, read.CA)}, err
}

// The index of resources by what they refer to.
const indexField = "references"

func addIndex(ix client.FieldIndexer) error {
	return ix.IndexField(context.Background(), &v1alpha1.VsphereCloudConfig{}, indexField, func(o client.Object) []string {
		vcc, ok := o.(*v1alpha1.VsphereCloudConfig)
		if !ok {
			return nil
		}
		return references(vcc)
	})
}

// references are the names of what a resource refers to, by kind.
func references(vcc *v1alpha1.VsphereCloudConfig) []string {
	refs := []string{"Secret/" + vcc.Spec.Credentials}
	if ca := vcc.Spec.CA; ca != nil && ca.ConfigMap != "" {
		refs = append(refs, "ConfigMap/"+ca.ConfigMap)
	} else if ca != nil {
		refs = append(refs, "Secret/"+ca.Secret)
	}
	return refs
}

// users finds the resources that refer to an object.
type users struct{ client.Reader }

func (u users) ofSecret(ctx context.Context, o client.Object) []reconcile.Request {
	return u.of(ctx, "Secret/", o)
}

func (u users) ofConfigMap(ctx context.Context, o client.Object) []reconcile.Request {
	return u.of(ctx, "ConfigMap/", o)
}

// of lists those of the object's own namespace, and all where it is in kube-system.
// The list comes from the cache; it cannot fail while the manager runs.
func (u users) of(ctx context.Context, kind string, o client.Object) []reconcile.Request {
	opts := []client.ListOption{client.MatchingFields{indexField: kind + o.GetName()}}
	if o.GetNamespace() != credentials.Fallback {
		opts = append(opts, client.InNamespace(o.GetNamespace()))
	}
	var list v1alpha1.VsphereCloudConfigList
	if err := u.List(ctx, &list, opts...); err != nil {
		return nil
	}
	return requests(list.Items)
}
