package trust_test

import (
	"bytes"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

func TestSignedFilesCarryCertificateAndTimeStamp(t *testing.T) {
	o := newOffice(t)
	tsaRoot := pki.Root(t, "Time")
	tsa := tsaRoot.Issue(t, stamping)
	file := []byte("serial: 1\n")
	sign := func(s *trust.Signer) []byte { return must(s.SignBlob(file))(t) }
	p := certificates(t, 1, o.ca(t, trust.CA{TimestampRoots: tsaRoot.PEM()}))

	sig := sign(o.signer(t, o.leaf, now))
	require.Equal(t, 1, bytes.Count(append(sig, '\n'), []byte("\n")), "one line")
	require.NotContains(t, string(sig), base64.StdEncoding.EncodeToString(o.root.Certificate.Raw), "the root stays at home")
	v := must(p.VerifyBlob(file, sig, now))(t)
	require.Equal(t, []string{"corp"}, v.Keys())
	untrusted(p.VerifyBlob([]byte("serial: 2\n"), sig, now))(t, "by another key than that of its certificate")
	untrusted(p.VerifyBlob(file, sig, now.AddDate(15, 0, 0)))(t, "the signature has no time stamp")

	old := o.issuer.Issue(t, pki.Spec{Name: "signer", Email: []string{"release@corp.example"}, Usage: codeSigning, NotAfter: now.Add(-time.Hour)})
	before := now.Add(-2 * time.Hour)
	stamp := func(signature []byte) ([]byte, error) { return tsa.Stamp(t, signature, before), nil }
	stamped := sign(o.signer(t, old, before).WithTimestamps(stamp, anybody))
	must(p.VerifyBlob(file, stamped, now))(t)

	who := o.issuer.Issue(t, pki.Spec{Name: "intern", Email: []string{"intern@corp.example"}, Usage: codeSigning})
	untrusted(p.VerifyBlob(file, sign(o.signer(t, who, now)), now))(t, "who is none of the identities of corp")
}

func TestSignatureFilesOfBothForms(t *testing.T) {
	o := newOffice(t)
	file := []byte("file")
	a, b := signer(t, o.leaf.Key), signer(t, pki.Root(t, "b").Key)
	certified := must(a.WithCertificate("signer.crt", o.leaf.PEM(), o.issuer.PEM(), now))(t)
	bundled := must(certified.SignBlob(file))(t)
	plain := must(b.SignBlob(file))(t)
	var indented bytes.Buffer
	require.NoError(t, json.Indent(&indented, bundled, "", "  "))
	p := composed(t, 2, []trust.Key{key(t, "b", b)}, o.ca(t))
	for _, text := range []string{
		string(plain) + "\n" + string(bundled) + "\n",
		string(bundled) + string(plain),
		"\n\n" + indented.String() + " " + string(plain),
	} {
		v, err := p.VerifyBlob(file, []byte(text), now)
		require.NoError(t, err, text)
		require.Equal(t, []string{"b", "corp"}, v.Keys())
	}
	twice := append(append(bytes.Clone(bundled), bundled...), " %"...)
	untrusted(p.VerifyBlob(file, twice, now))(t, "signed by 1 distinct key (corp)", "1 damaged: it is not base64")

	const bundle = `{"mediaType":"` + trust.BundleMediaType + `",`
	for text, why := range map[string]string{
		"{": "damaged: it is not a sigstore bundle", `{"a":`: "is not a sigstore bundle", "{}": "is not a sigstore bundle", bundle + `"dsseEnvelope":{}}`: "has no signature of a file",
		`{"mediaType": 5}`:                                  "is not a sigstore bundle",
		`{"messageSignature":{"signature":"AAAA"}}`:         "is not a sigstore bundle",
		bundle + `"messageSignature":{"signature":"AAAA"}}`: "by none of these keys",
		bundle + `"messageSignature":{"signature":"AAAA"},"verificationMaterial":{"certificate":{"rawBytes":"AAAA"}}}`: "with a damaged certificate",
		bundle + `"messageSignature":{"signature":"` + base64.StdEncoding.EncodeToString(make([]byte, 5000)) + `"}}`:   "has no signature of a file",
		`{"x":"` + strings.Repeat("x", 200<<10) + `"}`:                                                                 "is not a sigstore bundle",
		strings.Repeat("{}", 300): "there are more than 256 signatures",
	} {
		untrusted(p.VerifyBlob(file, []byte(text), now))(t, why)
	}
}

func TestAStampThatCannotBeHadIsNoSignature(t *testing.T) {
	o := newOffice(t)
	s := must(signer(t, o.leaf.Key).WithCertificate("signer.crt", o.leaf.PEM(), nil, now))(t)
	s = s.WithTimestamps(func([]byte) ([]byte, error) { return nil, fmt.Errorf("the authority is away") }, anybody)
	fails(s.SignBlob([]byte("x")))(t, "", "the authority is away")
	fails(s.Sign(subject("root"), "", bundle.Referrer{}))(t, "", "the authority is away")
	_, err := s.Attest(subject("root"), "", "https://slsa.dev/provenance/v1", []byte("{}"), bundle.Referrer{})
	require.ErrorContains(t, err, "the authority is away")

	tsa := pki.Root(t, "Time").Issue(t, pki.Spec{Usage: stamping.Usage, NotAfter: now.AddDate(20, 0, 0)})
	for want, stamp := range map[string]func(signature []byte) []byte{
		"hashed messages don't match": func([]byte) []byte { return tsa.Stamp(t, []byte("other"), now) },
		"it gives the time 2041-01-01T00:00:00Z, at which the certificate of the key is not valid": func(s []byte) []byte {
			return tsa.Stamp(t, s, time.Date(2041, 1, 1, 0, 0, 0, 0, time.UTC))
		},
		"check the time stamp of the signature: ": func([]byte) []byte { return []byte("noise") },
		"it is longer than 65536 bytes":           func([]byte) []byte { return make([]byte, 70<<10) },
	} {
		s := s.WithTimestamps(func(signature []byte) ([]byte, error) { return stamp(signature), nil }, anybody)
		fails(s.SignBlob([]byte("x")))(t, "", want)
		fails(s.Sign(subject("root"), "", bundle.Referrer{}))(t, "", want)
	}
}

// heldMiB returns what reading the manifests leaves in memory.
func heldMiB(t *testing.T, blobs store, manifests ...ocispec.Descriptor) ([]trust.Evidence, uint64) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	found, err := trust.ReadEvidence(t.Context(), blobs, manifests...)
	after := heap()
	require.NoError(t, err)
	runtime.KeepAlive(blobs)
	return found, (max(after, before) - before) >> 20
}

// hostile returns a sigstore bundle of nearly the size that one may have: filler is
// repeated as often as it fits between the parts of the material.
func hostile(t *testing.T, n int, before, filler, after string) []byte {
	t.Helper()
	text := must(json.Marshal(statement(trust.SignPredicateType, subject("root"))))(t)
	head := fmt.Sprintf(`{"mediaType":%q,"dsseEnvelope":{"payload":%q,"payloadType":"application/vnd.in-toto+json","signatures":[{"sig":"AA==","keyid":"%d"}]},"verificationMaterial":{"certificate":{"rawBytes":%q},`,
		trust.BundleMediaType, base64.StdEncoding.EncodeToString(text), n,
		base64.StdEncoding.EncodeToString(pki.Root(t, "x").Certificate.Raw)) + before
	room := 127<<10 - len(head) - len(after)
	return []byte(head + strings.TrimSuffix(strings.Repeat(filler+",", room/(len(filler)+1)), ",") + after + "}}")
}

// What may be read is bounded in bytes, and what is made of these is too: short texts
// that are long in memory, one of them many times or many of them once.
func TestHostileSignaturesTakeLittleMemory(t *testing.T) {
	certificate := func() string {
		key := newECDSA(t, elliptic.P256())
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
		for range 3000 {
			template.URIs = append(template.URIs, &url.URL{Scheme: "a", Opaque: "b"})
		}
		der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}()
	materials := map[string][3]string{
		"log entries":      {`"tlogEntries":[`, `{}`, `]`},
		"hashes of proofs": {`"tlogEntries":[{"inclusionProof":{"hashes":[`, `""`, `]}}]`},
		"time stamps":      {`"timestampVerificationData":{"rfc3161Timestamps":[`, `{}`, `]}`},
	}
	// Of each kind a third of what may be read: to keep what 40 bundles of one of them
	// become in memory takes more than the limit.
	t.Run("all of them of many bundles", func(t *testing.T) {
		blobs := store{}
		var layers []ocispec.Descriptor
		for n := range 40 {
			for _, material := range materials {
				layers = append(layers, blobs.add(trust.BundleMediaType, hostile(t, n, material[0], material[1], material[2])))
			}
		}
		found, held := heldMiB(t, blobs, blobs.manifest(t, layers...))
		require.Len(t, found, 120)
		require.Less(t, held, uint64(16))
	})
	t.Run("names of certificates", func(t *testing.T) {
		blobs := store{}
		layer := blobs.add(trust.SimpleSigningMediaType, []byte(`{"critical":{"image":{"docker-manifest-digest":"`+subject("root").String()+`"},"type":"cosign container image signature"}}`))
		layer.Annotations = map[string]string{trust.SignatureAnnotation: "AA==", trust.CertificateAnnotation: certificate, trust.ChainAnnotation: certificate}
		blob := blobs.manifest(t, slices.Repeat([]ocispec.Descriptor{layer}, (3<<20)/(2*len(certificate)))...)
		found, held := heldMiB(t, blobs, blob)
		require.Greater(t, len(found), 20)
		require.Less(t, held, uint64(8))
	})
}

// A certificate that comes along may have any key: nothing is calculated with one that is
// larger than those of authorities are, wherever it lies.
func TestCertificatesWithHugeKeysAreNotCalculatedWith(t *testing.T) {
	o := newOffice(t)
	huge := func(bits uint, exponent int) []byte { // of a key that no one has
		n := new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), bits-1), big.NewInt(1))
		signer := newECDSA(t, elliptic.P256())
		template := &x509.Certificate{
			SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "huge"}, IsCA: true, BasicConstraintsValid: true,
			NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
		}
		public := &rsa.PublicKey{N: n, E: exponent}
		der := must(x509.CreateCertificate(rand.Reader, template, template, public, signer))(t)
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	leaf := o.issuer.Issue(t, pki.Spec{Email: []string{"release@corp.example"}, Usage: codeSigning})
	for name, c := range map[string]struct {
		certificate []byte
		want        string
	}{
		"long":          {huge(120000, 1<<31-1), "an RSA key of 120000 bits"},
		"just too long": {huge(8193, 65537), "an RSA key of 8193 bits"},
		"too large":     {huge(140000, 65537), "longer than 16384 bytes"},
	} {
		for _, where := range []string{trust.CertificateAnnotation, trust.ChainAnnotation} {
			t.Run(name+" in "+where, func(t *testing.T) {
				evidence := o.certified(t, store{}, leaf, func(l map[string]string) {
					if where == trust.CertificateAnnotation {
						l[where] = ""
					}
					l[where] += string(c.certificate)
				})
				untrusted(verify(certificates(t, 1, o.ca(t)), evidence))(t, c.want)
			})
		}
		t.Run(name+" beside a time stamp", func(t *testing.T) {
			root := pki.Root(t, "TSA Root")
			tsa := root.Issue(t, stamping)
			block, _ := pem.Decode(c.certificate)
			beside := must(x509.ParseCertificate(block.Bytes))(t)
			roots := must(trust.ParseTimestampRoots("x", root.PEM()))(t)
			_, err := trust.CheckTimestamp(tsa.StampWith(t, []byte("x"), now, tsa, pki.Authority{Certificate: beside}), []byte("x"), roots)
			require.ErrorContains(t, err, c.want)
		})
	}
	// one that is as large as is looked at spoils nothing
	evidence := o.certified(t, store{}, leaf, func(l map[string]string) { l[trust.ChainAnnotation] += string(huge(8192, 65537)) })
	must(verify(certificates(t, 1, o.ca(t)), evidence))(t)
}
