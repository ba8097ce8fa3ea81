package trust_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

// descriptor describes a manifest that bundles can be of.
func descriptor(d image.Digest) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.Digest(d.String()), Size: 2}
}

// layers are those of a manifest in the store.
func layers(t *testing.T, blobs store, d ocispec.Descriptor) []ocispec.Descriptor {
	t.Helper()
	var m ocispec.Manifest
	require.NoError(t, json.Unmarshal(blobs[d.Digest], &m))
	return m.Layers
}

// A signature that is listed a thousand times, in one manifest and in many, is verified
// once: whoever may write to a repository does not decide what a look at it costs. It is
// still said how many there are.
func TestASignatureIsVerifiedOnceHoweverOftenItIsListed(t *testing.T) {
	ours, stranger := newSigner(t), newSigner(t)
	root := descriptor(subject("root"))
	bundled := func(s *trust.Signer) func(store) ocispec.Descriptor {
		return func(blobs store) ocispec.Descriptor {
			signed, err := s.SignBundle(root)
			require.NoError(t, err)
			return layers(t, blobs, blobs.keep(signed))[0]
		}
	}
	claimed := func(s *trust.Signer) func(store) ocispec.Descriptor {
		return func(blobs store) ocispec.Descriptor {
			signed := sign(t, s, subject("root"), nil)
			return layers(t, blobs, blobs.keep(signed))[0]
		}
	}
	for name, c := range map[string]struct {
		layer func(store) ocispec.Descriptor
		known bool
	}{
		"a bundle":              {bundled(ours), true},
		"a bundle of another's": {bundled(stranger), false},
		"a claim":               {claimed(ours), true},
		"a claim of another's":  {claimed(stranger), false},
	} {
		t.Run(name, func(t *testing.T) {
			count := func(times, manifests int) int64 {
				var n atomic.Int64
				blobs := store{}
				layer := c.layer(blobs)
				var all []ocispec.Descriptor
				for i := range manifests {
					layer.Annotations = maps.Clone(layer.Annotations)
					if layer.Annotations == nil {
						layer.Annotations = map[string]string{}
					}
					layer.Annotations["n"] = fmt.Sprint(i) // which is another manifest, and the same signature
					all = append(all, blobs.manifest(t, slices.Repeat([]ocispec.Descriptor{layer}, times)...))
				}
				evidence, err := trust.ReadEvidence(t.Context(), blobs, all...)
				require.NoError(t, err)
				require.Len(t, evidence, times*manifests)
				_, err = policy(t, 1, trust.Counted(key(t, "ours", ours, trust.KeyOptions{}), &n)).Verify(subject("root"), evidence, now)
				if c.known {
					require.NoError(t, err)
					return n.Load()
				}
				requireUntrusted(t, err, fmt.Sprintf("; %d by none of these keys", times*manifests))
				return n.Load()
			}
			once, often := count(1, 1), count(256, 4)
			require.Positive(t, once)
			require.Equal(t, once, often)
		})
	}
}

// A signature over the same claim is another where anything of it is: each is looked at.
func TestSignaturesThatDifferAreEachVerified(t *testing.T) {
	ours, stranger := newSigner(t), newSigner(t)
	blobs := store{}
	other := layers(t, blobs, blobs.keep(sign(t, stranger, subject("root"), nil)))[0]
	right := layers(t, blobs, blobs.keep(sign(t, ours, subject("root"), nil)))[0]
	require.Equal(t, other.Digest, right.Digest, "they are over one claim")
	evidence := blobs.evidence(t, blobs.manifest(t, other, other, right))
	_, err := policy(t, 1, key(t, "ours", ours, trust.KeyOptions{})).Verify(subject("root"), evidence, now)
	require.NoError(t, err)
}

// The same of attestations, which are looked at together and by what they state.
func TestAStatementIsVerifiedOnceHoweverOftenItIsListed(t *testing.T) {
	ours, stranger := newSigner(t), newSigner(t)
	count := func(times int) int64 {
		var n atomic.Int64
		blobs := store{}
		layer := layers(t, blobs, attested(t, blobs, "root", `{"x":1}`, stranger))[0]
		found := statements(t, blobs, blobs.manifest(t, slices.Repeat([]ocispec.Descriptor{layer}, times)...))
		require.Len(t, found, times)
		_, _, err := policy(t, 1, trust.Counted(key(t, "ours", ours, trust.KeyOptions{}), &n)).VerifyStatement(subject("root"), found, now)
		requireUntrusted(t, err, fmt.Sprintf("; %d by none of these keys", times))
		return n.Load()
	}
	once, often := count(1), count(256)
	require.Positive(t, once)
	require.Equal(t, once, often)
}

// And of a file's signatures.
func TestASignatureOfAFileIsVerifiedOnce(t *testing.T) {
	ours, stranger := newSigner(t), newSigner(t)
	data := []byte("a file")
	line, err := stranger.SignBlob(data)
	require.NoError(t, err)
	count := func(times int) int64 {
		var n atomic.Int64
		_, err := policy(t, 1, trust.Counted(key(t, "ours", ours, trust.KeyOptions{}), &n)).VerifyBlob(data, bytes.Repeat(append(bytes.TrimSpace(line), '\n'), times), now)
		requireUntrusted(t, err, fmt.Sprintf("; %d by none of these keys", times))
		return n.Load()
	}
	once, often := count(1), count(256)
	require.Positive(t, once)
	require.Equal(t, once, often)
}
