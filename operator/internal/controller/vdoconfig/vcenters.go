package vdoconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// vCenterNames returns the VsphereCloudConfigs that the drivers of a spec use, each once.
func vCenterNames(spec *v1alpha1.VDOConfigSpec) []string {
	names := slices.Clone(render.CloudVCenters(spec.Cloud()))
	for _, n := range render.StorageVCenters(spec.StorageProvider) {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// observeVCenters reads every vCenter that is named, and all that is wrong with them.
// Those that only a driver uses which is not asked for any more hold nothing back.
func (p *pass) observeVCenters(ctx context.Context) error {
	p.site.vcenters, p.site.unproven, p.site.versions = map[string]render.VCenter{}, map[string]bool{}, nil
	named := vCenterNames(&p.config.Spec)
	for _, name := range vCenterNames(&p.spec) {
		hold, waiting, versions := p.site.hold, p.outcome.waiting, p.site.versions
		vc, ok, err := p.vcenter(ctx, name)
		if err != nil {
			return err
		}
		if !slices.Contains(named, name) {
			p.site.hold, p.outcome.waiting, p.site.versions = hold, waiting, versions
		}
		if ok {
			p.site.vcenters[name] = vc
		} else {
			p.site.unproven[name] = true
		}
	}
	return nil
}

// vcenter reads a vCenter; it is good where what is there now was let in.
func (p *pass) vcenter(ctx context.Context, name string) (vc render.VCenter, ok bool, err error) {
	var vcc v1alpha1.VsphereCloudConfig
	err = p.Client.Get(ctx, types.NamespacedName{Namespace: p.name.Namespace, Name: name}, &vcc)
	if client.IgnoreNotFound(err) != nil {
		return vc, false, err
	}
	if err != nil {
		p.hold(&fault.Error{
			Reason: fault.NotFound, Op: "find", Subject: "VsphereCloudConfig " + name, Err: fmt.Errorf("namespace %s has none of that name", p.name.Namespace),
			Hint: "create it, or correct the name in the VDOConfig",
		})
		return vc, false, nil //nolint:nilerr // it is not there, which was noted
	}
	proven, ok := p.observeVCenter(ctx, &vcc)
	if !ok {
		return vc, false, nil
	}
	return vcenterOf(&vcc, proven), true, nil
}

// observeVCenter notes what the check of a vCenter said, and returns the credentials
// that it succeeded with, where those are the ones that are there now.
func (p *pass) observeVCenter(ctx context.Context, vcc *v1alpha1.VsphereCloudConfig) (credentials.Proven, bool) {
	if v, err := matrix.ParseVSphere(vcc.Status.Version); err == nil {
		build, _ := strconv.ParseUint(vcc.Status.Build, 10, 64) //nolint:errcheck // 0 stands for a build that is not known
		p.site.versions = append(p.site.versions, matrix.VCenter{Name: vcc.Name, Version: v, Build: build})
	}
	read, err := p.Cluster.Credentials(ctx, vcc)
	if err != nil {
		p.hold(err)
		return credentials.Proven{}, false
	}
	proven, ok := read.Proven(vcc)
	ready := meta.FindStatusCondition(vcc.Status.Conditions, v1alpha1.ConditionReady)
	current := ready != nil && ready.ObservedGeneration == vcc.Generation
	switch {
	case current && ready.Status == metav1.ConditionFalse && vcc.Status.CredentialsVersion == read.Version:
		p.hold(&fault.Error{
			Reason: fault.Reason(ready.Reason), Op: "use", Subject: "VsphereCloudConfig " + vcc.Name, Err: errors.New(ready.Message),
			Hint: "see to the VsphereCloudConfig first",
		})
	case current && ready.Status == metav1.ConditionTrue && ok:
	case vcc.Spec.Suspend:
		p.hold(&fault.Error{
			Reason: fault.Refused, Op: "use", Subject: "VsphereCloudConfig " + vcc.Name, Err: errors.New("it is not checked, since its spec.suspend is set, and was changed since the last check"),
			Hint: "set its spec.suspend to false",
		})
	default:
		p.outcome.waiting = "VsphereCloudConfig " + vcc.Name + " is being checked"
	}
	return proven, ok
}

func vcenterOf(vcc *v1alpha1.VsphereCloudConfig, c credentials.Proven) render.VCenter {
	vc := render.VCenter{
		Server: vcc.Spec.VcIP, Port: vcc.Spec.Port, Insecure: vcc.Spec.AnyCertificate(), Datacenters: vcc.Spec.DatacenterNames(),
		Thumbprint: vcc.Spec.Thumbprint, CA: c.CA, Credentials: render.Credentials{Username: c.Username, Password: c.Password},
	}
	if len(vc.Thumbprint) > sha1Thumbprint && vcc.Status.Thumbprint != "" {
		vc.Thumbprint = vcc.Status.Thumbprint // drivers know the SHA-1 form only
	}
	return vc
}

// sha1Thumbprint is the length of a SHA-1 thumbprint as hex pairs with colons.
const sha1Thumbprint = 20*3 - 1

// vCentersOf returns the VsphereCloudConfigs that a driver uses.
func (p *pass) vCentersOf(d matrix.Driver) []string {
	switch d {
	case matrix.CPI:
		return render.CloudVCenters(p.spec.Cloud())
	case matrix.CSI:
		return render.StorageVCenters(p.spec.StorageProvider)
	}
	return nil
}

// unproven tells whether a driver's configuration names a vCenter that did not let in
// what would be written: then it stays as it is.
func (p *pass) unproven(d matrix.Driver) bool {
	return slices.ContainsFunc(p.vCentersOf(d), func(n string) bool { return p.site.unproven[n] })
}
