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
	ca, _ := b.CAReference()
	for _, ref := range append(b.TrustSources(), ca) {
		if (k == kindSecret && ref.Secret == name) || (k == kindConfigMap && ref.ConfigMap == name) {
			return true
		}
	}
	return false
}
