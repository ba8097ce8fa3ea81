package driverbundle

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/sigstore"
)

func release(t *testing.T, driver matrix.Driver, state matrix.State, low, high string) matrix.Release {
	r := matrix.Release{ReleaseID: matrix.ReleaseID{Driver: driver}, State: state}
	r.Kubernetes.Min = must.Have(matrix.ParseMinor(low))(t)
	if high != "" {
		r.Kubernetes.Max = must.Have(matrix.ParseMinor(high))(t)
	}
	return r
}

func TestCoveredMinorsNeedBothDriversThatTheBundleHas(t *testing.T) {
	cpi := func(minor string) matrix.Release { return release(t, matrix.CPI, matrix.Current, minor, minor) }
	csi := func(low, high string) matrix.Release { return release(t, matrix.CSI, matrix.LTS, low, high) }
	gone := release(t, matrix.CSI, matrix.Withdrawn, "1.20", "1.40")
	cni := release(t, matrix.CNI, matrix.Current, "1.23", "")
	for want, in := range map[string][]matrix.Release{
		"":                      {cni},
		"1.32":                  {cpi("1.32"), cni},
		"1.32, 1.33, 1.34":      {cpi("1.34"), cpi("1.32"), cpi("1.33")},
		"1.32, 1.34":            {cpi("1.34"), cpi("1.32")},
		"1.33":                  {cpi("1.33"), cpi("1.35"), csi("1.31", "1.33")},
		"1.31, 1.32, 1.33":      {csi("1.31", "1.33"), gone},
		"1.9, 1.10, 1.11, 1.13": {csi("1.9", "1.10"), csi("1.10", "1.11"), csi("1.13", "1.13")},
		"1.31, 1.32, 1.35":      {csi("1.31", "1.32"), csi("1.35", "")},
	} {
		require.Equal(t, want, covered(in))
	}
}

// Other tests have a moved tag followed; that the interval is kept is the reconciler's promise.
func TestTheMirrorIsAskedAtTheInterval(t *testing.T) {
	for want, spec := range map[time.Duration]v1alpha1.DriverBundleSpec{
		time.Hour:       {Interval: metav1.Duration{Duration: time.Hour}},
		defaultInterval: {},
		0:               {Interval: metav1.Duration{Duration: time.Hour}, Suspend: true},
	} {
		require.Equal(t, want, outcome{}.Next(&v1alpha1.DriverBundle{Spec: spec}).Interval)
	}
	b := v1alpha1.DriverBundle{Spec: v1alpha1.DriverBundleSpec{Suspend: true}}
	b.Status.Matrix = &v1alpha1.MatrixStatus{Expires: metav1.NewTime(time.Time{}.Add(time.Hour))}
	require.Equal(t, reconciler.Next{AtMost: time.Hour}, outcome{}.Next(&b), "Fresh has to become False")
}

// Package trust tests what each field means; here, that each reaches it, wherever its text is.
func TestAPolicyOfASpecIsThatOfAPolicyFile(t *testing.T) {
	_, first := mirror.NewKey(t)
	_, second := mirror.NewKey(t)
	corp, clock := pki.Root(t, "Corp").PEM(), pki.Root(t, "Time").PEM()
	issuing := pki.Root(t, "Issuing").PEM()
	sigstores := sigstore.New(t).Root
	const policy = `
threshold: 2
revokedDigests: [DIGEST]
keys:
- {id: first, publicKey: FIRST, TIMES}
- {id: second, SECOND, revoked: true}
certificates:
- {id: corp, ROOTS, INTERMEDIATES, CLOCKS, extendedKeyUsage: emailProtection, revokedSerials: ["0a"], revoked: true,
   identities: [{email: a@corp.example}, {uri: "https://corp.example/a"}, {dns: corp.example}], TIMES}
keyless:
- {id: login, SIGSTORE, identities: [{issuer: "https://login.example", subject: a}], revoked: true, TIMES,
   withoutTransparencyLog: true, withoutCertificateLog: true}
`
	with := func(texts ...string) []byte {
		const times = `notBefore: "2024-01-01T00:00:00Z", notAfter: "2044-01-01T00:00:00Z"`
		digest := "sha256:" + strings.Repeat("a", 64)
		texts = append(texts, "DIGEST", digest, "FIRST", strconv.Quote(first), "TIMES", times)
		return []byte(strings.NewReplacer(texts...).Replace(policy))
	}
	spec := &v1alpha1.TrustPolicy{}
	require.NoError(t, yaml.UnmarshalStrict(with(
		"SECOND", "from: {configMap: all}", "ROOTS", "rootsFrom: {configMap: all}",
		"INTERMEDIATES", "intermediatesFrom: {configMap: all, key: issuing}", "CLOCKS",
		"timestampRootsFrom: {secret: time, key: tsa}", "SIGSTORE", "trustedRootFrom: {configMap: all}"), spec))
	api := fake.NewClientBuilder().WithObjects(
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "vdo", Name: "all"}, Data: map[string]string{
			"cosign.pub": second, "ca.crt": string(corp), "issuing": string(issuing),
			"trusted_root.json": string(sigstores)}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vdo", Name: "time"},
			Data: map[string][]byte{"tsa": clock}}).Build()
	is := must.Have((&Reconciler{Reader: api}).policy(t.Context(), "vdo", "spec.trust", spec))(t)
	got := must.Have(is.YAML())(t)

	file := with("SECOND", "publicKey: "+strconv.Quote(second), "ROOTS", "roots: "+strconv.Quote(string(corp)),
		"INTERMEDIATES", "intermediates: "+strconv.Quote(string(issuing)), "CLOCKS",
		"timestampRoots: "+strconv.Quote(string(clock)), "SIGSTORE", "trustedRoot: "+strconv.Quote(string(sigstores)))
	head := "apiVersion: " + trust.PolicyAPIVersion + "\nkind: " + trust.PolicyKind
	want := must.Have(trust.ParsePolicy("policy.yaml", append([]byte(head), file...), nil))(t)
	expected := must.Have(want.YAML())(t)
	require.Equal(t, string(expected), string(got))
}

func TestPoliciesThatCannotBeRead(t *testing.T) {
	const inFile = `apiVersion: vdo.vmware.com/trust/v1
kind: TrustPolicy
keys: [{id: release, file: release.pub}]
`
	_, public := mirror.NewKey(t)
	of := func(keys ...v1alpha1.TrustKey) *v1alpha1.TrustPolicy { return &v1alpha1.TrustPolicy{Keys: keys} }
	for name, c := range map[string]struct {
		spec   *v1alpha1.TrustPolicy
		vdo    map[string]string // of ConfigMap vdo-trust
		reason fault.Reason      // "" where the policy is read
		says   []string
	}{
		"no ConfigMap":       {reason: fault.NotFound, says: []string{"ConfigMap vdo/vdo-trust", "kubectl -n vdo create configmap vdo-trust --from-file=vdo.pub --dry-run=client -o yaml | kubectl apply -f -`; or"}},
		"nothing in it":      {vdo: map[string]string{"README": "x"}, reason: fault.InvalidInput, says: []string{"neither policy.yaml nor a key ending in .pub"}},
		"keys":               {vdo: map[string]string{"release.pub": public, "README": "x"}},
		"no key":             {vdo: map[string]string{"a.pub": "x", "b.pub": public}, reason: fault.InvalidInput, says: []string{`ConfigMap vdo/vdo-trust: keys[0]: read public key "a"`}},
		"a policy":           {vdo: map[string]string{"policy.yaml": inFile, "release.pub": public}},
		"without its file":   {vdo: map[string]string{"policy.yaml": inFile}, reason: fault.NotFound, says: []string{`it has no key "release.pub"`, "put the file into the ConfigMap"}},
		"a bad policy":       {vdo: map[string]string{"policy.yaml": "a: b"}, reason: fault.InvalidInput, says: []string{"ConfigMap vdo/vdo-trust, key policy.yaml"}},
		"an absent object":   {spec: of(v1alpha1.TrustKey{ID: "a", From: &v1alpha1.KeyReference{Secret: "none"}}), reason: fault.NotFound, says: []string{"spec.trust: keys of a: read Secret vdo/none: it is not there", "correct from"}},
		"no key in the spec": {spec: of(v1alpha1.TrustKey{ID: "a", PublicKey: "hello"}), reason: fault.InvalidInput, says: []string{`spec.trust: keys[0]: read public key "a"`}},
		"one id twice":       {spec: of(v1alpha1.TrustKey{ID: "a", PublicKey: public}, v1alpha1.TrustKey{ID: "a", PublicKey: public}), reason: fault.InvalidInput, says: []string{"spec.trust: read trust policy: "}},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []client.Object
			if c.vdo != nil {
				objects = append(objects, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Namespace: "vdo", Name: "vdo-trust"}, Data: c.vdo,
				})
			}
			api := fake.NewClientBuilder().WithObjects(objects...).Build()
			b := &v1alpha1.DriverBundle{ObjectMeta: metav1.ObjectMeta{Namespace: "vdo"}}
			b.Spec.Trust = c.spec
			p, err := (&Reconciler{Reader: api}).policies(t.Context(), b)
			require.Equal(t, c.reason, fault.ReasonOf(err), "%v", err)
			for _, text := range c.says {
				require.Contains(t, fault.Text(err), text)
			}
			require.Equal(t, c.reason == "", p.bundle != nil)
		})
	}
}

func TestTheMatrixMayHaveToBeSignedToo(t *testing.T) {
	w := newWorld(t)
	signer, public := mirror.NewKey(t)
	root := w.publish(mirror.Bundle{Seed: 1, MatrixSigner: signer}, w.key)
	w.bundle()
	trusting := func(key string) *v1alpha1.DriverBundle {
		return w.pass(func(b *v1alpha1.DriverBundle) {
			b.Spec.MatrixTrust = &v1alpha1.TrustPolicy{Keys: []v1alpha1.TrustKey{{ID: "m", PublicKey: key}}}
		})
	}
	requireIs(t, trusting(w.public), untrusted, untrusted, image.Digest{}, "the matrix inside: verify")
	requireIs(t, trusting(public), good, good, root)
}

// Of a keyless signature the copy has all that says when it was made.
func TestAKeylessSignatureCountsLongAfterItsCertificate(t *testing.T) {
	const issuer, subject = "https://login.corp.example", "release@corp.example"
	w := newWorld(t)
	s := sigstore.New(t)
	root := w.publish(mirror.Bundle{Seed: 1})
	claim := sigstore.Claim(root)
	w.repo.PutClaim(t, root, claim, s.SignClaim(t, claim, subject, issuer))
	w.bundle()
	trusting := func(root []byte) func(b *v1alpha1.DriverBundle) {
		return func(b *v1alpha1.DriverBundle) {
			b.Spec.Trust = &v1alpha1.TrustPolicy{Keyless: []v1alpha1.TrustKeyless{{
				ID: "publisher", TrustedRoot: string(root), WithoutCertificateLog: true,
				Identities: []v1alpha1.TrustLogin{{Issuer: issuer, Subject: subject}},
			}}}
		}
	}
	requireIs(t, w.pass(trusting(s.Root)), good, good, root)
	w.now = time.Now().Add(30 * 24 * time.Hour)
	w.restart()
	requireIs(t, w.pass(), good, good, root)
	requireIs(
		t, w.pass(trusting(sigstore.New(t).Root)), untrusted, untrusted, root, "keyless publisher does not accept",
	)
}

func TestWhatADriverBundleReadsIsWatched(t *testing.T) {
	b := &v1alpha1.DriverBundle{}
	b.Spec.Trust = &v1alpha1.TrustPolicy{
		Keyless: []v1alpha1.TrustKeyless{{TrustedRootFrom: &v1alpha1.KeyReference{ConfigMap: "root"}}},
	}
	b.Spec.MatrixTrust = &v1alpha1.TrustPolicy{Keys: []v1alpha1.TrustKey{{From: &v1alpha1.KeyReference{Secret: "key"}}}}
	own, none := b.DeepCopy(), &v1alpha1.DriverBundle{}
	own.Spec.PullSecret, own.Spec.CA = &v1alpha1.LocalReference{Name: "pull"}, &v1alpha1.KeyReference{Secret: "ca"}
	for reader, names := range map[*v1alpha1.DriverBundle][]string{
		b:    {"Secret vdo-registry", "ConfigMap vdo-registry-ca", "ConfigMap root", "Secret key"},
		own:  {"Secret pull", "Secret ca", "ConfigMap root", "Secret key"},
		none: {"Secret vdo-registry", "ConfigMap vdo-registry-ca", "ConfigMap vdo-trust"},
	} {
		for _, name := range []string{"root", "key", "pull", "ca", "vdo-registry", "vdo-registry-ca", "vdo-trust"} {
			o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
			for _, kind := range []string{"Secret", "ConfigMap"} {
				require.Equal(t, slices.Contains(names, kind+" "+name), reads(reader, kind, o), kind+" "+name)
			}
		}
	}
}
