package trust

import (
	"crypto/x509"
	"testing"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"github.com/sigstore/sigstore-go/pkg/testing/data"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// PublicPEM returns the public key in the form of cosign.pub.
func (s *Signer) PublicPEM() []byte { return s.key.PublicKey }

// A signature of the public sigstore, with certificate log and transparency log, is
// checked without a network and with nothing left out.
func TestPublicSignatureIsCheckedInFull(t *testing.T) {
	trusted, err := data.TrustedRoot(t, "public-good.json").MarshalJSON()
	require.NoError(t, err)
	b := data.Bundle(t, "sigstore.js@2.0.0-provenance.sigstore.json").Bundle
	require.Contains(t, string(b.GetDsseEnvelope().GetPayload()), "sha512") // it names no sha256, so that no image can be meant
	var e Evidence
	e.addMaterial(b)
	require.Empty(t, e.doubt)
	check := func(who KeylessIdentity) error {
		k := Keyless{TrustedRoot: trusted, Identities: []KeylessIdentity{who}}
		require.NoError(t, k.prepare())
		_, err := k.check(e, image.DigestOf([]byte("x")), time.Now())
		return err
	}
	who := KeylessIdentity{
		Issuer: "https://token.actions.githubusercontent.com", Subject: "https://github.com/sigstore/sigstore-js/.github/workflows/release.yml@refs/heads/main",
	}
	require.ErrorContains(t, check(who), "digest", "everything but the digest is right")
	who.Subject = "https://github.com/sigstore/sigstore-js/.github/workflows/release.yml"
	require.Error(t, check(who))
	_, err = Keyless{}.check(e, image.DigestOf([]byte("x")), time.Now())
	require.ErrorContains(t, err, "no identity")
}

func FuzzTrustedRoot(f *testing.F) {
	f.Add([]byte(`{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1","certificateAuthorities":[{}],"tlogs":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		k := Keyless{TrustedRoot: data, Identities: []KeylessIdentity{{Issuer: "a", Subject: "b"}}}
		if k.prepare() == nil {
			_, err := k.check(Evidence{
				bundle: &protobundle.Bundle{},
				holder: &certified{leaf: &x509.Certificate{EmailAddresses: []string{"b"}}, timestamps: [][]byte{{0x30}}},
			}, image.DigestOf(nil), time.Now())
			require.Error(t, err)
		}
	})
}
