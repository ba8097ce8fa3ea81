package driverbundle

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// listing is a reader that finds CompatibilityConfigs as it is told to.
type listing struct {
	client.Reader
	err error
}

func (l listing) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*v1alpha1.CompatibilityConfigList); ok {
		return l.err // nil: none is listed yet
	}
	return l.Reader.List(ctx, list, opts...)
}

// Manifests of an earlier release know nothing of CompatibilityConfigs. Applied anew
// they must not take away the DriverBundle, and with it what the drivers are trusted by.
func TestADriverBundleStaysWhileItsCompatibilityConfigMayBeThere(t *testing.T) {
	cfg := cluster.Config(t)
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	k, err := client.New(cfg, client.Options{Scheme: scheme})
	require.NoError(t, err)
	account, refused := cluster.Operator.Within(cfg)
	t.Cleanup(func() { refused.None(t) })
	own, err := client.New(account, client.Options{Scheme: scheme})
	require.NoError(t, err)
	ns := cluster.Namespace(t, cfg)
	require.NoError(t, cluster.Operator.Grant(t.Context(), k))
	require.NoError(t, cluster.Operator.GrantIn(t.Context(), k, ns))
	c := &v1alpha1.CompatibilityConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "compat"},
		Spec:       v1alpha1.CompatibilityConfigSpec{MatrixURL: "oci://mirror.site/vdo:1"},
	}
	require.NoError(t, k.Create(t.Context(), c))
	key := types.NamespacedName{Namespace: ns, Name: v1alpha1.LegacyMatrixName}
	pass := func(reader client.Reader) error {
		r := &legacy{reader: reader, client: own}
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		require.NoError(t, err)
		return k.Get(t.Context(), key, &v1alpha1.DriverBundle{})
	}
	require.NoError(t, pass(own), "made")
	resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "compatibilityconfigs"}
	for name, unread := range map[string]error{
		"forbidden":      apierrors.NewForbidden(resource, "", nil),
		"not found":      apierrors.NewNotFound(resource, ""),
		"no such kind":   &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: resource.Group, Kind: kindCompatibility}},
		"none is listed": nil,
	} {
		require.NoError(t, pass(listing{own, unread}), name)
	}
	require.NoError(t, k.Delete(t.Context(), c))
	require.True(t, apierrors.IsNotFound(pass(own)), "its owner is known to be gone")
}
