package vdoconfig_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// cloudOnly is a site whose cloud provider runs.
func cloudOnly(t *testing.T, edit func(w *world, v *v1alpha1.VDOConfig)) *cloud {
	w := start(t, "cpi@1.33.1")
	c := &cloud{world: w, v: w.config("site")}
	w.change(c.v, func() {
		c.v.Spec.StorageProvider = nil
		edit(w, c.v)
	})
	w.ready(c.v)
	return c
}

// always requires something to hold, look after look.
func (c *cloud) always(when string, holds func() bool) {
	c.t.Helper()
	for range again() {
		c.look(c.v)
		require.True(c.t, holds(), "%s\n%s\n%s", when, c.events.all(), describe(c.v))
	}
}

// skips tells whether the cloud provider is told to delete no Nodes.
func (c *cloud) skips() bool {
	for _, k := range get(c.world, &appsv1.DaemonSet{}, "kube-system", ccm).Spec.Template.Spec.Containers {
		for _, e := range k.Env {
			if e.Name == "SKIP_NODE_DELETION" { // upstream asks whether it is there
				return true
			}
		}
	}
	return false
}

// Nor does it where all that said what it was told is gone, and was never to keep any.
func TestNodesAreKeptWhereNobodyKnows(t *testing.T) {
	c := cloudOnly(t, func(*world, *v1alpha1.VDOConfig) {})
	require.False(t, c.skips())
	c.dropRecords(c.v)
	c.deleted(&appsv1.DaemonSet{}, "kube-system", ccm)
	c.until("made again", func() bool { c.look(c.v); return !gone(c.world, &appsv1.DaemonSet{}, "kube-system", ccm) })
	require.False(t, c.skips(), "all nodes are on vSphere, and its configuration says where it looked")
	c.ready(c.v)

	c.dropRecords(c.v)
	c.deleted(&appsv1.DaemonSet{}, "kube-system", ccm)
	c.deleted(&corev1.ConfigMap{}, "kube-system", "vsphere-cloud-config")
	c.until("made again", func() bool {
		c.look(c.v)
		return !gone(c.world, &appsv1.DaemonSet{}, "kube-system", ccm) && !gone(c.world, &corev1.ConfigMap{}, "kube-system", "vsphere-cloud-config")
	})
	c.always("nobody has accepted it", c.skips)
	require.Contains(t, describe(c.v), "would delete the Nodes that are not on vSphere")
	c.change(c.v, func() { c.v.Spec.CloudProvider.AcceptNodeDeletion = []string{"spec.excludedNodes"} })
	c.ready(c.v)
	require.False(t, c.skips(), "it is accepted")
}

// Nor does it where passes that could not make it again came in between: while nothing is written,
// or while its vCenter is away and the storage driver, which runs, is taken over.
func TestNodesAreKeptWhereTheCloudProviderIsMadeAgainLater(t *testing.T) {
	w, v := installed(t)
	w.spoilt = true // it is told otherwise after
	c := &cloud{world: w, v: v}
	later := func(when string, begin, end func()) {
		t.Helper()
		begin()
		c.dropRecords(v)
		c.deleted(&appsv1.DaemonSet{}, "kube-system", ccm)
		c.deleted(&corev1.ConfigMap{}, "kube-system", "vsphere-cloud-config")
		c.always(when, func() bool { return gone(w, &appsv1.DaemonSet{}, "kube-system", ccm) && driver(v, "cpi").Version == "" })
		end()
		c.until("made again", func() bool {
			c.look(v)
			return !gone(w, &appsv1.DaemonSet{}, "kube-system", ccm) && !gone(w, &corev1.ConfigMap{}, "kube-system", "vsphere-cloud-config")
		})
		c.always("nobody has accepted it: "+when, c.skips)
		c.change(v, func() { v.Spec.CloudProvider.AcceptNodeDeletion = []string{"spec.excludedNodes"} })
		c.ready(v)
		require.False(t, c.skips(), "it is accepted")
		c.change(v, func() { v.Spec.CloudProvider.AcceptNodeDeletion = nil })
		c.ready(v)
	}
	later("suspended", func() { c.change(v, func() { v.Spec.Suspend = true }) }, func() { c.change(v, func() { v.Spec.Suspend = false }) })
	later("its vCenter is away", func() { c.away("vc-one") }, func() {
		require.NotZero(t, c.inventory(v).Len(), "the storage driver is taken over")
		c.checked(get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one"), metav1.ConditionTrue, "Succeeded", "")
	})
}

// Nor does it where the operator is killed while it makes it again: what it is about to make is
// recorded first, and it gets its configuration all the same.
func TestACloudProviderIsMadeAgainThoughTheOperatorIsKilled(t *testing.T) {
	w, v := installed(t)
	w.spoilt = true // it is told otherwise after
	c := &cloud{world: w, v: v}
	for _, life := range tier.Pick([]int{1, 4}, []int{1, 2, 3, 4, 5, 6}) {
		c.dropRecords(v)
		c.deleted(&appsv1.DaemonSet{}, "kube-system", ccm)
		c.deleted(&corev1.ConfigMap{}, "kube-system", "vsphere-cloud-config")
		last := c.writes + life
		c.fail = func(n int) error {
			if n > last {
				return errors.New("connection reset by peer")
			}
			return nil
		}
		c.look(v)
		c.fail = nil
		c.restart()
		c.until("made again", func() bool {
			c.look(v)
			return !gone(w, &appsv1.DaemonSet{}, "kube-system", ccm) && !gone(w, &corev1.ConfigMap{}, "kube-system", "vsphere-cloud-config")
		})
		require.True(t, c.skips(), "killed after %d writes", life)
	}
}

// The cloud provider deletes no Nodes until that is accepted, whatever becomes of the records,
// and of an installation that is taken over.
func TestNodesAreKeptWithoutTheRecords(t *testing.T) {
	c := cloudOnly(t, func(_ *world, v *v1alpha1.VDOConfig) { v.Spec.ExcludedNodes = map[string]string{"site/metal": "yes"} })
	skips := c.skips
	require.True(t, skips())
	c.change(c.v, func() { c.v.Spec.ExcludedNodes = nil })
	c.always("the records have it", skips)
	c.dropRecords(c.v)
	c.always("they were deleted", skips)
	c.always("they are written again", skips)
	require.Contains(t, describe(c.v), "would delete the Nodes that are not on vSphere")

	c.change(c.v, func() { c.v.Spec.OnDelete = v1alpha1.DeleteOrphan })
	require.NoError(t, c.Delete(t.Context(), c.v))
	c.until("let go", func() bool { c.pass(client.ObjectKeyFromObject(c.v)); return gone(c.world, c.v, c.ns, c.v.Name) })
	ds := get(c.world, &appsv1.DaemonSet{}, "kube-system", ccm)
	for i := range ds.Spec.Template.Spec.Containers {
		env := ds.Spec.Template.Spec.Containers[i].Env
		for j := range env {
			if env[j].Name == "SKIP_NODE_DELETION" {
				env[j].Value = "1" // as a site may have it: upstream asks whether it is there
			}
		}
	}
	require.NoError(t, c.Update(t.Context(), ds))
	c.v = c.config("again")
	c.change(c.v, func() { c.v.Spec.StorageProvider = nil })
	c.always("taken over", skips)
	c.change(c.v, func() { c.v.Spec.CloudProvider.AcceptNodeDeletion = []string{"spec.excludedNodes"} })
	c.ready(c.v)
	require.False(t, skips(), "it is accepted")
}

// reports answers with one version for all API servers.
type reports string

func (v reports) ServerVersion() (*version.Info, error) {
	return &version.Info{GitVersion: string(v)}, nil
}

// The version that drivers are chosen for does not go back, whatever becomes of the records.
func TestKubernetesDoesNotGoBackWithoutTheRecords(t *testing.T) {
	c := cloudOnly(t, func(*world, *v1alpha1.VDOConfig) {})
	was := c.v.Status.Kubernetes
	c.r.Cluster.(*edge.Cluster).Versions = reports("v1.32.9")
	same := func() bool { return c.v.Status.Kubernetes == was }
	c.always("the records have it", same)
	c.dropRecords(c.v)
	c.always("they were deleted", same)
	require.Equal(t, was, c.inventory(c.v).Memory().Kubernetes)
	require.Contains(t, cond(t, c.v, "Resolved").Message, "which is older than "+was+" that drivers were chosen for")
}
