package vdoctl

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
)

// sipStatus is one tenant cluster. Tenants write it in the end, so that none of it says
// whether the drivers are ready, and nothing is shown of what they can write freely.
type sipStatus struct {
	Namespace     string `json:"namespace"`
	Name          string `json:"name"`
	Held          int32  `json:"held"`
	Wanted        int32  `json:"wanted"`
	ServicesReady int    `json:"servicesReady"`
	Services      int    `json:"services"`
	Ready         string `json:"ready"` // True, False, Unknown
	Reason        string `json:"reason,omitempty"`
}

// tenants reads the SIPClusters of all namespaces; none where the cluster has no such kind, or
// who asks may not see them.
func (r *statusReport) tenants(ctx context.Context, c client.Reader) error {
	var list airship.SIPClusterList
	err := pages.Each(ctx, c, &list, func() {
		for i := range list.Items {
			r.SIPClusters = append(r.SIPClusters, sipOf(&list.Items[i]))
		}
	})
	if err == nil || meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return clusterFault("read the status of SIPClusters", err)
}

func sipOf(s *airship.SIPCluster) sipStatus {
	out := sipStatus{
		Namespace: s.Namespace, Name: s.Name, Held: s.Status.Held, Wanted: s.Status.Wanted,
		Services: len(s.Status.Services), Ready: string(metav1.ConditionUnknown),
	}
	for _, one := range s.Status.Services {
		if one.Ready {
			out.ServicesReady++
		}
	}
	if ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.ObservedGeneration == s.Generation {
		out.Ready, out.Reason = string(ready.Status), ready.Reason
	}
	return out
}

func (o *statusOptions) sipClusters(r statusReport) command.Table {
	t := command.NewTable("SIPCLUSTER", "HOSTS", "SERVICES", "READY", "REASON")
	for _, s := range r.SIPClusters {
		t.Row(s.Namespace+"/"+s.Name, fmt.Sprintf("%d/%d", s.Held, s.Wanted), fmt.Sprintf("%d/%d", s.ServicesReady, s.Services), s.Ready, dash(s.Reason))
	}
	return t
}
