package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
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
				Hint: fmt.Sprintf(`leave them installed (--keep-drivers), or have them removed: kubectl -n %s patch vdoconfig %s --type merge -p '{"spec":{"onDelete":"Refuse"}}'`, v.Namespace, v.Name)}
		}
	}
	return nil
}

// stillFree is what the removal of the drivers needs, as it is now.
func (o *deleteOptions) stillFree(ctx context.Context, c client.Client) error {
	r, err := readResources(ctx, c)
	return fault.Join(err, o.inUse(ctx, c), o.orphaned(r), o.accountsLeft(ctx, c))
}

// accountRecord begins the names of the ConfigMaps that say what `users create` made.
const accountRecord = "vdo-account-"

// accountsLeft refuses to take away what `users delete` needs: the record of an account, and
// the vCenters and the Secret that it is about.
func (o *deleteOptions) accountsLeft(ctx context.Context, c client.Client) error {
	if !o.settings {
		return nil // the namespace stays
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
	return &fault.Error{Reason: fault.Refused, Op: "delete", Subject: "the configuration",
		Err:  fmt.Errorf("users create made accounts in vCenters, which would stay there: of Secrets %s", strings.Join(secrets[:min(len(secrets), maxNamed)], ", ")),
		Hint: "have them removed first: vdoctl users delete"}
}
