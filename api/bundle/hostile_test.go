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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

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
