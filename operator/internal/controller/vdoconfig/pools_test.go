package vdoconfig_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// pool is a MachineConfigPool of OpenShift's.
type pool struct {
	*cloud
	*unstructured.Unstructured
}

func (c *cloud) pool(name string) pool {
	c.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion("machineconfiguration.openshift.io/v1")
	o.SetKind("MachineConfigPool")
	o.SetName(name)
	c.create(o)
	c.t.Cleanup(func() { require.NoError(c.t, client.IgnoreNotFound(c.Delete(context.Background(), o))) })
	p := pool{c, o}
	p.has()
	return p
}

// is has the pool be as the Machine Config Operator writes it: of three nodes, with a condition
// that is true, given by TYPE and MESSAGE.
func (p pool) is(paused bool, has string, updated int64, condition, message string) {
	p.t.Helper()
	p.change(p.Unstructured, func() {
		p.Object["spec"] = map[string]any{"paused": paused, "configuration": map[string]any{"name": "rendered-2"}}
		p.Object["status"] = map[string]any{
			"configuration": map[string]any{"name": has}, "machineCount": int64(3), "updatedMachineCount": updated, "observedGeneration": p.GetGeneration() + 1,
			"conditions": []any{map[string]any{"type": "Degraded", "status": "False", "message": ""}, map[string]any{"type": condition, "status": "True", "message": message}},
		}
	})
}

func (p pool) has() { p.is(false, "rendered-2", 3, "Updated", "All nodes are updated with rendered-2") }
func (p pool) rolls() {
	p.is(false, "rendered-1", 1, "Updating", "All nodes are updating to rendered-2")
}

// taken tells whether it is remembered that the nodes have the set as it is.
func (c *cloud) taken() bool {
	c.t.Helper()
	c.look(c.v)
	set := c.set()
	return c.inventory(c.v).Memory().Taken == fmt.Sprintf("%s/%d", set.GetUID(), set.GetGeneration())
}

// waits requires an upgrade to wait, with what is in force as it is.
func (c *cloud) waits(inForce, says string) {
	c.t.Helper()
	c.look(c.v)
	require.NotNil(c.t, c.v.Status.Candidate, describe(c.v))
	require.Equal(c.t, "Interlocked", c.v.Status.Candidate.Reason, describe(c.v))
	require.Contains(c.t, c.v.Status.Candidate.Message, says)
	require.Equal(c.t, inForce, c.v.Status.Revision)
	require.True(c.t, isTrue(c.v, "Ready"), describe(c.v))
}

// rebuilds has the bundle come from another repository, with other images.
func (c *cloud) rebuilds(to, digest string) {
	c.t.Helper()
	if c.store.of == nil {
		c.store.of = map[string]*bundle.Contents{}
	}
	c.store.of[digest] = rebuilt(c.t, "cpi@1.33.1")
	b := get(c.world, &v1alpha1.DriverBundle{}, c.ns, "site")
	c.change(b, func() { b.Spec.Reference = to + ":1" })
	b = get(c.world, &v1alpha1.DriverBundle{}, c.ns, "site")
	b.Status.Repository, b.Status.Digest = to, digest
	c.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
}

// An upgrade begins once all nodes have the mirror set as it was written for it, unless its pods name images in the
// mirror itself. A first installation does not wait, and later nothing that pools are given is the set's.
func TestAnUpgradeWaitsUntilTheNodesHaveTakenTheMirrorSetUp(t *testing.T) {
	w, c := leading(t)
	worker := c.pool("worker")
	worker.rolls()
	c.granted()
	require.NotEmpty(t, c.runs(), "the nodes may be in need of it to become ready")
	require.False(t, c.taken())
	worker.has()
	w.until("the nodes have it", c.taken)
	was := c.v.Status.Revision

	const set = "ImageDigestMirrorSet vdo-operator"
	c.moves("other.site/vdo")
	c.waits(was, set+" is written first, and does not lead to all mirrors yet: "+cloudImage)
	require.Equal(t, []string{"other.site/vdo/" + cloudImage, repository + "/" + cloudImage}, leads(c.set()))
	worker.rolls()
	c.waits(was, "not all nodes have taken up "+set+": MachineConfigPool worker (1 of 3 nodes updated)")
	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	w.change(b, func() { b.Spec.ImageNames = v1alpha1.ImageNamesRepository })
	w.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
	w.until("it is upgraded", func() bool { w.ready(c.v); return c.v.Status.Revision != was })
	require.True(t, strings.HasPrefix(c.runs(), "other.site/vdo@sha256:"), c.runs())
	require.False(t, c.taken(), "the nodes do not have it")

	was = c.v.Status.Revision
	w.change(b, func() { b.Spec.ImageNames = v1alpha1.ImageNamesUpstream })
	w.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
	worker.has()
	w.until("the nodes have it", c.taken)
	worker.rolls()
	c.rebuilds("other.site/vdo", nextDigest)
	w.until("it is upgraded", func() bool { w.ready(c.v); return c.v.Status.Revision != was })
}
