package trust_test

import (
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

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

// heldMiB returns what reading the manifests leaves in memory.
func heldMiB(t *testing.T, blobs store, manifests ...ocispec.Descriptor) ([]trust.Evidence, uint64) {
	t.Helper()
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
