package trust_test

import (
	"bytes"
	"context"
	"crypto"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

// repo is a repository of a real registry: what both cosign and this package use.
type repo struct{ name.Repository }

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// push puts a random index there and returns its digest.
func (r repo) push(t *testing.T) image.Digest {
	index := must(random.Index(64, 1, 2))(t)
	h := must(index.Digest())(t)
	require.NoError(t, remote.WriteIndex(r.Digest(h.String()), index))
	return image.MustDigest(h.String())
}

// Fetch reads a manifest or a blob.
func (r repo) Fetch(ctx context.Context, d ocispec.Descriptor, _ int64) (io.ReadCloser, error) {
	ref := r.Digest(d.Digest.String())
	if strings.Contains(d.MediaType, "manifest") {
		got, err := remote.Get(ref, remote.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		return io.NopCloser(bytes.NewReader(got.Manifest)), nil
	}
	layer, err := remote.Layer(ref, remote.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	return layer.Compressed()
}

// put pushes what was signed, as anyone who copies signatures does: under its tag, or without one as a referrer.
func (r repo) put(t *testing.T, s bundle.Referrer) {
	for _, b := range s.Blobs {
		require.NoError(t, remote.WriteLayer(r.Repository, static.NewLayer(b.Data, types.MediaType(b.MediaType))))
	}
	var at name.Reference = r.Digest(s.Node.Descriptor.Digest.String())
	if s.Tag != "" {
		at = r.Tag(s.Tag)
	}
	require.NoError(t, remote.Put(at, taggable(s.Node.Data)))
}

type taggable []byte

func (m taggable) RawManifest() ([]byte, error)        { return m, nil }
func (m taggable) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// evidence reads the signature tag and all referrers.
func (r repo) evidence(t *testing.T, subject image.Digest) []trust.Evidence {
	t.Helper()
	var all []trust.Evidence
	read := func(mediaType types.MediaType, h v1.Hash, size int64) {
		d := ocispec.Descriptor{MediaType: string(mediaType), Digest: digest.Digest(h.String()), Size: size}
		all = append(all, must(trust.ReadEvidence(t.Context(), r, d))(t)...)
	}
	if d, err := remote.Get(r.Tag(image.Signatures.TagOf(subject))); err == nil {
		read(d.MediaType, d.Digest, d.Size)
	}
	index := must(remote.Referrers(r.Digest(subject.String())))(t)
	m := must(index.IndexManifest())(t)
	for _, d := range m.Manifests {
		read(d.MediaType, d.Digest, d.Size)
	}
	return all
}

// keyFiles writes a key for cosign as it imports it, and returns the files' paths.
func keyFiles(t *testing.T, private crypto.Signer) (key, pub string) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain.pem")
	require.NoError(t, os.WriteFile(plain, pemOf(t, private), 0o600))
	mustRun(t, "cosign", "import-key-pair", "--key", plain, "--output-key-prefix", filepath.Join(dir, "k"))
	return filepath.Join(dir, "k.key"), filepath.Join(dir, "k.pub")
}

func loadFiles(t *testing.T, keyFile, pubFile string) (*trust.Signer, *trust.Policy) {
	t.Helper()
	data := must(os.ReadFile(keyFile))(t)
	s := must(trust.LoadSigner(keyFile, data, func() ([]byte, error) { return []byte("pass"), nil }))(t)
	pub := must(os.ReadFile(pubFile))(t)
	k := must(trust.NewKey(trust.Entry{ID: "release"}, pub))(t)
	return s, policy(t, 1, k)
}

func TestInteropWithCosign(t *testing.T) {
	for kind, private := range keysOfAllKinds(t) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			keyFile, pubFile := keyFiles(t, private)
			s, p := loadFiles(t, keyFile, pubFile)
			r := repoWith(t, true)
			verify := func(d image.Digest) (string, error) {
				return version(t, "cosign", "verify", "--key", pubFile, "--insecure-ignore-tlog=true", r.Digest(d.String()).String())
			}

			t.Run("cosign accepts ours", func(t *testing.T) {
				root := r.push(t)
				_, err := verify(root)
				require.Error(t, err, "cosign must refuse it before it is signed")
				r.put(t, sign(t, s, root, nil))
				out, err := verify(root)
				require.NoError(t, err, out)
				require.Contains(t, out, root.String())
			})
			t.Run("ours accepts cosign's new bundle", func(t *testing.T) {
				root := r.push(t)
				mustRun(t, "cosign", "sign", "--new-bundle-format", "--key", keyFile, "--tlog-upload=false", "-y", r.Digest(root.String()).String())
				must(p.Verify(root, r.evidence(t, root), now))(t)
				untrusted(p.Verify(subject("other"), r.evidence(t, root), now))(t, "of another digest")
			})
			t.Run("blobs, both ways", func(t *testing.T) {
				file, sig := filepath.Join(t.TempDir(), "matrix.yaml"), filepath.Join(t.TempDir(), "matrix.sig")
				require.NoError(t, os.WriteFile(file, []byte("serial: 1\n"), 0o600))
				ours := must(s.SignBlob([]byte("serial: 1\n")))(t)
				require.NoError(t, os.WriteFile(sig, ours, 0o600))
				mustRun(t, "cosign", "verify-blob", "--key", pubFile, "--insecure-ignore-tlog=true", "--signature", sig, file)

				if kind == "Ed25519" {
					return // cosign v2.6.5 itself panics here: it asks for the hash of plain Ed25519
				}
				mustRun(t, "cosign", "sign-blob", "--key", keyFile, "--tlog-upload=false", "-y", "--output-signature", sig, file)
				theirs := must(os.ReadFile(sig))(t)
				must(p.VerifyBlob([]byte("serial: 1\n"), theirs, now))(t)
			})
		})
	}
}
