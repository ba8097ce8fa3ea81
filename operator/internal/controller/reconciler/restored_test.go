package reconciler_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
)

// Versions that grow, cannot be read or are none say nothing; one that goes back ends the program.
func TestTheProgramEndsWhereEtcdWasRestored(t *testing.T) {
	versions := []string{"9", "10", "10", "", "none", "10", "9", "11"}
	reader := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			list.SetResourceVersion(versions[0])
			versions = versions[1:]
			if list.GetResourceVersion() == "" {
				return errors.New("it does not answer")
			}
			return nil
		}})
	r := reconciler.Restored{Reader: reader, Namespace: "vdo", Every: time.Millisecond}
	require.ErrorContains(t, r.Start(t.Context()), "etcd was restored")
	require.Len(t, versions, 1)

	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, r.Start(stopped))
}
