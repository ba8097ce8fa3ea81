package trust_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

var now = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// store is a Fetcher over bytes in memory.
type store bundles.Store

func (s store) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	return bundles.Store(s).Fetch(ctx, d, offset)
}

func (s store) add(mediaType string, data []byte) ocispec.Descriptor {
	return bundles.Store(s).Add(mediaType, data)
}

func (s store) keep(signed bundle.Referrer) ocispec.Descriptor {
	for _, b := range signed.Blobs {
		s.add("", b.Data)
	}
	s.add("", signed.Node.Data)
	return signed.Node.Descriptor
}

// manifest adds an image manifest of layers.
func (s store) manifest(t *testing.T, layers ...ocispec.Descriptor) ocispec.Descriptor {
	t.Helper()
	data := must(json.Marshal(ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Layers: layers}))(t)
	return s.add(ocispec.MediaTypeImageManifest, data)
}

func (s store) evidence(t *testing.T, manifests ...ocispec.Descriptor) []trust.Evidence {
	t.Helper()
	var out []trust.Evidence
	for _, m := range manifests {
		e := must(trust.ReadEvidence(t.Context(), s, m))(t)
		out = append(out, e...)
	}
	return out
}

// by is the evidence that signers leave of "root".
func (s store) by(t *testing.T, signers ...*trust.Signer) (out []trust.Evidence) {
	t.Helper()
	for _, by := range signers {
		out = append(out, s.evidence(t, s.keep(sign(t, by, subject("root"), nil)))...)
	}
	return out
}

// verify holds evidence of "root" against a policy.
func verify(p *trust.Policy, evidence []trust.Evidence) (trust.Verified, error) {
	return p.Verify(subject("root"), evidence, now)
}

func pemOf(t *testing.T, private crypto.Signer) []byte {
	t.Helper()
	der := must(x509.MarshalPKCS8PrivateKey(private))(t)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func signer(t *testing.T, private crypto.Signer) *trust.Signer {
	t.Helper()
	return must(trust.LoadSigner("test.key", pemOf(t, private), nil))(t)
}

func newSigner(t *testing.T) *trust.Signer { return signer(t, newECDSA(t, elliptic.P256())) }

// publicKey makes a public key. One of GenerateKey costs scrypt: more than a second
// under the race detector.
func publicKey(t testing.TB) []byte { return pki.Root(t, "key").PublicPEM() }

func newECDSA(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	return must(ecdsa.GenerateKey(curve, rand.Reader))(t)
}

func key(t *testing.T, id string, s *trust.Signer, o ...trust.Entry) trust.Key {
	t.Helper()
	e := append(o, trust.Entry{})[0]
	e.ID = id
	return must(trust.NewKey(e, s.PublicPEM()))(t)
}

func policy(t *testing.T, threshold int, keys ...trust.Key) *trust.Policy {
	t.Helper()
	return must(trust.NewPolicy(threshold, keys...))(t)
}

func subject(name string) image.Digest { return image.DigestOf([]byte(name)) }

func sign(t *testing.T, s *trust.Signer, d image.Digest, existing []byte) bundle.Referrer {
	t.Helper()
	return must(s.Sign(d, "mirror.site/vdo/drivers", tagged(existing)))(t)
}

// tagged is what is under a signature's tag.
func tagged(manifest []byte) bundle.Referrer {
	return bundle.Referrer{Node: bundle.Node{Data: manifest}}
}

// must gives what a call returns, which may not fail.
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		require.NoError(t, err)
		return v
	}
}

// fails demands that a call did, for a reason ("": any) and in these words.
func fails[T any](_ T, err error) func(t *testing.T, reason fault.Reason, contains ...string) {
	return func(t *testing.T, reason fault.Reason, contains ...string) {
		require.Error(t, err)
		require.Equal(t, cmp.Or(reason, fault.ReasonOf(err)), fault.ReasonOf(err), "%v", err)
		for _, c := range contains {
			require.ErrorContains(t, err, c)
		}
	}
}

// untrusted demands that a verification refused, and what it says.
func untrusted(_ trust.Verified, err error) func(t *testing.T, contains ...string) {
	return func(t *testing.T, contains ...string) {
		t.Helper()
		requireUntrusted(t, err, contains...)
	}
}

// judged demands that a verification refused, and what it says, or with "" that it accepted.
func judged(_ trust.Verified, err error) func(t *testing.T, want string) {
	return func(t *testing.T, want string) {
		if want == "" {
			require.NoError(t, err)
			return
		}
		requireUntrusted(t, err, want)
	}
}

func requireUntrusted(t *testing.T, err error, contains ...string) {
	fails(0, err)(t, fault.Untrusted, contains...)
	require.NotEmpty(t, fault.HintOf(err))
}

func keysOfAllKinds(t *testing.T) map[string]crypto.Signer {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	r := must(rsa.GenerateKey(rand.Reader, 2048))(t)
	return map[string]crypto.Signer{
		"P-256": newECDSA(t, elliptic.P256()), "P-384": newECDSA(t, elliptic.P384()), "P-521": newECDSA(t, elliptic.P521()),
		"Ed25519": ed, "RSA-2048": r,
	}
}

func TestEveryKindOfKeySignsAndVerifies(t *testing.T) {
	for kind, private := range keysOfAllKinds(t) {
		t.Run(kind, func(t *testing.T) {
			s, blobs := signer(t, private), store{}
			p := policy(t, 1, key(t, "release", s))

			evidence := blobs.by(t, s)
			v := must(verify(p, evidence))(t)
			untrusted(p.Verify(subject("other"), evidence, now))(t, "no trusted signature: 1 found",
				"of another digest, "+subject("root").String()) // put under another image's tag
			require.Equal(t, []string{"release"}, v.Keys())

			sig := must(s.SignBlob([]byte("matrix")))(t)
			must(p.VerifyBlob([]byte("matrix"), sig, now))(t)
			untrusted(p.VerifyBlob([]byte("matrix!"), sig, now))(t, "1 by none of these keys")
		})
	}
}

func TestThresholdCountsDistinctKeysNotSignatures(t *testing.T) {
	a, b, c := newSigner(t), newSigner(t), newSigner(t)
	p := policy(t, 2, key(t, "a", a), key(t, "b", b), key(t, "c", c))
	root, blobs := subject("root"), store{}

	one := blobs.keep(sign(t, a, root, nil))
	again := must(a.Sign(root, "elsewhere.site/vdo", tagged(blobs[one.Digest.String()])))(t) // another claim
	twice := blobs.keep(again)
	require.Len(t, blobs.evidence(t, twice), 2)
	untrusted(verify(p, blobs.evidence(t, twice, one)))(t, "signed by 1 distinct key (a) where the policy wants 2")

	both := blobs.keep(sign(t, c, root, blobs[twice.Digest.String()]))
	v := must(p.Verify(root, blobs.evidence(t, both), now))(t)
	require.Equal(t, []string{"a", "c"}, v.Keys())
}

func TestOneKeyUnderTwoIDsCountsOnce(t *testing.T) {
	a, b, blobs := newSigner(t), newSigner(t), store{}
	p := policy(t, 2, key(t, "a", a), key(t, "a-again", a), key(t, "b", b))
	untrusted(verify(p, blobs.by(t, a)))(t, "signed by 1 distinct key (a)")

	fails(trust.NewPolicy(2, key(t, "a", a), key(t, "a-again", a)))(t, "", "can never be met with 1 distinct key")

	p = policy(t, 1, key(t, "a", a), key(t, "a-again", a, trust.Entry{Revoked: true}))
	untrusted(verify(p, blobs.by(t, a)))(t, "revoked")
}

func TestKeysOutOfTimeOrRevokedDoNotCount(t *testing.T) {
	s, blobs := newSigner(t), store{}
	evidence := blobs.by(t, s)
	for _, c := range []struct {
		name string
		o    trust.Entry
		want string // "" where it counts
	}{
		{"not yet", trust.Entry{NotBefore: now.Add(time.Hour)}, "by the key k, not valid before 2026-08-01T13:00:00Z"},
		{"no longer", trust.Entry{NotAfter: now.Add(-time.Hour)}, "by the key k, expired 2026-08-01T11:00:00Z"},
		{"revoked", trust.Entry{Revoked: true}, "by the key k, revoked"},
		{"within", trust.Entry{NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}, ""},
		{"first moment", trust.Entry{NotBefore: now}, ""},
		{"last moment", trust.Entry{NotAfter: now}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			judged(verify(policy(t, 1, key(t, "k", s, c.o)), evidence))(t, c.want)
		})
	}
}

func TestRevokedDigestIsNeverAccepted(t *testing.T) {
	s, blobs := newSigner(t), store{}
	p := policy(t, 1, key(t, "release", s)).WithRevokedDigests(subject("root"), subject("blob"))
	untrusted(verify(p, blobs.by(t, s)))(t, "revoked this digest")
	sig := must(s.SignBlob([]byte("blob")))(t)
	untrusted(p.VerifyBlob([]byte("blob"), sig, now))(t, "revoked this digest")
}

func TestNothingIsAcceptedWithoutSignatureOrPolicy(t *testing.T) {
	s := newSigner(t)
	p := policy(t, 1, key(t, "release", s))
	_, err := verify(p, nil)
	requireUntrusted(t, err, "it has no signature; keys tried: release")
	require.Contains(t, fault.HintOf(err), image.Signatures.TagOf(subject("root")))
	untrusted(verify(p, []trust.Evidence{{}}))(t, "claims nothing")
	untrusted(p.VerifyBlob([]byte("x"), nil, now))(t, "it has no signature")
	_, err = p.Verify(image.Digest{}, nil, now)
	require.Error(t, err)
	untrusted(verify(new(trust.Policy), nil))(t, "the trust policy is empty")
	untrusted(verify((*trust.Policy)(nil), nil))(t, "the trust policy is empty")
	fails(trust.NewPolicy(1))(t, fault.InvalidInput)
	fails(trust.NewPolicy(0, key(t, "release", s)))(t, fault.InvalidInput)
}

// bundleOf makes a sigstore bundle of a statement, as cosign does with a key.
func bundleOf(t *testing.T, private crypto.Signer, payloadType string, statement any) []byte {
	t.Helper()
	payload := must(json.Marshal(statement))(t)
	h := crypto.SHA256.New()
	h.Write(dsse.PAE(payloadType, payload))
	sig := must(private.Sign(rand.Reader, h.Sum(nil), crypto.SHA256))(t)
	data := must(json.Marshal(map[string]any{
		"mediaType":            trust.BundleMediaType,
		"verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": "x"}},
		"dsseEnvelope": map[string]any{
			"payload": payload, "payloadType": payloadType, "signatures": []any{map[string]any{"sig": sig}},
		},
	}))(t)
	return data
}

func statement(predicate string, d image.Digest) map[string]any {
	return map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": predicate,
		"subject": []any{map[string]any{"digest": map[string]any{"sha256": d.Hex()}}},
	}
}

func TestOnlyTheSignPredicateAccepts(t *testing.T) {
	private, blobs, root := newECDSA(t, elliptic.P256()), store{}, subject("root")
	p := policy(t, 1, key(t, "release", signer(t, private)))
	const inToto = "application/vnd.in-toto+json"
	for _, c := range []struct {
		name, payloadType string
		statement         any
		want              string
	}{
		{"signature", inToto, statement(trust.SignPredicateType, root), ""},
		{"SBOM", inToto, statement("https://spdx.dev/Document", root), `an attestation of type "https://spdx.dev/Document"`},
		{"no predicate", inToto, statement("", root), "an attestation of type"},
		{"another digest", inToto, statement(trust.SignPredicateType, subject("other")), "of another digest"},
		{"another payload", "text/plain", statement(trust.SignPredicateType, root), `of a payload of type "text/plain"`},
		{"another statement", inToto, map[string]any{"_type": "x", "predicateType": trust.SignPredicateType}, "of a statement of type"},
		{"no JSON", inToto, "text", "damaged"},
		{"no subject", inToto, map[string]any{"_type": "https://in-toto.io/Statement/v1", "predicateType": trust.SignPredicateType}, "damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			layer := blobs.add(trust.BundleMediaType, bundleOf(t, private, c.payloadType, c.statement))
			judged(p.Verify(root, blobs.evidence(t, blobs.manifest(t, layer)), now))(t, c.want)
		})
	}
	// A time stamp would cover the first of two, and vouch for the other.
	two := strings.Replace(string(bundleOf(t, private, inToto, statement(trust.SignPredicateType, root))),
		`"signatures":[`, `"signatures":[{"sig":"AAAA"},`, 1)
	layer := blobs.add(trust.BundleMediaType, []byte(two))
	untrusted(p.Verify(root, blobs.evidence(t, blobs.manifest(t, layer)), now))(t, "with 2 signatures, not 1")
}

func TestClaimOfAnotherTypeDoesNotCount(t *testing.T) {
	s, blobs, root := newSigner(t), store{}, subject("root")
	p := policy(t, 1, key(t, "release", s))
	for _, c := range []struct{ claim, want string }{
		{`{"critical":{"image":{"docker-manifest-digest":"` + root.String() + `"},"type":"atomic container signature"}}`, "of a claim of type"},
		{`{"critical":{"image":{"docker-manifest-digest":"sha256:1"},"type":"cosign container image signature"}}`, "it claims the digest"},
		{`nothing`, "its claim is not JSON"},
	} {
		layer := blobs.add(trust.SimpleSigningMediaType, []byte(c.claim))
		sig := must(s.SignBlob([]byte(c.claim)))(t)
		layer.Annotations = map[string]string{trust.SignatureAnnotation: string(sig)}
		untrusted(p.Verify(root, blobs.evidence(t, blobs.manifest(t, layer)), now))(t, c.want)
	}
}

func TestDamagedSignaturesAreToldAndDoNotHideGoodOnes(t *testing.T) {
	s, blobs, root := newSigner(t), store{}, subject("root")
	p := policy(t, 1, key(t, "release", s))
	good := sign(t, s, root, nil)
	var m ocispec.Manifest
	require.NoError(t, json.Unmarshal(good.Node.Data, &m))
	blobs.keep(good)
	layer := m.Layers[0]

	damage := map[string]ocispec.Descriptor{}
	change := func(f func(d *ocispec.Descriptor)) ocispec.Descriptor {
		d := layer
		d.Annotations = map[string]string{trust.SignatureAnnotation: layer.Annotations[trust.SignatureAnnotation]}
		f(&d)
		return d
	}
	damage["its signature is missing"] = change(func(d *ocispec.Descriptor) { d.Annotations = nil })
	damage["its signature is not base64"] = change(func(d *ocispec.Descriptor) { d.Annotations[trust.SignatureAnnotation] = "%" })
	damage["is longer than 4096 bytes"] = change(func(d *ocispec.Descriptor) {
		d.Annotations[trust.SignatureAnnotation] = strings.Repeat("AAAA", 2000)
	})
	damage["by none of these keys"] = change(func(d *ocispec.Descriptor) {
		d.Annotations[trust.SignatureAnnotation] = base64.StdEncoding.EncodeToString([]byte("x"))
	})
	damage["bytes are missing"] = change(func(d *ocispec.Descriptor) { d.Size++ })
	damage["it claims"] = change(func(d *ocispec.Descriptor) { d.Size = 1 << 40 })
	damage["it is not a sha256 digest"] = change(func(d *ocispec.Descriptor) { d.Digest = "sha512:00" })
	damage["unreadable (fetch"] = change(func(d *ocispec.Descriptor) { d.Digest = digest.FromString("not there") })
	var all []ocispec.Descriptor
	for want, d := range damage {
		all = append(all, d)
		untrusted(p.Verify(root, blobs.evidence(t, blobs.manifest(t, d)), now))(t, want)
	}
	must(p.Verify(root, blobs.evidence(t, blobs.manifest(t, append(all, layer)...)), now))(t)

	tampered := change(func(*ocispec.Descriptor) {})
	blobs[tampered.Digest.String()] = append(bytes.Clone(blobs[tampered.Digest.String()][1:]), '}')
	_, err := p.Verify(root, blobs.evidence(t, blobs.manifest(t, tampered)), now)
	requireUntrusted(t, err, "unreadable (read "+tampered.Digest.String()+": expected ")
}

func TestFetchErrorsAreNotMistakenForMissingSignatures(t *testing.T) {
	away := &fault.Error{Reason: fault.Unreachable, Op: "fetch"}
	unreachable := fetchFunc(func(ocispec.Descriptor) (io.ReadCloser, error) { return nil, away })
	_, err := trust.ReadEvidence(t.Context(), unreachable, ocispec.Descriptor{Digest: digest.FromString("x"), Size: 1})
	require.ErrorIs(t, err, away)

	s, blobs := newSigner(t), store{}
	m := blobs.keep(sign(t, s, subject("root"), nil))
	onlyManifest := fetchFunc(func(d ocispec.Descriptor) (io.ReadCloser, error) {
		if d.Digest == m.Digest {
			return blobs.Fetch(t.Context(), d, 0)
		}
		return nil, away
	})
	_, err = trust.ReadEvidence(t.Context(), onlyManifest, m)
	require.ErrorIs(t, err, away)
	require.Equal(t, fault.Unreachable, fault.ReasonOf(err))
}

type fetchFunc func(d ocispec.Descriptor) (io.ReadCloser, error)

func (f fetchFunc) Fetch(_ context.Context, d ocispec.Descriptor, _ int64) (io.ReadCloser, error) {
	return f(d)
}

func TestEvidenceIsBounded(t *testing.T) {
	blobs := store{}
	layer := blobs.add(trust.SimpleSigningMediaType, []byte("{}"))
	many := make([]ocispec.Descriptor, 257)
	for i := range many {
		many[i] = layer
	}
	s := newSigner(t)
	p := policy(t, 1, key(t, "release", s))
	for why, d := range map[string]ocispec.Descriptor{
		"257 signatures are more than 256": blobs.manifest(t, many...),
		"it claims 1073741824 bytes":       {Digest: layer.Digest, Size: 1 << 30},
		"not an image manifest":            blobs.add("x", []byte("[")),
	} {
		untrusted(verify(p, blobs.evidence(t, d)))(t, "1 unreadable (", why)
	}
	untrusted(verify(p, make([]trust.Evidence, 1025)))(t, "1025 signatures are more than are checked")
	sig := must(s.SignBlob([]byte("x")))(t)
	untrusted(p.VerifyBlob([]byte("x"), bytes.Repeat(append(sig, '\n'), 257), now))(t, "more than 256 signatures")
}

func TestSigningAgainAddsNothingAndKeepsOthers(t *testing.T) {
	a, b, blobs, root := newSigner(t), newSigner(t), store{}, subject("root")
	first := sign(t, a, root, nil)
	blobs.keep(first)
	require.Equal(t, first, must(a.Sign(root, "mirror.site/vdo/drivers", first))(t))
	both := must(b.Sign(root, "", first))(t)
	for _, blob := range both.Blobs {
		require.NotNil(t, blob.Data, "those of before keep their bytes")
	}
	require.Len(t, blobs.evidence(t, blobs.keep(both)), 2)
	require.Equal(t, "sha256-"+root.Hex()+".sig", both.Tag)

	for name, existing := range map[string][]byte{
		"no manifest": []byte("x"), "an image": []byte(`{"schemaVersion":2,"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar"}]}`),
	} {
		_, err := a.Sign(root, "", tagged(existing))
		require.Equal(t, fault.Conflict, fault.ReasonOf(err), name)
	}
	_, err := a.Sign(image.Digest{}, "", bundle.Referrer{})
	require.Error(t, err)
	_, err = a.Sign(root, "NOT A NAME", bundle.Referrer{})
	require.Error(t, err)
}

func TestPrivateKeysOfAllForms(t *testing.T) {
	ec := newECDSA(t, elliptic.P256())
	rsaKey := must(rsa.GenerateKey(rand.Reader, 2048))(t)
	sec1 := must(x509.MarshalECPrivateKey(ec))(t)
	sealed, public, err := trust.GenerateKey([]byte("secret"))
	require.NoError(t, err)
	cosign := bytes.ReplaceAll(sealed, []byte("SIGSTORE"), []byte("COSIGN"))
	params := []byte("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n")
	secret := func() ([]byte, error) { return []byte("secret"), nil }
	for name, data := range map[string][]byte{
		"PKCS #8": pemOf(t, ec), "SEC 1": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1}),
		"SEC 1 with parameters": append(params, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1})...),
		"PKCS #1":               pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)}),
		"sigstore":              sealed, "cosign": cosign,
	} {
		t.Run(name, func(t *testing.T) {
			s := must(trust.LoadSigner("k.pem", data, secret))(t)
			sig := must(s.SignBlob([]byte("x")))(t)
			must(policy(t, 1, key(t, "k", s)).VerifyBlob([]byte("x"), sig, now))(t)
		})
	}
	s := must(trust.LoadSigner("k.pem", sealed, secret))(t)
	require.Equal(t, string(public), string(s.PublicPEM()))
}

func TestBadPrivateKeysAreExplained(t *testing.T) {
	sealed, public, err := trust.GenerateKey([]byte("secret"))
	require.NoError(t, err)
	small := must(rsa.GenerateKey(rand.Reader, 1024))(t)
	block := func(kind string, body []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: body}) }
	type scheme struct {
		ID         asn1.ObjectIdentifier
		Parameters any
	}
	pbes2 := func(iterations int, iv, data []byte) []byte {
		derivation := scheme{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 12}, struct {
			Salt       []byte
			Iterations int
		}{[]byte("salt"), iterations}}
		aes256 := scheme{asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 1, 42}, iv}
		return block("ENCRYPTED PRIVATE KEY", must(asn1.Marshal(struct {
			Scheme scheme
			Data   []byte
		}{scheme{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 5, 13}, []scheme{derivation, aes256}}, data}))(t))
	}
	ask, whole := func() ([]byte, error) { return []byte("secret"), nil }, make([]byte, 16)
	for _, c := range []struct {
		name     string
		data     []byte
		password func() ([]byte, error)
		reason   fault.Reason
		want     string
	}{
		{"wrong password", sealed, func() ([]byte, error) { return []byte("other"), nil }, fault.Unauthorized, "does not open"},
		{"no password", sealed, nil, fault.Unauthorized, "does not open"},
		{"public", public, nil, fault.InvalidInput, "no PEM block of a private key"},
		{"nothing", nil, nil, fault.InvalidInput, "no PEM block"},
		{"huge", bytes.Repeat([]byte("x"), 1<<20), nil, fault.InvalidInput, "longer than"},
		{"small", block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(small)), nil, fault.InvalidInput, "1024 bits"},
		{"no PBES2", block("ENCRYPTED PRIVATE KEY", []byte("x")), ask, fault.InvalidInput, "openssl pkcs8 -topk8"},
		{"PBES2, not of this key", pbes2(1, whole, whole), ask, fault.Unauthorized, "does not open"},
		{"PBES2 with a short IV", pbes2(1, whole[:8], whole), ask, fault.InvalidInput, "openssl pkcs8 -topk8"},
		{"PBES2 cut off", pbes2(1, whole, whole[:15]), ask, fault.InvalidInput, "openssl pkcs8 -topk8"},
		{"PBES2 without iterations", pbes2(0, whole, whole), ask, fault.InvalidInput, "openssl pkcs8 -topk8"},
		{"costly PBES2", pbes2(1<<30, whole, whole), ask, fault.InvalidInput, "openssl pkcs8 -topk8"},
		{"openssl's old form", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: []byte("x")}),
			nil, fault.InvalidInput, "4,ENCRYPTED"},
		{"kind", block("DSA PRIVATE KEY", []byte("x")), nil, fault.InvalidInput, `"DSA PRIVATE KEY" is not supported`},
		{"damaged", block("PRIVATE KEY", []byte("x")), nil, fault.InvalidInput, "cannot be read"},
		{"damaged seal", block("ENCRYPTED SIGSTORE PRIVATE KEY", []byte("x")),
			func() ([]byte, error) { return nil, nil }, fault.InvalidInput, "cannot be read"},
		{"costly seal", block("ENCRYPTED SIGSTORE PRIVATE KEY", []byte(`{"kdf":{"name":"scrypt","params":{"N":1073741824,"r":8,"p":1}},"cipher":{"name":"nacl/secretbox"}}`)),
			func() ([]byte, error) { return nil, nil }, fault.InvalidInput, "scrypt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := trust.LoadSigner("k.pem", c.data, c.password)
			require.Equal(t, c.reason, fault.ReasonOf(err))
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "k.pem")
			require.NotEmpty(t, fault.HintOf(err))
		})
	}
}

type refusing struct{ crypto.Signer }

func (refusing) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return nil, errors.New("logged out")
}

func TestATokenThatRefusesToSignIsNoDefect(t *testing.T) {
	s := must(trust.NewSigner("pkcs11:object=k", refusing{newECDSA(t, elliptic.P256())}))(t)
	_, err := s.SignBlob([]byte("x"))
	require.EqualError(t, err, "sign with pkcs11:object=k: logged out")
	require.Equal(t, fault.Unreachable, fault.ReasonOf(err))
	require.NotEmpty(t, fault.HintOf(err))
}

// Why there is no password is known to who was asked: its reason and hint stay.
func TestErrorOfAskingForThePasswordStays(t *testing.T) {
	sealed, _, err := trust.GenerateKey([]byte("secret"))
	require.NoError(t, err)
	_, err = trust.LoadSigner("k.pem", sealed, func() ([]byte, error) {
		return nil, &fault.Error{Reason: fault.NotFound, Op: "read", Subject: "pass", Hint: "name the file", Err: errors.New("no such file")}
	})
	require.Equal(t, fault.NotFound, fault.ReasonOf(err))
	require.Equal(t, "name the file", fault.HintOf(err))
	require.EqualError(t, err, "read private key k.pem: read pass: no such file")
}

// What openssl writes is read, with every hash that it has for the password.
func TestEncryptedPKCS8OfOpenSSL(t *testing.T) {
	openssl := toolchain.Installed(t, "openssl")
	for kind, private := range keysOfAllKinds(t) {
		for _, args := range [][]string{
			{"-v2", "aes-256-cbc"}, {"-v2", "aes-128-cbc", "-v2prf", "hmacWithSHA1"}, {"-v2", "aes-192-cbc", "-v2prf", "hmacWithSHA512"},
		} {
			t.Run(kind+strings.Join(args, " "), func(t *testing.T) {
				cmd := exec.CommandContext(t.Context(), openssl, append([]string{"pkcs8", "-topk8", "-passout", "env:PASS"}, args...)...)
				cmd.Env = append(os.Environ(), "PASS=secret")
				cmd.Stdin = bytes.NewReader(pemOf(t, private))
				sealed := must(cmd.Output())(t)
				require.Contains(t, string(sealed), "BEGIN ENCRYPTED PRIVATE KEY")
				s := must(trust.LoadSigner("k.pem", sealed, func() ([]byte, error) { return []byte("secret"), nil }))(t)
				require.Equal(t, signer(t, private).PublicPEM(), s.PublicPEM())
				_, err := trust.LoadSigner("k.pem", sealed, func() ([]byte, error) { return []byte("other"), nil })
				require.Equal(t, fault.Unauthorized, fault.ReasonOf(err), "%v", err)
			})
		}
	}
}

func FuzzLoadSigner(f *testing.F) {
	sealed, _, err := trust.GenerateKey(nil)
	require.NoError(f, err)
	f.Add(sealed)
	f.Add(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte{0x30, 0}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		// The password is not given: deriving a key from it is slow by design.
		_, err := trust.LoadSigner("k", data, func() ([]byte, error) { return nil, errors.New("not asked") })
		if err != nil {
			require.NotEqual(t, fault.Reason(""), fault.ReasonOf(err))
		}
	})
}

func TestPrintingASignerPrintsNoPrivateKey(t *testing.T) {
	private := newECDSA(t, elliptic.P256())
	s := signer(t, private)
	raw := must(private.Bytes())(t)
	text := fmt.Sprintf("%v %+v %#v %s", s, s, s, s)
	for _, form := range []string{"%x", "%X", "%v", "%s"} {
		require.NotContains(t, text, fmt.Sprintf(form, raw))
	}
	require.Contains(t, text, "signer ")
}

func TestBadPublicKeysAreExplained(t *testing.T) {
	good := publicKey(t)
	small := must(rsa.GenerateKey(rand.Reader, 1024))(t)
	smallDER := must(x509.MarshalPKIXPublicKey(small.Public()))(t)
	const whole, pub, kinds = "shows a whole policy", "give the .pub file", "use an ECDSA key"
	p224 := must(x509.MarshalPKIXPublicKey(newECDSA(t, elliptic.P224()).Public()))(t)
	block := func(kind string, body []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: body}) }
	for _, c := range []struct {
		name string
		e    trust.Entry
		data []byte
		want string
		hint string // a part of it
	}{
		{"no id", trust.Entry{}, good, "no id", whole},
		{"bad id", trust.Entry{ID: "a b"}, good, "not a name", whole},
		{"times", trust.Entry{ID: "k", NotBefore: now, NotAfter: now}, good, "notBefore is not before notAfter (swap them)", whole},
		{"private", trust.Entry{ID: "k"}, pemOf(t, newECDSA(t, elliptic.P256())), "it is a private key", pub},
		{"certificate", trust.Entry{ID: "k"}, block("CERTIFICATE", nil), "it is a certificate", pub},
		{"two", trust.Entry{ID: "k"}, append(bytes.Clone(good), good...), "after the first PEM block", pub},
		{"nothing", trust.Entry{ID: "k"}, nil, "no PEM block", pub},
		{"huge", trust.Entry{ID: "k"}, bytes.Repeat(good, 1000), "longer than", pub},
		{"small", trust.Entry{ID: "k"}, block("PUBLIC KEY", smallDER), "1024 bits", kinds},
		{"curve", trust.Entry{ID: "k"}, block("PUBLIC KEY", p224), "P-224", kinds},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, err := trust.NewKey(c.e, c.data)
			fails(k, err)(t, fault.InvalidInput, c.want)
			require.Contains(t, fault.HintOf(err), c.hint)
			require.Zero(t, k)
		})
	}
}

// All of the evidence together is bounded before it is read, by number and by size.
func TestEvidenceIsBoundedOverAllManifests(t *testing.T) {
	blobs, fetched := store{}, 0
	counting := fetchFunc(func(d ocispec.Descriptor) (io.ReadCloser, error) {
		fetched++
		return blobs.Fetch(t.Context(), d, 0)
	})
	small := blobs.manifest(t, slices.Repeat([]ocispec.Descriptor{blobs.add(trust.SimpleSigningMediaType, []byte("{}"))}, 250)...)
	found, err := trust.ReadEvidence(t.Context(), counting, small, small, small, small, small)
	requireUntrusted(t, err, "there are more than 1024")
	require.Empty(t, found)

	fetched = 0
	large := blobs.manifest(t, blobs.add(trust.SimpleSigningMediaType, bytes.Repeat([]byte("x"), 127<<10)))
	_, err = trust.ReadEvidence(t.Context(), counting, slices.Repeat([]ocispec.Descriptor{large}, 200)...)
	requireUntrusted(t, err, "or more than 16777216 bytes")
	require.Less(t, fetched, 2*140)
}
