package vdoconfig_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// planned are the steps of status.plan, as "action kind/name".
func planned(v *v1alpha1.VDOConfig) []string {
	if v.Status.Plan == nil {
		return nil
	}
	var all []string
	for _, s := range v.Status.Plan.Steps {
		all = append(all, s.Action+" "+s.Kind+"/"+s.Name)
	}
	return all
}

// A dry run shows the whole of an installation and writes nothing of it, no finalizer
// either; then the same VDOConfig installs, and nothing is left to do.
func TestADryRunShowsEverythingAndWritesNothing(t *testing.T) {
	w := start(t, pair)
	v := &v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "site"}, Spec: pairSpec()}
	v.Spec.DryRun = true
	w.create(v)
	for range 3 {
		w.look(v)
	}
	require.Zero(t, w.writes)
	require.Empty(t, w.ours())
	require.Empty(t, v.Finalizers)
	require.Contains(t, planned(v), "create DaemonSet/vsphere-cloud-controller-manager", describe(v))
	require.Contains(t, planned(v), "create Deployment/vsphere-csi-controller")
	require.Equal(t, []string{"cpi@1.33.1", "snapshot-controller@8.2.0", "csi@3.5.1"}, v.Status.Plan.Releases)
	require.Equal(t, "spec.dryRun is set", v.Status.Plan.Held)
	require.Equal(t, "DryRun", cond(t, v, "Suspended").Reason)
	require.False(t, isTrue(v, "Ready"))
	require.NotContains(t, describe(v)+strings.Join(planned(v), ""), "secret-1")

	w.change(v, func() { v.Spec.DryRun = false })
	w.ready(v)
	require.Empty(t, planned(v), describe(v))
	require.NotContains(t, describe(v), "Suspended=")
	was := v.ResourceVersion
	w.look(v)
	require.Equal(t, was, v.ResourceVersion, "a pass with nothing to do writes nothing")

	w.change(v, func() { v.Spec.DryRun = true })
	drifted := get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")
	w.change(drifted, func() { drifted.Labels["vdo.vmware.com/version"] = "0.0.1" })
	w.writes = 0
	w.look(v)
	require.Zero(t, w.writes)
	require.Equal(t, []string{"change ServiceAccount/cloud-controller-manager"}, planned(v))
	require.Equal(t, "drift", v.Status.Plan.Steps[0].Cause)

	w.change(v, func() { v.Spec.DryRun, v.Spec.Suspend = false, true })
	require.NoError(t, w.Delete(t.Context(), get(w, &storagev1.CSIDriver{}, "", drivers.CSIDriver)))
	w.look(v)
	require.Zero(t, w.writes, "nor is anything written while it is suspended, and health is assessed all the same")
	require.Contains(t, cond(t, v, "CSIReady").Message, "CSIDriver csi.vsphere.vmware.com: is not there")
}
