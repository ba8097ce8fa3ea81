package vdoconfig_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// Settings that are not checked yet wait, and nothing is known of those before: what runs is left
// as it is until they are.
func TestAnUncheckedConfigurationWaitsWithoutTheRecords(t *testing.T) {
	c := cloudOnly(t, func(w *world, _ *v1alpha1.VDOConfig) { w.r.Checks = passing{} })
	conf := func() string {
		return get(c.world, &corev1.ConfigMap{}, "kube-system", "vsphere-cloud-config").Data["vsphere.conf"]
	}
	generation := func() int64 { return get(c.world, &appsv1.DaemonSet{}, "kube-system", ccm).Generation }
	was, before := conf(), generation()
	same := func() bool { return conf() == was && generation() == before }
	c.r.Checks = unanswered{}
	c.change(c.v, func() {
		c.v.Spec.CloudProvider.Topology = &v1alpha1.Topology{Zone: "k8s-zone", Region: "k8s-region"}
	})
	c.always("the records have what it was", same)
	revision := c.v.Status.Revision
	c.dropRecords(c.v)
	c.always("they were deleted", same)
	c.restart()
	c.r.Checks = unanswered{}
	c.always("another operator", same)
	require.Equal(t, revision, c.v.Status.Revision)
	require.False(t, isTrue(c.v, "Ready"), describe(c.v))
	require.Contains(t, cond(t, c.v, "Applied").Message, "the records with the settings that it runs with were deleted", describe(c.v))
	c.r.Checks = passing{}
	c.ready(c.v)
	require.Contains(t, conf(), "k8s-zone")
}
