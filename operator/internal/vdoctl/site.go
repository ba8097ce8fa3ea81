package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// site is a configuration: what drivers are wanted, with which vCenters.
type site struct {
	wants    preflight.Wants
	vcenters []configured
	reader   client.Reader // of what the configuration refers to
	// ask is for the account of a vCenter whose Secret is not there; nil where that is a
	// fault.
	ask func(ctx context.Context, server string) (credentials.Credentials, error)
	// preferAsked asks also where the Secret is there: somebody else logs in.
	preferAsked bool
}

// configured is a vCenter that the configuration names.
type configured struct {
	name     string
	config   *v1alpha1.VsphereCloudConfig // nil where it is not there
	cpi, csi bool
}

// siteOf reads a configuration. Without a VDOConfig both drivers are taken to be wanted,
// with every vCenter.
func siteOf(config *v1alpha1.VDOConfig, vcenters []v1alpha1.VsphereCloudConfig, reader client.Reader) site {
	s := site{reader: reader}
	byName := map[string]*v1alpha1.VsphereCloudConfig{}
	var all []string
	for i := range vcenters {
		byName[vcenters[i].Name] = &vcenters[i]
		all = append(all, vcenters[i].Name)
	}
	cloud, storage := all, all
	if config != nil {
		cloud, storage = render.CloudVCenters(config.Spec.CloudProvider), render.StorageVCenters(config.Spec.StorageProvider)
		s.wants = wantsOf(&config.Spec)
	}
	if config == nil || !disabled(&config.Spec, matrix.CPI) {
		s.wants.CPI = len(cloud) > 0
	}
	if config == nil || !disabled(&config.Spec, matrix.CSI) {
		s.wants.CSI = len(storage) > 0
	}
	names := slices.Concat(cloud, storage)
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		s.vcenters = append(s.vcenters, configured{
			name: n, config: byName[n], cpi: s.wants.CPI && slices.Contains(cloud, n), csi: s.wants.CSI && slices.Contains(storage, n)})
	}
	return s
}

func disabled(spec *v1alpha1.VDOConfigSpec, d matrix.Driver) bool {
	return slices.ContainsFunc(spec.Drivers, func(p v1alpha1.DriverPolicy) bool { return p.Driver == string(d) && p.Policy == "disabled" })
}

func wantsOf(spec *v1alpha1.VDOConfigSpec) preflight.Wants {
	var w preflight.Wants
	if c := spec.CloudProvider; c != nil && c.Topology != nil {
		w.Zone, w.Region = c.Topology.Zone, c.Topology.Region
	}
	if p := spec.StorageProvider; p != nil {
		w.Categories, w.ClusterID, w.FileVolumes = p.TopologyCategories, p.ClusterID, p.FileVolumes != nil
	}
	return w
}

// clusterSite reads the configuration from the cluster.
func clusterSite(ctx context.Context, c client.Client, namespace string) (site, error) {
	var configs v1alpha1.VDOConfigList
	if err := c.List(ctx, &configs, client.InNamespace(namespace)); err != nil {
		return site{}, clusterFault("read the VDOConfig", err)
	}
	var vcenters v1alpha1.VsphereCloudConfigList
	if err := c.List(ctx, &vcenters, client.InNamespace(namespace)); err != nil {
		return site{}, clusterFault("read the VsphereCloudConfigs", err)
	}
	switch n := len(configs.Items); {
	case n > 1:
		return site{}, &fault.Error{Reason: fault.Conflict, Op: "read the VDOConfig", Subject: namespace, Err: fmt.Errorf("there are %d", n), Hint: "delete all but one"}
	case n == 1:
		return siteOf(&configs.Items[0], vcenters.Items, c), nil
	case len(vcenters.Items) == 0:
		return site{}, &fault.Error{Reason: fault.NotFound, Op: "read the configuration", Subject: "namespace " + namespace,
			Err: errors.New("there is neither a VDOConfig nor a VsphereCloudConfig"), Hint: "apply them, name their namespace with -n, or check a file: --from-file site.yaml"}
	}
	return siteOf(nil, vcenters.Items, c), nil
}

// featuresOf are those that the account of one vCenter needs privileges for.
func (s *site) featuresOf(v configured) privileges.Features {
	f := s.wants.Features()
	f.CPI, f.Block, f.File = f.CPI && v.cpi, f.Block && v.csi, f.File && v.csi
	return f
}

// target is how to reach a vCenter.
func (s *site) target(ctx context.Context, v configured) (vcenter.Target, error) {
	if v.config == nil {
		return vcenter.Target{}, &fault.Error{Reason: fault.NotFound, Op: "read the credentials of", Subject: "VsphereCloudConfig " + v.name,
			Err: errors.New("there is none of that name"), Hint: "create it, or correct the name in the VDOConfig"}
	}
	spec := &v.config.Spec
	t := vcenter.Target{Host: spec.VcIP, Port: int(spec.Port), Datacenters: spec.DatacenterNames()}
	read, err := credentials.Read(ctx, s.reader, v.config)
	if s.preferAsked || err != nil && s.ask != nil && read.Username == "" && isMissing(err) {
		ca := read.CA
		read, err = s.ask(ctx, spec.VcIP)
		read.CA, read.Version = ca, ""
	}
	if err != nil {
		return t, err
	}
	t.Username, t.Password = read.Username, vcenter.Password(read.Password)
	t.Trust = vcenter.Trust{Insecure: spec.AnyCertificate(), Thumbprint: spec.Thumbprint, CA: read.CA}
	return t, refusedBefore(v.config, read.Version)
}

// isMissing says whether all that an error is about is that something is not there.
func isMissing(err error) bool {
	for _, f := range fault.All(err) {
		if f.Reason != fault.NotFound {
			return false
		}
	}
	return true
}

// refusedBefore is the refusal that the operator saw with exactly these credentials: to
// try them once more brings the account nearer to being locked.
func refusedBefore(vcc *v1alpha1.VsphereCloudConfig, version string) error {
	ready := meta.FindStatusCondition(vcc.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || version == "" || vcc.Status.CredentialsVersion != version || vcc.Status.ObservedGeneration != vcc.Generation {
		return nil
	}
	switch reason := fault.Reason(ready.Reason); reason {
	case fault.Unauthorized, fault.AccountLocked:
		return &fault.Error{Reason: reason, Op: "log in to", Subject: vcc.Spec.VcIP,
			Err:  fmt.Errorf("the operator tried the password of Secret %s, and it was refused; it is not tried again", vcc.Spec.Credentials),
			Hint: "put the right password into the Secret; the operator says of the refusal: " + strings.ReplaceAll(ready.Message, "\n", "; ")}
	}
	return nil
}
