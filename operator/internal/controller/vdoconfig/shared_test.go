package vdoconfig_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// site is an installation of the pair that stays when its test ends.
type site struct {
	ns string
	// own are the Secrets and ConfigMaps that the operator keeps beside its VDOConfig.
	own []string
	// installed is all that the inventory names, as JSON, without what differs between two
	// installations of the same.
	installed map[inventory.Key]string
}

// left is the site that the test before has left, nil where nothing is installed.
var left *site

// installed returns a site on which the pair is Ready, and its VDOConfig, of the name
// "site". Tests share one, one after another: to remove and install it takes several
// times as long as to put back what a test has changed. The operator is a new one each
// time, as after a restart, and has said and written nothing yet. Tests that are about
// a first installation, or need it to be another one, call start.
func installed(t *testing.T) (*world, *v1alpha1.VDOConfig) {
	t.Helper()
	w := newWorld(t, pair)
	s := left
	left = nil
	t.Cleanup(func() {
		if t.Failed() || w.spoilt {
			w.clean()
			return
		}
		w.fail, w.deny = nil, nil
		left = s
	})
	v := &v1alpha1.VDOConfig{}
	if s == nil || !w.restore(s, v) {
		w.clean()
		s = &site{ns: w.newNamespace()}
		w.ns = s.ns
		w.here()
		w.surroundings()
		v = w.ready(w.config("site"))
		s.own, s.installed = w.own(), w.shape(v)
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

// restore makes a site what it was when it was installed, and tells whether it is: the
// VDOConfig Ready, and all that is installed the same to the letter.
func (w *world) restore(s *site, v *v1alpha1.VDOConfig) bool {
	w.t.Helper()
	ctx := context.Background()
	w.ns = s.ns
	var all v1alpha1.VDOConfigList
	require.NoError(w.t, w.List(ctx, &all))
	if len(all.Items) != 1 || all.Items[0].Namespace != s.ns || all.Items[0].Name != "site" || !all.Items[0].DeletionTimestamp.IsZero() {
		return false
	}
	for _, o := range []client.Object{&v1alpha1.DriverBundle{}, &v1alpha1.VsphereCloudConfig{}} {
		require.NoError(w.t, w.DeleteAllOf(ctx, o, client.InNamespace(s.ns)))
	}
	for _, o := range w.beside() {
		if n := o.GetName(); n != rootCA && !slices.Contains(s.own, n) && !strings.HasPrefix(n, "vdo-revision-") {
			require.NoError(w.t, w.Delete(ctx, o))
		}
	}
	w.surroundings()
	*v = all.Items[0]
	w.change(v, func() { v.Spec, v.Annotations, v.Labels = pairSpec(), nil, nil })
	if !w.reverts(v) {
		w.t.Logf("what the test before has left does not become what it was:\n%s", describe(v))
		return false
	}
	if !slices.Equal(s.own, w.own()) {
		w.t.Logf("the test before has left other records: %v", w.own())
		return false
	}
	now := w.shape(v)
	for key, was := range s.installed {
		if now[key] != was {
			w.t.Logf("the test before has left another %s:\n%s\nwas\n%s", key, now[key], was)
			return false
		}
	}
	return len(now) == len(s.installed)
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

// beside are the Secrets and ConfigMaps of the operator's namespace.
func (w *world) beside() []client.Object {
	w.t.Helper()
	var all []client.Object
	var secrets corev1.SecretList
	require.NoError(w.t, w.List(context.Background(), &secrets, client.InNamespace(w.ns)))
	for i := range secrets.Items {
		all = append(all, &secrets.Items[i])
	}
	var maps corev1.ConfigMapList
	require.NoError(w.t, w.List(context.Background(), &maps, client.InNamespace(w.ns)))
	for i := range maps.Items {
		all = append(all, &maps.Items[i])
	}
	return all
}

// rootCA is a ConfigMap that Kubernetes makes in every namespace, at a time of its own.
const rootCA = "kube-root-ca.crt"

// own are the names of those that surroundings did not make, but for the revisions, which
// grow in number.
func (w *world) own() []string {
	w.t.Helper()
	var names []string
	for _, o := range w.beside() {
		if n := o.GetName(); n != rootCA && n != "vdo-registry" && !strings.HasPrefix(n, "vdo-revision-") && !strings.HasSuffix(n, "-creds") {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

// shape reads all that the inventory of a VDOConfig names.
func (w *world) shape(v *v1alpha1.VDOConfig) map[inventory.Key]string {
	w.t.Helper()
	all := map[inventory.Key]string{}
	inv := w.inventory(v)
	for _, e := range inv.Entries() {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: e.Group, Version: e.Version, Kind: e.Kind})
		require.NoError(w.t, w.Get(context.Background(), client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, o))
		delete(o.Object, "status")
		for _, field := range [][]string{
			{"metadata", "uid"}, {"metadata", "resourceVersion"}, {"metadata", "generation"}, {"metadata", "creationTimestamp"}, {"metadata", "managedFields"},
			{"metadata", "annotations", "deprecated.daemonset.template.generation"}, {"metadata", "annotations", "deployment.kubernetes.io/revision"},
			{"spec", "clusterIP"}, {"spec", "clusterIPs"},
		} {
			unstructured.RemoveNestedField(o.Object, field...)
		}
		text, err := json.Marshal(o.Object)
		require.NoError(w.t, err)
		all[e.Key] = string(text)
	}
	return all
}
