package trust_test

import (
	"bytes"
	"context"
	"crypto"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
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

// repoWith is a repository of a registry with or without the referrers API.
func repoWith(t *testing.T, referrers bool) repo {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(referrers), registry.Logger(quiet())))
	t.Cleanup(server.Close)
	r := must(name.NewRepository(strings.TrimPrefix(server.URL, "http://") + "/vdo/drivers"))(t)
	return repo{r}
}

// subject describes a manifest that is there.
func (r repo) subject(t *testing.T, d image.Digest) ocispec.Descriptor {
	t.Helper()
	got := must(remote.Head(r.Digest(d.String())))(t)
	return ocispec.Descriptor{MediaType: string(got.MediaType), Digest: digest.Digest(d.String()), Size: got.Size}
}

// version runs one of the two real programs, in a home of its own.
func version(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), toolchain.Path(t, program), args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "COSIGN_PASSWORD=pass", "HOME="+cmd.Dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func mustRun(t *testing.T, program string, args ...string) {
	out, err := version(t, program, args...)
	require.NoError(t, err, "%s %s\n%s", program, strings.Join(args, " "), out)
}

// Both versions of cosign verify what is signed here, in each form that they read, and
// what they sign in each form that they write is verified here, with the referrers API
// and without.
func TestBothVersionsOfCosign(t *testing.T) {
	keyFile, pubFile := keyFiles(t, keysOfAllKinds(t)["P-256"])
	s, p := loadFiles(t, keyFile, pubFile)
	signs := map[string][]string{
		"cosign writes simple":          {"cosign", "sign", "--tlog-upload=false"},
		"cosign writes bundles":         {"cosign", "sign", "--tlog-upload=false", "--new-bundle-format"},
		"cosign3 writes its default":    {"cosign3", "sign", "--tlog-upload=false", "--use-signing-config=false"},
		"cosign3 writes simple signing": {"cosign3", "sign", "--tlog-upload=false", "--use-signing-config=false", "--new-bundle-format=false"},
	}
	// Without a network cosign 2 has no trusted root, which it wants for a sigstore bundle
	// even with a key, and it looks at nothing else where there is one.
	empty := filepath.Join(t.TempDir(), "trusted_root.json")
	require.NoError(t, os.WriteFile(empty, []byte(`{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`), 0o600))
	verifies := map[string]struct {
		args                  []string
		simple, bundled, both bool // what it accepts
	}{
		"cosign":                         {[]string{"cosign", "verify", "--trusted-root", empty}, true, true, true},
		"cosign without a trusted root":  {[]string{"cosign", "verify"}, true, false, false},
		"cosign that is told the format": {[]string{"cosign", "verify", "--trusted-root", empty, "--new-bundle-format"}, false, true, true},
		"cosign3":                        {[]string{"cosign3", "verify"}, true, true, true},
		"cosign3 that is told the other": {[]string{"cosign3", "verify", "--new-bundle-format=false"}, true, false, true},
	}
	for kind, api := range map[string]bool{"referrers API": true, "fallback tag": false} {
		t.Run(kind, func(t *testing.T) {
			r := repoWith(t, api)
			for name, args := range signs {
				t.Run(name, func(t *testing.T) {
					root := r.push(t)
					out, err := version(t, args[0], append(args[1:], "--key", keyFile, "-y", r.Digest(root.String()).String())...)
					require.NoError(t, err, out)
					v := must(p.Verify(root, r.evidence(t, root), now))(t)
					require.Equal(t, []string{"release"}, v.Keys())
					untrusted(p.Verify(subject("other"), r.evidence(t, root), now))(t, "of another digest")
				})
			}
			bundled, simple, both, foreign := r.push(t), r.push(t), r.push(t), r.push(t)
			for _, root := range []image.Digest{bundled, both} {
				signed := must(s.SignBundle(r.subject(t, root)))(t)
				r.put(t, signed)
			}
			for _, root := range []image.Digest{simple, both} {
				r.put(t, sign(t, s, root, nil))
			}
			other := must(newSigner(t).SignBundle(r.subject(t, foreign)))(t)
			r.put(t, other)
			for name, c := range verifies {
				t.Run(name, func(t *testing.T) {
					for root, want := range map[image.Digest]bool{bundled: c.bundled, simple: c.simple, both: c.both, foreign: false} {
						out, err := version(t, c.args[0], append(c.args[1:], "--key", pubFile, "--insecure-ignore-tlog=true", r.Digest(root.String()).String())...)
						require.Equal(t, want, err == nil, "%s", out)
					}
				})
			}
			untrusted(p.Verify(foreign, r.evidence(t, foreign), now))(t, "by none of these keys")
		})
	}
}

// A sigstore bundle with a certificate and a time stamp, by and for cosign 3.
func TestCertificatesInSigstoreBundles(t *testing.T) {
	o, dir := newOffice(t), t.TempDir()
	stampRoot := pki.Root(t, "TSA Root")
	tsa := stampRoot.Issue(t, stamping)
	ends := time.Now().Add(time.Hour)
	leaf := o.issuer.Issue(t, pki.Spec{Email: []string{"release@corp.example"}, Usage: codeSigning, NotAfter: ends})
	s := must(signer(t, leaf.Key).WithCertificate("release.crt", leaf.PEM(), o.issuer.PEM(), time.Now()))(t)
	s = s.WithTimestamps(stampsBy(t, tsa, time.Now()), anybody)
	r := repoWith(t, true)
	root := r.push(t)
	signed := must(s.SignBundle(r.subject(t, root)))(t)
	r.put(t, signed)

	evidence := r.evidence(t, root)
	policy := func(intermediates, stamps []byte) *trust.Policy {
		return certificates(t, 1, o.ca(t, trust.CA{Intermediates: intermediates, TimestampRoots: stamps}))
	}
	must(policy(o.issuer.PEM(), nil).Verify(root, evidence, time.Now()))(t)
	must(policy(o.issuer.PEM(), stampRoot.PEM()).Verify(root, evidence, ends.Add(time.Hour)))(t)
	later := ends.Add(time.Hour)
	untrusted(policy(o.issuer.PEM(), nil).Verify(root, evidence, later))(t, "has no time-stamping authority")
	untrusted(policy(nil, nil).Verify(root, evidence, time.Now()))(t, "has not issued")

	require.True(t, s.HasSigned(root, evidence))
	require.False(t, s.HasSigned(subject("other"), evidence))
	require.True(t, signer(t, leaf.Key).HasSigned(root, evidence))
	require.False(t, newSigner(t).HasSigned(root, evidence))
	require.False(t, s.HasSigned(subject("root"), store{}.by(t, s)), "a claim is no sigstore bundle")
	again := o.issuer.Issue(t, pki.Spec{Key: leaf.Key, Email: []string{"release@corp.example"}, Usage: codeSigning})
	require.False(t, o.signer(t, again, time.Now()).HasSigned(root, evidence), "with another certificate")

	trusted := filepath.Join(dir, "trusted_root.json")
	require.NoError(t, os.WriteFile(trusted, trustedRoot(t, o, stampRoot, tsa), 0o600))
	verify := func(identity string) (string, error) {
		return version(t, "cosign3", "verify", "--trusted-root", trusted, "--certificate-identity", identity, "--certificate-oidc-issuer-regexp", ".*",
			"--insecure-ignore-sct", "--insecure-ignore-tlog=true", "--use-signed-timestamps", r.Digest(root.String()).String())
	}
	out, err := verify("release@corp.example")
	require.NoError(t, err, out)
	_, err = verify("intern@corp.example")
	require.Error(t, err)
}

// trustedRoot is what cosign takes in place of roots.
func trustedRoot(t *testing.T, o office, stampRoot, tsa pki.Authority) []byte {
	t.Helper()
	chain := func(of ...pki.Authority) map[string]any {
		var all []any
		for _, a := range of {
			all = append(all, map[string]any{"rawBytes": a.Certificate.Raw})
		}
		return map[string]any{
			"subject": map[string]string{"organization": "corp", "commonName": "corp"}, "uri": "https://corp.example",
			"certChain": map[string]any{"certificates": all}, "validFor": map[string]any{"start": "2020-01-01T00:00:00Z"},
		}
	}
	data := must(json.Marshal(map[string]any{
		"mediaType":              "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
		"certificateAuthorities": []any{chain(o.issuer, o.root)}, "timestampAuthorities": []any{chain(tsa, stampRoot)},
	}))(t)
	return data
}
