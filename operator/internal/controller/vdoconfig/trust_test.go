package vdoconfig_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vdoconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// meanwhile is a cluster where something happens while all objects are tried.
type meanwhile struct {
	vdoconfig.Cluster
	happens func()
}

func (m *meanwhile) DryRun(ctx context.Context, objects []render.Object,
	live plan.Live) (map[inventory.Key]plan.Outcome, error) {
	if f := m.happens; f != nil {
		m.happens = nil
		f()
	}
	return m.Cluster.DryRun(ctx, objects, live)
}

const sixtyFour = "abababababababababababababababababababababababababababababababab"

// rebuilt is a bundle of the same releases whose images are others.
func rebuilt(t *testing.T, ids ...string) *bundle.Contents {
	t.Helper()
	c := bundleOf(t, ids...)
	for i := range c.Lock.Images {
		c.Lock.Images[i].Digest = image.DigestOf([]byte("rebuilt " + c.Lock.Images[i].Reference.String()))
	}
	return c
}

// cloud is a site where the cloud provider runs from one bundle while its DriverBundle has
// accepted another one of the same releases.
type cloud struct {
	*world
	v             *v1alpha1.VDOConfig
	first, second string // the bundles, REPOSITORY@DIGEST
	image         string // that runs
	m             *meanwhile
}

const ccm = "vsphere-cloud-controller-manager"

// startCloud has the second bundle not be trusted.
func startCloud(t *testing.T) *cloud {
	t.Helper()
	w := start(t, "cpi@1.33.1")
	c := &cloud{world: w, v: w.config("site"), m: &meanwhile{Cluster: w.r.Cluster}}
	w.change(c.v, func() { c.v.Spec.StorageProvider = nil })
	w.ready(c.v)
	w.r.Cluster = c.m
	c.first, c.image = c.v.Status.Bundle, c.runs()
	digest := "sha256:" + sixtyFour
	c.second = repository + "@" + digest
	w.store.of = map[string]*bundle.Contents{digest: rebuilt(t, "cpi@1.33.1")}
	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	b.Status.Digest = digest
	w.verified(b, metav1.ConditionFalse, "Untrusted", "key a is revoked")
	return c
}

// runs is the image of the cloud provider, "" where it is not there.
func (c *cloud) runs() string {
	c.t.Helper()
	ds := &appsv1.DaemonSet{}
	if gone(c.world, ds, "kube-system", ccm) {
		return ""
	}
	return ds.Spec.Template.Spec.Containers[0].Image
}

func (c *cloud) remove(o client.Object) {
	c.t.Helper()
	require.NoError(c.t, c.Delete(context.Background(), o))
	c.until("gone", func() bool { return gone(c.world, o, o.GetNamespace(), o.GetName()) })
}

func (c *cloud) removeWorkload() { c.remove(get(c.world, &appsv1.DaemonSet{}, "kube-system", ccm)) }

// stays requires what runs to be of the first bundle, pass after pass.
func (c *cloud) stays(image string) {
	c.t.Helper()
	for range again() {
		c.look(c.v)
		require.Equal(c.t, image, c.runs(), describe(c.v))
		require.Equal(c.t, c.first, c.v.Status.Bundle)
	}
}

// The same releases may be made of other images: as long as the bundle is not trusted, what runs is of the one before,
// and is repaired from it; where that cannot be read, nothing of the other one replaces it. That holds for a trust
// policy that changes in the middle of a pass too.
func TestNothingOfABundleThatIsNotTrustedIsRolledOut(t *testing.T) {
	c := startCloud(t)
	c.stays(c.image)
	c.removeWorkload()
	c.look(c.v)
	require.Equal(t, c.image, c.runs(), "repaired from the one before")

	_, c.store.broken, _ = strings.Cut(c.first, "@")
	c.removeWorkload()
	c.stays("")
	require.Contains(t, cond(t, c.v, "Applied").Message, "repair cpi@1.33.1")
	c.store.broken = ""
	c.look(c.v)
	require.Equal(t, c.image, c.runs())

	policy := &corev1.ConfigMap{Data: map[string]string{"a.pub": "x"}}
	policy.Namespace, policy.Name = c.ns, v1alpha1.DefaultTrustName
	verified := func() {
		b := get(c.world, &v1alpha1.DriverBundle{}, c.ns, "site")
		c.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
	}
	verified()
	c.m.happens = func() { c.create(policy) }
	c.look(c.v)
	require.Nil(t, c.m.happens, "it was tried")
	require.Contains(t, cond(t, c.v, "Applied").Message, "to be verified under the trust policy")
	c.stays(c.image)

	verified()
	c.until("rolled out", func() bool { c.ready(c.v); return c.runs() != "" && c.runs() != c.image })
	require.Equal(t, c.second, c.v.Status.Bundle)
}

// Rights that are missing in one driver's place are a fault of that driver's.
func TestMissingRightsInOnePlaceConcernItsDriverAlone(t *testing.T) {
	w, v := installed(t)
	t.Cleanup(w.grant)
	w.lacks = true
	count := w.inventory(v).Len()
	w.discard(get(w, &rbacv1.RoleBinding{}, "vmware-system-csi", "vdo-operator"))
	w.discard(get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager"))
	w.look(v)
	get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repaired
	w.look(v)
	require.True(t, isTrue(v, "CPIReady"), describe(v))
	applied := cond(t, v, "Applied")
	require.Equal(t, metav1.ConditionFalse, applied.Status)
	require.Contains(t, applied.Message, "forbidden")
	require.Contains(t, applied.Message, "vmware-system-csi")
	require.Equal(t, count, w.inventory(v).Len(), "what cannot be seen is not forgotten")
	w.grant()
	w.ready(v)
}
