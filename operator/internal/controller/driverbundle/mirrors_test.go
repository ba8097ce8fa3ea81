package driverbundle

import (
	"testing"

	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// However many DriverBundles name a mirror that drips, those of others are looked at.
func TestAMirrorHoldsFewOfThoseThatLook(t *testing.T) {
	at := func(reference string, suspend bool) *v1alpha1.DriverBundle {
		return &v1alpha1.DriverBundle{Spec: v1alpha1.DriverBundleSpec{Reference: reference, Suspend: suspend}}
	}
	var m mirrors
	var leave []func()
	for range perMirror {
		l, free := m.enter(at("drips.example:5000/vdo/a:1", false))
		require.True(t, free)
		leave = append(leave, l)
	}
	require.Less(t, len(leave), concurrent)
	_, free := m.enter(at("drips.example:5000/vdo/b:1", false))
	require.False(t, free, "whatever the repository")
	for _, b := range []*v1alpha1.DriverBundle{at("other.example/vdo/a:1", false), at("drips.example:5000/vdo/b:1", true), at("not a reference", false)} {
		l, free := m.enter(b)
		require.True(t, free, b.Spec.Reference)
		l()
	}
	r := &Reconciler{}
	r.mirrors.busy = map[string]int{"drips.example:5000": perMirror}
	next, err := r.Reconcile(t.Context(), at("drips.example:5000/vdo/b:1", false))
	require.NoError(t, err)
	require.Equal(t, ctrl.Result{RequeueAfter: busyAgain}, next, "it comes again, and holds nothing meanwhile")
	for _, l := range leave {
		l()
	}
	require.Empty(t, m.busy)
	_, free = m.enter(at("drips.example:5000/vdo/b:1", false))
	require.True(t, free)
}
