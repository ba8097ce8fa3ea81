package vdoconfig_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// A reconcile costs a hundred requests and more. Tests wait until the cluster has done what the
// reconcile before asked of it, which costs three, and reconcile again only then.

// again returns how many reconciles show that nothing happens any more.
func again() int { return tier.Pick(2, 3) }

const (
	poll = 20 * time.Millisecond
	// quiet is how long nothing changes in a cluster that will not settle by itself.
	quiet = 300 * time.Millisecond
)

// written is how many writes there were.
func (w *world) written() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes
}

// until polls; what is waited for happens in other processes. Between two reconciles the
// cluster settles.
func (w *world) until(what string, done func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; {
		passes, writes := w.passes, w.written()
		if done() {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("waited %s for: %s", patience, what)
		}
		if w.passes > passes {
			w.settle()
		}
		if w.written() == writes {
			time.Sleep(poll)
		}
	}
}

// ready does passes, with the drivers played, until the VDOConfig is Ready.
func (w *world) ready(v *v1alpha1.VDOConfig) *v1alpha1.VDOConfig {
	w.t.Helper()
	end := time.Now().Add(patience)
	for {
		w.settle()
		w.play()
		writes := w.writes
		if w.look(v); isTrue(v, "Ready") && v.Status.ObservedGeneration == v.Generation {
			return v
		}
		if time.Now().After(end) {
			w.t.Fatalf("not Ready after %s:\n%s", patience, describe(v))
		}
		if w.writes == writes {
			time.Sleep(2 * poll)
		}
	}
}

// settle waits until workloads are rolled out and what the operator deletes is gone, or until
// nothing changes any more.
func (w *world) settle() {
	w.t.Helper()
	last, since := "", time.Now()
	for {
		state, settled := w.state()
		switch {
		case settled:
			w.stuck = ""
			return
		case state == w.stuck:
			return
		case state != last:
			last, since = state, time.Now()
		case time.Since(since) > quiet:
			w.stuck = state
			return
		}
		time.Sleep(poll)
	}
}

// state identifies what the cluster still has to do, and reports whether that is nothing.
func (w *world) state() (state string, settled bool) {
	w.t.Helper()
	ctx := context.Background()
	var out strings.Builder
	for len(w.deletes) > 0 {
		o := w.deletes[0]
		is, ok := o.DeepCopyObject().(client.Object)
		require.True(w.t, ok)
		err := w.Get(ctx, client.ObjectKeyFromObject(o), is)
		if err == nil && !is.GetDeletionTimestamp().IsZero() {
			fmt.Fprintf(&out, "%s %s;", is.GetUID(), is.GetResourceVersion())
			break
		}
		w.deletes = w.deletes[1:]
	}
	var sets appsv1.DaemonSetList
	require.NoError(w.t, w.List(ctx, &sets))
	for i := range sets.Items {
		if o := &sets.Items[i]; !daemonsRun(o) {
			fmt.Fprintf(&out, "%s %s;", o.UID, o.ResourceVersion)
		}
	}
	var deployments appsv1.DeploymentList
	require.NoError(w.t, w.List(ctx, &deployments))
	for i := range deployments.Items {
		if o := &deployments.Items[i]; !replicasRun(o) {
			fmt.Fprintf(&out, "%s %s;", o.UID, o.ResourceVersion)
		}
	}
	return out.String(), out.Len() == 0
}

func daemonsRun(o *appsv1.DaemonSet) bool {
	s := o.Status
	want, onDelete := s.DesiredNumberScheduled, o.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	return settledMeta(&o.ObjectMeta, s.ObservedGeneration) && s.NumberAvailable == want &&
		s.CurrentNumberScheduled == want && (s.UpdatedNumberScheduled == want || onDelete)
}

func replicasRun(o *appsv1.Deployment) bool {
	s := o.Status
	return settledMeta(&o.ObjectMeta, s.ObservedGeneration) && s.Replicas == *o.Spec.Replicas &&
		s.UpdatedReplicas == s.Replicas && s.AvailableReplicas == s.Replicas
}

func settledMeta(o *metav1.ObjectMeta, observed int64) bool {
	return o.DeletionTimestamp.IsZero() && observed >= o.Generation
}

// generations of everything that runs: they move where something rolls.
func (w *world) generations() map[string]int64 {
	w.t.Helper()
	all := map[string]int64{}
	for _, ns := range []string{"kube-system", "vmware-system-csi"} {
		var sets appsv1.DaemonSetList
		require.NoError(w.t, w.List(context.Background(), &sets, client.InNamespace(ns)))
		for _, o := range sets.Items {
			all[o.Name] = o.Generation
		}
		var deployments appsv1.DeploymentList
		require.NoError(w.t, w.List(context.Background(), &deployments, client.InNamespace(ns)))
		for _, o := range deployments.Items {
			all[o.Name] = o.Generation
		}
	}
	return all
}
