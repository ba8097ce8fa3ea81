package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
)

// forge is a folder that someone changes who has no key of the policy.
type forge struct {
	t   *testing.T
	dir string
}

func (f forge) read(d ocispec.Descriptor) []byte {
	f.t.Helper()
	data := must(os.ReadFile(filepath.Join(f.dir, "blobs", "sha256", d.Digest.Encoded())))(f.t)
	return data
}

func (f forge) put(mediaType string, data []byte) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	require.NoError(f.t, os.WriteFile(filepath.Join(f.dir, "blobs", "sha256", d.Digest.Encoded()), data, 0o600))
	return d
}

func (f forge) putJSON(mediaType string, v any) ocispec.Descriptor {
	f.t.Helper()
	data := must(json.Marshal(v))(f.t)
	return f.put(mediaType, data)
}

// index changes index.json.
func (f forge) index(change func(*ocispec.Index)) {
	path := filepath.Join(f.dir, "index.json")
	data := must(os.ReadFile(path))(f.t)
	var index ocispec.Index
	require.NoError(f.t, json.Unmarshal(data, &index))
	change(&index)
	data = must(json.Marshal(index))(f.t)
	require.NoError(f.t, os.WriteFile(path, data, 0o600))
}

// named finds an entry of index.json by the end of its name.
func (f forge) named(end string) (found ocispec.Descriptor) {
	f.index(func(i *ocispec.Index) {
		for _, d := range i.Manifests {
			if strings.HasSuffix(d.Annotations[ocispec.AnnotationRefName], end) {
				found = d
			}
		}
	})
	require.NotEmpty(f.t, found.Digest, end)
	return found
}

// signature is the one signature's layer, with its claim.
func (f forge) signature() (layer ocispec.Descriptor, claim []byte) {
	var m ocispec.Manifest
	require.NoError(f.t, json.Unmarshal(f.read(f.named(".sig")), &m))
	return m.Layers[0], f.read(m.Layers[0])
}

// sign puts a signature manifest with these layers under the tag of the root.
func (f forge) sign(root ocispec.Descriptor, layers ...ocispec.Descriptor) {
	f.t.Helper()
	f.attach(root, ".sig", layers...)
}

// attach puts a manifest with these layers under a tag of the subject, with no end as a referrer.
func (f forge) attach(subject ocispec.Descriptor, end string, layers ...ocispec.Descriptor) ocispec.Descriptor {
	f.t.Helper()
	m := ocispec.Manifest{Config: f.put(ocispec.MediaTypeImageConfig, []byte("{}")), Layers: layers}
	if end == "" {
		of := bundle.Plain(subject)
		m.Subject, m.ArtifactType = &of, "application/x"
	}
	d := f.put(ocispec.MediaTypeImageManifest, bundle.NewManifest(m).Data)
	d.ArtifactType = m.ArtifactType
	tag := "sha256-" + subject.Digest.Encoded() + end
	if end != "" {
		d.Annotations = map[string]string{ocispec.AnnotationRefName: tag}
	}
	f.index(func(i *ocispec.Index) {
		at := slices.IndexFunc(i.Manifests, func(d ocispec.Descriptor) bool {
			return d.Annotations[ocispec.AnnotationRefName] == tag
		})
		if at < 0 {
			i.Manifests = append(i.Manifests, d)
			return
		}
		i.Manifests[at] = d // the order is that of the tags
	})
	return d
}

func withoutName(in []ocispec.Descriptor, end string) (out []ocispec.Descriptor) {
	for _, d := range in {
		if !strings.HasSuffix(d.Annotations[ocispec.AnnotationRefName], end) {
			out = append(out, d)
		}
	}
	return out
}

// TestAttackersBundlesAreRefused changes bundles as one can who has the medium, other
// bundles that were signed, and keys of his own, and demands that verify and push
// refuse each, with the reason.
func TestAttackersBundlesAreRefused(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.key(t, "release")
	// Two honest bundles: one of an older selection, signed; one of today, signed.
	w.ends(t, 0, "pull", "@up", "-q", "--k8s", "1.33", "--sign-key", "release.key", "--signature-format", "simple", "-o", "oci:older")
	w.ends(t, 0, "pull", "@up", "-q", "--sign-key", "release.key", "--signature-format", "simple", "-o", "oci:today")
	older := forge{t, filepath.Join(w.dir, "older")}
	layer, claim := older.signature()

	for name, attack := range map[string]struct {
		change func(t *testing.T, f forge, root ocispec.Descriptor)
		code   int
		want   string
	}{
		"stripped": {func(t *testing.T, f forge, _ ocispec.Descriptor) {
			f.index(func(i *ocispec.Index) { i.Manifests = withoutName(i.Manifests, ".sig") })
		}, 3, "it has no signature"},
		"transplanted, with the claim made to fit": {func(t *testing.T, f forge, root ocispec.Descriptor) {
			forged := bytes.ReplaceAll(claim, []byte(older.named("bundle").Digest), []byte(root.Digest))
			d := f.put(layer.MediaType, forged)
			d.Annotations = layer.Annotations
			f.sign(root, d)
		}, 3, "by none of these keys"},
		"another root under the signed name": {func(t *testing.T, f forge, root ocispec.Descriptor) {
			var index ocispec.Index
			require.NoError(t, json.Unmarshal(f.read(root), &index))
			index.Manifests = index.Manifests[:len(index.Manifests)-1]
			d := f.putJSON(ocispec.MediaTypeImageIndex, index)
			f.index(func(i *ocispec.Index) {
				for n := range i.Manifests {
					if i.Manifests[n].Digest == root.Digest {
						i.Manifests[n].Digest, i.Manifests[n].Size = d.Digest, d.Size
					}
				}
			})
		}, 3, "it has no signature"},
		"other bytes under the root's digest": {func(t *testing.T, f forge, root ocispec.Descriptor) {
			data := f.read(root)
			data[len(data)/2] ^= 1
			require.NoError(t, os.WriteFile(filepath.Join(f.dir, "blobs", "sha256", root.Digest.Encoded()), data, 0o600))
		}, 3, "expected sha256:"},
		"signed, and without an image that a manifest names": {func(t *testing.T, f forge, root ocispec.Descriptor) {
			f.withoutImage(root, "registry.test/csi/sidecar:v1")
			w.ends(t, 0, "sign", "oci:forged", "--key", "release.key")
		}, 9, "the lock lacks the image registry.test/csi/sidecar:v1, which "},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "forged")))
			require.NoError(t, os.CopyFS(filepath.Join(w.dir, "forged"), os.DirFS(filepath.Join(w.dir, "today"))))
			w.ends(t, 0, "verify", "-q", "oci:forged", "--key", "release.pub")
			f := forge{t, filepath.Join(w.dir, "forged")}
			attack.change(t, f, f.named("bundle"))
			require.Contains(t, w.ends(t, attack.code, "verify", "-q", "oci:forged", "--key", "release.pub"), attack.want)
			to := w.mirror.Host + "/vdo/forged:1"
			w.ends(t, attack.code, "push", "-q", "oci:forged", to, "--ca-file", "ca.crt", "--key", "release.pub")
			w.ends(t, 4, "inspect", to, "--ca-file", "ca.crt")
		})
	}
}

// withoutImage takes an image out of the bundle: from the root, and from its lock.
func (f forge) withoutImage(root ocispec.Descriptor, reference string) {
	var index ocispec.Index
	var contents ocispec.Manifest
	var lock map[string]any
	require.NoError(f.t, json.Unmarshal(f.read(root), &index))
	require.NoError(f.t, json.Unmarshal(f.read(index.Manifests[0]), &contents))
	require.NoError(f.t, json.Unmarshal(f.read(contents.Config), &lock))
	for _, r := range lock["releases"].([]any) {
		delete(r.(map[string]any)["images"].(map[string]any), reference)
	}
	lock["images"] = slices.DeleteFunc(lock["images"].([]any), func(i any) bool {
		return i.(map[string]any)["reference"] == reference
	})
	contents.Config = f.putJSON(contents.Config.MediaType, lock)
	d := f.putJSON(ocispec.MediaTypeImageManifest, contents)
	index.Manifests[0].Digest, index.Manifests[0].Size = d.Digest, d.Size
	index.Manifests = slices.DeleteFunc(index.Manifests, func(d ocispec.Descriptor) bool {
		return d.Annotations["vdo.vmware.com/reference"] == reference
	})
	d = f.putJSON(ocispec.MediaTypeImageIndex, index)
	f.index(func(i *ocispec.Index) {
		i.Manifests = withoutName(withoutName(withoutName(i.Manifests, ".sig"), ".att"), reference)
		i.Manifests[0].Digest, i.Manifests[0].Size = d.Digest, d.Size
	})
}
