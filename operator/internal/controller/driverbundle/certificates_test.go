package driverbundle_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

const releaseEmail = "release@corp.example"

// office is a site's authority with an intermediate, and a time-stamping authority.
type office struct{ root, issuer, tsaRoot, tsa pki.Authority }

func newOffice(t *testing.T) office {
	t.Helper()
	o := office{root: pki.Root(t, "Corp Root"), tsaRoot: pki.Root(t, "Time Root")}
	o.issuer = o.root.Issue(t, pki.Spec{Name: "Corp Issuing", CA: true})
	o.tsa = o.tsaRoot.Issue(t, pki.Spec{Name: "Time", Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping}})
	return o
}

// expired is the day on which the certificates of [office.old] ended.
var expired = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// signer signs with a certificate for an e-mail address; one that has ended where a
// time is given.
func (o office) signer(t *testing.T, email string, until time.Time) *trust.Signer {
	t.Helper()
	leaf := o.issuer.Issue(t, pki.Spec{Name: "signer", Email: []string{email}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}, NotAfter: until})
	s, err := trust.NewSigner("signer", leaf.Key)
	require.NoError(t, err)
	at := time.Now()
	if !until.IsZero() {
		at = until.Add(-time.Hour)
	}
	s, err = s.WithCertificate("signer.crt", leaf.PEM(), o.issuer.PEM(), at)
	require.NoError(t, err)
	return s
}

// old signs with a certificate that has ended, under a time stamp.
func (o office) old(t *testing.T, stampedAt time.Time) *trust.Signer {
	t.Helper()
	s := o.signer(t, releaseEmail, expired)
	if stampedAt.IsZero() {
		return s
	}
	return s.WithTimestamps(func(signature []byte) ([]byte, error) { return o.tsa.Stamp(t, signature, stampedAt), nil })
}

// entry is the entry of a policy that trusts the release signer.
func (o office) entry() v1alpha1.TrustAuthority {
	return v1alpha1.TrustAuthority{ID: "corp", Roots: string(o.root.PEM()), Identities: []v1alpha1.TrustIdentity{{Email: releaseEmail}}}
}

func trusting(entries ...v1alpha1.TrustAuthority) *v1alpha1.TrustPolicy {
	return &v1alpha1.TrustPolicy{Certificates: entries}
}

const policyFile = `apiVersion: vdo.vmware.com/trust/v1
kind: TrustPolicy
threshold: 2
keys:
- id: release
  file: release.pub
certificates:
- id: corp
  rootsFile: corp-root.crt
  identities:
  - email: release@corp.example
`

func TestBundlesSignedByCertificatesAreAccepted(t *testing.T) {
	o := newOffice(t)
	for name, c := range map[string]struct {
		by   []*trust.Signer // besides the world's key
		spec func(w *world, s *v1alpha1.DriverBundleSpec)
		want []string
	}{
		"roots in the spec": {
			by:   []*trust.Signer{o.signer(t, releaseEmail, time.Time{})},
			spec: func(_ *world, s *v1alpha1.DriverBundleSpec) { s.Trust = trusting(o.entry()) },
			want: []string{"corp"},
		},
		"roots in a Secret": {
			by: []*trust.Signer{o.signer(t, releaseEmail, time.Time{})},
			spec: func(w *world, s *v1alpha1.DriverBundleSpec) {
				w.create(&corev1.Secret{ObjectMeta: w.named("corp"), Data: map[string][]byte{"ca.crt": o.root.PEM()}})
				e := o.entry()
				e.Roots, e.RootsFrom = "", &v1alpha1.KeyReference{Secret: "corp"}
				s.Trust = trusting(e)
			},
			want: []string{"corp"},
		},
		"a key and a certificate for a threshold of two": {
			by: []*trust.Signer{o.signer(t, releaseEmail, time.Time{})},
			spec: func(w *world, s *v1alpha1.DriverBundleSpec) {
				s.Trust = trusting(o.entry())
				s.Trust.Threshold, s.Trust.Keys = 2, []v1alpha1.TrustKey{{ID: "release", PublicKey: w.public}}
			},
			want: []string{"corp", "release"},
		},
		"the policy file in vdo-trust": {
			by: []*trust.Signer{o.signer(t, releaseEmail, time.Time{})},
			spec: func(w *world, _ *v1alpha1.DriverBundleSpec) {
				w.trustConfigMap(map[string]string{"policy.yaml": policyFile, "corp-root.crt": string(o.root.PEM()), "release.pub": w.public})
			},
			want: []string{"corp", "release"},
		},
		"an expired certificate with a time stamp": {
			by: []*trust.Signer{o.old(t, expired.Add(-time.Hour))},
			spec: func(w *world, s *v1alpha1.DriverBundleSpec) {
				w.create(&corev1.ConfigMap{ObjectMeta: w.named("time"), Data: map[string]string{"tsa.crt": string(o.tsaRoot.PEM())}})
				e := o.entry()
				e.TimestampRootsFrom = &v1alpha1.KeyReference{ConfigMap: "time", Key: "tsa.crt"}
				s.Trust = trusting(e)
			},
			want: []string{"corp"},
		},
		"the matrix too": {
			by: []*trust.Signer{o.signer(t, releaseEmail, time.Time{})},
			spec: func(_ *world, s *v1alpha1.DriverBundleSpec) {
				s.Trust = trusting(o.entry())
				s.MatrixTrust = trusting(o.entry())
			},
			want: []string{"corp"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			root := w.publish(mirror.Bundle{Seed: 1, MatrixSigner: o.signer(t, releaseEmail, time.Time{})}, append(slices.Clone(c.by), w.key)...)
			w.bundle(func(s *v1alpha1.DriverBundleSpec) { c.spec(w, s) })
			b := w.ready("True Succeeded")
			require.Equal(t, root.String(), b.Status.Digest)
			require.Equal(t, c.want, b.Status.VerifiedBy)
			require.Equal(t, "True Succeeded", condition(w.poke(), v1alpha1.ConditionReady), "the copy in the cluster holds as well")
		})
	}
}

// trustConfigMap replaces what vdo-trust holds.
func (w *world) trustConfigMap(data map[string]string) {
	w.t.Helper()
	var c corev1.ConfigMap
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: v1alpha1.DefaultTrustName}, &c))
	c.Data = data
	require.NoError(w.t, w.Update(w.t.Context(), &c))
}

// lateStamp is what no honest signer makes: a time stamp from after the certificate.
type lateStamp struct {
	*trust.Signer
	stamp func(signature []byte) []byte
}

func (l lateStamp) sign(w *world, root image.Digest) {
	w.t.Helper()
	signed, err := l.Sign(root, "", nil)
	require.NoError(w.t, err)
	var m ocispec.Manifest
	require.NoError(w.t, json.Unmarshal(signed.Manifest, &m))
	raw, err := base64.StdEncoding.DecodeString(m.Layers[0].Annotations[trust.SignatureAnnotation])
	require.NoError(w.t, err)
	m.Layers[0].Annotations[trust.TimestampAnnotation] = fmt.Sprintf(`{"SignedRFC3161Timestamp":%q}`, base64.StdEncoding.EncodeToString(l.stamp(raw)))
	signed.Manifest, err = json.Marshal(m)
	require.NoError(w.t, err)
	w.repo.Put(w.t, signed)
}

// publishAs is publish under a tag of its own, and the DriverBundle looks there.
func (w *world) publishAs(tag string, policy *v1alpha1.TrustPolicy, by any) image.Digest {
	w.t.Helper()
	root := w.repo.Push(w.t, tag, mirror.Bundle{Seed: int64(100 + w.asked)})
	switch by := by.(type) {
	case lateStamp:
		by.sign(w, root)
	case *trust.Signer:
		w.repo.Sign(w.t, root, by)
	}
	w.change(func(b *v1alpha1.DriverBundle) { b.Spec.Reference, b.Spec.Trust = w.repo.Reference(tag), policy })
	return root
}

func TestCertificatesThatDoNotCount(t *testing.T) {
	o, other := newOffice(t), newOffice(t)
	var none time.Time
	stamping, revoked, over := o.entry(), o.entry(), o.entry()
	stamping.TimestampRoots = string(o.tsaRoot.PEM())
	revoked.Revoked = true
	over.NotAfter = &metav1.Time{Time: expired}
	serials, purpose := o.entry(), o.entry()
	serials.RevokedSerials = []string{o.issuer.Certificate.SerialNumber.Text(16)}
	purpose.ExtendedKeyUsage = "1.3.6.1.4.1.311.10.3.13"

	w := newWorld(t)
	w.bundle()
	for i, c := range []struct {
		name   string
		by     any // a *trust.Signer or a lateStamp
		policy v1alpha1.TrustAuthority
		want   string
	}{
		{"another identity", o.signer(t, "intern@corp.example", none), o.entry(), `by a certificate of "email intern@corp.example", who is none of the identities of corp`},
		{"an identity that begins alike", o.signer(t, releaseEmail+".example", none), o.entry(), "who is none of the identities of corp"},
		{"another root of the same name", other.signer(t, releaseEmail, none), o.entry(), `by a certificate of "email release@corp.example" that the authority corp has not issued`},
		{"another use", o.signer(t, releaseEmail, none), purpose, "did not issue for 1.3.6.1.4.1.311.10.3.13"},
		{"expired, and no authority stamps time", o.old(t, expired.Add(-time.Hour)), o.entry(), "expired 2024-01-01T00:00:00Z, and corp has no time-stamping authority"},
		{"expired without a stamp", o.old(t, none), stamping, "expired 2024-01-01T00:00:00Z, and the signature has no time stamp"},
		{"expired with a late stamp", lateStamp{o.old(t, none), func(signature []byte) []byte { return o.tsa.Stamp(t, signature, expired.Add(time.Hour)) }}, stamping, "no time stamp by an authority of corp says that it was made before"},
		{"a stranger's stamp", other.old(t, expired.Add(-time.Hour)), stamping, "has not issued"},
		{"a revoked authority", o.signer(t, releaseEmail, none), revoked, "by a certificate of the authority corp, revoked"},
		{"an authority out of time", o.signer(t, releaseEmail, none), over, "by a certificate of the authority corp, expired 2024-01-01T00:00:00Z"},
		{"a revoked intermediate", o.signer(t, releaseEmail, none), serials, "by a certificate of the authority corp that the policy has revoked"},
		{"no certificate", w.key, o.entry(), "keys tried: certificates of corp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			root := w.publishAs(fmt.Sprint("c", i), trusting(c.policy), c.by)
			b := w.poke()
			require.Equal(t, "False Untrusted", condition(b, v1alpha1.ConditionReady))
			require.Equal(t, "False Untrusted", condition(b, v1alpha1.ConditionVerified))
			require.Contains(t, message(b, v1alpha1.ConditionReady), c.want)
			require.Contains(t, message(b, v1alpha1.ConditionReady), root.String())
			require.Empty(t, b.Status.Digest)
		})
	}

	// one signer with a key and a certificate for it is one signer
	t.Run("one signer twice", func(t *testing.T) {
		w.t = t
		s := o.signer(t, releaseEmail, none)
		policy := trusting(o.entry())
		policy.Threshold, policy.Keys = 2, []v1alpha1.TrustKey{{ID: "signer", PublicKey: string(s.PublicPEM())}}
		w.publishAs("twice", policy, s)
		b := w.poke()
		require.Equal(t, "False Untrusted", condition(b, v1alpha1.ConditionReady))
		require.Contains(t, message(b, v1alpha1.ConditionReady), "signed by 1 distinct key")
		require.Contains(t, message(b, v1alpha1.ConditionReady), "where the policy wants 2")
	})
}

func TestBadCertificateEntriesAreExplained(t *testing.T) {
	o := newOffice(t)
	w := newWorld(t)
	w.publish(mirror.Bundle{Seed: 1}, w.key)
	w.bundle()
	w.ready("True Succeeded")
	w.create(&corev1.ConfigMap{ObjectMeta: w.named("empty"), Data: map[string]string{"ca.crt": " \n", "x": "y"}})
	leaf := o.issuer.Issue(t, pki.Spec{Name: "leaf"})
	with := func(change func(e *v1alpha1.TrustAuthority)) *v1alpha1.TrustPolicy {
		e := o.entry()
		change(&e)
		return trusting(e)
	}
	from := func(name, key string) func(e *v1alpha1.TrustAuthority) {
		return func(e *v1alpha1.TrustAuthority) {
			e.Roots, e.RootsFrom = "", &v1alpha1.KeyReference{ConfigMap: name, Key: key}
		}
	}
	for _, c := range []struct {
		name, reason string
		policy       *v1alpha1.TrustPolicy
		want         []string
	}{
		{"no PEM", "InvalidInput", with(func(e *v1alpha1.TrustAuthority) { e.Roots = "hello" }),
			[]string{`spec.trust: certificates of corp: read certificate authority "corp": roots: there is something that is not a PEM block`, "kubectl explain driverbundle.spec.trust.certificates"}},
		{"a leaf for a root", "InvalidInput", with(func(e *v1alpha1.TrustAuthority) { e.Roots = string(leaf.PEM()) }),
			[]string{`the certificate of "CN=leaf" is not a certificate authority's`}},
		{"a time-stamping leaf without its root", "InvalidInput", with(func(e *v1alpha1.TrustAuthority) { e.TimestampRoots = string(o.tsa.PEM()) }),
			[]string{"timestampRoots: none of its certificates is self-signed"}},
		{"no ConfigMap", "NotFound", with(from("none", "")), []string{"ConfigMap " + w.ns + "/none: it is not there", "correct rootsFrom"}},
		{"no key in it", "NotFound", with(from("empty", "corp.crt")), []string{"ConfigMap " + w.ns + "/empty: it has no key corp.crt"}},
		{"nothing in the key", "InvalidInput", with(from("empty", "")), []string{"ConfigMap " + w.ns + "/empty: its key ca.crt is empty"}},
		{"several at once", "", trusting(
			func() v1alpha1.TrustAuthority { e := o.entry(); e.ID, e.Roots = "a", "x"; return e }(),
			func() v1alpha1.TrustAuthority {
				e := o.entry()
				e.ID, e.Roots, e.RootsFrom = "b", "", &v1alpha1.KeyReference{Secret: "none"}
				return e
			}(),
		), []string{"certificates of a: ", "certificates of b: "}},
		{"one identity in two entries", "InvalidInput", trusting(o.entry(), func() v1alpha1.TrustAuthority { e := o.entry(); e.ID = "again"; return e }()),
			[]string{"spec.trust: read trust policy: email release@corp.example is in two entries"}},
		{"a key and an authority of one id", "InvalidInput",
			&v1alpha1.TrustPolicy{Keys: []v1alpha1.TrustKey{{ID: "corp", PublicKey: w.public}}, Certificates: []v1alpha1.TrustAuthority{o.entry()}},
			[]string{`two entries have the id "corp"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			w.change(func(b *v1alpha1.DriverBundle) { b.Spec.Trust = c.policy })
			b := w.poke()
			if c.reason != "" {
				require.Equal(t, "False "+c.reason, condition(b, v1alpha1.ConditionReady))
			}
			for _, text := range c.want {
				require.Contains(t, message(b, v1alpha1.ConditionReady), text)
			}
			require.NotEmpty(t, b.Status.Digest, "what was accepted goes on serving")
		})
	}
}

func TestThePolicyFileInTheConfigMap(t *testing.T) {
	o := newOffice(t)
	w := newWorld(t)
	root := w.publish(mirror.Bundle{Seed: 1}, w.key, o.signer(t, releaseEmail, time.Time{}))
	w.bundle()
	require.Equal(t, []string{"release"}, w.ready("True Succeeded").Status.VerifiedBy)

	// From keys to certificates: the file alone decides from now on, and is watched.
	w.trustConfigMap(map[string]string{"policy.yaml": policyFile, "release.pub": w.public})
	b := w.ready("False NotFound")
	require.Contains(t, message(b, v1alpha1.ConditionReady), `it has no key "corp-root.crt"`)
	require.Equal(t, root.String(), b.Status.Digest)
	w.trustConfigMap(map[string]string{"policy.yaml": policyFile, "release.pub": w.public, "corp-root.crt": string(o.root.PEM())})
	require.Equal(t, []string{"corp", "release"}, w.ready("True Succeeded").Status.VerifiedBy)

	for name, c := range map[string]struct{ policy, want string }{
		"keyless": {`apiVersion: vdo.vmware.com/trust/v1
kind: TrustPolicy
keyless:
- id: k8s
  trustedRootFile: root.json
  identities: [{subject: a@b.example, issuer: https://login.example}]
`, `read keyless "k8s": read trusted root`},
		"no YAML":       {"a: [", "ConfigMap " + w.ns + "/vdo-trust, key policy.yaml"},
		"unknown field": {policyFile + "wildcards: true\n", "the key wildcards is not known"},
		"a pattern":     {policyFile + "  - email: '*@corp.example'\n", "without wildcards"},
		"too much":      {"apiVersion: vdo.vmware.com/trust/v1\nkind: TrustPolicy\nthreshold: 2\nkeys: [{id: a, file: release.pub}]\n", "a threshold of 2 can never be met with 1 distinct keys"},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.trustConfigMap(map[string]string{"policy.yaml": c.policy, "release.pub": w.public, "corp-root.crt": string(o.root.PEM()), "root.json": "{}"})
			b := w.poke()
			require.Equal(t, "False InvalidInput", condition(b, v1alpha1.ConditionReady))
			require.Contains(t, message(b, v1alpha1.ConditionReady), c.want)
		})
	}
}

func TestAnAcceptedCertificateThatEndsGoesOnServing(t *testing.T) {
	o := newOffice(t)
	w := newWorld(t)
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	root := w.publish(mirror.Bundle{Seed: 1}, o.signer(t, releaseEmail, until))
	w.create(&corev1.ConfigMap{ObjectMeta: w.named("corp"), Data: map[string]string{"ca.crt": string(o.root.PEM())}})
	w.bundle(func(s *v1alpha1.DriverBundleSpec) {
		e := o.entry()
		e.Roots, e.RootsFrom = "", &v1alpha1.KeyReference{ConfigMap: "corp"}
		s.Trust = trusting(e)
	})
	w.ready("True Succeeded")
	w.clock.set(until.Add(time.Hour))
	b := w.poke()
	require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionReady), "the certificate was in time when it was accepted")

	// the authority's root is replaced: seen at once, told, and nothing stops
	var roots corev1.ConfigMap
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "corp"}, &roots))
	roots.Data["ca.crt"] = string(pki.Root(t, "New Root").PEM())
	require.NoError(t, w.Update(t.Context(), &roots))
	b = w.ready("False Untrusted")
	require.Contains(t, message(b, v1alpha1.ConditionVerified), "stays in use")
	require.Equal(t, root.String(), b.Status.Digest)

	// a new bundle by a certificate that has ended is not taken
	roots.Data["ca.crt"] = string(o.root.PEM())
	require.NoError(t, w.Update(t.Context(), &roots))
	w.ready("True Succeeded")
	w.publish(mirror.Bundle{Seed: 2}, o.signer(t, releaseEmail, until))
	b = w.poke()
	require.Equal(t, "False Untrusted", condition(b, v1alpha1.ConditionReady))
	require.Contains(t, message(b, v1alpha1.ConditionReady), "corp has no time-stamping authority")
	require.Equal(t, root.String(), b.Status.Digest)
}
