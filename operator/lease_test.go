package operator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// A manager whose Lease somebody else has taken ends, and the error is not that of an address in use.
func TestALostLeaseIsToldAsOne(t *testing.T) {
	const namespace, name = "default", "taken"
	mgr, err := manager.New(cluster.Config(t), manager.Options{
		LeaderElection: true, LeaderElectionNamespace: namespace, LeaderElectionID: name, Metrics: metricsserver.Options{BindAddress: "0"},
		LeaseDuration: ptr.To(3 * time.Second), RenewDeadline: ptr.To(2 * time.Second), RetryPeriod: ptr.To(100 * time.Millisecond)})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(t.Context()) }()
	<-mgr.Elected()
	require.Eventually(t, func() bool {
		var lease coordinationv1.Lease
		if mgr.GetAPIReader().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &lease) != nil {
			return false
		}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = ptr.To("another"), ptr.To(int32(3600)), ptr.To(metav1.NowMicro())
		return mgr.GetClient().Update(t.Context(), &lease) == nil
	}, time.Minute, 50*time.Millisecond)
	var f *fault.Error
	require.ErrorAs(t, startFault(<-ended), &f)
	require.Equal(t, fault.Unreachable, f.Reason)
	require.Contains(t, f.Hint, "its Lease could not be renewed")
}
