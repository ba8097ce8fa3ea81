package driverbundle_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/sigstore"
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

const issuer = "https://login.corp.example"

// loggedIn is an entry that trusts who has the release's login at a sigstore whose
// trusted root is in a ConfigMap.
func loggedIn() v1alpha1.TrustKeyless {
	return v1alpha1.TrustKeyless{
		ID: "publisher", TrustedRootFrom: &v1alpha1.KeyReference{ConfigMap: "publisher"}, WithoutCertificateLog: true,
		Identities: []v1alpha1.TrustLogin{{Issuer: issuer, Subject: releaseEmail}},
	}
}

func keyless(entries ...v1alpha1.TrustKeyless) *v1alpha1.TrustPolicy {
	return &v1alpha1.TrustPolicy{Keyless: entries}
}

// publisher makes a sigstore, and the ConfigMap with its trusted root.
func (w *world) publisher() sigstore.Sigstore {
	w.t.Helper()
	s := sigstore.New(w.t)
	w.create(&corev1.ConfigMap{ObjectMeta: w.named("publisher"), Data: map[string]string{"trusted_root.json": string(s.Root)}})
	return s
}

// signKeyless adds a keyless signature to a bundle that is in the mirror, without its
// log entry or time stamp where those are named.
func (w *world) signKeyless(s sigstore.Sigstore, root image.Digest, subject string, without ...string) {
	w.t.Helper()
	claim := sigstore.Claim(root)
	annotations := s.SignClaim(w.t, claim, subject, issuer)
	for _, name := range without {
		delete(annotations, name)
	}
	w.repo.PutClaim(w.t, root, claim, annotations)
}

// offline fails every connection that is not to this machine, where registry and API
// server are.
func offline(t *testing.T) {
	t.Helper()
	transport, ok := http.DefaultTransport.(*http.Transport)
	require.True(t, ok)
	old := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, to string) (net.Conn, error) {
		if strings.HasPrefix(to, "127.0.0.1:") || strings.HasPrefix(to, "localhost:") {
			return old(ctx, network, to)
		}
		t.Errorf("somebody was asked: %s", to)
		return nil, errors.New("no network")
	}
	t.Cleanup(func() { transport.DialContext = old })
}

// Package trust tests which signatures count; here, that each field of an entry reaches it.
func TestWhoseSignaturesCount(t *testing.T) {
	const logEntry, stamp = "dev.sigstore.cosign/bundle", "dev.sigstore.cosign/rfc3161timestamp"
	offline(t)
	w, o := newWorld(t), newOffice(t)
	s := w.publisher()
	second, seconds := mirror.NewKey(t)
	_, strangers := mirror.NewKey(t)
	w.create(&corev1.Secret{ObjectMeta: w.named("corp"), Data: map[string][]byte{"ca.crt": o.root.PEM()}})
	w.create(&corev1.ConfigMap{ObjectMeta: w.named("time"), Data: map[string]string{"tsa.crt": string(o.tsaRoot.PEM())}})
	w.bundle()
	ended := &metav1.Time{Time: expired}
	key := func(change func(*v1alpha1.TrustKey)) *v1alpha1.TrustPolicy {
		k := v1alpha1.TrustKey{ID: "a", PublicKey: w.public}
		change(&k)
		return &v1alpha1.TrustPolicy{Keys: []v1alpha1.TrustKey{k}}
	}
	authority := func(change func(*v1alpha1.TrustAuthority)) *v1alpha1.TrustPolicy {
		e := o.entry()
		change(&e)
		return trusting(e)
	}
	login := func(change func(*v1alpha1.TrustKeyless)) *v1alpha1.TrustPolicy {
		k := loggedIn()
		change(&k)
		return keyless(k)
	}
	two := &v1alpha1.TrustPolicy{Threshold: 2, Keys: []v1alpha1.TrustKey{
		{ID: "a", From: &v1alpha1.KeyReference{ConfigMap: v1alpha1.DefaultTrustName, Key: "release.pub"}}, {ID: "b", PublicKey: seconds}}}
	mixed := authority(func(*v1alpha1.TrustAuthority) {})
	mixed.Threshold, mixed.Keys = 2, two.Keys[:1]
	signers, certified := []*trust.Signer{w.key}, []*trust.Signer{o.signer(t, releaseEmail, time.Time{})}
	old := []*trust.Signer{o.old(t, expired.Add(-time.Hour))}
	for i, c := range []struct {
		name    string
		policy  *v1alpha1.TrustPolicy
		by      []*trust.Signer
		without []string // of a keyless signature
		matrix  *v1alpha1.TrustPolicy
		refused string
		keys    []string
	}{
		{name: "no signature", refused: "it has no signature"},
		{name: "one key of two, signing twice", policy: two, by: signers, refused: "signed by 1 distinct key (a) where the policy wants 2"},
		{name: "revoked key", policy: key(func(k *v1alpha1.TrustKey) { k.Revoked = true }), by: signers, refused: "by the key a, revoked"},
		{name: "expired key", policy: key(func(k *v1alpha1.TrustKey) { k.NotAfter = ended }), by: signers, refused: "by the key a, expired"},
		{name: "matrix unsigned", by: signers, matrix: &v1alpha1.TrustPolicy{Keys: []v1alpha1.TrustKey{{ID: "m", PublicKey: strangers}}},
			refused: "the matrix inside: verify"},
		{name: "another identity", policy: authority(func(e *v1alpha1.TrustAuthority) { e.Identities[0].Email = "intern@corp.example" }),
			by: certified, refused: `by a certificate of "email release@corp.example", who is none of the identities of corp`},
		{name: "another use", policy: authority(func(e *v1alpha1.TrustAuthority) { e.ExtendedKeyUsage = "1.3.6.1.4.1.311.10.3.13" }),
			by: certified, refused: "did not issue for 1.3.6.1.4.1.311.10.3.13"},
		{name: "a revoked authority", policy: authority(func(e *v1alpha1.TrustAuthority) { e.Revoked = true }),
			by: certified, refused: "by a certificate of the authority corp, revoked"},
		{name: "an authority out of time", policy: authority(func(e *v1alpha1.TrustAuthority) { e.NotAfter = ended }),
			by: certified, refused: "by a certificate of the authority corp, expired 2024-01-01T00:00:00Z"},
		{name: "a revoked intermediate", policy: authority(func(e *v1alpha1.TrustAuthority) {
			e.RevokedSerials = []string{o.issuer.Certificate.SerialNumber.Text(16)}
		}), by: certified, refused: "by a certificate of the authority corp that the policy has revoked"},
		{name: "another login", policy: login(func(k *v1alpha1.TrustKeyless) { k.Identities[0].Subject = "intern@corp.example" }),
			refused: "keyless publisher does not accept"},
		{name: "no word on the time", policy: login(func(k *v1alpha1.TrustKeyless) { k.WithoutTransparencyLog = true }),
			without: []string{logEntry, stamp}, refused: "it has no time stamp"},
		{name: "not in the certificate log", policy: login(func(k *v1alpha1.TrustKeyless) { k.WithoutCertificateLog = false }), refused: "embedded SCT"},
		{name: "a revoked login", policy: login(func(k *v1alpha1.TrustKeyless) { k.Revoked = true }), refused: "by a certificate of keyless publisher, revoked"},
		{name: "a login out of time", policy: login(func(k *v1alpha1.TrustKeyless) { k.NotAfter = ended }),
			refused: "by a certificate of keyless publisher, expired 2024-01-01T00:00:00Z"},

		{name: "two keys, and a matrix policy", policy: two, by: []*trust.Signer{w.key, second}, matrix: &v1alpha1.TrustPolicy{Keys: two.Keys[1:]},
			keys: []string{"a", "b"}},
		{name: "roots in a Secret", policy: authority(func(e *v1alpha1.TrustAuthority) {
			e.Roots, e.RootsFrom = "", &v1alpha1.KeyReference{Secret: "corp"}
		}), by: certified, keys: []string{"corp"}},
		{name: "a key and a certificate", policy: mixed, by: append(signers, certified...), keys: []string{"a", "corp"}},
		{name: "an expired certificate with a time stamp", policy: authority(func(e *v1alpha1.TrustAuthority) {
			e.TimestampRootsFrom = &v1alpha1.KeyReference{ConfigMap: "time", Key: "tsa.crt"}
		}), by: old, keys: []string{"corp"}},
		{name: "a login", policy: login(func(*v1alpha1.TrustKeyless) {}), keys: []string{"publisher"}},
		{name: "a time stamp in place of the log", policy: login(func(k *v1alpha1.TrustKeyless) { k.WithoutTransparencyLog = true }),
			without: []string{logEntry}, keys: []string{"publisher"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			tag := fmt.Sprint("t", i)
			root := w.repo.Push(t, tag, mirror.Bundle{Seed: int64(100 + i), MatrixSigner: second})
			for _, by := range c.by {
				w.repo.Sign(t, root, by)
				w.repo.SignAs(t, root, "elsewhere.site/vdo", by) // a second signature of the same key
			}
			if c.policy != nil && len(c.policy.Keyless) > 0 {
				w.signKeyless(s, root, releaseEmail, c.without...)
			}
			w.change(func(b *v1alpha1.DriverBundle) {
				b.Spec.Reference, b.Spec.Trust, b.Spec.MatrixTrust = w.repo.Reference(tag), c.policy, c.matrix
			})
			b := w.poke()
			if c.refused == "" {
				require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionReady), message(b, v1alpha1.ConditionReady))
				require.Equal(t, root.String(), b.Status.Digest)
				require.Equal(t, c.keys, b.Status.VerifiedBy)
				return
			}
			require.Equal(t, []string{"False Untrusted", "True Untrusted", "False Untrusted"}, []string{condition(b, v1alpha1.ConditionReady),
				condition(b, v1alpha1.ConditionStalled), condition(b, v1alpha1.ConditionVerified)}, message(b, v1alpha1.ConditionReady))
			require.Contains(t, message(b, v1alpha1.ConditionReady), c.refused)
			require.Contains(t, message(b, v1alpha1.ConditionReady), root.String())
			require.Empty(t, b.Status.Digest)
		})
	}
}

// A trusted root is watched, and goes on being asked for what was accepted.
func TestATrustedRootIsWatched(t *testing.T) {
	offline(t)
	w := newWorld(t)
	s := w.publisher()
	root := w.publish(mirror.Bundle{Seed: 1})
	w.signKeyless(s, root, releaseEmail)
	w.bundle(func(spec *v1alpha1.DriverBundleSpec) { spec.Trust = keyless(loggedIn()) })
	w.ready("True Succeeded")
	w.clock.set(time.Now().Add(30 * 24 * time.Hour)) // long after the certificate
	require.Equal(t, "True Succeeded", condition(w.poke(), v1alpha1.ConditionReady), "the copy in the cluster holds as well")
	var roots corev1.ConfigMap
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "publisher"}, &roots))
	for _, c := range []struct{ root, ready, says string }{
		{string(sigstore.New(t).Root), "False Untrusted", "keyless publisher does not accept"},
		{"<html>", "False InvalidInput", "read trusted root"},
		{string(s.Root), "True Succeeded", ""},
	} {
		roots.Data["trusted_root.json"] = c.root
		require.NoError(t, w.Update(t.Context(), &roots))
		b := w.ready(c.ready)
		require.Contains(t, message(b, v1alpha1.ConditionReady), c.says)
		require.Equal(t, root.String(), b.Status.Digest, "what was accepted goes on serving")
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
