package store

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/authn/kubernetes"
	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
)

// login returns the mirror's login from the pull Secret, or none, and the Secret's version.
func (s *Store) login(
	ctx context.Context, b *v1alpha1.DriverBundle, ref image.Reference,
) (c remote.Credential, version string, err error) {
	secret, named := b.PullSecretName()
	bad := func(reason fault.Reason, hint string, why error) (remote.Credential, string, error) {
		subject := fmt.Sprintf("Secret %s/%s", b.Namespace, secret)
		return c, "", &fault.Error{Reason: reason, Op: "read", Subject: subject, Hint: hint, Err: why}
	}
	const create = "create it with `kubectl create secret docker-registry`"
	read, err := source.Read(ctx, s.opts.Reader, b.Namespace, v1alpha1.KeyReference{Secret: secret})
	config := read.Values[corev1.DockerConfigJsonKey]
	switch {
	case apierrors.IsNotFound(err) && !named:
		return c, v1alpha1.NoLogin, nil
	case apierrors.IsNotFound(err):
		return bad(fault.NotFound, create, errors.New("spec.pullSecret names it, and it is not there"))
	case err != nil:
		return bad(fault.Unreachable, "", err)
	case len(config) == 0:
		return bad(fault.InvalidInput, create, fmt.Errorf("it has no key %s", corev1.DockerConfigJsonKey))
	}
	login, err := loginIn(ctx, config, ref)
	if err != nil { // the cause could quote the password
		return bad(fault.InvalidInput, create, fmt.Errorf("its key %s is not a docker configuration with a login for %s",
			corev1.DockerConfigJsonKey, ref.Host()))
	}
	return remote.Credential{
		Username: login.Username, Password: login.Password, RefreshToken: login.IdentityToken, AccessToken: login.RegistryToken,
	}, read.Version, nil
}

// loginIn returns the login for a repository in a docker configuration; none is no error.
func loginIn(ctx context.Context, config []byte, ref image.Reference) (*authn.AuthConfig, error) {
	// The configuration's form decides, whatever the Secret's type is.
	secret := corev1.Secret{
		Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: config},
	}
	keys, err := kubernetes.NewFromPullSecrets(ctx, []corev1.Secret{secret})
	if err != nil {
		return nil, err
	}
	repository, err := name.NewRepository(ref.Repository())
	if err != nil {
		return nil, err
	}
	found, err := authn.Resolve(ctx, keys, repository)
	if err != nil {
		return nil, err
	}
	return authn.Authorization(ctx, found)
}

// authorities returns the bundle's CA certificates for the mirror in PEM, in addition to the system's.
func (s *Store) authorities(ctx context.Context, b *v1alpha1.DriverBundle) ([]byte, error) {
	ref, named := b.CAReference()
	subject := describe(b.Namespace, ref)
	v, err := source.Key(ctx, s.opts.Reader, source.Desired{
		Namespace: b.Namespace, Ref: ref, Subject: subject, Hint: "create it, or correct the DriverBundle",
	})
	data := v.Bytes
	switch {
	case fault.ReasonOf(err) == fault.NotFound && !named:
		return nil, nil
	case err != nil:
		return nil, err
	case !x509.NewCertPool().AppendCertsFromPEM(data):
		err = errors.New("there is no certificate in PEM")
	}
	if err != nil {
		return nil, fault.Errorf(fault.InvalidInput, "read CA", subject,
			"put the certificate of the CA that signed the mirror's there, in PEM", "%w", err)
	}
	return data, nil
}

// describe returns the name of a key: "Secret NAMESPACE/NAME, key KEY".
func describe(namespace string, ref v1alpha1.KeyReference) string {
	return source.Subject(namespace, ref) + ", key " + ref.Key
}
