package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/authn/kubernetes"
	"github.com/google/go-containerregistry/pkg/name"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
)

// Mirror is a session with one repository of the site's registry.
type Mirror struct {
	store  *Store
	bundle *v1alpha1.DriverBundle
	ref    image.Reference // the bundle's
	repo   *remote.Repository

	read       *recorder            // everything read so far, for the copy
	signed     []ocispec.Descriptor // the signatures' manifests, once read
	anonymous  bool                 // no login exists for this host
	login      string               // version of the Secret with the login
	secret, ca string               // their names in hints
}

// Open starts a session with the registry of a DriverBundle's reference, without a request.
func (s *Store) Open(ctx context.Context, b *v1alpha1.DriverBundle) (*Mirror, error) {
	ref, err := image.ParseHosted(b.Spec.Reference)
	if err != nil {
		return nil, err
	}
	return s.open(ctx, b, ref)
}

// open reads login and CA. The session makes each request once: the caller retries.
func (s *Store) open(ctx context.Context, b *v1alpha1.DriverBundle, ref image.Reference) (*Mirror, error) {
	credential, login, loginErr := s.login(ctx, b, ref)
	authorities, caErr := s.authorities(ctx, b)
	if err := fault.Join(loginErr, caErr); err != nil {
		return nil, err
	}
	secret, _ := b.PullSecretName()
	ca, _ := b.CAReference()
	m := &Mirror{
		store: s, bundle: b, ref: ref, login: login, anonymous: credential == remote.Credential{}, secret: secret, ca: describe(b.Namespace, ca),
	}
	client, err := remote.NewClient(remote.Options{
		Credentials: func(context.Context, string, string) (remote.Credential, error) { return credential, nil },
		CA:          authorities, PlainHTTP: s.opts.PlainHTTP, NoLoopback: true, UserAgent: s.opts.UserAgent,
		Attempts: 1, Stall: s.opts.Timeout, Explain: m.Explain,
	})
	if err != nil {
		return nil, err
	}
	m.repo = client.Repository(ref)
	m.read = &recorder{from: m.repo, blobs: bundle.InMemory{}}
	return m, nil
}

// Login identifies the state of the Secret with the session's login, or is [v1alpha1.NoLogin]. After Resolve has
// succeeded, the mirror has accepted it.
func (m *Mirror) Login() string { return m.login }

// descriptor reads a manifest by tag or digest and returns the descriptor of its bytes.
func (m *Mirror) descriptor(ctx context.Context, identifier string) (ocispec.Descriptor, error) {
	d, _, found, err := m.repo.Get(ctx, remote.Look{Op: "read", ID: identifier})
	if err == nil && !found {
		err = m.Explain("read", m.repo.At(identifier), &remote.AnswerError{Status: http.StatusNotFound})
	}
	return d, err
}

func corruptAnswer(subject string, why error) error {
	return fault.Errorf(fault.Corrupt, "read", subject,
		"push the bundle again with `vdo-bundle push`, and check the registry's storage", "%w", why)
}

// Resolve returns the current root of the DriverBundle's reference, and its tag ("" for a digest). For the accepted
// root it makes only a HEAD request; it reads and hashes the manifest of any other one.
func (m *Mirror) Resolve(ctx context.Context) (root ocispec.Descriptor, tag string, err error) {
	identifier, tag := m.ref.Identifier(), m.ref.Tag()
	if versions := m.bundle.Spec.Versions; versions != "" {
		if tag, err = m.highest(ctx, versions); err != nil {
			return root, "", err
		}
		identifier = tag
	}
	root, err = m.root(ctx, identifier)
	return root, tag, err
}

// root returns the descriptor of an identifier. For the accepted digest the mirror's word suffices: nothing
// unverified is read then.
func (m *Mirror) root(ctx context.Context, identifier string) (ocispec.Descriptor, error) {
	if st := m.bundle.Status; st.Digest != "" && st.Repository == m.ref.Repository() {
		d, found, err := m.repo.Stat(ctx, remote.Look{Op: "read", ID: identifier})
		if err != nil || (found && d.Digest.String() == st.Digest) {
			return d, err
		}
	}
	return m.descriptor(ctx, identifier)
}

// highest returns the tag with the highest version in a range.
func (m *Mirror) highest(ctx context.Context, versions string) (string, error) {
	within, err := semver.NewConstraint(versions)
	if err != nil {
		return "", fault.Errorf(fault.InvalidInput, "read spec.versions", fmt.Sprintf("%q", versions),
			`write a range such as ">=1.2 <2"`, "%w", err)
	}
	tags, err := m.repo.Tags(ctx)
	if err != nil {
		return "", err
	}
	if best := pickHighest(tags, within); best != "" {
		return best, nil
	}
	return "", fault.Errorf(fault.NotFound, "find a version in", m.ref.Repository(),
		"push a bundle under such a tag, or widen spec.versions", "none of its %d tags is a version within %q",
		len(tags), versions)
}

// pickHighest returns the tag with the highest version in a range. If two tags have one version, the first in sort
// order wins, so that the choice is stable.
func pickHighest(tags []string, within *semver.Constraints) string {
	best, bestVersion := "", (*semver.Version)(nil)
	for _, tag := range tags {
		v, err := semver.StrictNewVersion(strings.TrimPrefix(tag, "v"))
		if err != nil || !within.Check(v) {
			continue
		}
		if bestVersion == nil || v.GreaterThan(bestVersion) || (v.Equal(bestVersion) && tag < best) {
			best, bestVersion = tag, v
		}
	}
	return best
}

// Evidence returns the signatures of a root, under the tag sha256-HEX.sig and from all referrers. None is no error:
// the policy decides.
func (m *Mirror) Evidence(ctx context.Context, root ocispec.Descriptor) ([]trust.Evidence, error) {
	manifests, err := m.signatures(ctx, root)
	if err != nil {
		return nil, err
	}
	evidence, err := trust.ReadEvidence(ctx, m.read, manifests...)
	if err != nil {
		return nil, err
	}
	m.signed = manifests
	return evidence, nil
}

// Contents reads and verifies everything below a root except the layers of images, and returns the bundle's
// contents.
func (m *Mirror) Contents(ctx context.Context, root ocispec.Descriptor) (*bundle.Contents, error) {
	return contentsOf(ctx, m.read, root)
}

// signatures returns the manifests that may contain signatures of a root.
func (m *Mirror) signatures(ctx context.Context, root ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	subject, err := image.ParseDigest(root.Digest.String())
	if err != nil {
		return nil, err
	}
	listed, err := m.repo.Signatures(ctx, subject)
	if err != nil {
		return nil, err
	}
	var all []ocispec.Descriptor
	for _, d := range listed {
		if !slices.ContainsFunc(all, func(o ocispec.Descriptor) bool { return o.Digest == d.Digest }) {
			all = append(all, ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size})
		}
	}
	return all, nil
}

// Explain returns a fault for an error of a request, see [remote.Options]. It keeps only harmless parts: a
// registry's answer, or a URL with its query, may contain credentials.
func (m *Mirror) Explain(op, subject string, err error) error {
	f := &fault.Error{Op: op, Subject: subject}
	if answered, ok := errors.AsType[*remote.AnswerError](err); ok {
		f.Reason, f.Hint = m.ofStatus(answered.Status)
		f.Err = fmt.Errorf("the registry answered %d %s", answered.Status, http.StatusText(answered.Status))
		return f
	}
	f.Err = bare(err)
	var record tls.RecordHeaderError
	switch {
	case remote.IsCertificate(err):
		f.Reason = fault.CertificateInvalid
		f.Hint = "put the certificate of its CA into the " + m.ca + ", use a name that the certificate is for, or renew it"
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		f.Reason, f.Err = fault.Refused, errors.New("it speaks plain HTTP, which is refused")
		f.Hint = "give the mirror a certificate, or start the operator with --plain-http " + m.ref.Host()
	case errors.Is(err, remote.ErrLinkLocal), errors.Is(err, remote.ErrThisMachine):
		f.Reason, f.Hint = fault.Refused, "let the registry serve its blobs itself, or from a name of the site"
	case errors.Is(err, context.Canceled):
		f.Reason = fault.Interrupted
	default:
		f.Reason, f.Hint = fault.Unreachable, "check the mirror, its name in the cluster's DNS, and the network to it"
	}
	return f
}

func (m *Mirror) ofStatus(status int) (fault.Reason, string) {
	switch {
	case status == http.StatusUnauthorized && m.anonymous:
		return fault.Unauthorized, fmt.Sprintf("the registry wants a login: put one for %s into the Secret %s", m.ref.Host(), m.secret)
	case status == http.StatusUnauthorized:
		return fault.Unauthorized, fmt.Sprintf("correct the login for %s in the Secret %s", m.ref.Host(), m.secret)
	case status == http.StatusForbidden:
		return fault.Forbidden, fmt.Sprintf("let the account of the Secret %s pull from %s", m.secret, m.ref.Repository())
	case status == http.StatusNotFound:
		return fault.NotFound, "push the bundle there with `vdo-bundle push`, or correct the reference"
	case status == http.StatusProxyAuthRequired:
		return fault.Unreachable, "put the login of the proxy into HTTPS_PROXY of the operator's Deployment"
	case status == http.StatusTooManyRequests:
		return fault.Throttled, "wait; raise the registry's limit or spec.interval where this stays"
	}
	return fault.Unreachable, "see the registry's log, and that spec.reference is the address of a registry"
}

// bare returns the innermost cause without URLs.
func bare(err error) error {
	var op *net.OpError
	var late interface{ Timeout() bool }
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, remote.ErrStalled),
		errors.As(err, &late) && late.Timeout():
		return errors.New("it does not answer in time")
	case errors.As(err, &op):
		return op
	}
	var u *url.Error
	for errors.As(err, &u) {
		err = u.Err
	}
	text, _, _ := strings.Cut(err.Error(), "?")
	return errors.New(text[:min(len(text), 200)])
}

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
