package trust_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

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
	p := certificates(t, 1, o.ca(t, trust.CAOptions{TimestampRoots: tsaRoot.PEM()}))

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
	p := must(trust.ComposePolicy(2, []trust.Key{key(t, "b", b)}, []trust.CA{o.ca(t)}))(t)
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
		"{": "damaged: it is not a sigstore bundle", `{"a":`: "is not a sigstore bundle", "{}": "has no signature of a file", `{"mediaType": 5}`: "is not a sigstore bundle",
		`{"messageSignature":{"signature":"AAAA"}}`:                                                                    "unsupported media type",
		bundle + `"messageSignature":{"signature":"AAAA"}}`:                                                            "by none of these keys",
		bundle + `"messageSignature":{"signature":"AAAA"},"verificationMaterial":{"certificate":{"rawBytes":"AAAA"}}}`: "with a damaged certificate",
		`{"messageSignature":{"signature":"` + base64.StdEncoding.EncodeToString(make([]byte, 5000)) + `"}}`:           "has no signature of a file",
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

	tsa := pki.Root(t, "Time").Issue(t, stamping)
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
