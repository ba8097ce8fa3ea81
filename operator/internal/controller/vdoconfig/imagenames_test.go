package vdoconfig_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// A mirror that is moved may have another layout: until a bundle of the new one is accepted,
// pods name their images as they did, where they can be pulled.
func TestImagesKeepTheirNamesUntilTheOtherMirrorIsAccepted(t *testing.T) {
	w := start(t, "cpi@1.33.1")
	c := &cloud{world: w, v: w.config("site")}
	w.change(c.v, func() { c.v.Spec.StorageProvider = nil })
	w.ready(c.v)
	was := c.runs()
	require.True(t, strings.HasPrefix(was, repository+"@sha256:"), was)

	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	w.change(b, func() { b.Spec.Reference, b.Spec.ImageNames = "other.site/vdo:1", v1alpha1.ImageNamesPaths })
	for range again() {
		w.look(c.v)
		require.Equal(t, was, c.runs(), describe(c.v))
	}
	c.removeWorkload()
	w.look(c.v)
	require.Equal(t, was, c.runs(), "repaired as it was")

	b = get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	b.Status.Repository = "other.site/vdo"
	w.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
	c.until("the other mirror's names", func() bool {
		w.look(c.v)
		return strings.HasPrefix(c.runs(), "other.site/vdo/registry.k8s.io/cloud-pv-vsphere/")
	})
	w.change(b, func() { b.Spec.ImageNames = v1alpha1.ImageNamesUpstream })
	c.until("it is the same mirror", func() bool {
		w.look(c.v)
		return strings.HasPrefix(c.runs(), "registry.k8s.io/cloud-pv-vsphere/")
	})
}

// A mirror is moved, and the upgrade waits for a window: what runs keeps the names of its images.
func TestWhatWaitsKeepsItsImageNamesWithoutTheRecords(t *testing.T) {
	c := cloudOnly(t, func(w *world, _ *v1alpha1.VDOConfig) {
		b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
		w.change(b, func() { b.Spec.ImageNames = v1alpha1.ImageNamesUpstream })
		w.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
	})
	was := c.runs()
	require.True(t, strings.HasPrefix(was, cloudImage+"@sha256:"), was)
	closed := time.Now().UTC().Add(12*time.Hour).Format("4 15") + " * * *"
	c.change(c.v, func() {
		c.v.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{Windows: []v1alpha1.UpgradeWindow{{Schedule: closed, Duration: metav1.Duration{Duration: time.Hour}}}}
	})
	b := get(c.world, &v1alpha1.DriverBundle{}, c.ns, "site")
	c.change(b, func() { b.Spec.Reference = "other.site/vdo:1" })
	b = get(c.world, &v1alpha1.DriverBundle{}, c.ns, "site")
	b.Status.Repository = "other.site/vdo"
	c.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
	same := func() bool { return c.runs() == was }
	c.always("it waits", same)
	require.Equal(t, "WindowClosed", c.v.Status.Candidate.Reason, describe(c.v))
	require.Equal(t, v1alpha1.ImageNamesUpstream, revisionNamed(c.v, c.v.Status.Revision).ImageNames)
	c.dropRecords(c.v)
	c.always("the records were deleted", same)
	c.always("they are written again", same)
	c.removeWorkload()
	c.look(c.v)
	require.Equal(t, was, c.runs(), "it is repaired as it was")
}
