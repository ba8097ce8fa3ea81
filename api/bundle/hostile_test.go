package bundle_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime/metrics"
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
	same := func(n int, d ocispec.Descriptor) (out []ocispec.Descriptor) {
		for range n {
			out = append(out, d)
		}
		return out
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
			images := c.images(b.Store)
			root := b.Graph.Root
			require.NoError(t, forged(b, func(r map[string]any) {
				children := r["manifests"].([]any)[:1]
				for i, d := range images {
					name := fmt.Sprintf("registry.test/image:%04d", i)
					d.Annotations = map[string]string{bundle.AnnotationReference: name}
					children = append(children, d)
				}
				r["manifests"] = children
			}, &root))
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
					found, err := g.Platforms(t.Context(), counted, &bundle.Lock{Platforms: []image.Platform{{}}})
					require.NoError(t, err)
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

func (c *counter) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	c.n++
	return c.f.Fetch(ctx, d)
}

// allocated is what was allocated so far, in bytes.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// forged makes a root of the bytes of another, in their canonical form.
func forged(b *bundles.Bundle, change func(map[string]any), root *ocispec.Descriptor) error {
	var m map[string]any
	if err := json.Unmarshal(b.Store[root.Digest.String()], &m); err != nil {
		return err
	}
	change(m)
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		return err
	}
	data, err = json.Marshal(index)
	*root = b.Store.Add(ocispec.MediaTypeImageIndex, data)
	return err
}
