package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
)

// Of a bundle that is not trusted nothing is applied that it did not give before.
func TestWhatABundleThatIsNotTrustedWouldChangeWaits(t *testing.T) {
	base := ours(object(t, daemonSet), "cpi@1.33.1")
	other := base.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(other.Object, "x", "spec", "template", "spec", "dnsPolicy"))
	id := plan.IDOf(base)
	key := func(in *plan.Input) { in.Key = []byte("key") }
	entry := inventory.Entry{ID: id, Driver: matrix.CPI, UID: "uid-" + id.Name, Release: "cpi@1.33.1", Rendered: one(t, base, nil, nil, key).Rendered, Content: "p/a"}
	before, unknown := entry, entry
	before.Release, unknown.Content = "cpi@1.32.1", "a"
	for name, c := range map[string]struct {
		wanted, live *unstructured.Unstructured
		known        inventory.Entry
		content      string
		action       plan.Action
	}{
		"somebody changed it":                    {base, other, entry, "p/a", plan.Change},
		"somebody changed what both have alike":  {base, other, entry, "p/b", plan.Change},
		"somebody deleted it":                    {base, nil, entry, "p/a", plan.Create},
		"somebody deleted what both have alike":  {base, nil, entry, "p/b", plan.Create},
		"the bundle is rebuilt":                  {other, base, entry, "p/b", plan.Wait},
		"deleted, and the bundle is rebuilt":     {other, nil, entry, "p/b", plan.Wait},
		"what the bundle gave before is unknown": {other, base, unknown, "p/a", plan.Wait},
		"the site says something else":           {other, base, entry, "p/a", plan.Change},
		"deleted, and the site says another":     {other, nil, entry, "p/a", plan.Create},
		"the program is another":                 {other, base, entry, "q/a", plan.Change},
		"deleted, and the program is another":    {other, nil, entry, "q/a", plan.Create},
		"another release":                        {base, other, before, "p/b", plan.Wait},
		"never applied":                          {base, nil, inventory.Entry{}, "p/a", plan.Wait},
		"somebody else's, never applied":         {base, other, inventory.Entry{}, "p/a", plan.Wait},
	} {
		for _, untrusted := range []bool{true, false} {
			live := c.live
			if live != nil {
				live = alive(live)
			}
			s := one(t, c.wanted, live, alive(c.wanted), func(in *plan.Input) {
				key(in)
				in.Content = map[matrix.Driver]string{matrix.CPI: c.content}
				if untrusted {
					in.Untrusted = map[matrix.Driver]string{matrix.CPI: "it is not trusted"}
				}
				if c.known.Kind != "" {
					in.Inventory = inventory.Of(c.known)
				}
			})
			waits := untrusted && c.action == plan.Wait
			require.Equal(t, waits, s.Action == plan.Wait, name)
			require.Equal(t, waits, s.Object == nil, name)
			require.Equal(t, waits, !s.Writes(), name)
			if untrusted {
				require.Equal(t, c.action, s.Action, name)
			}
		}
	}
}

// What a bundle that is not trusted lacks is not pruned for its sake.
func TestNothingIsPrunedForABundleThatIsNotTrusted(t *testing.T) {
	base := ours(object(t, daemonSet), "cpi@1.33.1")
	old := alive(ours(object(t, `{apiVersion: v1, kind: ServiceAccount, metadata: {name: old, namespace: kube-system}}`), "cpi@1.33.1"))
	for _, c := range []struct {
		content, untrusted string
		action             plan.Action
	}{
		{"p/b", "why", plan.Keep}, {"p/a", "why", plan.Prune}, {"q/a", "why", plan.Prune}, {"p/b", "", plan.Prune},
	} {
		var removals []plan.Step
		one(t, base, nil, nil, func(in *plan.Input) {
			in.Untrusted, in.Content = map[matrix.Driver]string{matrix.CPI: c.untrusted},
				map[matrix.Driver]string{matrix.CPI: c.content}
			in.Inventory = inventory.Of(inventory.Entry{ID: plan.IDOf(old), Driver: matrix.CPI, UID: string(old.GetUID()), Release: "cpi@1.33.1", Content: "p/a"})
			in.Live[plan.IDOf(old).Key] = old
			removals = plan.Make(*in).Removals()
		})
		require.Len(t, removals, 1)
		require.Equal(t, c.action, removals[0].Action, "%+v", c)
	}
}
