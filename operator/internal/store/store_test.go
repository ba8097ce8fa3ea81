package store_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/store"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

const ns = "vdo"

// site is a registry with a bundle of the tag 1, and a cluster with what is needed to read it.
type site struct {
	*testing.T
	client.WithWatch
	reg    *registry.Registry
	repo   *mirror.Repository
	bundle *v1alpha1.DriverBundle
	opts   store.Options
}

func newSite(t *testing.T, o registry.Options) *site {
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	reg := registry.Start(t, o)
	s := &site{T: t, WithWatch: fake.NewClientBuilder().WithScheme(scheme).Build(), reg: reg, repo: mirror.New(t, reg, "vdo/drivers")}
	s.bundle = &v1alpha1.DriverBundle{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "drivers", UID: types.UID("u-1")},
		Spec:       v1alpha1.DriverBundleSpec{Reference: s.repo.Reference("1")},
	}
	s.opts = store.Options{Client: s.WithWatch, Timeout: 5 * time.Second}
	if !o.TLS {
		s.opts.PlainHTTP = []string{reg.Host}
	}
	s.repo.Push(t, "1", mirror.Bundle{Seed: 1})
	s.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultCAName}, Data: map[string]string{"ca.crt": string(reg.CA())}})
	s.put(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultPullSecretName}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: reg.DockerConfig()},
	})
	return s
}

func (s *site) put(o client.Object) {
	o.SetNamespace(ns)
	require.NoError(s, s.Create(s.Context(), o))
}

func (s *site) drop(o client.Object, name string) {
	o.SetNamespace(ns)
	o.SetName(name)
	require.NoError(s, s.Delete(s.Context(), o))
}

func (s *site) open() (*store.Mirror, error) { return store.New(s.opts).Open(s.Context(), s.bundle) }

// resolve opens a session, and returns what the reference names.
func (s *site) resolve(st *store.Store) (m *store.Mirror, root ocispec.Descriptor, tag string) {
	m = must.Have(st.Open(s.Context(), s.bundle))(s)
	root, tag, err := m.Resolve(s.Context())
	require.NoError(s, err)
	return m, root, tag
}

// accept reads, keeps and accepts what the reference names, as the controller does.
func (s *site) accept(st *store.Store) {
	m, root, _ := s.resolve(st)
	must.Have(m.Evidence(s.Context(), root))(s)
	c := must.Have(m.Contents(s.Context(), root))(s)
	require.NoError(s, m.Keep(s.Context(), root, c))
	s.bundle.Status.Digest, s.bundle.Status.Repository = root.Digest.String(), s.reg.Host+"/vdo/drivers"
}

func policyOf(t *testing.T, public string) *trust.Policy {
	k := must.Have(trust.NewKey(trust.Entry{ID: "release"}, []byte(public)))(t)
	p := must.Have(trust.NewPolicy(1, k))(t)
	return p
}

func TestTheCopyServesWithTheMirrorAwayAndAfterARestart(t *testing.T) {
	s := newSite(t, registry.Options{TLS: true, Auth: registry.Basic})
	key, public := mirror.NewKey(t)
	root := s.repo.Push(t, "1", mirror.Bundle{Seed: 1, Serial: 5})
	s.repo.Sign(t, root, key)
	// A list of referrers may keep one that was deleted.
	s.reg.Fail(registry.Fault{
		Match: registry.Match{Path: "/referrers/"}, Status: 200, Header: map[string]string{"Content-Type": ocispec.MediaTypeImageIndex},
		Body: `{"manifests":[{"mediaType":"` + ocispec.MediaTypeImageManifest + `","digest":"` + image.DigestOf(nil).String() + `","size":2}]}`,
	})
	s.accept(store.New(s.opts))
	require.NoError(t, s.reg.Close())

	restarted := store.New(s.opts)
	c := must.Have(restarted.Contents(t.Context(), s.bundle))(t)
	require.EqualValues(t, 5, c.Lock.Matrix.Serial)
	require.Len(t, c.Manifests, 4)
	isPlain := func(i bundle.Image) bool { return i.MediaType == ocispec.MediaTypeImageManifest }
	plain := c.Lock.Images[slices.IndexFunc(c.Lock.Images, isPlain)]
	require.Equal(t, []image.Platform{{OS: "linux", Architecture: "amd64"}}, c.Platforms[plain.Digest], "its configuration, which alone says it, is a part of the copy")
	evidence := must.Have(restarted.Evidence(t.Context(), s.bundle))(t)
	must.Have(policyOf(t, public).Verify(root, evidence, time.Now()))(t)
	again := must.Have(restarted.Contents(t.Context(), s.bundle))(t)
	require.Same(t, c, again, "from memory")
}

func TestADamagedCopyIsReadFromTheMirrorAgainOrToldAbout(t *testing.T) {
	for name, damage := range map[string]func(c *corev1.ConfigMap){
		"flipped byte": func(c *corev1.ConfigMap) { c.BinaryData["part"][len(c.BinaryData["part"])/2] ^= 1 },
		"cut":          func(c *corev1.ConfigMap) { c.BinaryData["part"] = c.BinaryData["part"][:100] },
		"empty":        func(c *corev1.ConfigMap) { c.BinaryData = nil },
		"a part gone":  func(c *corev1.ConfigMap) { c.Annotations["vdo.vmware.com/parts"] = "2" },
		"no number":    func(c *corev1.ConfigMap) { c.Annotations = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, registry.Options{TLS: true})
			s.accept(store.New(s.opts))
			parts := s.parts()
			require.Len(t, parts, 1)
			part := parts[0].DeepCopy()
			require.NoError(t, s.Delete(t.Context(), &parts[0]))
			damage(part)
			part.ResourceVersion = ""
			require.NoError(t, s.Create(t.Context(), part))

			require.NoError(t, must.Err(store.New(s.opts).Contents(t.Context(), s.bundle)), "from the mirror")
			_, err := store.New(s.opts).Evidence(t.Context(), s.bundle)
			if name != "flipped byte" { // which may lie in a part that the signatures do not need
				require.Error(t, err)
			}
			s.accept(store.New(s.opts)) // mends the copy
			require.Equal(t, parts[0].BinaryData, s.parts()[0].BinaryData, "what was read in another order is packed alike")
			require.NoError(t, s.reg.Close())
			must.Have(store.New(s.opts).Contents(t.Context(), s.bundle))(t)

			require.NoError(t, s.Delete(t.Context(), &s.parts()[0]))
			must.Fail(t, must.Err(store.New(s.opts).Contents(t.Context(), s.bundle)), fault.Unreachable,
				"nor is there a copy in the cluster")
		})
	}
}

func (s *site) parts() []corev1.ConfigMap {
	var list corev1.ConfigMapList
	require.NoError(s, s.List(s.Context(), &list, client.InNamespace(ns), client.HasLabels{"vdo.vmware.com/copy"}))
	return list.Items
}

// Drivers are repaired from a copy when its DriverBundle is gone, until nothing is retained of it. Copies of a
// DriverBundle that is there are its own.
func TestACopyOutlivesItsDriverBundle(t *testing.T) {
	s := newSite(t, registry.Options{TLS: true})
	st := store.New(s.opts)
	s.accept(st)
	retained := s.bundle.Status.Repository + "@" + s.bundle.Status.Digest
	next := &v1alpha1.DriverBundle{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "next"}}
	exists := &v1alpha1.DriverBundle{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: s.bundle.Name}}

	require.NoError(t, s.Create(t.Context(), exists))
	require.NoError(t, st.Forget(t.Context(), next))
	require.Len(t, s.parts(), 1, "the other one is there")
	require.NoError(t, s.Delete(t.Context(), exists))
	require.NoError(t, st.Forget(t.Context(), next, retained))
	require.Len(t, s.parts(), 1)
	require.NoError(t, st.Forget(t.Context(), next))
	require.Empty(t, s.parts())
}

func TestFailuresAreToldApart(t *testing.T) {
	status := func(code int) func(*site) {
		return func(s *site) { s.reg.Fail(registry.Fault{Match: registry.Match{Path: "/manifests/"}, Status: code}) }
	}
	for name, c := range map[string]struct {
		options registry.Options
		do      func(s *site)
		reason  fault.Reason
		text    []string
	}{
		"401 without a login": {registry.Options{TLS: true, Auth: registry.Basic},
			func(s *site) { s.drop(&corev1.Secret{}, v1alpha1.DefaultPullSecretName) },
			fault.Unauthorized, []string{"401", "the registry wants a login", "vdo-registry"}},
		"401 with a wrong one": {registry.Options{TLS: true, Auth: registry.Basic}, (*site).wrongPassword,
			fault.Unauthorized, []string{"401", "correct the login", "vdo-registry"}},
		"401 of the token service": {registry.Options{TLS: true, Auth: registry.Token}, (*site).wrongPassword,
			fault.Unauthorized, []string{"401", "correct the login"}},
		"403": {registry.Options{TLS: true}, status(403), fault.Forbidden, []string{"403", "let the account"}},
		"404": {registry.Options{TLS: true}, func(s *site) { s.bundle.Spec.Reference = s.repo.Reference("none") }, fault.NotFound, []string{"404", "vdo-bundle push"}},
		"407": {registry.Options{TLS: true}, status(407), fault.Unreachable, []string{"407", "HTTPS_PROXY"}},
		"429": {registry.Options{TLS: true}, status(429), fault.Throttled, []string{"429", "raise the registry's limit"}},
		"500": {registry.Options{TLS: true}, status(500), fault.Unreachable, []string{"500"}},
		"unknown authority": {registry.Options{TLS: true},
			func(s *site) { s.drop(&corev1.ConfigMap{}, v1alpha1.DefaultCAName) },
			fault.CertificateInvalid, []string{"x509", "vdo-registry-ca"}},
		"down":                      {registry.Options{TLS: true}, func(s *site) { require.NoError(s, s.reg.Close()) }, fault.Unreachable, []string{"refused", "check the mirror"}},
		"plain HTTP, not asked for": {registry.Options{}, func(s *site) { s.opts.PlainHTTP = nil }, fault.Refused, []string{"plain HTTP", "--plain-http"}},
		"absent Secret": {registry.Options{TLS: true}, func(s *site) { s.bundle.Spec.PullSecret = &v1alpha1.LocalReference{Name: "gone"} },
			fault.NotFound, []string{"Secret vdo/gone", "spec.pullSecret"}},
		"damaged Secret": {registry.Options{TLS: true}, func(s *site) {
			s.put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":canary`)}})
			s.bundle.Spec.PullSecret = &v1alpha1.LocalReference{Name: "bad"}
		}, fault.InvalidInput, []string{"is not a docker configuration"}},
		"absent CA": {registry.Options{TLS: true}, func(s *site) { s.bundle.Spec.CA = &v1alpha1.KeyReference{Secret: "gone"} },
			fault.NotFound, []string{"Secret vdo/gone, key ca.crt"}},
		"damaged CA": {registry.Options{TLS: true}, func(s *site) {
			s.put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Data: map[string][]byte{"tls.crt": []byte("x")}})
			s.bundle.Spec.CA = &v1alpha1.KeyReference{Secret: "bad", Key: "tls.crt"}
		}, fault.InvalidInput, []string{"no certificate in PEM"}},
		// A reference without a registry is of Docker Hub to container runtimes: it is never asked.
		"no registry": {registry.Options{TLS: true}, func(s *site) { s.bundle.Spec.Reference = "vdo/drivers:stable" },
			fault.InvalidInput, []string{"names no registry"}},
		"a redirect to this machine": {registry.Options{TLS: true}, func(s *site) {
			s.reg.Fail(registry.Fault{Match: registry.Match{Method: "GET", Path: "/blobs/"}, RedirectTo: "https://localhost:1"})
		}, fault.Refused, []string{"points to this machine"}},
		"tampered manifest": {registry.Options{TLS: true}, func(s *site) {
			s.reg.Fail(registry.Fault{Match: registry.Match{Method: "GET", Path: "/manifests/sha256:"}, Tamper: true, TamperAt: 7})
		}, fault.Corrupt, nil},
		"tampered blob": {registry.Options{TLS: true}, func(s *site) {
			s.reg.Fail(registry.Fault{Match: registry.Match{Method: "GET", Path: "/blobs/"}, Tamper: true, TamperAt: 7})
		}, fault.Corrupt, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, c.options)
			c.do(s)
			m, err := s.open()
			var root ocispec.Descriptor
			if err == nil {
				root, _, err = m.Resolve(t.Context())
			}
			if err == nil {
				_, err = m.Contents(t.Context(), root)
			}
			require.Equal(t, c.reason, fault.ReasonOf(err), "%v", err)
			require.NotEmpty(t, fault.HintOf(err))
			for _, text := range c.text {
				require.Contains(t, fault.Text(err), text)
			}
			require.NotContains(t, fault.Text(err), "canary")
			require.NotContains(t, fault.Text(err), s.reg.Password)
		})
	}
}

func (s *site) wrongPassword() {
	s.Helper()
	s.drop(&corev1.Secret{}, v1alpha1.DefaultPullSecretName)
	config := `{"auths":{"` + s.reg.Host + `":{"username":"vdo","password":"wrong-canary"}}}`
	s.put(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultPullSecretName}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(config)},
	})
}

func TestTimeout(t *testing.T) {
	s := newSite(t, registry.Options{TLS: true})
	hold := make(chan struct{})
	defer close(hold)
	s.reg.Fail(registry.Fault{Match: registry.Match{Path: "/manifests/"}, Wait: hold})
	s.opts.Timeout = 50 * time.Millisecond
	m := must.Have(s.open())(t)
	_, _, err := m.Resolve(t.Context())
	require.Equal(t, fault.Unreachable, fault.ReasonOf(err), "%v", err)
	require.ErrorContains(t, err, "does not answer in time")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = m.Resolve(ctx)
	require.Equal(t, fault.Interrupted, fault.ReasonOf(err))
}

// Where the copy is lost the mirror is read on behalf of who has more to do.
func TestContentsAreReadFromASlowMirrorForABoundedTime(t *testing.T) {
	s := newSite(t, registry.Options{TLS: true})
	s.accept(store.New(s.opts))
	require.NoError(t, s.Delete(t.Context(), &s.parts()[0]))
	never := make(chan struct{})
	defer close(never)
	s.reg.Fail(registry.Fault{Match: registry.Match{Path: "/blobs/"}, Wait: never})
	s.opts.Timeout, s.opts.ReadTimeout = time.Minute, 200*time.Millisecond
	began := time.Now()
	must.Fail(t, must.Err(store.New(s.opts).Contents(t.Context(), s.bundle)), fault.Unreachable,
		"does not answer in time")
	require.Less(t, time.Since(began), 30*time.Second)
}

func TestTwoDriverBundlesRecordTheirSerialsAtOnce(t *testing.T) {
	s := newSite(t, registry.Options{TLS: true})
	other := s.bundle.DeepCopy()
	other.Name, other.Spec.Reference = "other", "elsewhere.site/vdo:1"
	for serial := range int64(2) { // the Secret is created, then changed
		between := sync.OnceFunc(func() { // a read and a write
			require.NoError(t, store.New(store.Options{Client: s.WithWatch}).RecordSerial(t.Context(), other, 10+serial))
		})
		r := interceptor.NewClient(s.WithWatch, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				between()
				return c.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				between()
				return c.Update(ctx, o, opts...)
			}})
		require.NoError(t, store.New(store.Options{Client: r}).RecordSerial(t.Context(), s.bundle, 20+serial))
		for b, want := range map[*v1alpha1.DriverBundle]int64{other: 10 + serial, s.bundle: 20 + serial} {
			got := must.Have(store.New(s.opts).HighestSerial(t.Context(), b))(t)
			require.Equal(t, want, got, b.Name)
		}
	}
}

// The ConfigMaps of earlier operators count until there is the Secret, and are deleted then.
func TestSerialsAreImportedOnce(t *testing.T) {
	s := newSite(t, registry.Options{TLS: true})
	ref := must.Have(image.ParseReference(s.bundle.Spec.Reference))(t)
	sum := sha256.Sum256([]byte(ref.Repository()))
	key := "repository." + hex.EncodeToString(sum[:16])
	known := func(want int64) {
		got := must.Have(store.New(s.opts).HighestSerial(t.Context(), s.bundle))(t)
		require.Equal(t, want, got)
	}
	of := metav1.ObjectMeta{Namespace: s.bundle.Namespace, Name: "vdo-highest-serials"}
	for name, text := range map[string]string{of.Name: "8", of.Name + "-copy": "9"} {
		require.NoError(t, s.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: name}, Data: map[string]string{key: text, key + "x": "?"},
		}))
	}
	preview := s.opts
	preview.InMemory = true
	got := must.Have(store.New(preview).HighestSerial(t.Context(), s.bundle))(t)
	require.EqualValues(t, 9, got)
	err := s.Get(t.Context(), client.ObjectKey{Namespace: of.Namespace, Name: of.Name}, &corev1.Secret{})
	require.True(t, apierrors.IsNotFound(err), "a preview writes nothing: %v", err)
	known(9)
	require.NoError(t, store.New(s.opts).RecordSerial(t.Context(), s.bundle, 10))
	known(10)
	require.NoError(t, s.Delete(t.Context(), &corev1.Secret{ObjectMeta: of}))
	known(0)
}

// Registries answer 401 or 403 for a tag that is not there. That is absence only
// where what is there can be read.
func TestA403ForAnAbsentSignatureIsAbsenceOnlyWhereTheRepositoryIsReadable(t *testing.T) {
	for _, status := range []int{401, 403, 404} {
		s := newSite(t, registry.Options{TLS: true})
		m, root, _ := s.resolve(store.New(s.opts))
		s.reg.Fail(registry.Fault{Match: registry.Match{Path: "/manifests/sha256-"}, Status: status})
		evidence, err := m.Evidence(t.Context(), root)
		require.NoError(t, err, status)
		require.Empty(t, evidence)

		if status != 404 {
			s.reg.Fail(registry.Fault{Match: registry.Match{Path: "/manifests/sha256:"}, Status: status})
			_, err = m.Evidence(t.Context(), root)
			require.Contains(t, []fault.Reason{fault.Unauthorized, fault.Forbidden}, fault.ReasonOf(err))
		}
	}
	s := newSite(t, registry.Options{TLS: true})
	m, root, _ := s.resolve(store.New(s.opts))
	s.reg.Fail(registry.Fault{Match: registry.Match{Path: ".sig"}, Status: 500})
	_, err := m.Evidence(t.Context(), root)
	require.Equal(t, fault.Unreachable, fault.ReasonOf(err), "a broken registry is not one without signatures")
}

func TestALookAtTheAcceptedBundleIsOneHEAD(t *testing.T) {
	for name, o := range map[string]registry.Options{"login": {TLS: true, Auth: registry.Basic}, "plain HTTP": {}} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, o)
			s.repo.Push(t, "1", mirror.Bundle{Seed: 1, Serial: 5})
			st := store.New(s.opts)
			s.accept(st)
			look := func() (digest string, methods []string) {
				s.reg.ForgetRequests()
				_, root, _ := s.resolve(st)
				for _, r := range s.reg.Requests() {
					if r.Path != "/v2/" { // whether it asks for a login
						methods = append(methods, r.Method)
					}
				}
				return root.Digest.String(), methods
			}
			digest, methods := look()
			require.Equal(t, s.bundle.Status.Digest, digest)
			require.Equal(t, []string{http.MethodHead}, methods)
			moved := s.repo.Push(t, "1", mirror.Bundle{Seed: 2, Serial: 6})
			digest, methods = look()
			require.Equal(t, moved.String(), digest)
			require.Equal(t, []string{http.MethodHead, http.MethodGet}, methods, "another one is read and hashed")
		})
	}
}

func TestVersionsPickTheHighestTag(t *testing.T) {
	s := newSite(t, registry.Options{TLS: true})
	for i, tag := range []string{"1.2.0", "v1.10.1", "1.9.9", "2.0.0", "latest", "1.11.0-rc.1", "01.99.0"} {
		s.repo.Push(t, tag, mirror.Bundle{Seed: int64(i)})
	}
	for _, c := range []struct{ versions, want string }{
		{">=1.2 <2", "v1.10.1"}, {"*", "2.0.0"}, {"~1.2", "1.2.0"}, {">=1.11.0-0 <2", "1.11.0-rc.1"},
	} {
		s.bundle.Spec.Versions = c.versions
		_, root, tag := s.resolve(store.New(s.opts))
		require.Equal(t, c.want, tag, c.versions)
		require.NotEmpty(t, root.Digest)
	}
	for versions, reason := range map[string]fault.Reason{">3": fault.NotFound, "x.y": fault.InvalidInput} {
		s.bundle.Spec.Versions = versions
		m := must.Have(s.open())(t)
		_, _, err := m.Resolve(t.Context())
		require.Equal(t, reason, fault.ReasonOf(err), "%s: %v", versions, err)
	}
}

func TestADigestIsResolvedAsItIs(t *testing.T) {
	s := newSite(t, registry.Options{TLS: true})
	root := s.repo.Push(t, "1", mirror.Bundle{Seed: 1})
	s.bundle.Spec.Reference = s.reg.Host + "/vdo/drivers@" + root.String()
	m, found, tag := s.resolve(store.New(s.opts))
	require.Empty(t, tag)
	require.Equal(t, root.String(), found.Digest.String())
	s.reg.Fail(registry.Fault{Match: registry.Match{Method: "GET", Path: "/manifests/"}, Tamper: true, TamperAt: 3})
	_, _, err := m.Resolve(t.Context())
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err), "%v", err)
}
