// Package anew replaces objects whole that cannot be changed: a ConfigMap or Secret that somebody
// has made immutable, which who may write it can do and nobody can undo, or one that is so by
// itself. Whoever calls it sees to it that nothing is lost where it is killed in between: the next
// pass makes what is missing.
package anew

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Make deletes an object in the state that it was read in, and has another one created in its
// place. It fails with NotFound where somebody else has deleted it, and with Conflict where
// somebody's finalizer keeps it, which is told with what to do: it is not known whose that is.
func Make(ctx context.Context, c client.Client, r client.Reader, there client.Object, create func() error) error {
	uid, version := there.GetUID(), there.GetResourceVersion()
	if err := c.Delete(ctx, there, client.Preconditions{UID: &uid, ResourceVersion: &version}); err != nil {
		return err
	}
	err := create()
	if err == nil || apierrors.IsNotFound(err) || r.Get(ctx, client.ObjectKeyFromObject(there), there) != nil || there.GetDeletionTimestamp().IsZero() {
		return err
	}
	return kept(c, there)
}

func kept(c client.Client, o client.Object) error {
	gvk, err := c.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	kind := gvk.Kind
	return fault.Errorf(fault.Conflict, "make anew", kind+" "+o.GetNamespace()+"/"+o.GetName(),
		"have who set them take them off, or, if nobody does: kubectl patch "+strings.ToLower(kind)+" -n "+o.GetNamespace()+" "+o.GetName()+` --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'`,
		"the one that was deleted is kept by its finalizers %s", strings.Join(o.GetFinalizers(), ", "))
}
