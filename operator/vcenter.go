package operator

import (
	"context"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vspherecloudconfig"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// checker lets the controller of VsphereCloudConfigs ask real vCenters.
type checker struct{}

func (checker) Check(ctx context.Context, q vspherecloudconfig.Request) (vspherecloudconfig.Found, error) {
	r, err := vcenter.Check(ctx, vcenter.Target{
		Host:     q.Spec.VcIP,
		Port:     int(q.Spec.Port),
		Username: q.Username,
		Password: vcenter.Password(q.Password),
		Trust: vcenter.Trust{
			Insecure:   q.Spec.AnyCertificate(),
			Thumbprint: q.Spec.Thumbprint,
			CA:         q.CA,
		},
		Datacenters:   q.Spec.DatacenterNames(),
		InstanceUUIDs: q.InstanceUUIDs,
		Turn:          q.Turn,
	})
	return vspherecloudconfig.Found{
		Version: r.Version, APIVersion: r.APIVersion, Build: r.Build, InstanceUUID: r.InstanceUUID,
		Thumbprint: r.Thumbprint, User: r.User, Datacenters: r.Datacenters, Missing: r.Missing,
		Warnings: warnings(q.Username),
	}, err
}

func warnings(user string) []string {
	if render.QualifiedAccount(user) {
		return nil
	}
	return []string{"the storage driver from 3.1 on takes a user name only as NAME@DOMAIN, of letters, digits, dots, underscores and hyphens"}
}
