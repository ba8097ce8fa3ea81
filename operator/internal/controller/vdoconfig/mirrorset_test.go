package vdoconfig_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
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

// heldBy requires the installation to be held by the check of mirror sets, and returns what it
// says and what it advises.
func (c *cloud) heldBy() (found, remedy string) {
	c.t.Helper()
	c.look(c.v)
	require.Equal(c.t, "BlockInstall", cond(c.t, c.v, v1alpha1.ConditionPreflight).Reason, describe(c.v))
	require.Empty(c.t, c.runs())
	r := c.v.Status.Preflight.Results[0]
	require.Equal(c.t, "image-mirror-set", r.ID)
	return r.Found, r.Remedy
}

// Where it is asked to, and under the rights that are given for that alone, the operator writes
// the set before what pulls, repairs it, keeps it once it is not asked for any more, and removes
// it with the VDOConfig after all pods.
func TestTheOperatorLeadsTheNodesToTheMirror(t *testing.T) {
	w, c := leading(t)
	w.lacks = true
	found, remedy := c.heldBy()
	require.Contains(t, found, "the operator cannot lead them there: read ImageDigestMirrorSet vdo-operator: ")
	require.Contains(t, found, "forbidden")
	require.Contains(t, remedy, "vdo-bundle install-manifests BUNDLE --mirror-set")

	require.NoError(t, cluster.Operator.Grant(t.Context(), w.Client, deploy.MirrorSetRights))
	var written []string
	tried := ""
	w.deny = func(_, name string) error { tried = name; return nil }
	w.fail = func(int) error { written = append(written, tried); return nil }
	w.ready(c.v)
	require.Equal(t, []string{repository + "/" + cloudImage}, leads(c.set()))
	require.Less(t, slices.Index(written, ownSet), slices.Index(written, ccm), "%v", written)
	require.GreaterOrEqual(t, slices.Index(written, ownSet), 0)
	require.Contains(t, w.events.all(), "ImageDigestMirrorSet vdo-operator was written: OpenShift's Machine Config Operator has one node after the other take it up")
	w.writes = 0
	w.look(c.v)
	require.Zero(t, w.writes)

	c.remove(c.set())
	w.look(c.v)
	require.Equal(t, []string{repository + "/" + cloudImage}, leads(c.set()), "it is repaired")
	require.Contains(t, w.events.all(), "repaired ImageDigestMirrorSet vdo-operator: was deleted")
	spoil := func() {
		set := c.set()
		w.change(set, func() { set.Object["spec"] = map[string]any{"imageDigestMirrors": []any{}} })
	}
	spoil()
	w.look(c.v)
	require.Equal(t, []string{repository + "/" + cloudImage}, leads(c.set()))

	w.change(c.v, func() { c.v.Spec.OpenShift.MirrorSet = v1alpha1.MirrorSetCheck })
	spoil()
	w.look(c.v)
	require.Empty(t, leads(c.set()), "nobody asks for it: it stays as it is")
	w.change(c.v, func() { c.v.Spec.OpenShift.MirrorSet = v1alpha1.MirrorSetWrite })
	w.ready(c.v)
	require.NotEmpty(t, leads(c.set()))

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

// A set of that name that somebody else made is left as it is. It counts as any other.
func TestASetOfTheOperatorsNameThatIsSomebodyElsesStaysAndIsCounted(t *testing.T) {
	w, c := leading(t)
	require.NoError(t, cluster.Operator.Grant(t.Context(), w.Client, deploy.MirrorSetRights))
	other := mirrorSet("config.openshift.io/v1", "ImageDigestMirrorSet", "imageDigestMirrors", ownSet, "registry.k8s.io", "other.site/x")
	w.create(other)
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(w.Delete(context.Background(), other))) })
	found, remedy := c.heldBy()
	require.Contains(t, found, "the operator cannot lead them there: take over ImageDigestMirrorSet vdo-operator: the operator did not make it")
	require.Equal(t, "apply its entries under another name, then delete it; or set spec.openShift.mirrorSet of the VDOConfig to Check and keep it", remedy)

	w.change(other, func() {
		other.Object["spec"] = map[string]any{"imageDigestMirrors": []any{map[string]any{"source": "registry.k8s.io", "mirrors": []any{repository + "/registry.k8s.io"}}}}
	})
	w.until("it leads there: the drivers are installed", func() bool {
		w.play()
		w.look(c.v)
		return c.runs() != "" && isTrue(c.v, "CPIReady")
	})
	require.False(t, isTrue(c.v, "Ready"), "what is asked for is not done")
	require.Contains(t, cond(t, c.v, "Ready").Message, "the operator did not make it")
	version := c.set().GetResourceVersion()
	w.look(c.v)
	require.Equal(t, version, c.set().GetResourceVersion())
	w.change(c.v, func() { c.v.Spec.OpenShift = nil })
	w.ready(c.v)
}

// There is nothing to lead the nodes by on a cluster that is not OpenShift.
func TestLeadingTheNodesIsRefusedWhereThereIsNoOpenShift(t *testing.T) {
	w := start(t, "cpi@1.33.1")
	c := &cloud{world: w, v: w.config("site")}
	w.change(c.v, func() {
		c.v.Spec.StorageProvider, c.v.Spec.OpenShift = nil, &v1alpha1.OpenShift{MirrorSet: v1alpha1.MirrorSetWrite}
	})
	w.look(c.v)
	w.look(c.v)
	require.Empty(t, c.runs())
	require.False(t, isTrue(c.v, "Ready"))
	require.Contains(t, describe(c.v), "write ImageDigestMirrorSet vdo-operator: the cluster is not OpenShift")
	require.Contains(t, describe(c.v), "take spec.openShift.mirrorSet out of the VDOConfig")
	w.change(c.v, func() { c.v.Spec.OpenShift.MirrorSet = v1alpha1.MirrorSetCheck })
	w.ready(c.v)
}
