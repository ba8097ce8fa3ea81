package vdoconfig_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// left is the namespace of the site that the test before has left, "" where nothing is installed.
var left string

// installed returns a site on which the pair is Ready, and its VDOConfig, of the name
// "site". Tests share one, one after another: to remove and install it takes several
// times as long as to put back what a test has changed. The operator is a new one each
// time, as after a restart, and has said and written nothing yet. Tests that are about
// a first installation, or need it to be another one, call start.
func installed(t *testing.T) (*world, *v1alpha1.VDOConfig) {
	t.Helper()
	w := newWorld(t, pair)
	w.ns, left = left, ""
	t.Cleanup(func() {
		if t.Failed() {
			w.clean()
			return
		}
		w.fail, w.deny = nil, nil
		left = w.ns
	})
	v := &v1alpha1.VDOConfig{}
	if w.ns == "" || !w.restore(v) {
		w.clean()
		w.ns = w.newNamespace()
		w.here()
		w.surroundings()
		v = w.ready(w.config("site"))
	}
	w.writes, w.events.told = 0, nil
	return w, v
}

// consenting asks for the pair whatever the test before has installed.
func consenting() v1alpha1.VDOConfigSpec {
	spec := pairSpec()
	spec.UpgradePolicy = &v1alpha1.UpgradePolicy{AllowDowngrade: strings.Fields(pair)}
	spec.CloudProvider.AcceptNodeDeletion = []string{"vc1.site.example/dc1", "spec.excludedNodes"}
	return spec
}

// newNamespace makes one that outlives the test; it goes with the cluster.
func (w *world) newNamespace() string {
	w.t.Helper()
	c, err := kubernetes.NewForConfig(config(w.t))
	require.NoError(w.t, err)
	ns, err := c.CoreV1().Namespaces().Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shared-"}}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return ns.Name
}

// restore makes a site what it was when it was installed, and tells whether it is.
func (w *world) restore(v *v1alpha1.VDOConfig) bool {
	w.t.Helper()
	ctx := context.Background()
	var all v1alpha1.VDOConfigList
	require.NoError(w.t, w.List(ctx, &all))
	if len(all.Items) != 1 || all.Items[0].Namespace != w.ns || all.Items[0].Name != "site" || !all.Items[0].DeletionTimestamp.IsZero() {
		return false
	}
	for _, o := range []client.Object{&v1alpha1.DriverBundle{}, &v1alpha1.VsphereCloudConfig{}} {
		require.NoError(w.t, w.DeleteAllOf(ctx, o, client.InNamespace(w.ns)))
	}
	var secrets corev1.SecretList
	var maps corev1.ConfigMapList
	for _, list := range []client.ObjectList{&secrets, &maps} {
		require.NoError(w.t, w.List(ctx, list, client.InNamespace(w.ns)))
		require.NoError(w.t, meta.EachListItem(list, func(item runtime.Object) error {
			o := item.(client.Object)
			operators := strings.HasPrefix(o.GetName(), "vdo-") && o.GetName() != "vdo-registry" && o.GetName() != "vdo-trust"
			if operators || o.GetName() == "kube-root-ca.crt" { // which Kubernetes makes in every namespace
				return nil
			}
			return w.Delete(ctx, o)
		}))
	}
	w.surroundings()
	*v = all.Items[0]
	w.change(v, func() { v.Spec, v.Annotations, v.Labels = pairSpec(), nil, nil })
	return w.reverts(v)
}

// reverts reconciles until the pair is Ready, with consent to what takes some, and reports whether it is.
func (w *world) reverts(v *v1alpha1.VDOConfig) bool {
	w.t.Helper()
	consented := false
	for tries := range 15 {
		w.settle()
		w.play()
		w.look(v)
		ready := isTrue(v, "Ready") && v.Status.ObservedGeneration == v.Generation
		switch {
		case ready && v.Spec.UpgradePolicy != nil:
			w.change(v, func() { v.Spec = pairSpec() })
		case ready && v.Status.Candidate == nil &&
			driver(v, "cpi").Version == "1.33.1" && driver(v, "csi").Version == "3.5.1":
			return true
		case tries >= 2 && !consented:
			consented = true
			w.change(v, func() { v.Spec = consenting() })
		}
	}
	return false
}

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
		is := &metav1.PartialObjectMetadata{}
		data, err := w.access.raw.Get().AbsPath(w.deletes[0]).DoRaw(ctx)
		if err == nil {
			require.NoError(w.t, json.Unmarshal(data, is))
		}
		if !is.DeletionTimestamp.IsZero() {
			fmt.Fprintf(&out, "%s %s;", is.UID, is.ResourceVersion)
			break
		}
		w.deletes = w.deletes[1:]
	}
	for _, o := range w.workloads() {
		if !rolledOut(o) {
			fmt.Fprintf(&out, "%s %s;", o.GetUID(), o.GetResourceVersion())
		}
	}
	return out.String(), out.Len() == 0
}

func rolledOut(o client.Object) bool {
	if d, is := o.(*appsv1.Deployment); is {
		s := d.Status
		return o.GetDeletionTimestamp().IsZero() && s.ObservedGeneration >= d.Generation &&
			s.Replicas == *d.Spec.Replicas &&
			s.UpdatedReplicas == s.Replicas && s.AvailableReplicas == s.Replicas
	}
	ds := o.(*appsv1.DaemonSet)
	s, onDelete := ds.Status, ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	want := s.DesiredNumberScheduled
	return o.GetDeletionTimestamp().IsZero() && s.ObservedGeneration >= ds.Generation && s.NumberAvailable == want &&
		s.CurrentNumberScheduled == want && (s.UpdatedNumberScheduled == want || onDelete)
}
