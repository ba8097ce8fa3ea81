package store

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
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

const maxReferrers = 256

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
	evidence, err := readEvidence(ctx, m.read, manifests)
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
	if len(listed) > maxReferrers {
		return nil, corruptAnswer(m.repo.At(subject.String()), fmt.Errorf("it has more than %d referrers", maxReferrers))
	}
	var all []ocispec.Descriptor
	for _, d := range listed {
		if !slices.ContainsFunc(all, func(o ocispec.Descriptor) bool { return o.Digest == d.Digest }) {
			all = append(all, ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size})
		}
	}
	return all, nil
}
