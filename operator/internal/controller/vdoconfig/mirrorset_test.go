package vdoconfig_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

const ownSet = "vdo-operator"

// leading is a site on OpenShift that asks the operator to lead the nodes, under the shipped
// rights without those that this needs. They are taken away last: cleaning up needs them.
func leading(t *testing.T) (*world, *cloud) {
	t.Helper()
	var w *world
	t.Cleanup(func() {
		if w == nil {
			return // the site could not be made
		}
		require.NoError(t, cluster.Operator.Revoke(context.Background(), w.Client, deploy.MirrorSetRights))
	})
	w, c := upstreamNames(t)
	w.change(c.v, func() { c.v.Spec.OpenShift = &v1alpha1.OpenShift{MirrorSet: v1alpha1.MirrorSetWrite} })
	return w, c
}

// set is the operator's, nil where it is not there.
func (c *cloud) set() *unstructured.Unstructured {
	c.t.Helper()
	o := mirrorSet("config.openshift.io/v1", "ImageDigestMirrorSet", "imageDigestMirrors", ownSet)
	if gone(c.world, o, "", ownSet) {
		return nil
	}
	return o
}

// leads is where a set leads the cloud provider's images.
func leads(set *unstructured.Unstructured) []string {
	entries, _, _ := unstructured.NestedSlice(set.Object, "spec", "imageDigestMirrors")
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		if entry["source"] == cloudImage {
			mirrors, _, _ := unstructured.NestedStringSlice(entry, "mirrors")
			return mirrors
		}
	}
	return nil
}

// granted gives the rights that lead needs, and is ready.
func (c *cloud) granted() {
	c.t.Helper()
	require.NoError(c.t, cluster.Operator.Grant(c.t.Context(), c.Client, deploy.MirrorSetRights))
	c.until("the rights are given", func() bool {
		c.look(c.v)
		return c.set() != nil
	})
	c.ready(c.v)
}

// moves has the bundle come from another repository.
func (c *cloud) moves(to string) {
	c.t.Helper()
	b := get(c.world, &v1alpha1.DriverBundle{}, c.ns, "site")
	c.change(b, func() { b.Spec.Reference = to + ":1" })
	b = get(c.world, &v1alpha1.DriverBundle{}, c.ns, "site")
	b.Status.Repository = to
	c.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
}

// Where it is asked to, and under the rights that are given for that alone, the operator writes
// the set before what pulls, repairs it, keeps it once it is not asked for any more, and removes
// it with the VDOConfig after all pods. Where the inventory is lost no mirror is taken away from it.
func TestTheOperatorLeadsTheNodesToTheMirror(t *testing.T) {
	w, c := leading(t)
	w.lacks = true
	c.look(c.v)
	require.Equal(t, "BlockInstall", cond(t, c.v, v1alpha1.ConditionPreflight).Reason, describe(c.v))
	require.Empty(t, c.runs())
	r := c.v.Status.Preflight.Results[0]
	require.Equal(t, "image-mirror-set", r.ID)
	require.Contains(t, r.Found, "the operator cannot lead them there: read ImageDigestMirrorSet vdo-operator: ")
	require.Contains(t, r.Remedy, "vdo-bundle install-manifests BUNDLE --mirror-set")
	w.access.refused.Forget()
	w.lacks = false

	require.NoError(t, cluster.Operator.Grant(t.Context(), w.Client, deploy.MirrorSetRights))
	var written []string
	tried := ""
	w.deny = func(_, name string) error { tried = name; return nil }
	w.fail = func(int) error { written = append(written, tried); return nil }
	w.ready(c.v)
	first := repository + "/" + cloudImage
	require.Equal(t, []string{first}, leads(c.set()))
	require.Less(t, slices.Index(written, ownSet), slices.Index(written, ccm), "%v", written)
	require.GreaterOrEqual(t, slices.Index(written, ownSet), 0)
	w.writes = 0
	w.look(c.v)
	require.Zero(t, w.writes)

	c.remove(c.set())
	w.look(c.v)
	require.Equal(t, []string{first}, leads(c.set()), "it is repaired")
	w.change(c.v, func() { c.v.Spec.OpenShift.MirrorSet = v1alpha1.MirrorSetCheck })
	set := c.set()
	w.change(set, func() { set.Object["spec"] = map[string]any{"imageDigestMirrors": []any{}} })
	w.look(c.v)
	require.Empty(t, leads(c.set()), "nobody asks for it: it stays as it is")
	w.change(c.v, func() { c.v.Spec.OpenShift.MirrorSet = v1alpha1.MirrorSetWrite })
	w.ready(c.v)
	require.Equal(t, []string{first}, leads(c.set()))

	c.moves("other.site/vdo")
	both := []string{"other.site/vdo/" + cloudImage, first}
	w.until("the other mirror is in it", func() bool { w.play(); w.look(c.v); return slices.Equal(leads(c.set()), both) })
	w.ready(c.v)
	w.dropRecord(c.v)
	w.ready(c.v)
	require.Equal(t, both, leads(c.set()))

	w.deny = func(verb, name string) error {
		require.False(t, verb == "delete" && name == ownSet && !gone(w, &appsv1.DaemonSet{}, "kube-system", ccm), "there are pods still")
		return nil
	}
	require.NoError(t, w.Delete(t.Context(), c.v))
	w.until("the drivers are gone", func() bool {
		w.pass(client.ObjectKeyFromObject(c.v))
		return gone(w, c.v, w.ns, c.v.Name)
	})
	require.Nil(t, c.set())
}
