package driverbundle_test

import (
	"context"
	"errors"
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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/sigstore"
)

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

func TestBundlesSignedKeylesslyAreAccepted(t *testing.T) {
	offline(t)
	w := newWorld(t)
	s := w.publisher()
	root := w.publish(mirror.Bundle{Seed: 1})
	w.signKeyless(s, root, releaseEmail)
	w.bundle(func(spec *v1alpha1.DriverBundleSpec) { spec.Trust = keyless(loggedIn()) })
	b := w.ready("True Succeeded")
	require.Equal(t, root.String(), b.Status.Digest)
	require.Equal(t, []string{"publisher"}, b.Status.VerifiedBy)
	w.clock.set(time.Now().Add(30 * 24 * time.Hour)) // long after the certificate
	require.Equal(t, "True Succeeded", condition(w.poke(), v1alpha1.ConditionReady), "the copy in the cluster holds as well")

	// the trusted root is watched, and one that does not know the signer is seen at once
	var roots corev1.ConfigMap
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "publisher"}, &roots))
	roots.Data["trusted_root.json"] = string(sigstore.New(t).Root)
	require.NoError(t, w.Update(t.Context(), &roots))
	b = w.ready("False Untrusted")
	require.Contains(t, message(b, v1alpha1.ConditionReady), "keyless publisher does not accept")
	require.Equal(t, root.String(), b.Status.Digest, "what was accepted goes on serving")
	roots.Data["trusted_root.json"] = string(s.Root)
	require.NoError(t, w.Update(t.Context(), &roots))
	w.ready("True Succeeded")

	// together with a key, for a threshold of two
	w.change(func(b *v1alpha1.DriverBundle) {
		b.Spec.Trust.Threshold, b.Spec.Trust.Keys = 2, []v1alpha1.TrustKey{{ID: "release", PublicKey: w.public}}
	})
	require.Contains(t, message(w.ready("False Untrusted"), v1alpha1.ConditionReady), "signed by 1 distinct key (publisher) where the policy wants 2")
	w.repo.Sign(t, root, w.key)
	w.poke()
	require.Equal(t, []string{"publisher", "release"}, w.ready("True Succeeded").Status.VerifiedBy)

	// and by the policy file of vdo-trust
	w.trustConfigMap(map[string]string{"trusted_root.json": string(s.Root), "policy.yaml": `apiVersion: vdo.vmware.com/trust/v1
kind: TrustPolicy
keyless:
- id: publisher
  trustedRootFile: trusted_root.json
  withoutCertificateLog: true
  identities: [{subject: ` + releaseEmail + `, issuer: ` + issuer + `}]
`})
	w.change(func(b *v1alpha1.DriverBundle) { b.Spec.Trust = nil })
	require.Equal(t, []string{"publisher"}, w.ready("True Succeeded").Status.VerifiedBy)
}

// Package trust tests which signatures count; here, that each field of an entry reaches it.
func TestKeylessSignaturesThatDoNotCount(t *testing.T) {
	const logEntry, stamp = "dev.sigstore.cosign/bundle", "dev.sigstore.cosign/rfc3161timestamp"
	offline(t)
	w := newWorld(t)
	s := w.publisher()
	with := func(change func(k *v1alpha1.TrustKeyless)) v1alpha1.TrustKeyless {
		k := loggedIn()
		change(&k)
		return k
	}
	w.bundle(func(spec *v1alpha1.DriverBundleSpec) { spec.Trust = keyless(loggedIn()) })
	for name, c := range map[string]struct {
		entry   v1alpha1.TrustKeyless
		without []string
		want    string
	}{
		"another login":                  {with(func(k *v1alpha1.TrustKeyless) { k.Identities[0].Subject = "intern@corp.example" }), nil, "keyless publisher does not accept"},
		"no word on the time":            {with(func(k *v1alpha1.TrustKeyless) { k.WithoutTransparencyLog = true }), []string{logEntry, stamp}, "it has no time stamp"},
		"not in the certificate log":     {with(func(k *v1alpha1.TrustKeyless) { k.WithoutCertificateLog = false }), nil, "embedded SCT"},
		"a revoked entry":                {with(func(k *v1alpha1.TrustKeyless) { k.Revoked = true }), nil, "by a certificate of keyless publisher, revoked"},
		"an entry whose time has passed": {with(func(k *v1alpha1.TrustKeyless) { k.NotAfter = &metav1.Time{Time: expired} }), nil, "by a certificate of keyless publisher, expired 2024-01-01T00:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			root := w.publishAs("k"+strings.ReplaceAll(strings.ToLower(name), " ", "-"), keyless(c.entry))
			w.signKeyless(s, root, releaseEmail, c.without...)
			b := w.poke()
			require.Equal(t, "False Untrusted", condition(b, v1alpha1.ConditionReady), message(b, v1alpha1.ConditionReady))
			require.Contains(t, message(b, v1alpha1.ConditionReady), c.want)
			require.Empty(t, b.Status.Digest)
		})
	}
	t.Run("a time stamp in place of the log", func(t *testing.T) {
		w.t = t
		root := w.publishAs("stamped", keyless(with(func(k *v1alpha1.TrustKeyless) { k.WithoutTransparencyLog = true })))
		w.signKeyless(s, root, releaseEmail, logEntry)
		require.Equal(t, root.String(), func() string { w.poke(); return w.ready("True Succeeded").Status.Digest }())
	})
	t.Run("a trusted root that is none", func(t *testing.T) {
		w.t = t
		var roots corev1.ConfigMap
		require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "publisher"}, &roots))
		roots.Data["trusted_root.json"] = "<html>"
		require.NoError(t, w.Update(t.Context(), &roots))
		b := w.ready("False InvalidInput")
		require.Contains(t, message(b, v1alpha1.ConditionReady), "read trusted root")
		require.NotEmpty(t, b.Status.Digest, "what was accepted goes on serving")
	})
}
