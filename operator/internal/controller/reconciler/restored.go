package reconciler

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// Restored ends the program where etcd was put back to an earlier state, such as from a backup: watches go on from
// the version that they had, and the API server says nothing until it comes to that again. A program that starts
// again lists first. It runs in each replica, since each has caches.
type Restored struct {
	Reader    client.Reader // past every cache
	Namespace string        // of DriverBundles that may be listed
	Every     time.Duration
}

// NeedLeaderElection is false.
func (Restored) NeedLeaderElection() bool { return false }

// Start looks at the version of a list, which only grows else, until ctx is over.
func (r Restored) Start(ctx context.Context) error {
	last := ""
	err := wait.PollUntilContextCancel(ctx, r.Every, true, func(ctx context.Context) (bool, error) {
		var all v1alpha1.DriverBundleList
		if r.Reader.List(ctx, &all, client.InNamespace(r.Namespace), client.Limit(1)) != nil {
			return false, nil //nolint:nilerr // it answers another time
		}
		order, err := resourceversion.CompareResourceVersion(all.ResourceVersion, last)
		if err == nil && order < 0 {
			return false, &fault.Error{Reason: fault.Interrupted, Op: "watch", Subject: "the cluster",
				Err: errors.New("resource versions went back: etcd was restored"), Hint: "the operator has to start again"}
		}
		last = all.ResourceVersion
		return false, nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it ends
	}
	return err
}
