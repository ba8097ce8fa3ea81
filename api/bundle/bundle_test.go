package bundle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

func TestAssembleIsDeterministicForAnyOrderOfInput(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 1})
	reversed := slices.Clone(b.Trees)
	slices.Reverse(reversed)
	again := must(bundle.Assemble(b.Contents, reversed))(t)
	require.Equal(t, b.Graph, again)
}

func TestLoadGivesWhatAssembleMade(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 2})
	got := must(bundle.Load(t.Context(), b.Store, b.Graph.Root))(t)
	c := must(got.Contents(t.Context(), b.Store))(t)
	require.Equal(t, b.Contents, *c)
}

func TestOrderHoldsEverythingOnceManifestsFirst(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 3})
	sig := bundles.Signature(t, image.MustDigest(b.Graph.Root.Digest.String()), 1)
	b.Graph.Attachments = []bundle.Referrer{sig}
	order := b.Graph.Order()
	seen := map[digest.Digest]bool{}
	for i, d := range order {
		require.False(t, seen[d.Digest], d.Digest)
		seen[d.Digest] = true
		if i < len(b.Graph.Manifests) {
			require.True(t, bundle.IsManifest(d.MediaType))
		}
	}
	require.Len(t, order, len(b.Graph.Manifests)+len(b.Graph.Blobs)+1+len(sig.Blobs))
}

func TestEveryMissingPartIsIncompleteAndNamed(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 4})
	for _, n := range b.Graph.Manifests[:len(b.Graph.Manifests)-1] {
		key := n.Descriptor.Digest.String()
		data := b.Store[key]
		delete(b.Store, key)
		_, err := bundle.Load(t.Context(), b.Store, b.Graph.Root)
		require.Equal(t, fault.Incomplete, fault.ReasonOf(err), key)
		require.ErrorContains(t, err, key)
		b.Store[key] = data
	}
	delete(b.Store, b.Graph.Root.Digest.String())
	_, err := bundle.Load(t.Context(), b.Store, b.Graph.Root)
	require.Equal(t, fault.NotFound, fault.ReasonOf(err))
}

func TestEveryFlippedByteOfAManifestIsFound(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 5, LayerSize: 10, Layers: 1}) // each byte is one reading of all manifests
	for _, n := range b.Graph.Manifests {
		data := append([]byte{}, n.Data...)
		b.Store[n.Descriptor.Digest.String()] = data
		for i := range data {
			data[i] ^= 1
			_, err := bundle.Load(t.Context(), b.Store, b.Graph.Root)
			require.Error(t, err, "byte %d of %s", i, n.Descriptor.Digest)
			require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
			data[i] ^= 1
		}
	}
}

func TestProblemsOfSeveralImagesAreReportedTogether(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 6})
	images := b.Graph.Images()
	delete(b.Store, images[0].Digest.String())
	b.Store[images[1].Digest.String()] = []byte("other")
	_, err := bundle.Load(t.Context(), b.Store, b.Graph.Root)
	require.ErrorContains(t, err, images[0].Annotations[bundle.AnnotationReference])
	require.ErrorContains(t, err, images[1].Annotations[bundle.AnnotationReference])
}

// forge makes a root of other bytes and gives what Load says to it.
func forge(t *testing.T, b *bundles.Bundle, change func(map[string]any)) error {
	var root map[string]any
	require.NoError(t, json.Unmarshal(b.Store[b.Graph.Root.Digest.String()], &root))
	change(root)
	data := must(json.Marshal(root))(t)
	_, err := bundle.Load(t.Context(), b.Store, b.Store.Add(ocispec.MediaTypeImageIndex, data))
	return err
}

func TestRootsOfAnotherFormAreRefused(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 7})
	child := func(root map[string]any, i int) map[string]any { return root["manifests"].([]any)[i].(map[string]any) }
	for _, c := range []struct {
		name, want string
		change     func(map[string]any)
	}{
		{"other artifact", "artifact type", func(r map[string]any) { r["artifactType"] = "x" }},
		{"extra key", "does not know", func(r map[string]any) { r["subject"] = nil }},
		{"keys in another order", "does not know", func(map[string]any) {}},
		{"no children", "contents manifest", func(r map[string]any) { r["manifests"] = nil }},
		{"contents not first", "contents manifest", func(r map[string]any) {
			m := r["manifests"].([]any)
			m[0], m[1] = m[1], m[0]
		}},
		{"schema 1", "schema version", func(r map[string]any) { r["schemaVersion"] = 1 }},
		{"media type", "says that it is", func(r map[string]any) { r["mediaType"] = "text/plain" }},
		{"index and manifest at once", "at once", func(r map[string]any) { r["layers"] = []any{} }},
		{"no reference", `annotated with ""`, func(r map[string]any) { delete(child(r, 1), "annotations") }},
		{"bad reference", "full image reference", func(r map[string]any) {
			child(r, 1)["annotations"] = map[string]any{bundle.AnnotationReference: "a"}
		}},
		{"twice", "not sorted, or one is there twice", func(r map[string]any) { child(r, 2)["annotations"] = child(r, 1)["annotations"] }},
		{"unsorted", "not sorted", func(r map[string]any) {
			m := r["manifests"].([]any)
			m[1], m[2] = m[2], m[1]
		}},
	} {
		t.Run(c.name, func(t *testing.T) { require.ErrorContains(t, forge(t, b, c.change), c.want) })
	}
	_, err := bundle.Load(t.Context(), b.Store, b.Graph.Images()[0])
	require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), "an upstream image is not a bundle")
}

func TestContentsOfAnotherFormAreRefused(t *testing.T) {
	for name, change := range map[string]func(m *ocispec.Manifest){
		"another order": func(m *ocispec.Manifest) { slices.Reverse(m.Layers) },
		"twice":         func(m *ocispec.Manifest) { m.Layers = append(m.Layers, m.Layers[0]) },
		"unknown":       func(m *ocispec.Manifest) { m.Layers[0].MediaType = "application/x" },
		"another title": func(m *ocispec.Manifest) { m.Layers[0].Annotations = nil },
		"annotations":   func(m *ocispec.Manifest) { m.Annotations = map[string]string{"x": "y"} },
		"artifact":      func(m *ocispec.Manifest) { m.ArtifactType = "x" },
		"config":        func(m *ocispec.Manifest) { m.Config.MediaType = "x" },
	} {
		b := bundles.New(t, bundles.Options{Seed: 7})
		var root ocispec.Index
		var m ocispec.Manifest
		require.NoError(t, json.Unmarshal(b.Store[b.Graph.Root.Digest.String()], &root))
		require.NoError(t, json.Unmarshal(b.Store[root.Manifests[0].Digest.String()], &m))
		change(&m)
		root.Manifests[0] = b.Store.Add(ocispec.MediaTypeImageManifest, bundle.NewManifest(m).Data)
		root.Manifests[0].ArtifactType = bundle.ContentsArtifactType
		forged := b.Store.Add(ocispec.MediaTypeImageIndex, bundle.NewIndex(root).Data)
		g := must(bundle.Load(t.Context(), b.Store, forged))(t)
		_, err := g.Contents(t.Context(), b.Store)
		require.Equal(t, fault.Corrupt, fault.ReasonOf(err), name)
		require.ErrorContains(t, err, "parts that this version of the format does not know", name)
	}
}

func TestALockThatDisagreesIsRefusedWithEveryDifference(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 8})
	for _, title := range []string{"matrix.yaml", "matrix.yaml.sig", b.Trees[0].Reference.String()} {
		c := b.Contents
		c.Manifests = maps.Clone(c.Manifests)
		c.Manifests[title] = []byte("x")
		_, err := bundle.Assemble(c, b.Trees)
		require.Equal(t, fault.Corrupt, fault.ReasonOf(err), title)
	}
	c := b.Contents
	c.Matrix = []byte("another")
	c.Manifests = map[string][]byte{"csi/3.5.1/driver.yaml": []byte("x"), "csi/3.5.1/extra.yaml": nil}
	_, err := bundle.Assemble(c, b.Trees[1:])
	for _, want := range []string{
		"matrix.yaml: expected sha256:", "driver.yaml: expected sha256:", "registry.test/docker/list:v2 of the lock is missing",
		`the bundle holds "csi/3.5.1/extra.yaml", which is not in the lock`,
	} {
		require.ErrorContains(t, err, want)
	}
	other := b.Trees[0]
	other.Reference = image.MustReference("registry.test/not/locked:v1")
	_, err = bundle.Assemble(b.Contents, append([]bundle.Tree{other}, b.Trees...))
	require.ErrorContains(t, err, `the bundle holds "registry.test/not/locked:v1", which is not in the lock`)
	_, err = bundle.Assemble(b.Contents, append([]bundle.Tree{b.Trees[0]}, b.Trees...))
	require.ErrorContains(t, err, "one is there twice: registry.test/docker/list:v2 after registry.test/docker/list:v2")
}

func TestReadTreeRefusesHostileManifests(t *testing.T) {
	s := bundles.Store{}
	config := s.Add(ocispec.MediaTypeImageConfig, []byte("{}"))
	index := func(children ...ocispec.Descriptor) ocispec.Descriptor { return indexOf(s, children...) }
	manifest := func(layers ...ocispec.Descriptor) ocispec.Descriptor {
		data := must(json.Marshal(map[string]any{"schemaVersion": 2, "config": config, "layers": layers}))(t)
		return s.Add(ocispec.MediaTypeImageManifest, data)
	}
	deep := manifest()
	for range bundle.MaxDepth + 1 {
		deep = index(deep)
	}
	bigger := manifest()
	bigger.Size++
	docker := manifest()
	docker.MediaType = "application/vnd.docker.distribution.manifest.v2+json"
	layer := func(digestOf string, size int64) ocispec.Descriptor {
		return ocispec.Descriptor{Digest: digest.FromString(digestOf), Size: size}
	}
	for _, c := range []struct {
		name, want string
		root       ocispec.Descriptor
	}{
		{"depth", "nested deeper", deep},
		{"size", "missing", bigger},
		{"two media types", "other size or media type", index(manifest(), docker)},
		{"no manifest", "neither an image index", config}, // what an index names of an unknown kind is passed over
		{"not JSON", "not a manifest", s.Add(ocispec.MediaTypeImageManifest, []byte("{"))},
		{"no config", "without a config", s.Add(ocispec.MediaTypeImageManifest, []byte(`{"schemaVersion":2}`))},
		{"sha512", "not a sha256 digest", manifest(ocispec.Descriptor{Digest: "sha512:00"})},
		{"negative size", "cannot be", manifest(layer("a", -1))},
		{"two sizes", "named with 1 and with 2 bytes", manifest(layer("a", 1), layer("a", 2))},
		{"manifest and index", "at once", s.Add(ocispec.MediaTypeImageManifest, []byte(`{"schemaVersion":2,"config":{},"manifests":[]}`))},
		{"too large", "claims", ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digest.FromString("x"), Size: bundle.MaxManifestSize + 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := bundle.ReadTree(t.Context(), s, c.root)
			require.ErrorContains(t, err, c.want)
			require.NotEqual(t, fault.Internal, fault.ReasonOf(err))
		})
	}
	foreign := manifest(ocispec.Descriptor{
		MediaType: "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", Digest: digest.FromString("w"), Size: 9, URLs: []string{"https://far/w"},
	})
	tree := must(bundle.ReadTree(t.Context(), s, foreign))(t)
	require.Len(t, tree.Blobs, 2, "foreign layers are carried like all others")
}

func TestPickPlatform(t *testing.T) {
	entry := func(p string, platform string) string {
		return fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":1,"platform":%s}`, ocispec.MediaTypeImageManifest, digest.FromString(p), platform)
	}
	index := []byte(`{"manifests":[` + strings.Join([]string{
		entry("a", `{"os":"linux","architecture":"amd64"}`),
		entry("b", `{"os":"linux","architecture":"arm64","variant":"v8"}`),
		entry("c", `{"os":"windows","architecture":"amd64","os.version":"10.0.17763"}`),
		entry("d", `{"os":"windows","architecture":"amd64","os.version":"10.0.20348"}`),
		entry("e", `{"os":"unknown","architecture":"unknown"}`),
	}, ",") + `]}`)
	for _, c := range []struct {
		platform, is string
		reason       fault.Reason
	}{
		{"linux/amd64", "a", ""}, {"linux/arm64", "b", ""}, {"linux/arm64/v8", "b", ""},
		{"linux/arm64/v7", "", fault.NotFound}, {"linux/s390x", "", fault.NotFound}, {"windows/amd64", "", fault.Conflict},
	} {
		p := must(image.ParsePlatform(c.platform))(t)
		d, err := bundle.PickPlatform(index, p)
		require.Equal(t, c.reason, fault.ReasonOf(err), c.platform)
		if c.is != "" {
			require.Equal(t, digest.FromString(c.is), d.Digest)
		}
	}
	_, err := bundle.PickPlatform([]byte("["), image.Platform{})
	require.Equal(t, fault.Corrupt, fault.ReasonOf(err))
}

func TestAttachments(t *testing.T) {
	subject := image.DigestOf([]byte("root"))
	a := bundles.Signature(t, subject, 1)
	s := bundles.Store{a.Node.Descriptor.Digest.String(): a.Node.Data}
	d := a.Node.Descriptor
	d.Annotations = map[string]string{ocispec.AnnotationRefName: a.Tag}
	got := must(bundle.ReadReferrer(t.Context(), s, subject, d))(t)
	require.Equal(t, a.Tag, got.Tag)
	require.Equal(t, a.Node, got.Node)
	d.Annotations = nil
	_, err := bundle.ReadReferrer(t.Context(), s, subject, d)
	require.ErrorContains(t, err, "its subject is another")
}

func TestVerifyFindsShortLongAndOtherBytes(t *testing.T) {
	data := []byte("some bytes")
	d := bundles.Store{}.Add("", data)
	for _, wrap := range []func(io.Reader) io.Reader{
		func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader,
	} {
		got := must(io.ReadAll(bundle.Verify(wrap(bytes.NewReader(data)), d)))(t)
		require.Equal(t, data, got)
		_, err := io.ReadAll(bundle.Verify(wrap(bytes.NewReader(data[1:])), d))
		require.Equal(t, fault.Incomplete, fault.ReasonOf(err))
		_, err = io.ReadAll(bundle.Verify(wrap(bytes.NewReader(append(data[:10:10], 'x'))), d))
		require.ErrorContains(t, err, "more than its 10 bytes")
		_, err = io.ReadAll(bundle.Verify(wrap(strings.NewReader("some bytez")), d))
		require.EqualError(t, errors.Unwrap(err), (&bundle.DigestError{Expected: d.Digest, Got: digest.FromString("some bytez")}).Error())
		broken := io.MultiReader(wrap(bytes.NewReader(data[:5])), iotest.ErrReader(syscall.EIO))
		_, err = io.ReadAll(bundle.Verify(broken, d))
		require.Equal(t, fault.Storage, fault.ReasonOf(err), "trying again does not help")
		require.Contains(t, fault.HintOf(err), "check the medium")
	}
}

func FuzzLoad(f *testing.F) {
	b := bundles.New(f, bundles.Options{Seed: 9, LayerSize: 10, Layers: 1})
	for _, n := range b.Graph.Manifests {
		f.Add(n.Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := maps.Clone(b.Store)
		for _, mediaType := range []string{ocispec.MediaTypeImageIndex, ocispec.MediaTypeImageManifest} {
			d := s.Add(mediaType, data)
			if g, err := bundle.Load(t.Context(), s, d); err == nil {
				again := must(bundle.Load(t.Context(), s, g.Root))(t)
				require.Equal(t, g, again)
			}
			if tree, err := bundle.ReadTree(t.Context(), s, d); err == nil {
				require.Equal(t, d.Digest, tree.Nodes[len(tree.Nodes)-1].Descriptor.Digest)
			}
		}
	})
}

// The image specification: an unknown media type in an index is no error. It is passed
// over, and reported.
func TestUnknownMediaTypesInAnIndexArePassedOver(t *testing.T) {
	s := bundles.Store{}
	config := s.Add(ocispec.MediaTypeImageConfig, []byte("{}"))
	index := func(children ...ocispec.Descriptor) ocispec.Descriptor { return indexOf(s, children...) }
	manifest := must(json.Marshal(map[string]any{"schemaVersion": 2, "config": config}))(t)
	unknown := ocispec.Descriptor{MediaType: "application/vnd.new+json", Digest: digest.FromString("new"), Size: 3}
	tree := must(bundle.ReadTree(t.Context(), s, index(s.Add(ocispec.MediaTypeImageManifest, manifest), unknown)))(t)
	require.Equal(t, []ocispec.Descriptor{unknown}, tree.Ignored)
	require.Len(t, tree.Nodes, 2)
	require.False(t, tree.IsEmpty())
	for _, nothing := range []ocispec.Descriptor{index(), index(unknown), index(index())} {
		tree := must(bundle.ReadTree(t.Context(), s, nothing))(t)
		require.True(t, tree.IsEmpty())
	}
}

// Trees that are within their bounds may be beyond those of a bundle when they are put
// together: what no one could read is not made.
func TestWhatCannotBeReadIsNotAssembled(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 9})
	locked := &b.Contents.Lock.Images[0]
	at := slices.IndexFunc(b.Trees, func(tree bundle.Tree) bool { return tree.Reference == locked.Reference })
	deep := b.Trees[at].Root
	for bundle.IsManifest(deep.MediaType) {
		next := indexOf(b.Store, deep)
		tree, err := bundle.ReadTree(t.Context(), b.Store, next)
		if err != nil {
			break // as deep as a tree may be
		}
		tree.Reference = locked.Reference
		deep, b.Trees[at] = next, tree
	}
	root := b.Trees[at].Root
	locked.Digest, locked.MediaType, locked.Size = image.MustDigest(root.Digest.String()), root.MediaType, root.Size
	_, err := bundle.Assemble(b.Contents, b.Trees)
	require.Equal(t, fault.Refused, fault.ReasonOf(err), err)
	require.ErrorContains(t, err, "no reader would accept it: indexes are nested deeper")
}

// must gives what a call returns, which may not fail.
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		require.NoError(t, err)
		return v
	}
}
