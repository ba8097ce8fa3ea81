package vdoconfig_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// diskUUIDOff keeps what is new of csi back, and is of no concern to what runs.
var diskUUIDOff = finding{{ID: "vm-disk-uuid", Action: preflight.BlockInstall, Drivers: []matrix.Driver{matrix.CSI}, Found: "disk.EnableUUID is off", Remedy: "set it"}}

// What upstream's manifest left of a driver that a check keeps back stays, and nothing waits for it:
// the revision is healthy. It was said to have failed after its deadline, though all ran.
func TestNothingWaitsForALeftoverOfADriverThatIsKeptBack(t *testing.T) {
	for name, begin := range map[string]func(*testing.T) (*world, *v1alpha1.VDOConfig){
		"taken over": func(t *testing.T) (*world, *v1alpha1.VDOConfig) {
			w := start(t, pair)
			w.upstreamStorage("v3.5.1") // with a node plugin for Windows
			w.r.Checks = diskUUIDOff
			return w, w.config("site")
		},
		"upgraded": func(t *testing.T) (*world, *v1alpha1.VDOConfig) {
			w, v := installed(t)
			w.spoilt = true
			first := v.Status.Revision
			w.advance(v, "the first revision is healthy", func() bool { return revisionNamed(v, first).Outcome == string(revision.Healthy) })
			w.r.Checks = diskUUIDOff
			labels := map[string]string{"app": windowsNode}
			require.NoError(t, w.Create(t.Context(), &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: "vmware-system-csi", Name: windowsNode},
				Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{NodeSelector: map[string]string{"kubernetes.io/os": "windows"},
						Containers: []corev1.Container{{Name: "vsphere-csi-node", Image: "registry.k8s.io/csi-vsphere/driver:v3.5.1"}}}}}}, client.FieldOwner("kubectl")))
			w.offer(nextDigest, strings.Fields(pair)...)
			next := rebuilt(t, strings.Fields(pair)...)
			next.Manifests, next.Matrix = w.store.of[nextDigest].Manifests, w.store.of[nextDigest].Matrix
			w.store.of[nextDigest] = next
			w.advance(v, "the second one comes in force", func() bool { return v.Status.Revision != first })
			return w, v
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "taken over" {
				tier.Later(t, tier.All)
			}
			w, v := begin(t)
			w.advance(v, "what is in force is healthy, or failed", func() bool {
				o := revisionNamed(v, v.Status.Revision).Outcome
				return o == string(revision.Healthy) || o == string(revision.Failed) || o == string(revision.RolledBack)
			})
			require.Equal(t, string(revision.Healthy), revisionNamed(v, v.Status.Revision).Outcome, describe(v))
			require.False(t, gone(w, &appsv1.DaemonSet{}, "vmware-system-csi", windowsNode))
			w.r.Checks = passing{}
			w.advance(v, "it goes once the check is past", func() bool { return gone(w, &appsv1.DaemonSet{}, "vmware-system-csi", windowsNode) })
		})
	}
}

const windowsNode = "vsphere-csi-node-windows"
