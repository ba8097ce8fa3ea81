package accounts_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/accounts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// The Secret is in kube-system, where the earlier operator had it (credentials.Fallback); the
// VsphereCloudConfig is in the operator's namespace. vdoctl sets Site.Namespace to kube-system then
// (vdoctl/accounts.go, recorded).
func TestRotationOfASecretInKubeSystemEnds(t *testing.T) {
	objects := controllerWith(corp, string(corpLogin.Password))
	old := secretWith(corp, string(corpLogin.Password))
	old.Namespace = "kube-system"
	w := newWorld(t, newVC("west", nil), append(objects, old)...)
	site := func() *accounts.Site {
		s := w.site(whole())
		s.Namespace = "kube-system"
		return s
	}
	require.Error(t, site().Rotate(t.Context(), none)) // the operator has not run yet
	ctx := t.Context()
	var s, has corev1.Secret
	var vcc v1alpha1.VsphereCloudConfig
	var d appsv1.Deployment
	require.NoError(t, w.api.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "vc"}, &s))
	require.Equal(t, firstName, string(s.Data["username"]))
	require.NoError(t, w.api.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "west"}, &vcc))
	vcc.Status.ObservedGeneration, vcc.Status.VerifiedCredentials = 1, string(s.UID)+"/"+s.ResourceVersion
	require.NoError(t, w.api.Update(ctx, &vcc))
	require.NoError(t, w.api.Get(ctx, client.ObjectKey{Namespace: drivers.CSINamespace, Name: render.CSISecret}, &has))
	has.Data = config(firstName, string(s.Data["password"]))
	require.NoError(t, w.api.Update(ctx, &has))
	require.NoError(t, w.api.Get(ctx, client.ObjectKey{Namespace: drivers.CSINamespace, Name: drivers.Controller}, &d))
	d.Spec.Template.Annotations = map[string]string{render.AnnotationConfigHash: "next"}
	require.NoError(t, w.api.Update(ctx, &d))
	d.Status.UpdatedReplicas, d.Status.Replicas = 1, 1
	require.NoError(t, w.api.Status().Update(ctx, &d))
	require.NoError(t, site().Rotate(ctx, none)) // all is done: it has to end
}
