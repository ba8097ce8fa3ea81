package store

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// Mirror is a session with one repository of the site's registry, logged in.
type Mirror struct {
	store  *Store
	bundle *v1alpha1.DriverBundle
	repo   image.Reference // the bundle's reference
	client *http.Client
	scheme string

	read       *recorder            // everything that was read, for the copy
	signed     []ocispec.Descriptor // the manifests of signatures, once read
	anonymous  bool                 // there is no login for this host
	login      string               // version of the Secret with the login
	secret, ca string               // what they are called in hints
}

const (
	maxErrorBody = 64 << 10
	maxTagPages  = 200
	maxPage      = 4 << 20
	maxReferrers = 256
	maxRedirects = 5
)

// Open logs in to the registry of a DriverBundle's reference.
func (s *Store) Open(ctx context.Context, b *v1alpha1.DriverBundle) (*Mirror, error) {
	ref, err := image.ParseReference(b.Spec.Reference)
	if err != nil {
		return nil, err
	}
	return s.open(ctx, b, ref)
}

func (s *Store) open(ctx context.Context, b *v1alpha1.DriverBundle, ref image.Reference) (*Mirror, error) {
	m, keys, err := s.prepare(ctx, b, ref)
	if err != nil {
		return nil, err
	}
	var insecure []name.Option
	if m.scheme == "http" {
		insecure = append(insecure, name.Insecure)
	}
	registry, err := name.NewRegistry(ref.Host(), insecure...)
	if err != nil {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "connect to", Subject: ref.Host(), Err: err}
	}
	repository := registry.Repo(ref.Path())
	login, err := authn.Resolve(ctx, keys, repository)
	if err != nil {
		return nil, m.classify("log in to", ref.Host(), err)
	}
	m.anonymous = login == authn.Anonymous
	authorized, err := transport.NewWithContext(ctx, registry, login, m.client.Transport, []string{repository.Scope(transport.PullScope)})
	if err != nil {
		return nil, m.classify("connect to", ref.Host(), err)
	}
	m.client = &http.Client{Transport: authorized, CheckRedirect: m.checkRedirect}
	return m, nil
}

// prepare reads the login and the authorities, and makes what the connection needs.
func (s *Store) prepare(ctx context.Context, b *v1alpha1.DriverBundle, ref image.Reference) (*Mirror, authn.Keychain, error) {
	keys, login, keysErr := s.keychain(ctx, b)
	pool, poolErr := s.authorities(ctx, b)
	if err := fault.Join(keysErr, poolErr); err != nil {
		return nil, nil, err
	}
	secret, _ := b.PullSecretName()
	ca, _ := b.CAReference()
	network := s.network()
	network.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	m := &Mirror{
		store: s, bundle: b, repo: ref, scheme: "https", login: login, secret: secret, ca: describe(b.Namespace, ca),
		client: &http.Client{Transport: &guard{inner: network, plain: s.opts.PlainHTTP, agent: s.opts.UserAgent}},
	}
	if slices.Contains(s.opts.PlainHTTP, ref.Host()) {
		m.scheme = "http"
	}
	m.read = &recorder{from: m, blobs: map[digest.Digest][]byte{}}
	return m, keys, nil
}

// Login identifies the state of the Secret that the session's login is from, or is
// [v1alpha1.NoLogin]. Once Resolve has answered, the mirror has let it in.
func (m *Mirror) Login() string { return m.login }

func (s *Store) network() *http.Transport {
	if s.opts.Transport != nil {
		return s.opts.Transport.Clone()
	}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: s.opts.Timeout,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       30 * time.Second,
	}
}

// guard lets no request through in the clear, whoever made it (the library falls
// back to plain HTTP by itself for private addresses), but to the hosts where that
// is allowed; those get nothing else.
type guard struct {
	inner http.RoundTripper
	plain []string
	agent string
}

func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	plain := slices.Contains(g.plain, req.URL.Host)
	if (req.URL.Scheme != "https") != plain {
		return nil, errPlainHTTP
	}
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", g.agent)
	resp, err := g.inner.RoundTrip(req)
	if err != nil {
		return nil, &tripError{err}
	}
	return resp, nil
}

// tripError is an error of a request that was let through. Where the library tries
// plain HTTP after it, and that is refused, this is the one that counts.
type tripError struct{ err error }

func (e *tripError) Error() string { return e.err.Error() }
func (e *tripError) Unwrap() error { return e.err }

var errRedirect = errors.New("the redirect is refused: too many, or to an address of the host itself or of its link")

// checkRedirect lets blobs come from where the registry says, without credentials
// (the transport gives them to the registry's host only), but from no address that
// a site's services would not have: loopback and link-local.
func (m *Mirror) checkRedirect(req *http.Request, via []*http.Request) error {
	host := req.URL.Hostname()
	if len(via) > maxRedirects {
		return errRedirect
	}
	if req.URL.Host == m.repo.Host() {
		return nil
	}
	req.Header.Del("Authorization")
	if a, err := netip.ParseAddr(host); (err == nil && (a.IsLoopback() || a.IsLinkLocalUnicast())) || host == "localhost" {
		return errRedirect
	}
	return nil
}

// url returns an address below the repository.
func (m *Mirror) url(kind, what string) string {
	return m.scheme + "://" + registryHost(m.repo.Host()) + "/v2/" + m.repo.Path() + "/" + kind + "/" + what
}

// registryHost is where docker.io's registry really is.
func registryHost(host string) string {
	if host == "docker.io" {
		return name.DefaultRegistry
	}
	return host
}

// get asks for an address. A status that is no success is a *statusError.
func (m *Mirror) get(ctx context.Context, address string, accept ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", strings.Join(accept, ", "))
	resp, err := m.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written
	return nil, &statusError{status: resp.StatusCode, code: readCode(resp.Body)}
}

// readCode returns the code of a registry's error answer, and nothing else of it.
func readCode(body io.Reader) string {
	var answer transport.Error
	if err := json.NewDecoder(io.LimitReader(body, maxErrorBody)).Decode(&answer); err != nil {
		return ""
	}
	return codeOf(&answer)
}

var manifestTypes = []string{
	ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageManifest,
	"application/vnd.docker.distribution.manifest.list.v2+json", "application/vnd.docker.distribution.manifest.v2+json",
}

// manifest reads a manifest by tag or digest and returns its own descriptor. Under
// a digest it has to have that digest.
func (m *Mirror) manifest(ctx context.Context, identifier string) (ocispec.Descriptor, []byte, error) {
	resp, err := m.get(ctx, m.url("manifests", identifier), manifestTypes...)
	if err != nil {
		return ocispec.Descriptor{}, nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written
	data, err := readPage(resp.Body, bundle.MaxManifestSize)
	if err != nil {
		return ocispec.Descriptor{}, nil, err
	}
	d := ocispec.Descriptor{MediaType: mediaTypeOf(resp, data), Digest: digest.FromBytes(data), Size: int64(len(data))}
	if strings.HasPrefix(identifier, "sha256:") && identifier != d.Digest.String() {
		return ocispec.Descriptor{}, nil, corruptAnswer(m.named(identifier), fmt.Errorf("the bytes that the registry sent have the digest %s", d.Digest))
	}
	return d, data, nil
}

func corruptAnswer(subject string, why error) error {
	return &fault.Error{
		Reason: fault.Corrupt, Op: "read", Subject: subject, Err: why,
		Hint: "push the bundle again with `vdo-bundle push`, and check the registry's storage",
	}
}

// mediaTypeOf believes the manifest before the registry.
func mediaTypeOf(resp *http.Response, data []byte) string {
	var own struct {
		MediaType string `json:"mediaType"`
	}
	if err := json.Unmarshal(data, &own); err == nil && own.MediaType != "" {
		return own.MediaType
	}
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return mediaType
}

func readPage(body io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, &fault.Error{Reason: fault.Corrupt, Op: "read", Subject: "an answer of the registry", Err: fmt.Errorf("longer than %d bytes", limit)}
	}
	return data, nil
}

// named is how messages call something in the repository.
func (m *Mirror) named(identifier string) string {
	if strings.HasPrefix(identifier, "sha256:") {
		return m.repo.Repository() + "@" + identifier
	}
	return m.repo.Repository() + ":" + identifier
}

func (m *Mirror) descriptor(ctx context.Context, identifier string) (ocispec.Descriptor, error) {
	d, _, err := m.manifest(ctx, identifier)
	if err != nil {
		return d, m.classify("read", m.named(identifier), err)
	}
	return d, nil
}

// Resolve returns the root that the DriverBundle's reference stands for now, and the
// tag that led to it ("" for a digest).
func (m *Mirror) Resolve(ctx context.Context) (root ocispec.Descriptor, tag string, err error) {
	ref := m.repo
	if m.bundle.Spec.Versions != "" {
		if tag, err = m.highest(ctx, m.bundle.Spec.Versions); err != nil {
			return root, "", err
		}
		root, err = m.descriptor(ctx, tag)
		return root, tag, err
	}
	root, err = m.descriptor(ctx, ref.Identifier())
	return root, ref.Tag(), err
}

// highest returns the tag that is the highest version within a range.
func (m *Mirror) highest(ctx context.Context, versions string) (string, error) {
	within, err := semver.NewConstraint(versions)
	if err != nil {
		return "", &fault.Error{
			Reason: fault.InvalidInput, Op: "read spec.versions", Subject: fmt.Sprintf("%q", versions), Err: err,
			Hint: `write a range such as ">=1.2 <2"`,
		}
	}
	tags, err := m.tags(ctx)
	if err != nil {
		return "", m.classify("list tags of", m.repo.Repository(), err)
	}
	if best := pickHighest(tags, within); best != "" {
		return best, nil
	}
	return "", &fault.Error{
		Reason: fault.NotFound, Op: "find a version in", Subject: m.repo.Repository(),
		Err:  fmt.Errorf("none of its %d tags is a version within %q", len(tags), versions),
		Hint: "push a bundle under such a tag, or widen spec.versions",
	}
}

// pickHighest returns the tag with the highest version within a range. Of two tags
// of one version the one that sorts first wins, so that the choice is stable.
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

// tags lists all tags of the repository.
func (m *Mirror) tags(ctx context.Context) ([]string, error) {
	var all []string
	err := m.pages(ctx, m.url("tags", "list")+"?n=1000", func(data []byte) error {
		var page struct {
			Tags []string `json:"tags"`
		}
		if err := json.Unmarshal(data, &page); err != nil {
			return corruptAnswer(m.repo.Repository(), errors.New("its list of tags is no JSON"))
		}
		all = append(all, page.Tags...)
		return nil
	}, "application/json")
	return all, err
}

// pages reads an answer and those that its Link header continues with, all from
// the same host.
func (m *Mirror) pages(ctx context.Context, address string, read func([]byte) error, accept string) error {
	for range maxTagPages {
		next, err := m.page(ctx, address, read, accept)
		if err != nil || next == "" {
			return err
		}
		address = next
	}
	return corruptAnswer(m.repo.Repository(), errors.New("its lists do not end"))
}

func (m *Mirror) page(ctx context.Context, address string, read func([]byte) error, accept string) (next string, err error) {
	resp, err := m.get(ctx, address, accept)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written
	data, err := readPage(resp.Body, maxPage)
	if err != nil {
		return "", err
	}
	if accept == ocispec.MediaTypeImageIndex && !strings.HasPrefix(resp.Header.Get("Content-Type"), accept) {
		return "", &statusError{status: http.StatusNotFound} // something answers everything with 200: no referrers API
	}
	if err := read(data); err != nil {
		return "", err
	}
	return m.nextPage(address, resp.Header.Get("Link"))
}

// nextPage returns the address of RFC 5988's rel="next", or "".
func (m *Mirror) nextPage(address, link string) (string, error) {
	target, params, ok := strings.Cut(link, ";")
	if !ok || !strings.Contains(params, "next") {
		return "", nil
	}
	base, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	next, err := base.Parse(strings.Trim(strings.TrimSpace(target), "<>"))
	if err != nil || next.Host != base.Host || next.Scheme != base.Scheme {
		return "", corruptAnswer(m.repo.Repository(), errors.New("its list continues on another host"))
	}
	return next.String(), nil
}

// Fetch returns the bytes of a manifest or blob, unverified: bundle.Fetcher and
// trust.Fetcher.
func (m *Mirror) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	kind := "blobs"
	if bundle.IsManifest(d.MediaType) {
		kind = "manifests"
	}
	resp, err := m.get(ctx, m.url(kind, d.Digest.String()), append([]string{d.MediaType}, manifestTypes...)...) //nolint:bodyclose // the caller closes it
	if err != nil {
		return nil, m.classify("read", m.named(d.Digest.String()), err)
	}
	return &body{ReadCloser: resp.Body, classify: func(err error) error {
		return m.classify("read", m.named(d.Digest.String()), err)
	}}, nil
}

// body tells what went wrong while an answer was read.
type body struct {
	io.ReadCloser
	classify func(error) error
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.classify(err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = b.classify(errors.New("the connection was cut"))
	}
	return n, err
}

// Evidence returns the signatures of a root: those under the tag sha256-HEX.sig, and
// all referrers. None is no error: the policy says so.
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

// Contents reads and verifies everything that a root leads to but the layers of
// images, and returns what the bundle holds.
func (m *Mirror) Contents(ctx context.Context, root ocispec.Descriptor) (*bundle.Contents, error) {
	return contentsOf(ctx, m.read, root)
}

// signatures lists the manifests that may hold signatures of a root.
func (m *Mirror) signatures(ctx context.Context, root ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	subject, err := image.ParseDigest(root.Digest.String())
	if err != nil {
		return nil, err
	}
	var all []ocispec.Descriptor
	tag := trust.SignatureTag(subject)
	switch d, _, err := m.manifest(ctx, tag); {
	case err == nil:
		all = append(all, d)
	case !m.absent(ctx, root, err):
		return nil, m.classify("read", m.named(tag), err)
	}
	referrers, err := m.referrers(ctx, root, subject)
	if err != nil {
		return nil, err
	}
	for _, d := range referrers {
		if bundle.IsManifest(d.MediaType) && !slices.ContainsFunc(all, func(o ocispec.Descriptor) bool { return o.Digest == d.Digest }) {
			all = append(all, ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size})
		}
	}
	return all, nil
}

// absent reports whether an error for one manifest means that it is not there.
// Registries answer 401 or 403 for an absent tag too; that counts only where the
// root, which is there, can be read.
func (m *Mirror) absent(ctx context.Context, root ocispec.Descriptor, err error) bool {
	switch statusOf(err) {
	case http.StatusNotFound:
		return true
	case http.StatusUnauthorized, http.StatusForbidden:
		_, _, err := m.manifest(ctx, root.Digest.String())
		return err == nil
	}
	return false
}

// referrers lists what refers to a root: by the API, or where there is none by the
// tag that stands in for it.
func (m *Mirror) referrers(ctx context.Context, root ocispec.Descriptor, subject image.Digest) ([]ocispec.Descriptor, error) {
	var all []ocispec.Descriptor
	add := func(data []byte) error {
		var index ocispec.Index
		if err := json.Unmarshal(data, &index); err != nil {
			return corruptAnswer(m.named(subject.String()), errors.New("its list of referrers is no JSON"))
		}
		all = append(all, index.Manifests...)
		if len(all) > maxReferrers {
			return corruptAnswer(m.named(subject.String()), fmt.Errorf("it has more than %d referrers", maxReferrers))
		}
		return nil
	}
	err := m.pages(ctx, m.url("referrers", subject.String()), add, ocispec.MediaTypeImageIndex)
	if err == nil {
		return all, nil
	}
	if !m.noReferrersAPI(ctx, root, err) {
		return nil, m.classify("list referrers of", m.named(subject.String()), err)
	}
	_, data, err := m.manifest(ctx, trust.ReferrersTag(subject))
	switch {
	case err == nil:
		return all, add(data)
	case m.absent(ctx, root, err):
		return nil, nil
	}
	return nil, m.classify("list referrers of", m.named(subject.String()), err)
}

// noReferrersAPI reports whether an error means that a registry does not know it.
func (m *Mirror) noReferrersAPI(ctx context.Context, root ocispec.Descriptor, err error) bool {
	switch statusOf(err) {
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusNotImplemented:
		return true
	}
	return m.absent(ctx, root, err)
}
