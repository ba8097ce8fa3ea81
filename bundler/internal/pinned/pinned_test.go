package pinned

import (
	"context"
	"errors"
	"io"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// location is a source with blobs in memory.
type location struct {
	bundles.Store
	root  ocispec.Descriptor
	moves func() ocispec.Descriptor // what Root says; nil: root
	lists int
	can   medium.Capabilities
}

func (p *location) Root(context.Context) (ocispec.Descriptor, error) {
	if p.moves != nil {
		return p.moves(), nil
	}
	return p.root, nil
}

func (p *location) Attachments(context.Context, image.Digest) ([]ocispec.Descriptor, error) {
	p.lists++
	return make([]ocispec.Descriptor, p.lists), nil
}

func (p *location) Can() medium.Capabilities { return p.can }
func (p *location) Close() error             { return nil }

func described(data string) ocispec.Descriptor {
	return bundle.Plain(bundle.Blob(ocispec.MediaTypeImageLayer, []byte(data)))
}

func TestABundleStaysWhatItWasResolvedTo(t *testing.T) {
	asked := 0
	p := &location{moves: func() ocispec.Descriptor {
		asked++
		return described(string(rune('a' + asked)))
	}}
	b, err := Open(t.Context(), p)
	require.NoError(t, err)
	first := b.Descriptor()
	for range 3 {
		root, err := b.Root(t.Context())
		require.NoError(t, err)
		require.Equal(t, first, root)
		list, err := b.Attachments(t.Context(), b.Digest())
		require.NoError(t, err)
		require.Len(t, list, 1, "the list that was given first")
	}
	require.Equal(t, 1, asked)
}

// What a medium can do is known through every wrapper: of a delta with its base,
// everything that the delta can, but that nothing is left out, and the damage of both.
func TestCapabilitiesPassThroughWrappers(t *testing.T) {
	damaged := func(s string) func(context.Context) error {
		return func(context.Context) error { return errors.New(s + " is damaged") }
	}
	layer := described("a layer")
	delta := &location{root: described("delta"), can: medium.Capabilities{
		Base: &bundle.Base{}, Damage: damaged("delta"),
		CheckLayout: func(context.Context) error { return errors.New("layout of the delta") },
		Attach:      func(context.Context, ...bundle.Referrer) error { return errors.New("attached to the delta") },
	}}
	base := &location{root: described("base"), Store: bundles.Store{}, can: medium.Capabilities{Damage: damaged("base")}}
	base.Add(layer.MediaType, []byte("a layer"))
	one, err := Open(t.Context(), delta)
	require.NoError(t, err)
	other, err := Open(t.Context(), base)
	require.NoError(t, err)
	both, err := Open(t.Context(), &joined{Bundle: one, base: other, left: byDigest([]ocispec.Descriptor{layer})})
	require.NoError(t, err)

	can := both.Can()
	require.Nil(t, can.Base, "all of it is there")
	require.EqualError(t, can.CheckLayout(t.Context()), "layout of the delta")
	require.EqualError(t, can.Attach(t.Context(), bundle.Referrer{}), "attached to the delta")
	require.EqualError(t, can.Damage(t.Context()), "base is damaged\ndelta is damaged")
	wrong := both.Diagnosed(t.Context(), &fault.Error{Reason: fault.Corrupt, Op: "read"})
	require.ErrorContains(t, wrong, "base is damaged")
	passing := &fault.Error{Reason: fault.Unreachable, Op: "read"}
	require.Equal(t, error(passing), both.Diagnosed(t.Context(), passing), "nothing is read where content is not in doubt")

	r, err := both.Fetch(t.Context(), layer, 2)
	require.NoError(t, err)
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "layer", string(data), "from the base")
}
