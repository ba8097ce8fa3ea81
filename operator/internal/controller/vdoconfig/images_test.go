package vdoconfig_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// passing finds nothing amiss in cluster and vCenters.
type passing struct{}

func (passing) Look(q preflight.Question) *preflight.Answer {
	return &preflight.Answer{Question: q.ID, At: time.Now().Truncate(time.Second)}
}

// allFor has all images of a bundle be for some platforms.
func allFor(c *bundle.Contents, platforms ...image.Platform) *bundle.Contents {
	c.Platforms = map[image.Digest][]image.Platform{}
	for _, i := range c.Lock.Images {
		c.Platforms[i.Digest] = platforms
	}
	return c
}

// A bundle whose images are not for all nodes that a DaemonSet would come to is neither
// installed nor upgraded to, and what runs is repaired. Keeping the pods away is one way out.
func TestABundleThatIsNotForThePlatformOfANodeWaits(t *testing.T) {
	amd, arm := image.Platform{OS: "linux", Architecture: "amd64"}, image.Platform{OS: "linux", Architecture: "arm64", Variant: "v8"}
	w := start(t, "cpi@1.33.1")
	w.r.Checks = passing{}
	require.NoError(t, shared.c.AddNode(t.Context(), cluster.Node{Name: "cp-arm", ControlPlane: true, Labels: map[string]string{corev1.LabelArchStable: "arm64"}}))
	t.Cleanup(func() {
		require.NoError(t, w.Delete(context.Background(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp-arm"}}))
	})
	allFor(w.store.contents, amd)
	c := &cloud{world: w, v: w.config("site")}
	w.change(c.v, func() { c.v.Spec.StorageProvider = nil })
	held := func() {
		t.Helper()
		w.look(c.v)
		failed := cond(t, c.v, v1alpha1.ConditionPreflight)
		require.Equal(t, "BlockInstall", failed.Reason, describe(c.v))
		require.Equal(t, metav1.ConditionFalse, cond(t, c.v, "Ready").Status)
		r := c.v.Status.Preflight.Results[0]
		require.Equal(t, "image-platform", r.ID)
		require.Equal(t, []string{"cp-arm"}, r.Objects)
		require.Equal(t, []string{"cpi"}, r.Drivers)
		require.Contains(t, r.Found, "cpi@1.33.1: DaemonSet "+ccm+" would run on nodes of linux/arm64, which these images are not for: registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere (linux/amd64)")
		require.Contains(t, r.Remedy, "nodeSelector: {kubernetes.io/arch: amd64} in spec.drivers[cpi].workloads["+ccm+"]")
		require.Contains(t, cond(t, c.v, "Ready").Message, "image-platform")
	}
	w.look(c.v) // which puts the finalizer on
	for range again() {
		held()
		require.Empty(t, c.runs(), "it is not installed")
	}
	require.Equal(t, 1, strings.Count(w.events.all(), "image-platform (BlockInstall)"), w.events.all())

	allFor(w.store.contents, amd, arm)
	w.ready(c.v)
	require.Empty(t, c.v.Status.Preflight.Results)
	was := c.runs()

	digest := "sha256:" + sixtyFour
	w.store.of = map[string]*bundle.Contents{digest: allFor(rebuilt(t, "cpi@1.33.1"), amd)}
	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	b.Status.Digest = digest
	w.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
	held()
	require.Equal(t, was, c.runs())
	require.NoError(t, w.Delete(t.Context(), get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")))
	held()
	get(w, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager") // repaired
	require.Equal(t, was, c.runs())

	w.change(c.v, func() {
		c.v.Spec.Drivers = []v1alpha1.DriverPolicy{{Driver: "cpi", Workloads: []v1alpha1.Workload{{Name: ccm, NodeSelector: map[string]string{corev1.LabelArchStable: "amd64"}}}}}
	})
	w.ready(c.v)
	require.NotEqual(t, was, c.runs())
	require.True(t, isTrue(c.v, v1alpha1.ConditionPreflight), describe(c.v))
}

// unanswered has asked nobody yet.
type unanswered struct{}

func (unanswered) Look(preflight.Question) *preflight.Answer { return nil }

// A network alone asks nothing of any vCenter: its images are held against the nodes all the same.
func TestANetworkThatIsNotForThePlatformOfTheNodesWaits(t *testing.T) {
	tier.Later(t, tier.All) // TestTheConditionOfChecks shows what is decided, and the test above that it waits
	amd, arm := image.Platform{OS: "linux", Architecture: "amd64"}, image.Platform{OS: "linux", Architecture: "arm64"}
	w := start(t, "cni@2.7.0")
	w.allow(deploy.AntreaRights)
	w.r.Checks = unanswered{}
	allFor(w.store.contents, arm)
	v := w.config("site")
	w.change(v, func() {
		v.Spec.StorageProvider, v.Spec.Drivers = nil, []v1alpha1.DriverPolicy{{Driver: "cni", Policy: "latest"}, {Driver: "cpi", Policy: "disabled"}}
	})
	w.look(v) // which puts the finalizer on
	for range again() {
		w.look(v)
		failed := cond(t, v, v1alpha1.ConditionPreflight)
		require.Equal(t, "BlockInstall", failed.Reason, describe(v))
		require.Contains(t, failed.Message, "0 checks of what the bundle holds passed; image-platform (BlockInstall): cni@2.7.0: ")
		require.Equal(t, metav1.ConditionFalse, cond(t, v, "Ready").Status)
		require.Contains(t, cond(t, v, "Ready").Message, "image-platform")
		require.Nil(t, v.Status.Preflight.CheckedAt, "nobody has looked at cluster or vCenters")
		require.True(t, gone(w, &appsv1.DaemonSet{}, "kube-system", "antrea-agent"), "it is not installed")
	}
	require.Equal(t, 1, strings.Count(w.events.all(), "PreflightChanged: image-platform (BlockInstall)"), w.events.all())

	var nodes corev1.NodeList
	require.NoError(t, w.List(t.Context(), &nodes))
	for i := range nodes.Items {
		w.initialize(&nodes.Items[i]) // as those are where no cloud provider is asked for
	}
	allFor(w.store.contents, amd, arm)
	w.ready(v)
	require.Equal(t, "2.7.0", driver(v, "cni").Version)
	require.Equal(t, "1 checks of what the bundle holds passed", cond(t, v, v1alpha1.ConditionPreflight).Message)
	require.Contains(t, w.events.all(), "PreflightChanged: image-platform (BlockInstall): not any more")
}

// While cluster and vCenters are being checked the snapshot-controller alone could have other
// pods: not those that no node can run.
func TestASnapshotControllerThatNoNodeRunsWaitsWhileVCentersAreChecked(t *testing.T) {
	w, v := installed(t)
	w.r.Checks = unanswered{}
	runs := func() string {
		t.Helper()
		return get(w, &appsv1.Deployment{}, "kube-system", "snapshot-controller").Spec.Template.Spec.Containers[0].Image
	}
	was := runs()
	accept := func(digest string, c *bundle.Contents) {
		w.store.of = map[string]*bundle.Contents{digest: c}
		b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
		b.Status.Digest = digest
		w.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
	}
	anew := rebuilt(t, strings.Fields(pair)...)
	accept("sha256:"+sixtyFour, allFor(anew, image.Platform{OS: "linux", Architecture: "arm64"}))
	for range again() {
		w.look(v)
		require.Equal(t, was, runs())
		failed := cond(t, v, v1alpha1.ConditionPreflight)
		require.Equal(t, "BlockInstall", failed.Reason, describe(v))
		require.Contains(t, failed.Message, "snapshot-controller@8.2.0: Deployment snapshot-controller would run on nodes of linux/amd64")
		require.Contains(t, failed.Message, "it is being checked whether cluster and vCenters have what the drivers need")
		require.Nil(t, v.Status.Preflight.CheckedAt)
		require.Contains(t, cond(t, v, "Ready").Message, "image-platform")
	}

	allFor(anew, image.Platform{OS: "linux", Architecture: "amd64"})
	w.until("it is rolled out", func() bool { w.play(); w.look(v); return runs() != was })
	require.Nil(t, v.Status.Preflight)
	require.Equal(t, metav1.ConditionUnknown, cond(t, v, v1alpha1.ConditionPreflight).Status, describe(v))
}
