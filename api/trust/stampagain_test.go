package trust_test

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

// anybody's time stamps are taken without roots.
var anybody trust.TimestampRoots

func stampsBy(t *testing.T, a pki.Authority, at time.Time) func([]byte) ([]byte, error) {
	return func(signature []byte) ([]byte, error) { return a.Stamp(t, signature, at), nil }
}

// A signature with a time stamp that proves nothing is made again, or it would end with
// its certificate.
func TestASignatureWithoutAGoodTimestampIsMadeAgain(t *testing.T) {
	o := newOffice(t)
	stampRoot, other := pki.Root(t, "TSA Root"), pki.Root(t, "Other Root")
	tsa, stranger := stampRoot.Issue(t, stamping), other.Issue(t, stamping)
	leaf := o.issuer.Issue(t, pki.Spec{Email: []string{"release@corp.example"}, Usage: codeSigning})
	certified := must(signer(t, leaf.Key).WithCertificate("release.crt", leaf.PEM(), o.issuer.PEM(), time.Now()))(t)
	roots := must(trust.ParseTimestampRoots("tsa.pem", stampRoot.PEM()))(t)
	s := certified.WithTimestamps(stampsBy(t, tsa, time.Now()), roots)
	text := func(stamp []byte) string {
		return `{"SignedRFC3161Timestamp":"` + base64.StdEncoding.EncodeToString(stamp) + `"}`
	}
	root := subject("bundle")
	for name, c := range map[string]struct {
		change func(string) string
		layers int
	}{
		"good":                 {func(stamp string) string { return stamp }, 1},
		"text":                 {func(string) string { return "garbage" }, 2},
		"garbage":              {func(string) string { return text([]byte("garbage")) }, 2},
		"of another signature": {func(string) string { return text(tsa.Stamp(t, []byte("other"), time.Now())) }, 2},
		"none":                 {func(string) string { return "" }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var m ocispec.Manifest
			require.NoError(t, json.Unmarshal(sign(t, s, root, nil).Node.Data, &m))
			annotations := m.Layers[0].Annotations
			annotations[trust.TimestampAnnotation] = c.change(annotations[trust.TimestampAnnotation])
			existing := must(json.Marshal(m))(t)
			require.NoError(t, json.Unmarshal(sign(t, s, root, existing).Node.Data, &m))
			require.Len(t, m.Layers, c.layers)
		})
	}
	foreign := certified.WithTimestamps(stampsBy(t, stranger, time.Now()), anybody)
	others := sign(t, foreign, root, nil)
	var m ocispec.Manifest
	require.NoError(t, json.Unmarshal(sign(t, s, root, others.Node.Data).Node.Data, &m))
	require.Len(t, m.Layers, 2, "by an authority that was not asked for")

	bare := must(signer(t, leaf.Key).WithCertificate("release.crt", leaf.PEM(), nil, time.Now()))(t)
	unchained := sign(t, bare, root, nil)
	chained := sign(t, certified, root, unchained.Node.Data)
	require.NoError(t, json.Unmarshal(chained.Node.Data, &m))
	require.Len(t, m.Layers, 2, "the chain was forgotten at first")
	require.Equal(t, chained.Node.Data, sign(t, bare, root, chained.Node.Data).Node.Data)

	r := repoWith(t, true)
	pushed := r.push(t)
	signed := must(foreign.SignBundle(r.subject(t, pushed)))(t)
	r.put(t, signed)
	require.True(t, certified.HasSigned(pushed, r.evidence(t, pushed)))
	require.False(t, s.HasSigned(pushed, r.evidence(t, pushed)))
}
