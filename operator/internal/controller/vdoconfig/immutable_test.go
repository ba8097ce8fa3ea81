package vdoconfig_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// Under Warn it stays as it is, and the operator's by its UID: who could make it immutable could take
// its labels off too.
func TestWhatSomebodyMadeImmutableStaysOursUntilItIsMadeAnew(t *testing.T) {
	const features = "internal-feature-states.csi.vsphere.vmware.com"
	w, v := installed(t)
	states := get(w, &corev1.ConfigMap{}, "vmware-system-csi", features)
	want := states.Data
	w.drift(v, &v1alpha1.DriftPolicy{Mode: v1alpha1.DriftWarn})
	w.change(states, func() {
		states.Immutable, states.Data = new(true), map[string]string{"csi-migration": "perhaps"}
		delete(states.Labels, "app.kubernetes.io/managed-by")
	})
	for range 3 {
		w.look(v)
		require.Len(t, v.Status.Drift, 1, describe(v))
		require.Equal(t, string(states.UID), w.uids(v)[inventory.Key{Kind: "ConfigMap", Namespace: "vmware-system-csi", Name: features}])
		require.NotContains(t, describe(v), "Conflict")
	}
	w.drift(v, nil)
	w.ready(v)
	require.Equal(t, want, get(w, &corev1.ConfigMap{}, "vmware-system-csi", features).Data)
}

// A ConfigMap or Secret that somebody has made immutable stays as long as it is as it shall be, and
// is made anew where it is not, though the operator is killed when it has deleted it.
func TestWhatSomebodyMadeImmutableIsMadeAnew(t *testing.T) {
	const features = "internal-feature-states.csi.vsphere.vmware.com"
	w, v := installed(t)
	states := get(w, &corev1.ConfigMap{}, "vmware-system-csi", features)
	login := get(w, &corev1.Secret{}, "kube-system", "vsphere-cloud-secret")
	wantStates, wantLogin := states.Data, login.Data
	uid := states.UID
	w.change(states, func() { states.Immutable = new(true) })
	w.ready(v)
	require.Equal(t, uid, get(w, &corev1.ConfigMap{}, "vmware-system-csi", features).UID, "it is as it shall be")
	w.deleted(states, "vmware-system-csi", features)
	w.ready(v)

	w.change(states, func() { states.Immutable, states.Data = new(true), map[string]string{"csi-migration": "perhaps"} })
	w.change(login, func() { login.Immutable, login.Data = new(true), map[string][]byte{"user": []byte("nobody")} })
	between := map[string]bool{} // it was killed after it has deleted one
	w.deny = func(verb, name string) error {
		_, deleted := between[name]
		switch {
		case verb == "delete":
			between[name] = false
		case deleted && !between[name]:
			between[name] = true
			return errors.New("connection reset by peer")
		}
		return nil
	}
	w.until("both are made anew", func() bool {
		w.restart()
		w.look(v)
		states, login = &corev1.ConfigMap{}, &corev1.Secret{}
		return !gone(w, states, "vmware-system-csi", features) && !gone(w, login, "kube-system", "vsphere-cloud-secret") && states.Immutable == nil && login.Immutable == nil
	})
	w.deny = nil
	require.Equal(t, map[string]bool{features: true, "vsphere-cloud-secret": true}, between)
	require.Equal(t, wantStates, states.Data)
	require.Equal(t, wantLogin, login.Data)
	w.ready(v)

	w.change(states, func() { states.Immutable, states.Data = new(true), map[string]string{"csi-migration": "perhaps"} })
	w.ready(v)
	require.Equal(t, wantStates, get(w, &corev1.ConfigMap{}, "vmware-system-csi", features).Data)
	require.Contains(t, w.events.all(), "repaired ConfigMap vmware-system-csi/"+features+": data has to change and is immutable")
}
