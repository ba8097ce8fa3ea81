package vdoconfig_test

import (
	"strings"
	"testing"

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
