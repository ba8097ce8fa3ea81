package vdoconfig

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// collectVCenters reads all vCenters that a driver uses or was last rendered with, and their faults. A vCenter that is
// no longer requested gates nothing.
func (p *pass) collectVCenters(ctx context.Context) error {
	p.vcenters = map[string]vcenter{}
	remembered := p.remembered()
	named := render.VCenters(&p.config.Spec)
	for _, name := range slices.Concat(render.VCenters(&p.spec), render.VCenters(&remembered)) {
		if _, is := p.vcenters[name]; is {
			continue
		}
		vc, err := p.vcenter(ctx, name)
		if err != nil {
			return err
		}
		if p.vcenters[name] = vc; slices.Contains(named, name) && vc.version != nil {
			p.site.VCenters = append(p.site.VCenters, *vc.version)
		}
	}
	return nil
}

// vcenter reads a vCenter; it is verified if it accepted the present credentials.
func (p *pass) vcenter(ctx context.Context, name string) (vcenter, error) {
	var vcc v1alpha1.VsphereCloudConfig
	err := p.Client.Get(ctx, types.NamespacedName{Namespace: p.name.Namespace, Name: name}, &vcc)
	switch {
	case apierrors.IsNotFound(err):
		return vcenter{gated: render.NoVCenter("find", name)}, nil
	case err != nil:
		return vcenter{}, err
	}
	read, err := p.Cluster.Credentials(ctx, &vcc)
	return judgeVCenter(&vcc, p.facts.inventory.Memory().VCenters[name], read, err), nil
}

// judgeVCenter applies the result of a vCenter's check to the present credentials, or to the reason why they are
// unreadable. A vCenter with another UUID than in the drivers' last configuration must be accepted, also if the status,
// which would tell, was lost. It is pure.
func judgeVCenter(vcc *v1alpha1.VsphereCloudConfig, last string, read credentials.Credentials, unread error) vcenter {
	uuid, was := vcc.Status.InstanceUUID, uuidOf(last)
	replaced := was != "" && uuid != "" && uuid != was
	accepted := !replaced || vcc.Spec.AcceptInstanceUUID == uuid
	address := net.JoinHostPort(vcc.Spec.VcIP, strconv.Itoa(int(vcc.Spec.Port)))
	at := address + " " + strings.Join(vcc.Spec.DatacenterNames(), ",")
	vc := vcenter{read: read, where: strings.TrimLeft(uuid+" "+at, " "), replaced: replaced,
		another: vcc.Status.UnacceptedInstanceUUID != "" || !accepted}
	if v, err := matrix.ParseVSphere(vcc.Status.Version); err == nil {
		build, _ := strconv.ParseUint(vcc.Status.Build, 10, 64) //nolint:errcheck // 0 means unknown
		vc.version = &matrix.VCenter{Name: vcc.Name, Version: v, Build: build}
	}
	if unread != nil {
		vc.gated = unread
		return vc
	}
	verified, ok := read.Verified(vcc)
	if vc.verified = ok && accepted; vc.verified {
		vc.VCenter = vcenterOf(vcc, verified)
	}
	ready := meta.FindStatusCondition(vcc.Status.Conditions, v1alpha1.ConditionReady)
	current := ready != nil && ready.ObservedGeneration == vcc.Generation
	switch {
	case !accepted:
		vc.gated = fault.Errorf(fault.Conflict, "use", "VsphereCloudConfig "+vcc.Name,
			"if it replaces the other one, set its spec.acceptInstanceUUID to "+uuid,
			"the drivers run with another vCenter, whose instance UUID is %s", was)
	case current && ready.Status == metav1.ConditionFalse && vcc.Status.CredentialsVersion == read.Version:
		vc.gated = fault.Errorf(fault.Reason(ready.Reason), "use", "VsphereCloudConfig "+vcc.Name,
			"correct what the VsphereCloudConfig's conditions name first", "%s", ready.Message)
	case ok && ready != nil && ready.Status == metav1.ConditionTrue:
	case vcc.Spec.Suspend:
		vc.gated = fault.Errorf(fault.Refused, "use", "VsphereCloudConfig "+vcc.Name, "set its spec.suspend to false",
			"its spec.suspend is set, and the last check did not accept its present spec and Secret")
	default:
		vc.waiting = "VsphereCloudConfig " + vcc.Name + " is being checked"
	}
	return vc
}

// uuidOf returns the instance UUID of a place, "" for places that earlier operators recorded.
func uuidOf(place string) string {
	if first, _, _ := strings.Cut(place, " "); !strings.Contains(first, ":") {
		return first
	}
	return ""
}

func vcenterOf(vcc *v1alpha1.VsphereCloudConfig, c credentials.Verified) render.VCenter {
	vc := render.VCenter{
		Server: vcc.Spec.VcIP, Port: vcc.Spec.Port, Insecure: vcc.Spec.AnyCertificate(), Datacenters: vcc.Spec.DatacenterNames(),
		Thumbprint: vcc.Spec.Thumbprint, CA: c.CA, Credentials: render.Credentials{Username: c.Username, Password: c.Password},
		InstanceUUID: vcc.Status.InstanceUUID,
	}
	if len(vc.Thumbprint) > sha1Thumbprint && vcc.Status.Thumbprint != "" {
		vc.Thumbprint = vcc.Status.Thumbprint // drivers know the SHA-1 form only
	}
	return vc
}

// sha1Thumbprint is the length of a SHA-1 thumbprint as hex pairs with colons.
const sha1Thumbprint = 20*3 - 1

func vCentersOf(d matrix.Driver, spec *v1alpha1.VDOConfigSpec) []string {
	switch d {
	case matrix.CPI:
		return render.CloudVCenters(spec.Cloud())
	case matrix.CSI:
		return render.StorageVCenters(spec.StorageProvider)
	}
	return nil
}

// login is the pods' login at the mirror: the Secret's if the mirror accepted it, else the one that pods already have.
type login struct {
	data []byte // .dockerconfigjson; empty if pods need none
	// kept is set if data comes from no Secret: existing copies stay unchanged.
	kept bool
}

// copies are the Secrets with the login that pods refer to.
var copies = []inventory.Key{
	{Kind: "Secret", Namespace: render.CPINamespace, Name: render.PullSecret},
	{Kind: "Secret", Namespace: render.CSINamespace, Name: render.PullSecret},
}

// collectLogin reads the pull secret. Pods keep the login they have if the Secret is missing or the mirror refused it.
func (p *pass) collectLogin(ctx context.Context) error {
	b := p.bundle.source
	name, named := b.PullSecretName()
	data, err := p.Cluster.Data(ctx, p.name.Namespace, v1alpha1.KeyReference{Secret: name})
	if err != nil {
		return err
	}
	given := data.Values[corev1.DockerConfigJsonKey]
	if len(given) > 0 && data.Version == b.Status.VerifiedLogin {
		p.login = login{data: given}
		return nil
	}
	p.login = p.installedLogin()
	secret := p.name.Namespace + "/" + name
	switch {
	case len(given) > 0:
		p.unverifiedLogin(secret)
	case named || data.Values != nil || b.Status.VerifiedLogin != v1alpha1.NoLogin:
		p.gateAll(loginFault(secret, errors.New("it is not there, or has no key "+corev1.DockerConfigJsonKey),
			"create it with `kubectl create secret docker-registry`, or correct spec.pullSecret of the DriverBundle"))
	case p.login.kept:
		p.notes = append(p.notes, "Secret "+secret+" is gone and the mirror needs none; pods keep the login that they have")
	}
	return nil
}

func (p *pass) unverifiedLogin(secret string) {
	b := p.bundle.source
	ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready != nil && ready.Status == metav1.ConditionFalse:
		p.gateAll(fault.Errorf(fault.Reason(ready.Reason), "use pull secret", secret,
			"correct what the conditions of DriverBundle "+b.Name+" name first",
			"the mirror has not let it in: %s", ready.Message))
	case b.Spec.Suspend:
		p.gateAll(loginFault(secret, errors.New("it was not tried at the mirror, since the DriverBundle is suspended"),
			"set spec.suspend of the DriverBundle to false"))
	default:
		p.waiting = "the login in Secret " + secret + " is being tried at the mirror"
	}
}

func loginFault(secret string, err error, hint string) error {
	return &fault.Error{Reason: fault.NotFound, Op: "read pull secret", Subject: secret, Err: err, Hint: hint}
}

// secrets returns its secret values: passwords and tokens, plain and as encoded in the file.
func (l login) secrets() []string {
	var config struct {
		Auths map[string]struct{ Auth, Password, IdentityToken, RegistryToken string }
	}
	if json.Unmarshal(l.data, &config) != nil {
		return nil
	}
	var all []string
	for _, a := range config.Auths {
		all = append(all, a.Auth, a.Password, a.IdentityToken, a.RegistryToken)
		if pair, err := base64.StdEncoding.DecodeString(a.Auth); err == nil {
			_, password, _ := strings.Cut(string(pair), ":")
			all = append(all, password)
		}
	}
	return all
}

// installedLogin returns the login of the drivers' pods, if they refer to any, by the inventory or by themselves.
// Existing copies stay, and a missing one is created without a login, so that no pods roll.
func (p *pass) installedLogin() login {
	refers := slices.ContainsFunc(copies, func(key inventory.Key) bool {
		_, recorded := p.facts.inventory.Get(key)
		return recorded
	})
	by := corev1.LocalObjectReference{Name: render.PullSecret}
	for _, o := range p.observed.DaemonSets {
		refers = refers || slices.Contains(o.Spec.Template.Spec.ImagePullSecrets, by)
	}
	if !refers {
		return login{}
	}
	return login{data: []byte("{}"), kept: true}
}
