package vdoconfig_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vdoconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// previewed is what a preview says that holds something back: "DRIVER: MESSAGE".
func (w *world) previewed(v *v1alpha1.VDOConfig, a vdoconfig.Assume) (held []string, p *vdoconfig.Preview) {
	w.t.Helper()
	p, err := w.r.Preview(w.t.Context(), v, a)
	require.NoError(w.t, err)
	for _, h := range p.Held {
		held = append(held, h.Driver+": "+h.Message)
	}
	return held, p
}

// finding finds something amiss in cluster and vCenters.
type finding []preflight.Result

func (f finding) Look(q preflight.Question) *preflight.Answer {
	return &preflight.Answer{Question: q.ID, At: metav1.Now().Time, Results: f}
}

// A preview has the gates of the pass, also where no driver gets another version: a bundle that
// was built anew, and another setting, are held back by what the checks find.
func TestAPreviewSaysWhatHoldsBackWhatHasTheSameVersion(t *testing.T) {
	w, v := installed(t)
	held, p := w.previewed(v, vdoconfig.Assume{})
	require.Empty(t, held)
	require.Empty(t, p.Warnings)

	w.offer(nextDigest, strings.Fields(pair)...)
	w.store.of[nextDigest] = allFor(rebuilt(t, strings.Fields(pair)...), image.Platform{OS: "linux", Architecture: "arm64"})
	held, p = w.previewed(v, vdoconfig.Assume{})
	require.Empty(t, p.Route[0].Moves)
	text := strings.Join(held, "\n")
	for _, d := range []string{"cpi", "snapshot-controller", "csi"} {
		require.Contains(t, text, d+": check image-platform: "+d+"@")
	}
	for _, h := range held {
		require.Equal(t, 1, strings.Count(text, h), "each once")
	}

	w.offer(nextDigest, strings.Fields(pair)...)
	stops := preflight.Result{ID: "topology-category", Action: preflight.BlockInstall, Stops: true, Drivers: []matrix.Driver{matrix.CSI}, Found: "no category k8s-zone", Remedy: "make it"}
	w.r.Checks = finding{stops}
	held, _ = w.previewed(v, vdoconfig.Assume{})
	require.Empty(t, held, "nothing would be done that it could hold back")
	w.change(v, func() { v.Spec.StorageProvider.TopologyCategories = []string{"k8s-zone"} })
	held, _ = w.previewed(v, vdoconfig.Assume{})
	require.Len(t, held, 1)
	require.Contains(t, held[0], "csi: ")
	require.Contains(t, held[0], "no category k8s-zone")
	w.r.Checks = unanswered{}
	held, p = w.previewed(v, vdoconfig.Assume{})
	require.Contains(t, held[0], "it is being checked")
	require.Contains(t, strings.Join(p.Warnings, "\n"), "vdoctl preflight makes them")
}

// What the bundle's images would hold back after an upgrade is told before it.
func TestAPreviewSaysWhatImagesHoldBackAfterAnUpgrade(t *testing.T) {
	w, v := installed(t)
	amd, arm := image.Platform{OS: "linux", Architecture: "amd64"}, image.Platform{OS: "linux", Architecture: "arm64"}
	w.offer(nextDigest, append(newerPair(), "cpi@1.34.0")...)
	c := allFor(w.store.of[nextDigest], amd)
	minor, err := matrix.ParseKubernetes("1.34")
	require.NoError(t, err)
	held, p := w.previewed(v, vdoconfig.Assume{Kubernetes: minor.Minor()})
	require.Empty(t, held)
	require.Contains(t, strings.Join(p.Warnings, "\n"), "known only then")
	for _, i := range c.Lock.Images {
		if strings.Contains(i.Reference.String(), "cloud-provider-vsphere:v1.34") {
			c.Platforms[i.Digest] = []image.Platform{arm}
		}
	}
	held, _ = w.previewed(v, vdoconfig.Assume{Kubernetes: minor.Minor()})
	require.Len(t, held, 1)
	require.Contains(t, held[0], "cpi: ")
	require.Contains(t, held[0], "cpi@1.34.0: DaemonSet "+ccm+" would run on nodes of linux/amd64")
}

// While the mirror does not answer, what was accepted of it must not be begun: nodes have their
// images from there. Where nothing would be done it is a note.
func TestAPreviewSaysThatTheMirrorIsAway(t *testing.T) {
	w, v := installed(t)
	notReady := func(reason string) {
		b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
		meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: "connection refused"})
		require.NoError(t, w.Status().Update(t.Context(), b))
	}
	notReady("Unreachable")
	held, p := w.previewed(v, vdoconfig.Assume{})
	require.Empty(t, held)
	require.Contains(t, p.Warnings[0], "DriverBundle site is not Ready: connection refused")
	w.store.of = map[string]*bundle.Contents{nextDigest: rebuilt(t, strings.Fields(pair)...)}
	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	b.Status.Digest = nextDigest
	w.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
	held, p = w.previewed(v, vdoconfig.Assume{})
	require.Len(t, held, 1)
	require.Contains(t, held[0], "connection refused; the nodes need its images from there")
	require.Equal(t, "Unreachable", p.Held[0].Reason)
	notReady("Untrusted") // of what the tag names since
	held, p = w.previewed(v, vdoconfig.Assume{})
	require.Empty(t, held)
	require.Contains(t, p.Warnings[0], "planned from the bundle that it accepted before")
}

// Where nothing would be done because what is asked for is held back, that is told.
func TestAPreviewOfNothingSaysWhatHoldsBackWhatIsAskedFor(t *testing.T) {
	w, v := installed(t)
	vcc := get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one")
	w.checked(vcc, metav1.ConditionFalse, "Unauthorized", "the vCenter refuses the user name or password")
	held, p := w.previewed(v, vdoconfig.Assume{})
	require.Len(t, held, 1)
	require.Contains(t, held[0], "use VsphereCloudConfig vc-one: the vCenter refuses the user name or password")
	require.Equal(t, "Unauthorized", p.Held[0].Reason)
	w.checked(vcc, metav1.ConditionTrue, "Succeeded", "")

	w.change(v, func() {
		v.Spec.StorageProvider.VsphereCloudConfig, v.Spec.StorageProvider.VsphereCloudConfigs = "nope", nil
	})
	held, p = w.previewed(v, vdoconfig.Assume{})
	require.NotEmpty(t, held)
	require.Contains(t, strings.Join(held, "\n"), "VsphereCloudConfig nope: there is none of that name")
	require.Contains(t, p.Held[0].Do, "correct the name there")
	w.change(v, func() { v.Spec = pairSpec() })

	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "NotFound", Message: "no such tag"})
	require.NoError(t, w.Status().Update(t.Context(), b))
	held, p = w.previewed(v, vdoconfig.Assume{})
	require.Equal(t, []string{": DriverBundle site is not Ready: no such tag"}, held)
	require.Equal(t, "NotFound", p.Held[0].Reason)
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Succeeded"})
	require.NoError(t, w.Status().Update(t.Context(), b))

	ready := func(generation int64) {
		require.NoError(t, w.Get(t.Context(), types.NamespacedName{Namespace: v.Namespace, Name: v.Name}, v))
		meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "Conflict", Message: "somebody else has it", ObservedGeneration: generation})
	}
	ready(v.Generation)
	held, p = w.previewed(v, vdoconfig.Assume{})
	require.Equal(t, []string{": VDOConfig site is not Ready: somebody else has it"}, held)
	require.Equal(t, "Conflict", p.Held[0].Reason)
	ready(v.Generation - 1)
	held, _ = w.previewed(v, vdoconfig.Assume{})
	require.Empty(t, held, "it says so of another spec")
}

// A configuration that cannot be made stays as it is: that is told.
func TestAPreviewSaysWhatCannotBeMade(t *testing.T) {
	w, v := installed(t)
	w.change(v, func() {
		twice := v1alpha1.NetPermission{IPs: "*", Permissions: "READ_ONLY"}
		v.Spec.StorageProvider.FileVolumes = &v1alpha1.FileVolumes{NetPermissions: []v1alpha1.NetPermission{twice, twice}}
	})
	held, _ := w.previewed(v, vdoconfig.Assume{})
	require.Len(t, held, 1)
	require.Contains(t, held[0], "two rules")

	w.change(v, func() { v.Spec = pairSpec() })
	account := get(w, &corev1.Secret{}, w.ns, "vc-one-creds")
	w.change(account, func() { account.Data["username"] = []byte("no one") })
	w.checked(get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one"), metav1.ConditionTrue, "Succeeded", "")
	held, _ = w.previewed(v, vdoconfig.Assume{})
	require.Len(t, held, 1)
	require.Contains(t, held[0], "csi: ")
	require.Contains(t, held[0], "user name")
}
