package vdoconfig_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// passing finds nothing amiss in cluster and vCenters.
type passing struct{}

func (passing) Look(q preflight.Question) *preflight.Answer { return finding{}.Look(q) }

// finding finds something amiss in cluster and vCenters.
type finding []preflight.Result

func (f finding) Look(q preflight.Question) *preflight.Answer {
	return &preflight.Answer{Question: q.ID, At: metav1.Now().Time, Results: f}
}

// unanswered has asked nobody yet.
type unanswered struct{}

func (unanswered) Look(preflight.Question) *preflight.Answer { return nil }

// The real storage driver ends at its start where a vCenter lacks a tag category: one that runs without
// topology goes on without it until all categories are there. Repairs go on, and so does a password.
func TestADriverThatWouldNotStartGoesOnAsItIs(t *testing.T) {
	w, v := installed(t)
	controller := func() int64 { return get(w, &appsv1.Deployment{}, "vmware-system-csi", csiController).Generation }
	conf := func() string {
		secret := get(w, &corev1.Secret{}, "vmware-system-csi", "vsphere-config-secret")
		return string(secret.Data["csi-vsphere.conf"])
	}
	w.r.Checks = unanswered{}
	before, generation := conf(), controller()
	w.change(v, func() { v.Spec.StorageProvider.TopologyCategories = []string{"k8s-region", "k8s-zone"} })
	require.False(t, isTrue(w.look(v), "Ready"), "what is asked for waits for the checks")
	w.r.Checks = finding{{ID: "topology-category", Action: preflight.BlockInstall, Stops: true, On: "vc-one",
		Drivers: []matrix.Driver{matrix.CSI}, Found: "no tag category of this name: k8s-zone", Remedy: "govc tags.category.create"}}
	w.look(v)
	require.Equal(t, "BlockInstall", cond(t, v, v1alpha1.ConditionPreflight).Reason)
	require.Contains(t, cond(t, v, "Ready").Message, "no tag category of this name: k8s-zone")
	require.True(t, v.Status.Preflight.Results[0].StopsDriver)
	require.True(t, isTrue(v, v1alpha1.ConditionCSI) && isTrue(v, v1alpha1.ConditionCPI), describe(v))
	require.Equal(t, before, conf())
	require.Equal(t, generation, controller())

	states := get(w, &corev1.ConfigMap{}, "vmware-system-csi", "internal-feature-states.csi.vsphere.vmware.com")
	require.NoError(t, w.Delete(context.Background(), states))
	creds := get(w, &corev1.Secret{}, w.ns, "vc-one-creds")
	w.change(creds, func() { creds.Data["password"] = []byte("secret-2") })
	w.checked(get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one"), metav1.ConditionTrue, "Succeeded", "")
	w.until("the controller has the new password", func() bool { w.look(v); return controller() > generation })
	require.Equal(t, strings.ReplaceAll(before, "secret-1", "secret-2"), conf())
	get(w, &corev1.ConfigMap{}, "vmware-system-csi", states.Name)

	w.restart() // it is known from the status, before anybody was asked
	w.r.Checks = unanswered{}
	w.look(v)
	require.Contains(t, cond(t, v, "Ready").Message, "govc tags.category.create")
	require.NotContains(t, conf(), "k8s-zone")
	generation = controller()
	w.r.Checks = passing{}
	w.until("it goes on", func() bool { w.play(); w.look(v); return controller() > generation })
	require.Contains(t, conf(), `topology-categories = "k8s-region,k8s-zone"`)
	require.Contains(t, w.events.all(), "topology-category in vc-one (BlockInstall): not any more")
}
