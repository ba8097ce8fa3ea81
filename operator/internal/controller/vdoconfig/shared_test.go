package vdoconfig_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
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
		if t.Failed() || w.spoilt {
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
