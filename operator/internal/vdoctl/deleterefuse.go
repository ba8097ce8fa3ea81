package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airshipv1 "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
)

// orphaned refuses to remove drivers that the operator was told to leave: the VDOConfig would
// go and they would stay, with nobody who removes them.
func (o *deleteOptions) orphaned(r resources) error {
	if !o.drivers {
		return nil
	}
	for i := range r.configs {
		if v := &r.configs[i]; v.Spec.OnDelete == v1alpha1.DeleteOrphan {
			return &fault.Error{Reason: fault.Refused, Op: "delete", Subject: describeObject(v), Err: errors.New("spec.onDelete is Orphan: the drivers would stay installed"),
				Hint: fmt.Sprintf("leave them installed (--keep-drivers), or have them removed: `kubectl -n %s patch vdoconfig %s --type merge -p '{\"spec\":{\"onDelete\":\"Refuse\"}}'`", v.Namespace, v.Name)}
		}
	}
	return nil
}

// stillFree is what the removal of the drivers needs, as it is now.
func (o *deleteOptions) stillFree(ctx context.Context, c client.Client) error {
	r, err := readResources(ctx, c)
	return fault.Join(err, o.inUse(ctx, c), o.orphaned(r.in(o.cluster.namespace)), o.accountsLeft(ctx, c))
}

// kindsInUse refuses to delete kinds of which resources are left: those of the namespace,
// where the configuration was not asked for, and those of others, tenants for instance.
func (o *deleteOptions) kindsInUse(ctx context.Context, c client.Reader, all resources) error {
	if !o.crds {
		return nil
	}
	var own, others []string
	if r := all.in(o.cluster.namespace); !o.settings {
		for _, x := range slices.Concat(pointers(r.vcenters), pointers(r.bundles), pointers(r.compat)) {
			own = append(own, describeObject(x))
		}
	}
	for _, x := range all.elsewhere(o.cluster.namespace) {
		others = append(others, describeObject(x))
	}
	tenants, err := tenantClusters(ctx, c)
	if err != nil {
		return err
	}
	refused := fault.Error{Reason: fault.Refused, Op: "delete", Subject: "the CRDs"}
	switch others = append(others, tenants...); {
	case len(others) > 0:
		refused.Err = errors.New("others in the cluster need them: " + firstOf(others))
		refused.Hint = "leave the CRDs: `vdoctl delete --drivers --configuration --operator`; or have the owners of these remove them first"
	case len(own) > 0:
		refused.Err, refused.Hint = errors.New("with them would go "+firstOf(own)), "delete these too: --configuration"
	default:
		return nil
	}
	return &refused
}

// tenantClusters are the SIPClusters, whose operator needs the kinds of bundles.
func tenantClusters(ctx context.Context, c client.Reader) (out []string, err error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(airshipv1.GroupVersion.WithKind("SIPClusterList"))
	err = pages.Each(ctx, c, list, func() {
		for i := range list.Items {
			out = append(out, "SIPCluster "+list.Items[i].Namespace+"/"+list.Items[i].Name)
		}
	})
	if err != nil && !isGone(err) {
		return nil, clusterFault("read the SIPClusters", err)
	}
	return out, nil
}

// accountRecord begins the names of the ConfigMaps that say what `users create` made.
const accountRecord = "vdo-account-"

// accountsLeft refuses to take away what `users delete` needs: the record of an account, and
// the vCenters and the Secret that it is about.
func (o *deleteOptions) accountsLeft(ctx context.Context, c client.Client) error {
	if !o.settings && (!o.operator || o.keepDrivers) {
		return nil
	}
	var list corev1.ConfigMapList
	if err := c.List(ctx, &list, client.InNamespace(o.cluster.namespace)); err != nil {
		return clusterFault("read the ConfigMaps of "+o.cluster.namespace, err)
	}
	var secrets []string
	for i := range list.Items {
		if name, ok := strings.CutPrefix(list.Items[i].Name, accountRecord); ok {
			secrets = append(secrets, name)
		}
	}
	if len(secrets) == 0 {
		return nil
	}
	return &fault.Error{Reason: fault.Refused, Op: "delete", Subject: "the configuration or the operator",
		Err:  errors.New("users create made accounts in vCenters, which would stay there: of Secrets " + firstOf(secrets)),
		Hint: "remove the drivers (`vdoctl delete --drivers`), then the accounts (`vdoctl users delete --username ADMIN`), then the rest"}
}
