package driverbundle_test

import (
	"crypto/x509"
	"fmt"
	"testing"
	"time"

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
		by   *trust.Signer // besides the world's key
		spec func(w *world, s *v1alpha1.DriverBundleSpec)
		want []string
	}{
		"roots in a Secret": {
			by: o.signer(t, releaseEmail, time.Time{}),
			spec: func(w *world, s *v1alpha1.DriverBundleSpec) {
				w.create(&corev1.Secret{ObjectMeta: w.named("corp"), Data: map[string][]byte{"ca.crt": o.root.PEM()}})
				e := o.entry()
				e.Roots, e.RootsFrom = "", &v1alpha1.KeyReference{Secret: "corp"}
				s.Trust = trusting(e)
			},
			want: []string{"corp"},
		},
		"a key and a certificate for a threshold of two": {
			by: o.signer(t, releaseEmail, time.Time{}),
			spec: func(w *world, s *v1alpha1.DriverBundleSpec) {
				s.Trust = trusting(o.entry())
				s.Trust.Threshold, s.Trust.Keys = 2, []v1alpha1.TrustKey{{ID: "release", PublicKey: w.public}}
			},
			want: []string{"corp", "release"},
		},
		"an expired certificate with a time stamp": {
			by: o.old(t, expired.Add(-time.Hour)),
			spec: func(w *world, s *v1alpha1.DriverBundleSpec) {
				w.create(&corev1.ConfigMap{ObjectMeta: w.named("time"), Data: map[string]string{"tsa.crt": string(o.tsaRoot.PEM())}})
				e := o.entry()
				e.TimestampRootsFrom = &v1alpha1.KeyReference{ConfigMap: "time", Key: "tsa.crt"}
				s.Trust = trusting(e)
			},
			want: []string{"corp"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			root := w.publish(mirror.Bundle{Seed: 1}, c.by, w.key)
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

// publishAs is publish under a tag of its own, and the DriverBundle looks there.
func (w *world) publishAs(tag string, policy *v1alpha1.TrustPolicy, by ...*trust.Signer) image.Digest {
	w.t.Helper()
	root := w.repo.Push(w.t, tag, mirror.Bundle{Seed: int64(100 + w.asked)})
	for _, s := range by {
		w.repo.Sign(w.t, root, s)
	}
	w.change(func(b *v1alpha1.DriverBundle) { b.Spec.Reference, b.Spec.Trust = w.repo.Reference(tag), policy })
	return root
}

// Package trust tests which certificates count; here, that each field of an entry reaches it.
func TestCertificatesThatDoNotCount(t *testing.T) {
	o := newOffice(t)
	with := func(change func(e *v1alpha1.TrustAuthority)) v1alpha1.TrustAuthority {
		e := o.entry()
		change(&e)
		return e
	}
	by := o.signer(t, releaseEmail, time.Time{})
	w := newWorld(t)
	w.bundle()
	for i, c := range []struct {
		name   string
		policy v1alpha1.TrustAuthority
		want   string
	}{
		{"another identity", with(func(e *v1alpha1.TrustAuthority) { e.Identities[0].Email = "intern@corp.example" }), `by a certificate of "email release@corp.example", who is none of the identities of corp`},
		{"another use", with(func(e *v1alpha1.TrustAuthority) { e.ExtendedKeyUsage = "1.3.6.1.4.1.311.10.3.13" }), "did not issue for 1.3.6.1.4.1.311.10.3.13"},
		{"a revoked authority", with(func(e *v1alpha1.TrustAuthority) { e.Revoked = true }), "by a certificate of the authority corp, revoked"},
		{"an authority out of time", with(func(e *v1alpha1.TrustAuthority) { e.NotAfter = &metav1.Time{Time: expired} }), "by a certificate of the authority corp, expired 2024-01-01T00:00:00Z"},
		{"a revoked intermediate", with(func(e *v1alpha1.TrustAuthority) {
			e.RevokedSerials = []string{o.issuer.Certificate.SerialNumber.Text(16)}
		}), "by a certificate of the authority corp that the policy has revoked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			root := w.publishAs(fmt.Sprint("c", i), trusting(c.policy), by)
			b := w.poke()
			require.Equal(t, "False Untrusted", condition(b, v1alpha1.ConditionReady))
			require.Equal(t, "False Untrusted", condition(b, v1alpha1.ConditionVerified))
			require.Contains(t, message(b, v1alpha1.ConditionReady), c.want)
			require.Contains(t, message(b, v1alpha1.ConditionReady), root.String())
			require.Empty(t, b.Status.Digest)
		})
	}
}

func TestBadCertificateEntriesAreExplained(t *testing.T) {
	o := newOffice(t)
	w := newWorld(t)
	w.publish(mirror.Bundle{Seed: 1}, w.key)
	w.bundle()
	w.ready("True Succeeded")
	bad, absent := o.entry(), o.entry()
	bad.ID, bad.Roots = "a", "hello"
	absent.ID, absent.Roots, absent.RootsFrom = "b", "", &v1alpha1.KeyReference{ConfigMap: "none"}
	w.change(func(b *v1alpha1.DriverBundle) { b.Spec.Trust = trusting(bad, absent) })
	b := w.poke()
	require.Contains(t, condition(b, v1alpha1.ConditionReady), "False ")
	for _, text := range []string{
		`spec.trust: certificates of a: read certificate authority "a": roots: there is something that is not a PEM block`,
		"kubectl explain driverbundle.spec.trust.certificates",
		"certificates of b: read ConfigMap " + w.ns + "/none: it is not there", "correct rootsFrom",
	} {
		require.Contains(t, message(b, v1alpha1.ConditionReady), text)
	}
	require.NotEmpty(t, b.Status.Digest, "what was accepted goes on serving")

	again := o.entry()
	again.ID = "again"
	w.change(func(b *v1alpha1.DriverBundle) { b.Spec.Trust = trusting(o.entry(), again) })
	require.Contains(t, message(w.ready("False InvalidInput"), v1alpha1.ConditionReady), "spec.trust: read trust policy: ")
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

	w.trustConfigMap(map[string]string{"policy.yaml": "a: [", "release.pub": w.public})
	b = w.ready("False InvalidInput")
	require.Contains(t, message(b, v1alpha1.ConditionReady), "ConfigMap "+w.ns+"/vdo-trust, key policy.yaml")
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
}
