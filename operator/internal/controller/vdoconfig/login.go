package vdoconfig

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

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
	data, version, err := p.Cluster.VersionedSecret(ctx, types.NamespacedName{Namespace: p.name.Namespace, Name: name})
	if err != nil {
		return err
	}
	given := data[corev1.DockerConfigJsonKey]
	if len(given) > 0 && version == b.Status.VerifiedLogin {
		p.login = login{data: given}
		return nil
	}
	p.login = p.installedLogin()
	secret := p.name.Namespace + "/" + name
	switch {
	case len(given) > 0:
		p.unverifiedLogin(secret)
	case named || data != nil || b.Status.VerifiedLogin != v1alpha1.NoLogin:
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

// installedLogin returns the login of the drivers' pods, if they refer to any. Existing copies stay, and a missing one
// is created without a login, so that no pods roll.
func (p *pass) installedLogin() login {
	for _, key := range copies {
		if _, recorded := p.facts.inventory.Get(key); recorded {
			return login{data: []byte("{}"), kept: true}
		}
	}
	return login{}
}
