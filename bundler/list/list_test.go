package list

import (
	"context"
	"io"
	"strings"
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
	tags []string
}

func (r ruin) Tags(context.Context) ([]string, error) {
	return append(r.tags, "sha256-"+r.Graph.Root.Digest.Encoded()+".confirmed"), nil
}

func (r ruin) Open(string) (medium.Source, error) { return r, nil }

func (r ruin) Root(context.Context) (ocispec.Descriptor, error) { return r.Graph.Root, nil }

func (r ruin) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
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
