package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

func mirrorSet() *unstructured.Unstructured {
	return render.MirrorSet(mirrorset.Entries{{Source: "up.example/a", Mirrors: []string{"m.site/vdo/up.example/a"}}}).Unstructured
}

// A set of the operator's name is the operator's where the inventory has it, or it carries the
// labels that are put on it, as after the inventory was lost. Any other is left as it is, and so
// is nothing of the drivers.
func TestAMirrorSetThatSomebodyElseMadeIsNotTakenOver(t *testing.T) {
	set := mirrorSet()
	bare := set.DeepCopy()
	bare.SetLabels(nil)
	step := func(live *unstructured.Unstructured, inv inventory.Inventory) plan.Step {
		return one(t, set, live, set, func(in *plan.Input) {
			in.Stages[0].Drivers, in.Stages[0].Objects[0].Driver = []matrix.Driver{drivers.MirrorSet}, drivers.MirrorSet
			in.Inventory = inv
		})
	}
	recorded := inventory.Of(inventory.Entry{ID: plan.IDOf(set), Driver: drivers.MirrorSet, UID: "uid-vdo-operator"})
	require.Equal(t, plan.Create, step(nil, inventory.Of()).Action)
	require.Equal(t, plan.Unchanged, step(alive(set), inventory.Of()).Action)
	require.Equal(t, plan.Change, step(alive(bare), recorded).Action, "drift of what is ours")
	s := step(alive(bare), inventory.Of())
	require.Equal(t, plan.Conflict, s.Action)
	require.Equal(t, fault.Conflict, fault.ReasonOf(s.Err))
	require.ErrorContains(t, s.Err, "the operator did not make it")
	require.Contains(t, fault.HintOf(s.Err), "set spec.openShift.mirrorSet of the VDOConfig to Check")
	require.Equal(t, map[matrix.Driver]error{drivers.MirrorSet: s.Err}, plan.Plan{Steps: []plan.Step{s}}.Blocked())
}

// With the VDOConfig it goes after all pods, and stays where pods stay; while there is a
// VDOConfig, what holds it keeps it.
func TestAMirrorSetGoesAfterThePods(t *testing.T) {
	set, pods := alive(ours(mirrorSet(), "mirror-set@v1")), alive(ours(object(t, daemonSet), "cpi@1.33.1"))
	role := alive(ours(object(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}}"), "cpi@1.33.1"))
	var entries []inventory.Entry
	live := plan.Live{}
	for _, o := range []*unstructured.Unstructured{set, pods, role} {
		live[plan.IDOf(o).Key] = o
		entries = append(entries, inventory.Entry{ID: plan.IDOf(o), UID: string(o.GetUID()), Driver: matrix.Driver(o.GetLabels()[render.LabelDriver])})
	}
	inv := inventory.Of(entries...)
	var kinds []string
	for len(live) > 0 {
		wave := plan.Removal(inv, live, nil, nil).NextWave()
		require.NotEmpty(t, wave)
		for _, s := range wave {
			kinds = append(kinds, s.Kind)
			delete(live, s.Key)
		}
	}
	require.Equal(t, []string{"DaemonSet", "ClusterRole", "ImageDigestMirrorSet"}, kinds)

	live = plan.Live{plan.IDOf(set).Key: set, plan.IDOf(pods).Key: pods}
	stays := plan.Removal(inv, live, nil, map[matrix.Driver]plan.Leave{matrix.CPI: {Action: plan.Forget, Reason: "x"}})
	for _, s := range stays.Steps {
		require.NotEqual(t, plan.Prune, s.Action, s)
	}
	held := plan.Make(plan.Input{Inventory: inv, Live: live, Held: map[matrix.Driver]string{drivers.MirrorSet: "it stays"}})
	for _, s := range held.Steps {
		if s.Driver == drivers.MirrorSet {
			require.Equal(t, plan.Keep, s.Action)
		}
	}
}
