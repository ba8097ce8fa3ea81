package vdoconfig_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
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
	w.access.refused.Forget()
	w.lacks = false

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

// Where the inventory is lost no mirror taken away from the set: nodes would be drained.
func TestTheSetOnlyGrowsWithoutTheRecord(t *testing.T) {
	w, c := leading(t)
	c.granted()
	c.moves("other.site/vdo")
	both := []string{"other.site/vdo/" + cloudImage, repository + "/" + cloudImage}
	w.until("the other mirror is in it", func() bool {
		w.play()
		w.look(c.v)
		return slices.Equal(leads(c.set()), both)
	})
	w.ready(c.v)
	before := c.set()
	w.dropRecord(c.v)
	for range again() {
		w.look(c.v)
		require.Equal(t, before.Object["spec"], c.set().Object["spec"], w.events.all())
	}
	w.ready(c.v)
	require.Equal(t, both, mirrorsOf(w.inventory(c.v).Memory().Mirrored), "and it is remembered again")
	c.remove(c.set())
	w.look(c.v)
	require.Equal(t, both, leads(c.set()))
}

// A set without room for another mirror stays as it is, what needs that is held back with what to do,
// and that leads on.
func TestASetWithoutRoomHoldsBackWhatNeedsIt(t *testing.T) {
	w, c := leading(t)
	c.granted()
	runs := c.runs()
	own := c.set()
	w.change(own, func() {
		entries, _, _ := unstructured.NestedSlice(own.Object, "spec", "imageDigestMirrors")
		for _, e := range entries {
			entry := e.(map[string]any) //nolint:errcheck // it is
			for i := range 15 {
				entry["mirrors"] = append(entry["mirrors"].([]any), fmt.Sprintf("m%d.site/x", i)) //nolint:errcheck // it is
			}
		}
		require.NoError(t, unstructured.SetNestedSlice(own.Object, entries, "spec", "imageDigestMirrors"))
	})
	w.ready(c.v)
	before := c.set().Object["spec"]
	c.moves("other.site/vdo")
	w.look(c.v)
	require.Equal(t, "BlockInstall", cond(t, c.v, v1alpha1.ConditionPreflight).Reason, describe(c.v))
	r := c.v.Status.Preflight.Results[0]
	require.Equal(t, []string{cloudImage + " (ImageDigestMirrorSet vdo-operator leads elsewhere)"}, r.Objects)
	require.Contains(t, r.Found, "its set has 16 mirrors of this source, would need 17, and gets no more than 16")
	require.Contains(t, r.Remedy, "to Check, wait until status.plan.actions counts it under keep")
	require.Equal(t, before, c.set().Object["spec"])
	require.Equal(t, runs, c.runs())

	w.change(c.v, func() { c.v.Spec.OpenShift.MirrorSet = v1alpha1.MirrorSetCheck })
	kept := func() bool {
		w.look(c.v)
		p := c.v.Status.Plan
		return p != nil && slices.ContainsFunc(p.Actions, func(c v1alpha1.PlanCount) bool { return c.Action == "keep" })
	}
	w.until("the set is kept", kept)
	c.remove(c.set())
	w.until("the operator has seen that it is gone", func() bool { return !kept() })
	w.change(c.v, func() { c.v.Spec.OpenShift.MirrorSet = v1alpha1.MirrorSetWrite })
	w.until("the set begins anew", func() bool {
		w.look(c.v)
		return c.set() != nil
	})
	require.Equal(t, []string{"other.site/vdo/" + cloudImage, repository + "/" + cloudImage}, leads(c.set()),
		"what runs may be pulled again")
	w.ready(c.v)
}

func mirrorsOf(entries mirrorset.Entries) []string {
	e, _ := entries.Get(cloudImage)
	return e.Mirrors
}

// policy is what the set says of the cloud provider's source.
func policy(set *unstructured.Unstructured) mirrorset.Policy {
	e, _ := mirrorset.Union(mirrorset.Read(set.Object, mirrorset.Digests)).Get(cloudImage)
	return e.Policy
}

// Of a source that another set has the policy is that set's, since OpenShift takes up nothing of any
// set else; where it disagrees only later, nothing is changed, for which nodes are drained, and it is said.
func TestTheSetHasThePolicyOfOthers(t *testing.T) {
	w, c := leading(t)
	only := mirrorSet("config.openshift.io/v1", "ImageDigestMirrorSet", "imageDigestMirrors", "vdo-drivers", cloudImage, repository+"/"+cloudImage)
	set := func(to mirrorset.Policy) {
		only.Object["spec"].(map[string]any)["imageDigestMirrors"].([]any)[0].(map[string]any)["mirrorSourcePolicy"] = string(to) //nolint:errcheck // it is as above
	}
	set(mirrorset.NeverContactSource)
	w.create(only)
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(w.Delete(context.Background(), only))) })
	c.granted()
	require.Equal(t, mirrorset.NeverContactSource, policy(c.set()))

	w.change(only, func() { set(mirrorset.AllowContactingSource) })
	w.look(c.v)
	require.Equal(t, "BlockInstall", cond(t, c.v, v1alpha1.ConditionPreflight).Reason, describe(c.v))
	require.Equal(t, []string{cloudImage}, c.v.Status.Preflight.Results[0].Objects)
	require.Contains(t, c.v.Status.Preflight.Results[0].Found, ": ImageDigestMirrorSet vdo-drivers AllowContactingSource, ImageDigestMirrorSet vdo-operator NeverContactSource")
	require.Equal(t, mirrorset.NeverContactSource, policy(c.set()))

	own := c.set()
	w.change(own, func() {
		entries, _, _ := unstructured.NestedSlice(own.Object, "spec", "imageDigestMirrors")
		entries[0].(map[string]any)["mirrorSourcePolicy"] = string(mirrorset.AllowContactingSource) //nolint:errcheck // it is
		require.NoError(t, unstructured.SetNestedSlice(own.Object, entries, "spec", "imageDigestMirrors"))
	})
	w.ready(c.v)
	require.Equal(t, "Succeeded", cond(t, c.v, v1alpha1.ConditionPreflight).Reason, describe(c.v))
	require.Empty(t, policy(c.set()), "what a person makes of it stays")
}

// What a broader set of the site says of the repositories, the operator's says too, after its own
// mirror: other software has images there.
func TestTheSetKeepsWhereABroaderOneLeads(t *testing.T) {
	w, c := leading(t)
	site := mirrorSet("config.openshift.io/v1", "ImageDigestMirrorSet", "imageDigestMirrors", "site", "registry.k8s.io", "general.site/k8s")
	w.create(site)
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(w.Delete(context.Background(), site))) })
	c.granted()
	both := []string{repository + "/" + cloudImage, "general.site/k8s" + strings.TrimPrefix(cloudImage, "registry.k8s.io")}
	require.Equal(t, both, leads(c.set()))
	require.NoError(t, w.Delete(t.Context(), site))
	w.look(c.v)
	require.Equal(t, both, leads(c.set()), "nothing is taken away")

	// Who deletes it while it is not written, at a time of his choice, begins anew.
	w.change(c.v, func() { c.v.Spec.OpenShift.MirrorSet = v1alpha1.MirrorSetCheck })
	c.remove(c.set())
	w.look(c.v)
	w.look(c.v)
	require.Nil(t, c.set())
	w.change(c.v, func() { c.v.Spec.OpenShift.MirrorSet = v1alpha1.MirrorSetWrite })
	w.ready(c.v)
	require.Equal(t, both[:1], leads(c.set()))
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
