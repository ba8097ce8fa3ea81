package trust_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	"github.com/sigstore/timestamp-authority/v2/pkg/verification"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

var codeSigning = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}

// stamping is what the certificate of a time-stamping authority says.
var stamping = pki.Spec{Name: "TSA", Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping}}

// office is a private PKI: a root, an issuing authority, and one who signs.
type office struct{ root, issuer, leaf pki.Authority }

func newOffice(t *testing.T) office {
	t.Helper()
	root := pki.Root(t, "Corp Root")
	issuer := root.Issue(t, pki.Spec{Name: "Corp Issuing", CA: true})
	return office{root, issuer, issuer.Issue(t, pki.Spec{Name: "signer", Email: []string{"release@corp.example"}, Usage: codeSigning})}
}

func (o office) ca(t *testing.T, given ...trust.CA) trust.CA {
	t.Helper()
	a := append(given, trust.CA{})[0]
	a.ID = "corp"
	if a.Roots == nil {
		a.Roots = o.root.PEM()
	}
	if a.Identities == nil {
		a.Identities = []trust.Identity{{Email: "release@corp.example"}}
	}
	return a
}

func certificates(t *testing.T, threshold int, authorities ...trust.CA) *trust.Policy {
	t.Helper()
	return composed(t, threshold, nil, authorities...)
}

func composed(t testing.TB, threshold int, keys []trust.Key, authorities ...trust.CA) *trust.Policy {
	t.Helper()
	text := must(yaml.Marshal(map[string]any{
		"apiVersion": trust.PolicyAPIVersion, "kind": trust.PolicyKind,
		"threshold": threshold, "keys": keys, "certificates": authorities,
	}))(t)
	return must(trust.ParsePolicy("policy.yaml", text, nil))(t)
}

// signer signs with the certificate of a leaf.
func (o office) signer(t *testing.T, leaf pki.Authority, at time.Time) *trust.Signer {
	t.Helper()
	chain := append(o.issuer.PEM(), o.root.PEM()...)
	return must(signer(t, leaf.Key).WithCertificate("signer.crt", leaf.PEM(), chain, at))(t)
}

// certified signs with a certificate and returns the evidence; change may alter the
// signature's layer.
func (o office) certified(t *testing.T, blobs store, leaf pki.Authority, change func(layer map[string]string)) []trust.Evidence {
	s := signer(t, leaf.Key)
	signed := sign(t, s, subject("root"), nil)
	var m ocispec.Manifest
	require.NoError(t, json.Unmarshal(signed.Node.Data, &m))
	m.Layers[0].Annotations[trust.CertificateAnnotation] = string(leaf.PEM())
	m.Layers[0].Annotations[trust.ChainAnnotation] = string(o.issuer.PEM())
	if change != nil {
		change(m.Layers[0].Annotations)
	}
	blobs.keep(signed)
	return blobs.evidence(t, blobs.manifest(t, m.Layers...))
}

func rawSignature(t *testing.T, layer map[string]string) []byte {
	t.Helper()
	return must(base64.StdEncoding.DecodeString(layer[trust.SignatureAnnotation]))(t)
}

func stamped(layer map[string]string, stamp []byte) {
	layer[trust.TimestampAnnotation] = fmt.Sprintf(`{"SignedRFC3161Timestamp":%q}`, base64.StdEncoding.EncodeToString(stamp))
}

// Each way in which a certificate is not the one that the policy means.
func TestCertificatesThatDoNotCount(t *testing.T) {
	o := newOffice(t)
	stranger := newOffice(t)
	who := func(s pki.Spec) pki.Authority { return o.issuer.Issue(t, s) }
	email := []string{"release@corp.example"}
	for _, c := range []struct {
		name    string
		leaf    pki.Authority
		options trust.CA
		change  func(map[string]string)
		want    string
	}{
		{"another root", stranger.leaf, trust.CA{}, func(l map[string]string) {
			l[trust.ChainAnnotation] = string(stranger.issuer.PEM()) + string(stranger.root.PEM())
		}, "that the CA corp has not issued"},
		{"another leaf of the authority", who(pki.Spec{Email: []string{"intern@corp.example"}, Usage: codeSigning}), trust.CA{}, nil,
			"intern@corp.example"},
		{"an identity that only ends like it", who(pki.Spec{Email: []string{"not-release@corp.example"}, Usage: codeSigning}), trust.CA{}, nil,
			"none of the identities of corp"},
		{"an identity of another kind", who(pki.Spec{DNS: []string{"release@corp.example"}, Usage: codeSigning}), trust.CA{}, nil,
			"none of the identities of corp"},
		{"an identity in the common name", who(pki.Spec{Name: "release@corp.example", Usage: codeSigning}), trust.CA{}, nil,
			"by a certificate of no identity"},
		{"another use", who(pki.Spec{Email: email, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}), trust.CA{}, nil,
			"did not issue for codeSigning"},
		{"any use", who(pki.Spec{Email: email, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}), trust.CA{}, nil,
			"did not issue for codeSigning"},
		{"no use", who(pki.Spec{Email: email}), trust.CA{}, nil, "did not issue for codeSigning"},
		{"an authority's own", o.root.Issue(t, pki.Spec{Name: "sub", CA: true, Email: email, Usage: codeSigning}), trust.CA{}, nil,
			"did not issue for codeSigning"},
		{"no chain", o.leaf, trust.CA{}, func(l map[string]string) { delete(l, trust.ChainAnnotation) }, "has not issued"},
		{"no certificate", o.leaf, trust.CA{}, func(l map[string]string) { delete(l, trust.CertificateAnnotation) }, "by none of these keys"},
		{"the certificate of somebody else", o.leaf, trust.CA{}, func(l map[string]string) {
			l[trust.CertificateAnnotation] = string(who(pki.Spec{Email: email, Usage: codeSigning}).PEM())
		}, "by another key than that of its certificate"},
		{"two certificates", o.leaf, trust.CA{}, func(l map[string]string) { l[trust.CertificateAnnotation] += string(o.root.PEM()) }, "there are 2"},
		{"a damaged certificate", o.leaf, trust.CA{}, func(l map[string]string) { l[trust.CertificateAnnotation] = "x" }, "not a PEM block"},
		{"a long chain", o.leaf, trust.CA{}, func(l map[string]string) {
			l[trust.ChainAnnotation] = strings.Repeat(string(o.issuer.PEM()), 20)
		}, "more than 16 certificates"},
		{"a huge chain", o.leaf, trust.CA{}, func(l map[string]string) { l[trust.ChainAnnotation] = strings.Repeat("x", 1<<17) }, "longer than"},
		{"revoked by serial", o.leaf, trust.CA{RevokedSerials: []string{o.leaf.Certificate.SerialNumber.Text(16)}}, nil, "revoked"},
		{"its issuer revoked by serial", o.leaf, trust.CA{RevokedSerials: []string{o.issuer.Certificate.SerialNumber.Text(16)}}, nil, "revoked"},
		{"the entry revoked", o.leaf, trust.CA{Entry: trust.Entry{Revoked: true}}, nil, "of the CA corp, revoked"},
		{"the entry out of time", o.leaf, trust.CA{Entry: trust.Entry{NotAfter: now.Add(-time.Hour)}}, nil, "expired 2026-08-01T11"},
		{"not yet valid", who(pki.Spec{Email: email, Usage: codeSigning, NotBefore: now.Add(time.Hour)}), trust.CA{},
			nil, "is not valid before 2026-08-01T13:00:00Z, and the clock here says 2026-08-01T12:00:00Z"},
		{"another object identifier", o.leaf, trust.CA{ExtendedKeyUsage: "1.3.6.1.4.1.99999.1"}, nil, "did not issue for 1.3.6.1.4.1.99999.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := certificates(t, 1, o.ca(t, c.options))
			untrusted(verify(p, o.certified(t, store{}, c.leaf, c.change)))(t, c.want)
		})
	}
}

func TestIdentitiesAndUsagesOfAllKinds(t *testing.T) {
	o := newOffice(t)
	oid := asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 99999, 1}
	for _, c := range []struct {
		name    string
		leaf    pki.Spec
		options trust.CA
	}{
		{"uri", pki.Spec{URI: []string{"spiffe://corp/release"}, Usage: codeSigning}, trust.CA{Identities: []trust.Identity{{URI: "spiffe://corp/release"}}}},
		{"dns", pki.Spec{DNS: []string{"a", "build.corp.example"}, Usage: codeSigning}, trust.CA{Identities: []trust.Identity{{DNS: "x"}, {DNS: "build.corp.example"}}}},
		{"client", pki.Spec{DNS: []string{"b"}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
			trust.CA{Identities: []trust.Identity{{DNS: "b"}}, ExtendedKeyUsage: "clientAuth"}},
		{"own use", pki.Spec{DNS: []string{"b"}, UnknownUsage: []asn1.ObjectIdentifier{oid}},
			trust.CA{Identities: []trust.Identity{{DNS: "b"}}, ExtendedKeyUsage: oid.String()}},
		{"a known use by its identifier", pki.Spec{DNS: []string{"b"}, Usage: codeSigning},
			trust.CA{Identities: []trust.Identity{{DNS: "b"}}, ExtendedKeyUsage: "1.3.6.1.5.5.7.3.3"}},
		{"intermediates of the policy", pki.Spec{DNS: []string{"b"}, Usage: codeSigning},
			trust.CA{Identities: []trust.Identity{{DNS: "b"}}, Intermediates: o.issuer.PEM()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			evidence := o.certified(t, store{}, o.issuer.Issue(t, c.leaf), func(l map[string]string) {
				if c.options.Intermediates != nil {
					delete(l, trust.ChainAnnotation)
				}
			})
			must(verify(certificates(t, 1, o.ca(t, c.options)), evidence))(t)
		})
	}
}

func TestExpiredCertificateNeedsATrustedTimeStamp(t *testing.T) {
	o := newOffice(t)
	stampRoot := pki.Root(t, "TSA Root")
	tsa := stampRoot.Issue(t, stamping)
	ended := now.Add(-24 * time.Hour)
	leaf := o.issuer.Issue(t, pki.Spec{Email: []string{"release@corp.example"}, Usage: codeSigning, NotAfter: ended})
	before, after := ended.Add(-time.Hour), ended.Add(time.Hour)
	stampers := trust.CA{TimestampRoots: stampRoot.PEM()}
	// An authority that issues for several uses: its code-signing leaves are no clocks.
	mixed := stampRoot.Issue(t, pki.Spec{Name: "code", Usage: codeSigning})

	// The forgery is one that a verifier falls for which looks at the first certificate:
	// as a time stamp it is whole, and all that the library has against it is the use of
	// its signer.
	_, err := verification.VerifyTimestampResponse(mixed.StampWith(t, []byte("x"), before, tsa, mixed), strings.NewReader("x"),
		verification.VerifyOpts{Roots: []*x509.Certificate{stampRoot.Certificate}})
	require.ErrorContains(t, err, "key usage")
	// Nor are authorities' own certificates clocks, which may issue them.
	sub := stampRoot.Issue(t, pki.Spec{Name: "Sub", CA: true})
	other := stampRoot.Issue(t, pki.Spec{Name: "other", CA: true, Usage: codeSigning})
	spent := stampRoot.Issue(t, pki.Spec{Name: "TSA", Usage: stamping.Usage, NotAfter: ended})
	short := stampRoot.Issue(t, pki.Spec{Name: "TSA", Usage: stamping.Usage, NotAfter: before.Add(-time.Hour)})

	for _, c := range []struct {
		name    string
		options trust.CA
		stamp   func(signature []byte) []byte
		want    string // "" is accepted
	}{
		{"stamped in time", stampers, func(s []byte) []byte { return tsa.Stamp(t, s, before) }, ""},
		{"no authority", trust.CA{}, nil, "has no time-stamping authority"},
		{"no stamp", stampers, nil, "the signature has no time stamp"},
		{"stamped too late", stampers, func(s []byte) []byte { return tsa.Stamp(t, s, after) }, "no time stamp by an authority of corp"},
		{"of another signature", stampers, func([]byte) []byte { return tsa.Stamp(t, []byte("other"), before) }, "no time stamp by an authority of corp"},
		{"by a stranger", stampers, func(s []byte) []byte { return pki.Root(t, "x").Issue(t, stamping).Stamp(t, s, before) }, "no time stamp by"},
		{"by a leaf for another use", stampers, func(s []byte) []byte { return mixed.Stamp(t, s, before) }, "no time stamp by"},
		{"by a leaf for another use that hides behind the right one", stampers, func(s []byte) []byte {
			return mixed.StampWith(t, s, before, tsa, mixed)
		}, "no time stamp by"},
		{"by an authority that hides behind the right one", stampers, func(s []byte) []byte {
			return sub.StampWith(t, s, before, tsa, sub)
		}, "no time stamp by"},
		{"with other certificates along", stampers, func(s []byte) []byte {
			return sub.Issue(t, stamping).StampWith(t, s, before, mixed, other, sub)
		}, "no time stamp by"}, // its own is not there
		{"by one below another authority", stampers, func(s []byte) []byte {
			leaf := sub.Issue(t, stamping)
			return leaf.StampWith(t, s, before, mixed, other, leaf, sub)
		}, ""},
		{"by one below an authority for another use", stampers, func(s []byte) []byte {
			leaf := other.Issue(t, stamping)
			return leaf.StampWith(t, s, before, leaf, other)
		}, "no time stamp by"},
		{"at a time at which its certificate had expired", stampers, func(s []byte) []byte { return short.Stamp(t, s, before) }, "no time stamp by"},
		{"without a time beside the one that it gives, by one whose certificate has expired since", stampers, func(s []byte) []byte {
			digest := sha256.Sum256(s)
			along := []*x509.Certificate{spent.Certificate}
			stamp := pki.Stamp{Digest: digest[:], Time: before, Certificates: along, NoSigningTime: true}
			return must(spent.Answer(stamp))(t)
		}, ""},
		{"without its certificate, which the policy does not have", stampers, func(s []byte) []byte { return tsa.StampWith(t, s, before) }, "no time stamp by"},
		{"without its certificate, which the policy has", trust.CA{TimestampRoots: append(stampRoot.PEM(), tsa.PEM()...)},
			func(s []byte) []byte { return tsa.StampWith(t, s, before) }, ""},
		{"of the future", stampers, func(s []byte) []byte { return tsa.Stamp(t, s, now.Add(time.Hour)) }, "no time stamp by"},
		{"damaged", stampers, func([]byte) []byte { return []byte{0x30, 0x80, 0x30, 0x80} }, "no time stamp by"},
		{"huge", stampers, func([]byte) []byte { return make([]byte, 100<<10) }, "damaged certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			evidence := o.certified(t, store{}, leaf, func(l map[string]string) {
				if c.stamp != nil {
					stamped(l, c.stamp(rawSignature(t, l)))
				}
			})
			v, err := verify(certificates(t, 1, o.ca(t, c.options)), evidence)
			judged(v, err)(t, c.want)
			if c.want == "" {
				require.Regexp(t, `^corp: key sha256:\w{64}, email release@corp.example, certificate until `+
					ended.Format(time.RFC3339)+`, stamped `+before.Format(time.RFC3339)+`$`, v.Signers()[0].String())
			}
		})
	}
}

// A new bundle with a certificate: the same rules.
func TestSigstoreBundleWithCertificateChain(t *testing.T) {
	o := newOffice(t)
	bundle := func(leaf pki.Authority, predicate string) []trust.Evidence {
		payload := must(json.Marshal(statement(predicate, subject("root"))))(t)
		sig := must(signer(t, leaf.Key).SignBlob(dsse.PAE("application/vnd.in-toto+json", payload)))(t)
		raw := must(base64.StdEncoding.DecodeString(string(sig)))(t)
		data, err := protojson.Marshal(&protobundle.Bundle{
			MediaType: trust.BundleMediaType,
			VerificationMaterial: &protobundle.VerificationMaterial{Content: &protobundle.VerificationMaterial_X509CertificateChain{
				X509CertificateChain: &protocommon.X509CertificateChain{Certificates: []*protocommon.X509Certificate{
					{RawBytes: leaf.Certificate.Raw}, {RawBytes: o.issuer.Certificate.Raw},
				}},
			}},
			Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
				Payload: payload, PayloadType: "application/vnd.in-toto+json", Signatures: []*protodsse.Signature{{Sig: raw}},
			}},
		})
		require.NoError(t, err)
		blobs := store{}
		return blobs.evidence(t, blobs.manifest(t, blobs.add(trust.BundleMediaType, data)))
	}
	p := certificates(t, 1, o.ca(t))
	must(verify(p, bundle(o.leaf, trust.SignPredicateType)))(t)
	untrusted(verify(p, bundle(o.leaf, "https://spdx.dev/Document")))(t, "an attestation of type")
	untrusted(verify(p, bundle(newOffice(t).leaf, trust.SignPredicateType)))(t, "has not issued")
}

func TestThresholdOverKeysAndCertificates(t *testing.T) {
	o, blobs := newOffice(t), store{}
	alice := o.issuer.Issue(t, pki.Spec{Email: []string{"alice@corp.example"}, Usage: codeSigning})
	alice2 := o.issuer.Issue(t, pki.Spec{Email: []string{"alice@corp.example"}, Usage: codeSigning})
	both := o.issuer.Issue(t, pki.Spec{Email: []string{"alice@corp.example", "bob@corp.example"}, Usage: codeSigning})
	bob := o.issuer.Issue(t, pki.Spec{Email: []string{"bob@corp.example"}, Usage: codeSigning})
	entry := func(id string, names ...string) trust.CA {
		a := trust.CA{Entry: trust.Entry{ID: id}, Roots: o.root.PEM()}
		for _, n := range names {
			a.Identities = append(a.Identities, trust.Identity{Email: n + "@corp.example"})
		}
		return a
	}
	by := func(leaves ...pki.Authority) (all []trust.Evidence) {
		for _, leaf := range leaves {
			all = append(all, o.certified(t, blobs, leaf, nil)...)
		}
		return all
	}
	two := certificates(t, 2, entry("alice", "alice"), entry("bob", "bob"))
	untrusted(verify(two, by(alice, alice2)))(t, "signed by 1 distinct key (alice)")
	untrusted(verify(two, by(both)))(t, "signed by 1 distinct key")
	v, err := verify(two, by(both, alice))
	require.NoError(t, err, "two keys, which two entries can be paired with")
	require.Equal(t, []string{"alice", "bob"}, v.Keys())
	must(verify(two, by(alice, bob)))(t)

	// One entry counts once; a key counts once, as a key and with its certificate.
	team := composed(t, 2, []trust.Key{key(t, "key", signer(t, alice.Key))}, entry("team", "alice", "bob"))
	untrusted(verify(team, by(alice)))(t, "signed by 1 distinct key")
	untrusted(verify(team, by(bob, alice2)))(t, "signed by 1 distinct key (team)")
	must(verify(team, by(alice, bob)))(t)

	// A revoked key does not come back with a certificate.
	revoked := composed(t, 1, []trust.Key{key(t, "key", signer(t, alice.Key), trust.Entry{Revoked: true})},
		entry("team", "alice", "bob"))
	_, err = verify(revoked, by(alice))
	requireUntrusted(t, err, "whose key is revoked")
	require.Contains(t, fault.HintOf(err), "that counts now")
}

func TestBadAuthoritiesAreExplained(t *testing.T) {
	o := newOffice(t)
	head := header + "certificates:\n- id: corp\n"
	roots := "  roots: |\n" + indent(string(o.root.PEM()))
	names := "  identities:\n  - email: a@b\n"
	for _, c := range []struct{ name, text, want string }{
		{"no identities", head + roots, "every certificate of the CA would be accepted"},
		{"an identity of two", head + roots + "  identities:\n  - {email: a, dns: b}\n", "exactly one of email, uri and dns"},
		{"a regular expression", head + roots + "  identities:\n  - email: '.*@corp'\n", "not an exact name"},
		{"no roots", head + names, "it has no roots"},
		{"a leaf as root", head + "  roots: |\n" + indent(string(o.leaf.PEM())) + names, "is not a CA's"},
		{"a key as root", head + "  roots: |\n" + indent(string(o.leaf.KeyPEM())) + names, "is not a certificate"},
		{"both", head + roots + "  rootsFile: x\n" + names, "not both"},
		{"absent file", head + "  rootsFile: x\n" + names, "by file cannot be read here"},
		{"a use", head + roots + names + "  extendedKeyUsage: everything\n", "is none of codeSigning"},
		{"a serial", head + roots + names + "  revokedSerials: [xyz]\n", "not a serial number in hex"},
		{"stamps without root", head + roots + names + "  timestampRoots: |\n" + indent(string(o.issuer.PEM())), "none of its certificates is self-signed"},
		{"no id", header + "certificates:\n- id: ''\n" + roots + names, "it has no id"},
		{"one id twice", head + roots + names + "- id: corp\n" + roots + "  identities:\n  - email: c@d\n", `two entries have the id "corp"`},
		{"one identity twice", head + roots + names + "- id: b\n" + roots + names, "email a@b is in two entries, corp and b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fails(trust.ParsePolicy("policy.yaml", []byte(c.text), nil))(t, "", c.want, "policy.yaml")
		})
	}
	p, err := trust.ParsePolicy("policy.yaml", []byte(head+roots+names+"  intermediatesFile: i\n  extendedKeyUsage: emailProtection\n  revokedSerials: ['1f:03']\n  notAfter: 2030-01-01T00:00:00Z\n"),
		func(string) ([]byte, error) { return o.issuer.PEM(), nil })
	require.NoError(t, err)
	require.Contains(t, written(t, p), "1f:03")
}

func TestBadCertificatesToSignWithAreExplained(t *testing.T) {
	o := newOffice(t)
	s := signer(t, o.leaf.Key)
	mine := func(s pki.Spec) []byte {
		s.Key = o.leaf.Key
		return o.issuer.Issue(t, s).PEM()
	}
	for _, c := range []struct {
		name        string
		leaf, chain []byte
		at          time.Time
		want        string
	}{
		{"nothing", nil, nil, now, "there is no certificate"},
		{"another key", o.root.PEM(), nil, now, "for another key"},
		{"a key", o.leaf.KeyPEM(), nil, now, "is not a certificate"},
		{"disorder", o.leaf.PEM(), append(o.root.PEM(), o.issuer.PEM()...), now, `"CN=Corp Root" did not issue "CN=signer"`},
		{"expired", o.leaf.PEM(), o.issuer.PEM(), now.AddDate(20, 0, 0), "not now"},
		{"no usage", mine(pki.Spec{Email: []string{"release@corp.example"}}), nil, now, "no policy can accept"},
		{"no name", mine(pki.Spec{Name: "signer", Usage: codeSigning}), nil, now, "no policy can accept"},
		{"early", o.leaf.PEM(), o.issuer.PEM(), now.AddDate(-20, 0, 0), "it is valid from 2020"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fails(s.WithCertificate("signer.crt", c.leaf, c.chain, c.at))(t, "", c.want, "signer.crt")
		})
	}
}

// An authority has two certificates for one key. What the policy revokes is held against
// the way to the root that held when the signature was made, not against one that had
// ended by then.
func TestRevocationIsOfTheWayThatHeldAtTheStampsTime(t *testing.T) {
	o := newOffice(t)
	day := 24 * time.Hour
	stampRoot := pki.Root(t, "TSA Root")
	tsa := stampRoot.Issue(t, stamping)
	leaf := o.issuer.Issue(t, pki.Spec{Email: []string{"release@corp.example"}, Usage: codeSigning, NotBefore: now.Add(-30 * day), NotAfter: now.Add(-day)})
	ended := o.root.Issue(t, pki.Spec{
		Name: o.issuer.Certificate.Subject.CommonName, CA: true, Key: o.issuer.Key, NotBefore: now.Add(-40 * day), NotAfter: now.Add(-20 * day),
	})
	a := o.ca(t, trust.CA{TimestampRoots: stampRoot.PEM(), RevokedSerials: []string{o.issuer.Certificate.SerialNumber.Text(16)}})
	verify := func(made time.Time) error {
		evidence := o.certified(t, store{}, leaf, func(l map[string]string) {
			l[trust.ChainAnnotation] = string(append(o.issuer.PEM(), ended.PEM()...))
			stamped(l, tsa.Stamp(t, rawSignature(t, l), made))
		})
		_, err := verify(certificates(t, 1, a), evidence)
		return err
	}
	require.NoError(t, verify(now.Add(-25*day)), "there was a way without it then")
	requireUntrusted(t, verify(now.Add(-10*day)), "that the policy has revoked")
	// The chain of an issuer whose certificate was renewed after the leaf was issued.
	ended = o.root.Issue(t, pki.Spec{
		Name: o.issuer.Certificate.Subject.CommonName, CA: true, Key: o.issuer.Key, NotBefore: now.Add(-20 * day),
	})
	o.issuer, a = ended, o.ca(t, trust.CA{TimestampRoots: stampRoot.PEM()})
	require.NoError(t, verify(now.Add(-10*day)), "a stamp of a time at which the renewed one was valid")
}
