package bundle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// Every part belongs to the images whose trees have it, or to the contents, and to
// nothing else.
func TestOwnersAreTheImagesThatHaveAPart(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 1})
	want := map[digest.Digest][]string{}
	for _, tree := range b.Trees {
		for _, n := range tree.Nodes {
			want[n.Descriptor.Digest] = append(want[n.Descriptor.Digest], tree.Reference.String())
		}
		for _, d := range tree.Blobs {
			want[d.Digest] = append(want[d.Digest], tree.Reference.String())
		}
	}
	owners := b.Graph.Owners()
	for d, names := range want {
		require.ElementsMatch(t, names, owners[d])
	}
	for d, names := range owners {
		if len(want[d]) == 0 {
			require.Equal(t, []string{bundle.ContentsName}, names)
		}
	}
	for _, d := range b.Graph.Omitted() {
		require.True(t, strings.HasPrefix(owners.Name(d), "layer of "), owners.Name(d))
	}
	require.Equal(t, "index of the bundle", owners.Name(b.Graph.Root))

	tree := b.Trees[0]
	referrers := bundles.Signature(t, image.MustDigest(tree.Root.Digest.String()), 1)
	aboutIt := bundles.Signature(t, image.MustDigest(referrers.Node.Descriptor.Digest.String()), 2)
	aboutAll := bundles.Signature(t, image.MustDigest(b.Graph.Root.Digest.String()), 3)
	b.Graph.Attachments = []bundle.Referrer{referrers, aboutIt, aboutAll}
	owners = b.Graph.Owners()
	for _, a := range []bundle.Referrer{referrers, aboutIt} {
		require.Equal(t, "manifest of a referrer of "+tree.Reference.String(), owners.Name(a.Node.Descriptor))
	}
	require.Equal(t, "manifest of a referrer of the bundle", owners.Name(aboutAll.Node.Descriptor))
}

// What is below an image is its tree, with what is attached to any of it, and to that.
func TestBelowAnImageIsItsTree(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 1})
	one, other := b.Trees[0], b.Trees[1]
	referrers := bundles.Signature(t, image.MustDigest(one.Nodes[0].Descriptor.Digest.String()), 1)
	aboutIt := bundles.Signature(t, image.MustDigest(referrers.Node.Descriptor.Digest.String()), 2)
	elsewhere := bundles.Signature(t, image.MustDigest(b.Graph.Root.Digest.String()), 3)
	b.Graph.Attachments = []bundle.Referrer{referrers, aboutIt, elsewhere}

	below := b.Graph.Below(one.Root)
	require.ElementsMatch(t, one.Nodes, below.Manifests)
	require.Equal(t, one.Root.Digest, below.Manifests[len(below.Manifests)-1].Descriptor.Digest, "children come first")
	require.Len(t, below.Blobs, len(one.Blobs))
	require.Equal(t, []bundle.Referrer{referrers, aboutIt}, below.Attachments)
	require.Empty(t, b.Graph.Below(other.Root).Attachments)

	var size int64
	for _, n := range one.Nodes {
		size += n.Descriptor.Size
	}
	require.Equal(t, size+bundle.SizeOf(one.Blobs), b.Graph.SizeBelow(one.Root))
	require.Equal(t, b.Graph.Size(), b.Graph.SizeBelow(b.Graph.Root))
	require.Len(t, b.Graph.Subjects(), len(b.Graph.Manifests))
}

func TestSizesOfADeltaAddUp(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 1})
	require.Nil(t, b.Graph.OmittedList())
	require.Equal(t, b.Graph.Size(), b.Graph.HeldSize())
	require.NoError(t, b.Graph.OmitFor(b.Graph.Without(someRoot, func(image.Digest) bool { return true })))
	left := b.Graph.OmittedList()
	require.Equal(t, someRoot, left.Base)
	require.Equal(t, len(b.Graph.Omitted()), left.Layers)
	require.Positive(t, left.Bytes)
	require.Equal(t, b.Graph.Size(), b.Graph.HeldSize()+left.Bytes)
}

func TestRootsAreToldFromOtherThings(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 1})
	is := must(bundle.IsRoot(t.Context(), b.Store, b.Graph.Root))(t)
	require.True(t, is)
	for _, tree := range b.Trees {
		is := must(bundle.IsRoot(t.Context(), b.Store, tree.Root))(t)
		require.False(t, is)
	}
	data := b.Graph.InMemory()
	for _, n := range b.Graph.All() {
		require.Equal(t, n.Data, data[n.Descriptor.Digest])
	}
}

// serviceLock is a lock of services alone: "haproxy@3.2.23" and the like.
func serviceLock(t *testing.T, ids ...string) *bundle.Lock {
	l := &bundle.Lock{
		APIVersion: bundle.LockAPIVersion, Kind: bundle.LockKind, Platforms: []image.Platform{{}},
		Matrix: bundle.MatrixRef{Serial: 1, Digest: image.DigestOf([]byte("matrix")), Size: 6},
	}
	for _, id := range ids {
		r := bundle.Release{Driver: bundle.JumpHost}
		if parsed, err := matrix.ParseServiceID(id); err == nil {
			r.Driver, r.Version = parsed.Driver, parsed.Version
		} else {
			require.NoError(t, r.Version.UnmarshalText([]byte(id[len("vdo-jumphost@"):])))
		}
		ref := must(image.ParseReference("registry.test/" + string(r.Driver) + ":v" + r.Version.String()))(t)
		r.Images = map[string]string{ref.String(): ref.String()}
		l.Releases = append(l.Releases, r)
		l.Images = append(l.Images, bundle.Image{
			Reference: ref, Digest: image.DigestOf([]byte(id)), MediaType: "application/vnd.oci.image.index.v1+json", Size: 7, UsedBy: []string{r.ID()},
		})
	}
	l.Sort()
	return l
}

func TestServicesOfALock(t *testing.T) {
	doc := must(matrix.Parse(matrix.DefaultName, matrix.Default()))(t)
	l := serviceLock(t, "haproxy@2.6.33", "haproxy@2.8.28", "dex@2.34.0", "vdo-jumphost@1.9.0", "vdo-jumphost@1.10.0")
	require.NoError(t, l.Validate())
	data := must(l.JSON())(t)
	l = must(bundle.ParseLock("lock", data))(t)

	i, v, err := l.Service(matrix.HAProxy, doc)
	require.NoError(t, err)
	require.Equal(t, "2.8.28", v.String(), "the deprecated one is not taken")
	require.Equal(t, image.DigestOf([]byte("haproxy@2.8.28")), i.Digest)
	i, v, err = l.Service(bundle.JumpHost, doc)
	require.NoError(t, err)
	require.Equal(t, "1.10.0", v.String())
	require.Equal(t, "registry.test/vdo-jumphost:v1.10.0", i.Reference.String())

	_, _, err = l.Service(matrix.Dex, doc)
	require.Equal(t, fault.NotFound, fault.ReasonOf(err), "%v: 2.34.0 is withdrawn", err)
	_, _, err = serviceLock(t, "dex@2.44.0").Service(matrix.HAProxy, doc)
	require.ErrorContains(t, err, "find service haproxy: the bundle holds no release of it")
	require.Contains(t, fault.HintOf(err), "--services sip")
}

func TestServicesThatALockCannotHave(t *testing.T) {
	l := serviceLock(t, "haproxy@3.2.23")
	l.Releases[0].Manifests = []bundle.File{{Name: "x.yaml", URL: "https://x.test/x.yaml", Digest: image.DigestOf(nil), Size: 1}}
	require.ErrorContains(t, l.Validate(), "releases[0].manifests: haproxy is a service, which has none")
	l = serviceLock(t, "haproxy@3.2.23", "dex@2.44.0")
	l.Releases[0].Images["registry.test/other:1"] = l.Releases[1].Images["registry.test/haproxy:v3.2.23"]
	require.ErrorContains(t, l.Validate(), "releases[0].images: dex is a service, which has one, not 2")
	l = serviceLock(t, "haproxy@3.2.23")
	l.Releases[0].Driver = "nginx"
	require.ErrorContains(t, l.Validate(), `"nginx" is none of`)
}

// A hostile index stays within a few seconds and megabytes, whether it can be read or not,
// and its problems can be read by a person.
func TestHostileIndexesAreReadWithinBounds(t *testing.T) {
	missing := func(n int) (out []ocispec.Descriptor) {
		for i := range n {
			d := digest.FromString(fmt.Sprint(i))
			out = append(out, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: d, Size: 1})
		}
		return out
	}
	same := func(n int, d ocispec.Descriptor) []ocispec.Descriptor {
		return slices.Repeat([]ocispec.Descriptor{d}, n)
	}
	for name, c := range map[string]struct {
		images func(s bundles.Store) []ocispec.Descriptor
		want   string // "": it can be read
	}{
		"one index of missing children, named by thousands": {func(s bundles.Store) []ocispec.Descriptor {
			return same(1, indexOf(s, same(20_000, indexOf(s, missing(4000)...))...))
		}, "3950 more problems"},
		"three times thousands": {func(s bundles.Store) []ocispec.Descriptor {
			return same(1, indexOf(s, same(20_000, indexOf(s, same(20_000, indexOf(s, missing(9000)...))...))...))
		}, "more than 4096 indexes"},
		"a million empty entries": {func(s bundles.Store) []ocispec.Descriptor {
			index := `{"schemaVersion":2,"manifests":[{}` + strings.Repeat(",{}", 1_300_000) + `]}`
			return same(1, s.Add(ocispec.MediaTypeImageIndex, []byte(index)))
		}, "more than 131072 entries"},
		"one manifest, named by thousands": {func(s bundles.Store) []ocispec.Descriptor {
			d := manifestOf(s, `{"os":"linux","architecture":"amd64"}`)
			return same(1, indexOf(s, same(20_000, indexOf(s, same(20_000, d)...))...))
		}, ""},
		"one large index in hundreds of images": {func(s bundles.Store) (out []ocispec.Descriptor) {
			large := indexOf(s, same(20_000, manifestOf(s, `{}`))...)
			for i := range 1000 {
				out = append(out, indexOf(s, large, manifestOf(s, fmt.Sprint(i))))
			}
			return out
		}, "more than 131072 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			b := bundles.New(t, bundles.Options{Seed: 9})
			var index ocispec.Index
			require.NoError(t, json.Unmarshal(b.Store[b.Graph.Root.Digest.String()], &index))
			index.Manifests = index.Manifests[:1]
			for i, d := range c.images(b.Store) {
				name := fmt.Sprintf("registry.test/image:%04d", i)
				d.Annotations = map[string]string{bundle.AnnotationReference: name}
				index.Manifests = append(index.Manifests, d)
			}
			root := b.Store.Add(ocispec.MediaTypeImageIndex, must(json.Marshal(index))(t))
			before, began := allocated(), time.Now()
			counted := &counter{f: b.Store}
			g, err := bundle.Load(t.Context(), counted, root)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				require.Less(t, len(fault.All(err)), 200)
			} else {
				require.NoError(t, err)
				g.Owners()
				for _, d := range g.Images() {
					g.SizeBelow(d)
					found := must(g.Platforms(t.Context(), counted, &bundle.Lock{Platforms: []image.Platform{{}}}))(t)
					require.Len(t, found, 1)
				}
			}
			require.Less(t, time.Since(began), 10*time.Second)
			require.Less(t, allocated()-before, uint64(160<<20)) // about half is garbage
			require.Less(t, counted.n, 5000, "each digest is asked for once")
		})
	}
}

type counter struct {
	f bundle.Fetcher
	n int
}

func (c *counter) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	c.n++
	return c.f.Fetch(ctx, d, offset)
}

// allocated is what was allocated so far, in bytes.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
