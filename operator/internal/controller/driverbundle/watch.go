package driverbundle

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// kind of what a DriverBundle reads.
type kind int

const (
	kindSecret kind = iota
	kindConfigMap
)

// users maps a ConfigMap or Secret to the DriverBundles that read it.
func users(c client.Reader, k kind) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		var all v1alpha1.DriverBundleList
		// All, since the cache knows Secrets of a namespace (kube-system) that it has no
		// DriverBundles of, and to ask for those is an error.
		if err := c.List(ctx, &all); err != nil {
			log.FromContext(ctx).Error(err, "list DriverBundles")
			return nil
		}
		var out []reconcile.Request
		for i := range all.Items {
			if all.Items[i].Namespace == o.GetNamespace() && reads(&all.Items[i], k, o.GetName()) {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
			}
		}
		return out
	}
}

// reads reports whether a DriverBundle reads a ConfigMap or Secret of its namespace.
func reads(b *v1alpha1.DriverBundle, k kind, name string) bool {
	if pull, _ := b.PullSecretName(); k == kindSecret && pull == name {
		return true
	}
	refs := make([]v1alpha1.KeyReference, 0, 4)
	ca, _ := b.CAReference()
	refs = append(refs, ca)
	if b.Spec.Trust == nil {
		refs = append(refs, v1alpha1.KeyReference{ConfigMap: v1alpha1.DefaultTrustName})
	}
	refs = append(refs, sources(b.Spec.Trust)...)
	refs = append(refs, sources(b.Spec.MatrixTrust)...)
	for _, ref := range refs {
		if (k == kindSecret && ref.Secret == name) || (k == kindConfigMap && ref.ConfigMap == name) {
			return true
		}
	}
	return false
}

// sources are where a policy takes keys and certificates from.
func sources(p *v1alpha1.TrustPolicy) []v1alpha1.KeyReference {
	if p == nil {
		return nil
	}
	var named []*v1alpha1.KeyReference
	for _, key := range p.Keys {
		named = append(named, key.From)
	}
	for _, c := range p.Certificates {
		named = append(named, c.RootsFrom, c.IntermediatesFrom, c.TimestampRootsFrom)
	}
	for _, k := range p.Keyless {
		named = append(named, k.TrustedRootFrom)
	}
	var out []v1alpha1.KeyReference
	for _, ref := range named {
		if ref != nil {
			out = append(out, *ref)
		}
	}
	return out
}
