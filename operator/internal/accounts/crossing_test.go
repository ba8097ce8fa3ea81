package accounts_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/accounts"
)

// noted says whether anything is in the record.
func (w *world) noted() bool {
	return w.api.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: "vdo-account-vc"}, &corev1.ConfigMap{}) == nil
}

// taken takes away what is there, and demands that nothing is left.
func (w *world) taken(before map[string]string, n int) {
	w.t.Helper()
	if w.noted() {
		require.NoError(w.t, w.run(&fuse{left: forever}, remove), n)
	}
	w.nothingLeft(before)
}

// Whoever was killed with one thing may go on with another: what was half made is taken
// away, what was half taken away is made again, and of a rotation nothing is left either.
func TestKilledWithOneThingAnotherGoesOn(t *testing.T) {
	w := newWorld(t)
	before := w.vcenterState()
	making, turning, taking := &fuse{left: forever}, &fuse{left: forever}, &fuse{left: forever}
	require.NoError(t, w.run(making, create))
	require.NoError(t, w.run(turning, rotate))
	w.complete(nextName)
	require.NoError(t, w.run(taking, remove))
	w.nothingLeft(before)

	for n := range making.changes {
		require.ErrorIs(t, w.run(&fuse{left: n}, create), errKilled, n)
		w.taken(before, n)
	}
	for n := range taking.changes {
		require.NoError(t, w.run(&fuse{left: forever}, create), n)
		require.ErrorIs(t, w.run(&fuse{left: n}, remove), errKilled, n)
		require.NoError(t, w.run(&fuse{left: forever}, create), n)
		w.complete(firstName)
		w.taken(before, n)
	}
	for n := range turning.changes {
		require.NoError(t, w.run(&fuse{left: forever}, create), n)
		require.ErrorIs(t, w.run(&fuse{left: n}, func(s *accounts.Site) error { s.Wait = time.Nanosecond; return rotate(s) }), errKilled, n)
		if err := w.run(&fuse{left: forever}, create); err != nil {
			require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%d: %v", n, err)
			require.Contains(t, fault.HintOf(err), "vdoctl users rotate", n)
		}
		w.taken(before, n)
	}
}

// An account that is made elsewhere has afterwards what it had before, wherever a run was
// killed, and is never given a password or removed.
func TestAnAccountOfElsewhereIsLeftAsItWas(t *testing.T) {
	w := newWorld(t)
	w.v.SetPassword(corp, string(corpLogin.Password))
	require.NoError(t, w.v.Grant(t.Context(), corp, "seeing", "/", false))
	mine := func(s *accounts.Site) error { return s.Create(t.Context(), corpLogin) }
	before := w.everything()
	making, taking := &fuse{left: forever}, &fuse{left: forever}
	require.NoError(t, w.run(making, mine))
	w.complete(corp)
	require.NoError(t, w.run(taking, remove))
	require.Equal(t, before, w.everything())
	for n := range max(making.changes, taking.changes) {
		require.ErrorIs(t, w.run(&fuse{left: min(n, making.changes-1)}, mine), errKilled, n)
		require.NoError(t, w.run(&fuse{left: forever}, mine), n)
		w.complete(corp)
		require.Equal(t, corpLogin, w.login(), n)
		require.ErrorIs(t, w.run(&fuse{left: min(n, taking.changes-1)}, remove), errKilled, n)
		if w.noted() {
			require.NoError(t, w.run(&fuse{left: forever}, remove), n)
		}
		require.Equal(t, before, w.everything(), n)
		require.NoError(t, w.works(corpLogin), n)
	}
}
