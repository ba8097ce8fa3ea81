package images_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

func TestSameSpecSameDigestOtherSeedOther(t *testing.T) {
	spec := images.Spec{Seed: 7, Layers: []int64{20_000, 10}, SharedLayers: []int64{5}, Platforms: images.All, Docker: true}
	a, err := images.Build(spec)
	require.NoError(t, err)
	b, err := images.Build(spec)
	require.NoError(t, err)
	require.Equal(t, a.Descriptor, b.Descriptor)
	spec.Seed++
	c, err := images.Build(spec)
	require.NoError(t, err)
	require.NotEqual(t, a.Descriptor.Digest, c.Descriptor.Digest)
}

func TestPushedImagesAreValid(t *testing.T) {
	for _, o := range []registry.Options{
		{},
		{TLS: true, Auth: registry.Basic},
		{TLS: true, Auth: registry.Token},
		{Dir: t.TempDir(), RelativeURLs: true},
		{Kind: registry.Referrers, TLS: true, Auth: registry.Basic},
		{Kind: registry.Simple},
	} {
		reg := registry.Start(t, o)
		for _, spec := range []images.Spec{
			{Seed: 1, Layers: []int64{20_000}, Platforms: images.All},
			{Seed: 2, Layers: []int64{2000}, Platforms: images.Linux, Docker: true},
			{Seed: 3},
		} {
			ref, d := images.Push(t, reg, "registry.k8s.io/some/path/driver:v1", spec)
			require.Equal(t, d.Digest.String(), ref.Digest().String())
			require.Equal(t, "some/path/driver", ref.Path())
			got, err := remote.Get(mustName(t, reg, ref.Repository()+":v1"), remote.WithTransport(reg.Transport()), login(reg))
			require.NoError(t, err)
			require.Equal(t, d.Digest.String(), got.Digest.String())
			if len(spec.Platforms) == 0 {
				img, err := got.Image()
				require.NoError(t, err)
				require.NoError(t, validate.Image(img))
				continue
			}
			idx, err := got.ImageIndex()
			require.NoError(t, err)
			require.NoError(t, validate.Index(idx))
		}
	}
}

func TestProgramImageHasItsEntrypoint(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module pause\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() { select {} }\n"), 0o600))
	out := filepath.Join(dir, "pause")
	require.NoError(t, images.Compile(context.Background(), dir, ".", images.Linux[0], out))
	reg := registry.Start(t, registry.Options{})
	ref, _ := images.Push(t, reg, "pause:1", images.Spec{Program: out})
	img, err := remote.Image(mustName(t, reg, ref.Repository()+":1"))
	require.NoError(t, err)
	require.NoError(t, validate.Image(img))
	file, err := img.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, []string{"/pause"}, file.Config.Entrypoint)
}

func mustName(t *testing.T, reg *registry.Registry, s string) name.Reference {
	t.Helper()
	var opts []name.Option
	if !reg.TLS() {
		opts = append(opts, name.Insecure)
	}
	ref, err := name.ParseReference(s, opts...)
	require.NoError(t, err)
	return ref
}

func login(reg *registry.Registry) remote.Option {
	return remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: reg.Username, Password: reg.Password}))
}
