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

// Restored ends the program if etcd was restored to an earlier state. Otherwise watches would wait at their version,
// silently, until the API server reaches it again. A restarted program lists first. It runs in each replica, since
// each has caches.
type Restored struct {
	Reader    client.Reader // without a cache
	Namespace string        // of DriverBundles, which the operator may list
	Every     time.Duration
}

// NeedLeaderElection is false.
func (Restored) NeedLeaderElection() bool { return false }

// Start polls the version of a list until ctx is done. The version grows unless etcd was restored.
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
