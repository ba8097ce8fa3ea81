package list

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

func TestTagsOfAttachmentsAreNoBundles(t *testing.T) {
	hex := strings.Repeat("a", 64)
	for tag, want := range map[string]bool{
		"sha256-" + hex: true, "sha256-" + hex + ".sig": true, "sha256-" + hex + ".att": true, "sha256-" + hex + ".sbom": true, "sha256-" + hex + ".confirmed": true,
		"sha256-" + hex + ".other": false, "sha256-" + hex + "0": false, "sha256-abc.sig": false, "v1": false, "": false,
	} {
		require.Equal(t, want, IsReferrerTag(tag), tag)
	}
}

// ruin is a repository with a bundle that may have lost its tag.
type ruin struct {
	Repository
	medium.Source
	*bundles.Bundle
	tags    []string
	fetched *atomic.Int64 // without roots
}

func (r ruin) Tags(context.Context) ([]string, error) {
	return append(r.tags, "sha256-"+r.Graph.Root.Digest.Encoded()+".confirmed"), nil
}

func (r ruin) Open(string) (medium.Source, error) { return r, nil }

func (r ruin) Root(context.Context) (ocispec.Descriptor, error) { return r.Graph.Root, nil }

func (r ruin) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	if r.fetched != nil && d.Digest != r.Graph.Root.Digest {
		r.fetched.Add(1)
	}
	return r.Store.Fetch(ctx, d, offset)
}

func (ruin) Can() medium.Capabilities { return medium.Capabilities{} }

func (ruin) Close() error { return nil }

func TestTheRestOfABundleIsNoError(t *testing.T) {
	whole := bundles.New(t, bundles.Options{})
	for _, lost := range whole.Graph.Manifests {
		b := bundles.New(t, bundles.Options{})
		delete(b.Store, lost.Descriptor.Digest.String())
		l, err := Read(t.Context(), ruin{Bundle: b}, run.Options{})
		require.NoError(t, err)
		if lost.Descriptor.Digest != b.Graph.Root.Digest {
			require.Equal(t, []string{b.Graph.Root.Digest.String()}, l.Broken, lost)
			l, err = Read(t.Context(), ruin{Bundle: b, tags: []string{"1"}}, run.Options{})
			require.ErrorContains(t, err, "tag 1: ")
			require.Equal(t, []string{"1"}, l.Unread)
			require.Empty(t, l.Broken, "it has a tag")
		}
	}
}

func TestABundleIsReadOnceHoweverManyTags(t *testing.T) {
	r := ruin{Bundle: bundles.New(t, bundles.Options{}), fetched: new(atomic.Int64)}
	read := func(tags ...string) int64 {
		r.tags = tags
		r.fetched.Store(0)
		l, err := Read(t.Context(), r, run.Options{})
		require.Equal(t, tags, l.Unread, err) // the stand-in has no readable matrix
		return r.fetched.Load()
	}
	require.Equal(t, read("1"), read("1", "2", "3"))

	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	l, err := Read(ctx, r, run.Options{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, r.tags, l.Unread, "nobody knows what they are")
}
