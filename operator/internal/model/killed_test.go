package model

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// life is how many writes an operator lives for in [killedAllTheWay], where nothing else is
// asked for by VDO_TEST_WRITES: as no step is made of so many, each boundary between two
// writes comes up sooner or later.
const life = 7

// mostLives bounds an installation, an upgrade, a removal.
const mostLives = 300

// killedAllTheWay has the operator die after every few writes of an installation, an upgrade
// and a removal, and another one without any memory go on. Every invariant holds after each
// death, and it converges.
func killedAllTheWay(t *testing.T, s *site) {
	each := int(number(t, "VDO_TEST_WRITES", life)) //nolint:gosec // small
	w, broken, err := enact(context.Background(), s, func(w *world) {
		w.lives(each)
		w.peace(true)
		w.retag(bundleNewer)
		w.lives(each)
		w.peace(true)
		w.drop(w.vdoConfig("m-site"))
		w.lives(each)
		w.removed()
	})
	require.NoError(t, err)
	if broken != nil {
		t.Fatalf("%v\nwhat happened:\n%s", broken, w.told())
	}
	t.Logf("%d deaths, %d writes", w.wire.deaths, len(w.wire.writes))
	require.Greater(t, w.wire.deaths, 10)
}

// lives does passes until one life has nothing left to write.
func (w *world) lives(each int) {
	w.wire.live(each)
	defer w.wire.live(0)
	for range mostLives {
		did := w.play()
		_, before := w.wire.written(0)
		deaths := w.wire.deaths
		for _, which := range []string{passBundle, passVCenter, passDrivers} {
			w.pass(which)
		}
		w.deaths += w.wire.deaths - deaths
		if _, now := w.wire.written(0); now == before && !did {
			return
		}
		w.now = w.now.Add(30 * time.Second)
	}
	w.fail("it converges", "after %d passes it still writes", mostLives)
}

// removed requires that nothing that runs is left of a VDOConfig that was deleted.
func (w *world) removed() {
	var v v1alpha1.VDOConfig
	err := w.Get(w.ctx, client.ObjectKeyFromObject(w.vdoConfig("m-site")), &v)
	if !apierrors.IsNotFound(err) {
		w.fail("what is deleted goes", "the VDOConfig is there: %v %s", err, describe(v.Status.Conditions))
	}
	for _, ns := range []string{"kube-system", csiNamespace} {
		var sets appsv1.DaemonSetList
		var deployments appsv1.DeploymentList
		w.must(w.List(w.ctx, &sets, client.InNamespace(ns)))
		w.must(w.List(w.ctx, &deployments, client.InNamespace(ns)))
		if n := len(sets.Items) + len(deployments.Items); n > 0 {
			w.fail("what is deleted goes", "%d workloads in %s", n, ns)
		}
	}
}
