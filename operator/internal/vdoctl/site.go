package vdoctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

// site is a configuration: what drivers are wanted, with which vCenters.
type site struct {
	wants    preflight.Wants
	vcenters []configured
	excluded map[string]string         // labels of nodes that are not on vSphere
	policy   *v1alpha1.PreflightPolicy // what is turned down of the checks
	reader   client.Reader             // of what the configuration refers to
	app      *app
	// ask is for the account of a vCenter whose Secret is not there; nil where that is a
	// fault.
	ask     func(ctx context.Context, server string) (credentials.Credentials, error)
	file    string   // that it is from; "" for the cluster
	there   []string // names of all VsphereCloudConfigs
	assumed bool     // without a VDOConfig
	// given says what that account comes from.
	given string
	// preferAsked asks also where the Secret is there: somebody else logs in.
	preferAsked bool
}

// configured is a vCenter that the configuration names.
type configured struct {
	preflight.Use

	config *v1alpha1.VsphereCloudConfig // nil where it is not there
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
	slices.Sort(all)
	s.there = slices.Compact(all)
	var uses []preflight.Use
	if config != nil {
		s.wants, uses = preflight.WantsOf(&config.Spec)
		s.excluded, s.policy = config.Spec.ExcludedNodes, config.Spec.Preflight
	} else {
		s.assumed = true
		s.wants.CPI, s.wants.CSI = len(all) > 0, len(all) > 0
		for _, name := range s.there {
			uses = append(uses, preflight.Use{Name: name, CPI: true, CSI: true})
		}
	}
	for _, u := range uses {
		s.vcenters = append(s.vcenters, configured{Use: u, config: byName[u.Name]})
	}
	return s
}

// clusterSite reads the configuration from the cluster.
func clusterSite(ctx context.Context, c client.Client, namespace string) (site, error) {
	var configs v1alpha1.VDOConfigList
	if err := c.List(ctx, &configs, client.InNamespace(namespace)); err != nil {
		return site{}, orOfFile(clusterFault("read the VDOConfig", err))
	}
	var vcenters v1alpha1.VsphereCloudConfigList
	if err := c.List(ctx, &vcenters, client.InNamespace(namespace)); err != nil {
		return site{}, orOfFile(clusterFault("read the VsphereCloudConfigs", err))
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

// orOfFile adds to the hint about a cluster without the operator's kinds what these commands can do
// without them.
func orOfFile(err error) error {
	for _, f := range fault.All(err) {
		if f.Reason == fault.NotFound && f.Hint != "" {
			f.Hint += ", or check a file: --from-file site.yaml"
		}
	}
	return err
}

// noVCenter is the fault of a VsphereCloudConfig that the VDOConfig names and that is not there.
func (s *site) noVCenter(name string) error {
	missing := render.NoVCenter("read", name)
	if len(s.there) > 0 {
		missing.Err = fmt.Errorf("%w; there is %s", missing.Err, strings.Join(s.there, ", "))
	}
	return missing
}

// unresolved are the VsphereCloudConfigs that the VDOConfig names and that are not there. While
// there are such, what drivers need in the other vCenters is not known: a name may be meant for
// one of these.
func (s *site) unresolved() error {
	var errs []error
	for _, v := range s.vcenters {
		if v.config == nil {
			errs = append(errs, s.noVCenter(v.Name))
		}
	}
	return fault.Join(errs...)
}

// target is how to reach a vCenter.
func (s *site) target(ctx context.Context, v configured) (vcenter.Target, error) {
	if v.config == nil {
		return vcenter.Target{}, s.noVCenter(v.Name)
	}
	spec := &v.config.Spec
	t := vcenter.Target{Host: spec.VcIP, Port: int(spec.Port), Datacenters: spec.DatacenterNames()}
	t.InstanceUUIDs = v.config.InstanceUUIDs()
	read, err := credentials.Read(ctx, s.reader, v.config)
	if s.preferAsked || err != nil && s.ask != nil && read.Username == "" && isMissing(err) {
		ca := read.CA
		read, err = s.ask(ctx, spec.VcIP)
		read.CA, read.Version, t.Given = ca, "", s.given
	}
	if err != nil {
		return t, s.inFile(ctx, err, v.config)
	}
	t.Username, t.Password = read.Username, vcenter.Password(read.Password)
	t.Trust = vcenter.Trust{Insecure: spec.AnyCertificate(), Thumbprint: spec.Thumbprint, CA: read.CA}
	s.app.paced(&t)
	return t, refusedBefore(v.config, read.Version)
}

// paced has logins with one account take turns, and none repeated that was refused: the vCenters may
// count the failures of one account together, and lock it.
func (a *app) paced(t *vcenter.Target) {
	q := logins.Question{Host: t.Host, Port: t.Port, Username: t.Username, Password: string(t.Password)}
	q.Trust = fmt.Sprintf("%t %q %q", t.Trust.Insecure, t.Trust.Thumbprint, t.Trust.CA)
	t.Turn = func(ctx context.Context, login func() error) error {
		_, err := a.logins.Login(ctx, q, a.now, login)
		return err
	}
}

// inFile says of what a file lacks where it is looked for, and how that is mended.
func (s *site) inFile(ctx context.Context, err error, v *v1alpha1.VsphereCloudConfig) error {
	if s.file == "" {
		return err
	}
	for _, f := range fault.All(err) {
		kind := strings.TrimPrefix(f.Op, "read ")
		switch {
		case f.Reason != fault.NotFound:
		case kind == "the credentials of":
			f.Err = fmt.Errorf("its Secret, %s, is not in %s", v.Spec.Credentials, s.file)
		case kind == "ConfigMap" && s.reader.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: v.Spec.CA.ConfigMap}, &corev1.ConfigMap{}) != nil,
			kind == "Secret" && s.reader.Get(ctx, client.ObjectKey{Namespace: v.Namespace, Name: v.Spec.CA.Secret}, &corev1.Secret{}) != nil:
			f.Subject, f.Err = v.Spec.CA.ConfigMap+v.Spec.CA.Secret, fmt.Errorf("it is not in %s, and spec.ca of VsphereCloudConfig %s names it", s.file, v.Name)
			f.Hint = "put the " + kind + " with the CA certificates into the file too, or correct spec.ca"
		}
	}
	return err
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
