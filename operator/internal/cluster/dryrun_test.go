package cluster_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	edge "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

type servers struct{ version string }

func (s *servers) ServerVersion() (*version.Info, error) {
	return &version.Info{GitVersion: s.version}, nil
}

// The API server is asked once what it would make of an object, until the object, what is
// there, or the API server is another one. What it would change, or refuses, is asked again.
func TestTheAPIServerIsAskedOnceWhatItWouldChange(t *testing.T) {
	c, k, ns := start(t)
	asked, refuse := 0, error(nil)
	s := &servers{"v1.33.1"}
	counted := &edge.Cluster{Reader: k, Versions: s, Client: interceptor.NewClient(k, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if asked++; refuse != nil {
				return refuse
			}
			return c.Apply(ctx, o, opts...)
		}})}
	wanted := configMap(ns, "x", map[string]any{"a": "1"})
	id := plan.IDOf(wanted)
	try := func(note string, questions int, changes bool) {
		t.Helper()
		live, _, err := counted.Read(ctx, []inventory.ID{id})
		require.NoError(t, err)
		asked = 0
		dry, err := counted.DryRun(ctx, []render.Object{{Unstructured: wanted, Apply: render.Merge}}, live)
		require.NoError(t, err)
		require.Equal(t, questions, asked, note)
		if live[id.Key] != nil && dry[id.Key].Err == nil {
			require.Equal(t, changes, len(plan.Diff(live[id.Key], dry[id.Key].Object)) > 0, note)
		}
	}
	try("it is not there", 1, true)
	try("it is not there", 1, true)
	_, err := c.Apply(ctx, step(wanted, plan.Create), nil)
	require.NoError(t, err)
	try("it was made", 1, false)
	try("all is the same", 0, false)

	edited := configMap(ns, "x", map[string]any{"a": "2", "b": "3"})
	require.NoError(t, k.Apply(ctx, client.ApplyConfigurationFromUnstructured(edited.DeepCopy()), client.FieldOwner("somebody"), client.ForceOwnership))
	try("somebody changed it", 1, true)
	try("it is not mended", 1, true)
	_, err = c.Apply(ctx, step(wanted, plan.Change), nil)
	require.NoError(t, err)
	try("it was mended", 1, false)
	try("all is the same", 0, false)

	wanted = configMap(ns, "x", map[string]any{"a": "1", "c": "4"})
	try("another one is wanted", 1, true)
	try("what changes something is asked again", 1, true)
	wanted = configMap(ns, "x", map[string]any{"a": "1"})
	try("it waits for an approval, and is asked for beside the one that is there", 0, false)
	try("all is the same", 0, false)

	_, err = counted.APIServers(ctx)
	require.NoError(t, err)
	try("the version is known now", 1, false)
	_, err = counted.APIServers(ctx)
	require.NoError(t, err)
	try("it is the same", 0, false)
	s.version = "v1.34.0"
	_, err = counted.APIServers(ctx)
	require.NoError(t, err)
	refuse = errors.New("denied by a policy")
	try("the API server is another one", 1, false)
	try("it refused", 1, false)
	refuse = nil
	try("it does not refuse any more", 1, false)
	try("all is the same", 0, false)
}
