package trust_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

const header = "apiVersion: vdo.vmware.com/trust/v1\nkind: TrustPolicy\n"

func indent(s string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n    ") + "\n"
}

func TestParsePolicyReadsAllFields(t *testing.T) {
	a, b := publicKey(t), publicKey(t)
	text := header + "threshold: 2\nkeys:\n- id: a\n  publicKey: |\n" + indent(string(a)) +
		"- id: b\n  file: keys/b.pub\n  notBefore: 2026-01-01T00:00:00Z\n  notAfter: 2027-01-01T02:00:00+02:00\n" +
		"- id: c\n  file: keys/b.pub\n  revoked: true\n" +
		"revokedDigests:\n- sha256:" + strings.Repeat("a", 64) + "\n"
	var asked []string
	p := must(trust.ParsePolicy("policy.yaml", []byte(text), func(path string) ([]byte, error) {
		asked = append(asked, path)
		return b, nil
	}))(t)
	require.Equal(t, []string{"keys/b.pub", "keys/b.pub"}, asked)
	text = written(t, p)
	require.Contains(t, text, "threshold: 2")
	require.Contains(t, text, "2027-01-01T00:00:00Z")
	require.Equal(t, 3, strings.Count(text, "publicKey: "))
}

// written is a policy as YAML, which is the same when it has been read again.
func written(t *testing.T, p *trust.Policy) string {
	once := must(p.YAML())(t)
	again := must(trust.ParsePolicy("policy.yaml", once, nil))(t)
	twice := must(again.YAML())(t)
	require.Equal(t, string(once), string(twice))
	return string(once)
}

func TestBadPoliciesAreExplained(t *testing.T) {
	pub := publicKey(t)
	good := "- id: a\n  publicKey: |\n" + indent(string(pub))
	missing := errors.New("no such file")
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"empty", "", []string{"it is empty"}},
		{"unknown key", header + "keys:\n" + good + "treshold: 2\n", []string{"line 10", "the key treshold is not known"}},
		{"version and kind", "apiVersion: v1\nkind: Policy\nkeys:\n" + good, []string{`policy.yaml:2: kind: "Policy" is not TrustPolicy`}},
		{"no keys", header, []string{"there is no key"}},
		{"two with one id", header + "keys:\n" + good + good, []string{`two entries have the id "a"`}},
		{"threshold", header + "threshold: 3\nkeys:\n" + good, []string{"can never be met"}},
		{"both", header + "keys:\n- id: a\n  publicKey: x\n  file: y\n", []string{"keys[0]", "one of publicKey and file, not both"}},
		{"neither", header + "keys:\n- id: a\n", []string{"there is no PEM block"}},
		{"absent file", header + "keys:\n- id: a\n  file: gone.pub\n", []string{"keys[0]", "no such file"}},
		{"bad digest", header + "keys:\n" + good + "revokedDigests: [sha256:1]\n", []string{"revokedDigests"}},
		{"all at once", header + "keys:\n- id: a\n- id: ''\n  publicKey: x\n" + good + "revokedDigests: [x]\n",
			[]string{"keys[0]", "keys[1]", "revokedDigests"}},
		{"too many", header + "keys:\n" + strings.Repeat("- id: a\n  file: x\n", 33), []string{"33 keys are more than 32"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := trust.ParsePolicy("policy.yaml", []byte(c.text), func(string) ([]byte, error) { return nil, missing })
			require.Error(t, err)
			require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
			for _, w := range append(c.want, "policy.yaml") {
				require.ErrorContains(t, err, w)
			}
			for _, f := range fault.All(err) {
				require.True(t, f.Hint != "" || errors.Is(f, missing), "%v: no hint", f) // that of a file is the reader's
			}
		})
	}
	_, err := trust.ParsePolicy("p", []byte(header+"keys:\n- id: a\n  file: x\n"), nil)
	require.ErrorContains(t, err, "publicKey by file cannot be read here")
}

func FuzzParsePolicy(f *testing.F) {
	pub := publicKey(f)
	f.Add([]byte(header + "keys:\n- id: a\n  publicKey: |\n" + indent(string(pub))))
	f.Add([]byte(header + "threshold: 1\nkeys:\n- id: a\n  file: x\n  revoked: true\nrevokedDigests: [sha256:" + strings.Repeat("0", 64) + "]\n"))
	root := pki.Root(f, "root")
	f.Add([]byte(header + "certificates:\n- id: a\n  roots: |\n" + indent(string(root.PEM())) +
		"  identities:\n  - email: a@b\n  extendedKeyUsage: 1.2.3\n  revokedSerials: ['0a:1']\n"))
	f.Add([]byte("a: &a [*a, *a]\nb: !!binary x\n? {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := trust.ParsePolicy("fuzz", data, func(string) ([]byte, error) { return pub, nil })
		if err != nil {
			require.NotEmpty(t, fault.Text(err))
			return
		}
		once := must(p.YAML())(t)
		again, err := trust.ParsePolicy("again", once, nil)
		require.NoError(t, err, "%s", once)
		twice := must(again.YAML())(t)
		require.Equal(t, string(once), string(twice))
	})
}

// FuzzReadEvidence feeds a signature manifest and a claim to the readers of signatures,
// statements and signature files: whatever they are, nothing is accepted and nothing breaks.
func FuzzReadEvidence(f *testing.F) {
	s := must(trust.LoadSigner("k", pki.Root(f, "any").KeyPEM(), nil))(f)
	signed := must(s.Sign(subject("other"), "", bundle.Referrer{}))(f)
	k := must(trust.NewKey(trust.Entry{ID: "k"}, s.PublicPEM()))(f)
	root := pki.Root(f, "root")
	leaf := root.Issue(f, pki.Spec{Email: []string{"a@b"}, Usage: codeSigning})
	a := trust.CA{
		Entry: trust.Entry{ID: "a"}, Roots: root.PEM(), TimestampRoots: root.PEM(), Identities: []trust.Identity{{Email: "a@b"}},
	}
	p := composed(f, 1, []trust.Key{k}, a)
	for _, b := range signed.Blobs {
		f.Add(signed.Node.Data, b.Data, b.MediaType, "AAAA", "", []byte(nil))
		f.Add(signed.Node.Data, b.Data, b.MediaType, "AAAA", string(leaf.PEM()), leaf.Stamp(f, []byte("x"), now))
	}
	f.Add([]byte(`{"layers":[{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json"}]}`),
		[]byte(`{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","dsseEnvelope":{"payload":"e30=","payloadType":"application/vnd.in-toto+json","signatures":[{"sig":"AA=="}]}}`),
		trust.BundleMediaType, "", "", []byte(nil))
	f.Add([]byte("{}"), []byte(`{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[{"sig":"AAAA"}]}`),
		trust.EnvelopeMediaType, "", "", []byte(nil))
	f.Add([]byte("{}"), []byte(`{"messageSignature":{"signature":"AAAA"}} AAAA {`), "", "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, manifest, claim []byte, mediaType, signature, certificate string, stamp []byte) {
		blobs := store{}
		own := blobs.add("", manifest)
		layer := blobs.add(mediaType, claim)
		layer.Annotations = map[string]string{trust.SignatureAnnotation: signature, trust.CertificateAnnotation: certificate}
		stamped(layer.Annotations, stamp)
		evidence := must(trust.ReadEvidence(t.Context(), blobs, blobs.manifest(t, layer)))(t)
		more, err := trust.ReadEvidence(t.Context(), blobs, own)
		if err == nil {
			evidence = append(evidence, more...)
		}
		untrusted(verify(p, evidence))(t)
		untrusted(p.VerifyBlob([]byte("x"), claim, now))(t)
		found, err := trust.ReadStatements(t.Context(), blobs, []ocispec.Descriptor{blobs.manifest(t, layer)}, slsa)
		if err == nil {
			_, _, err = p.VerifyStatement(subject("root"), found, now)
		}
		require.Error(t, err)
	})
}

// FuzzTimeStamp feeds time stamps to the verifier, with a certificate that has
// expired and a signature that is right: nothing but a true stamp makes it count.
func FuzzTimeStamp(f *testing.F) {
	root := pki.Root(f, "root")
	leaf := root.Issue(f, pki.Spec{Email: []string{"a@b"}, Usage: codeSigning, NotAfter: now.AddDate(-1, 0, 0)})
	a := trust.CA{
		Entry: trust.Entry{ID: "a"}, Roots: root.PEM(), TimestampRoots: root.PEM(), Identities: []trust.Identity{{Email: "a@b"}},
	}
	p := composed(f, 1, nil, a)
	s := must(trust.LoadSigner("k", leaf.KeyPEM(), nil))(f)
	signed := must(s.Sign(subject("root"), "", bundle.Referrer{}))(f)
	f.Add(leaf.Stamp(f, []byte("x"), now))
	f.Add([]byte{0x30, 0x80, 0x24, 0x80})
	f.Fuzz(func(t *testing.T, stamp []byte) {
		blobs := store{}
		blobs.keep(signed)
		var m ocispec.Manifest
		require.NoError(t, json.Unmarshal(signed.Node.Data, &m))
		m.Layers[0].Annotations[trust.CertificateAnnotation] = string(leaf.PEM())
		stamped(m.Layers[0].Annotations, stamp)
		untrusted(verify(p, blobs.evidence(t, blobs.manifest(t, m.Layers...))))(t)
	})
}
