package vdoctl

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// Another repository is accepted before the ConfigMap names it, and also where somebody else has
// changed the ConfigMap already.
func TestMatrixSetAcceptsAnotherRepository(t *testing.T) {
	const from, to = "mirror.site/vdo:1", "other.site/vdo:2"
	const accepts = "vdo.vmware.com/accept-repository of the DriverBundle: - -> other.site/vdo"
	for _, c := range []struct {
		url, to string
		want    []string
	}{
		{from, from, nil},
		{from, "mirror.site/vdo:2", []string{"versionConfigURL: oci://mirror.site/vdo:1 -> oci://mirror.site/vdo:2"}},
		{from, to, []string{accepts, "versionConfigURL: oci://mirror.site/vdo:1 -> oci://other.site/vdo:2"}},
		{to, to, []string{accepts}},
	} {
		scheme, err := newScheme()
		require.NoError(t, err)
		m := &corev1.ConfigMap{ObjectMeta: metaOf("vdo", v1alpha1.LegacyMatrixName)}
		m.Data = map[string]string{legacyURL: "oci://" + c.url}
		b := &v1alpha1.DriverBundle{ObjectMeta: metaOf("vdo", v1alpha1.LegacyMatrixName)}
		b.Spec.Reference = from
		owner := *metav1.NewControllerRef(m, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		b.OwnerReferences = []metav1.OwnerReference{owner}
		k := fake.NewClientBuilder().WithScheme(scheme).WithObjects(m, b).Build()
		require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(b), b))

		edits, err := edited(t.Context(), k, b, c.to)
		require.NoError(t, err)
		var got []string
		for _, x := range edits {
			got = append(got, x.changes...)
		}
		require.Equal(t, c.want, got)
		would := b.DeepCopy()
		would.Spec.Reference = c.to
		o := &matrixOptions{app: &app{}, consentFlags: consentFlags{yes: true}}
		_, err = o.follow(t.Context(), k, b, would)
		require.NoError(t, err)
		require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(m), m))
		require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(b), b))
		require.Equal(t, "oci://"+c.to, m.Data[legacyURL])
		require.Equal(t, c.to == to, b.Annotations[v1alpha1.AnnotationAcceptRepository] == "other.site/vdo")
	}
}
