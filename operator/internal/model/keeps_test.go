package model

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// destroyed removes objects of each driver, workloads among them, and waits until all are there again.
func (s *scenario) destroyed() {
	s.t.Helper()
	s.byHand("cpi", 0, 1)
	s.byHand("csi", 0, 1)
	was := s.left()
	s.until("repaired", func() bool { return len(s.left()) >= len(was)+4 })
}

// While it serves volumes the storage driver stays and is cared for as it was last requested, whether no one asks
// for it any more, or the VDOConfig is deleted, or that had begun to remove it when a volume appeared.
func TestTheStorageDriverStaysWhileItServesVolumes(t *testing.T) {
	scene(t, installed, func(s *scenario) {
		s.configure(func(spec *asked) {
			spec.StorageProvider.CustomKubeletPath = "/var/lib/k0s/kubelet"
			spec.StorageProvider.ClusterID = "configured"
		})
		s.ready()
		refused := func() {
			require.Equal(t, "Refused", s.cond("Ready").Reason)
			require.Contains(t, s.cond("Ready").Message, "1 PersistentVolumes and 0 VolumeAttachments (counted up to 500) use")
			require.True(t, s.isTrue("Reconciling") && !s.isTrue("Stalled"), "it goes on by itself once they are gone")
		}
		s.volumeEvent("made")
		s.configure(func(spec *asked) { spec.StorageProvider = nil })
		s.look()
		was := s.daemonSet(csiNamespace, csiNode).Spec.Template
		s.destroyed()
		require.Equal(t, was, s.daemonSet(csiNamespace, csiNode).Spec.Template)
		refused()
		s.drop(s.v)
		s.destroyed()
		refused()

		s.volumeEvent("deleted")
		exists := func() bool {
			return !s.gone(&appsv1.Deployment{}, csiNamespace, csiController) &&
				!s.gone(&appsv1.DaemonSet{}, csiNamespace, csiNode)
		}
		s.until("the pods are gone", func() bool { return !exists() })
		s.volumeEvent("made")
		s.until("it is installed again", exists)
		refused()

		// What is being taken down is not ready, and is looked at less often where it waits for someone else.
		s.volumeEvent("deleted")
		held := get(s, &corev1.ServiceAccount{}, "kube-system", "cloud-controller-manager")
		s.change(held, func() { held.Finalizers = []string{"example.org/backup"} })
		s.configure(func(spec *asked) { spec.OnDelete = v1alpha1.DeleteRemove })
		s.look()
		for name, typ := range map[string]string{"cpi": "CPIReady", "csi": "CSIReady"} {
			require.Equal(t, "Removing", s.cond(typ).Reason)
			require.False(t, s.isTrue(typ) || s.driver(name).Ready || s.isTrue("Ready"))
		}
		require.Empty(t, s.v.Status.NodesReady)
		require.LessOrEqual(t, s.again, time.Second)
		s.until("the storage driver is gone", func() bool { return s.driver("csi").Driver == "" })
		s.until("it is not looked at each second", func() bool { return s.again >= 4*time.Second })
		s.change(held, func() { held.Finalizers = nil })
		s.deleted()
		s.told(`the storage driver's cluster id is "configured"`) // its Secret is gone
		s.removed()
		require.True(t, s.gone(&corev1.ConfigMap{}, namespace, record.Name))
		for _, kind := range []string{"volumesnapshots.snapshot.storage.k8s.io", "csinodetopologies.cns.vmware.com"} {
			get(s, &apiextensionsv1.CustomResourceDefinition{}, "", kind) // they stay: resources hang on them
		}
	})
}

// Drivers that are left to their users stay as they are, but for the webhook, which would fail closed once its
// certificate expires. The cluster id is told, and a reinstallation finds it.
func TestOrphanedDriversStayAndAreTakenOverAgain(t *testing.T) {
	scene(t, nothing, func(s *scenario) {
		orphan := func(spec *asked) {
			spec.OnDelete, spec.StorageProvider.Webhook = v1alpha1.DeleteOrphan, true
		}
		s.configure(orphan)
		s.ready()
		hook := get(s, &admissionv1.ValidatingWebhookConfiguration{}, "", "validation.csi.vsphere.vmware.com")
		s.orphans = true
		secret := func() types.UID { return get(s, &corev1.Secret{}, csiNamespace, webhookCerts).UID }
		node, certificate := s.daemonSet(csiNamespace, csiNode).UID, secret()
		meta := metav1.ObjectMeta{Namespace: csiNamespace, Name: "vsphere-csi-cluster-id"}
		s.put(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"clusterID": "made-by-the-driver"}})
		s.deleted()
		same := func() {
			require.Equal(t, node, s.daemonSet(csiNamespace, csiNode).UID)
			require.Equal(t, certificate, secret())
		}
		same()
		require.True(t, s.gone(hook, "", hook.Name))
		s.told("validation.csi.vsphere.vmware.com: without the operator its certificate expires")
		s.told(`the storage driver's cluster id is "made-by-the-driver": unless namespace`)

		s.put(s.vdoConfig("m-site"))
		s.configure(orphan)
		s.ready()
		same()
		require.Equal(t, "made-by-the-driver", s.inventory().Memory().ClusterID)
		get(s, hook, "", hook.Name)
		s.drop(get(s, &corev1.ConfigMap{}, namespace, record.Name))
		s.deleted()
		require.True(t, s.gone(hook, "", hook.Name), "its labels say whose it is where no record does")
	})
}

// The same releases may be made of other images: as long as the bundle that was accepted is not trusted, what runs is
// of the one before, and is repaired from it. That holds for a trust policy that changes in the middle of a pass too.
func TestNothingOfABundleThatIsNotTrustedIsRolledOut(t *testing.T) {
	scene(t, installed, func(s *scenario) {
		both := s.trustOf("release")
		both.Data["stranger.pub"] = s.site.keys["stranger"]
		was, from := s.daemonSet(csiNamespace, csiNode).Spec.Template, s.v.Status.Bundle
		stays := func(says string) {
			s.look()
			require.Equal(t, was, s.daemonSet(csiNamespace, csiNode).Spec.Template)
			require.Equal(t, from, s.v.Status.Bundle)
			require.Contains(t, describe(s.v.Status.Conditions), says)
		}
		s.put(both.DeepCopy())
		s.retag(bundleStrangers)
		s.pass(passBundle)
		s.put(s.trustOf("release"))
		stays("is being verified")
		s.pass(passBundle)
		stays("Untrusted")
		s.byHand("csi", 1)
		stays("Untrusted")

		s.put(both.DeepCopy())
		s.pass(passBundle)
		tried := false
		s.meets(func(*http.Request, string) int {
			if !tried {
				tried = true
				s.put(s.trustOf("release"))
			}
			return 0
		})
		stays(", which has changed, to be verified again")
		require.True(t, tried)
		s.meets(nil)
		s.put(both.DeepCopy())
		s.until("rolled out", func() bool { return s.driver("csi").Version == "3.7.3" })
		accepted := get(s, &v1alpha1.DriverBundle{}, namespace, "drivers").Status
		require.NotEqual(t, from, s.v.Status.Bundle)
		require.Equal(t, accepted.Repository+"@"+accepted.Digest, s.v.Status.Bundle)
	})
}
