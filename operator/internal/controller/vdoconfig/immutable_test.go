package vdoconfig_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// A ConfigMap or Secret that somebody has made immutable and
// is not as it shall be is made anew, though the operator is killed when it has deleted it.
func TestWhatSomebodyMadeImmutableIsMadeAnew(t *testing.T) {
	const features = "internal-feature-states.csi.vsphere.vmware.com"
	w, v := installed(t)
	states := get(w, &corev1.ConfigMap{}, "vmware-system-csi", features)
	login := get(w, &corev1.Secret{}, "kube-system", "vsphere-cloud-secret")
	wantStates, wantLogin := states.Data, login.Data
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
}
