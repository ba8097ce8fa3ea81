package upstream_test

import (
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// failing has manifests, and fails as a registry does for anything else.
type failing struct {
	bundles.Store
	reason fault.Reason
}

func (f failing) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	if _, ok := f.Store[d.Digest.String()]; !ok {
		return nil, &fault.Error{Reason: f.reason, Op: "read", Subject: d.Digest.String()}
	}
	return f.Store.Fetch(ctx, d)
}

// What an index does not say of a manifest its configuration says. One that cannot be had now is a
// fault, and does not make the platform one that the image lacks; one that is not there says nothing.
func TestAConfigurationThatCannotBeReadDropsNoPlatform(t *testing.T) {
	store := bundles.Store{}
	manifest := func(config string) ocispec.Descriptor {
		m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromString(config), Size: int64(len(config)),
		}}
		data, err := json.Marshal(m)
		require.NoError(t, err)
		return store.Add(ocispec.MediaTypeImageManifest, data)
	}
	amd64 := `{"os":"linux","architecture":"amd64"}`
	store.Add(ocispec.MediaTypeImageConfig, []byte(amd64))
	index, err := json.Marshal(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{
		manifest(amd64), manifest(`{"os":"linux","architecture":"arm64"}`),
	}})
	require.NoError(t, err)
	both, err := image.ParsePlatforms([]string{"linux/arm64", "linux/amd64"})
	require.NoError(t, err)

	_, _, err = upstream.Keep(t.Context(), failing{store, fault.Unreachable}, index, both)
	require.Equal(t, fault.Unreachable, fault.ReasonOf(err), "%v", err)
	kept, lacks, err := upstream.Keep(t.Context(), failing{store, fault.NotFound}, index, both)
	require.NoError(t, err)
	require.Equal(t, both[1:], lacks)
	again, _, err := upstream.Keep(t.Context(), store, index, both)
	require.NoError(t, err)
	require.Equal(t, kept, again)
}
