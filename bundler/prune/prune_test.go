package prune

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/list"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// movingRepository is a repository whose tags change behind one's back.
type movingRepository struct {
	Repository
	tags    []string
	deleted []string
}

func (m *movingRepository) Tags(context.Context) ([]string, error) { return m.tags, nil }

func (m *movingRepository) Open(string) (medium.Source, error) {
	return fixedRoot{d: ocispec.Descriptor{Digest: "sha256:now"}}, nil
}

func (m *movingRepository) Delete(_ context.Context, d ocispec.Descriptor, _ []string) error {
	m.deleted = append(m.deleted, d.Digest.String())
	return errors.New("it is gone wrong")
}

type fixedRoot struct {
	medium.Source
	d     ocispec.Descriptor
	blobs bundles.Store
}

func (f fixedRoot) Root(context.Context) (ocispec.Descriptor, error) { return f.d, nil }

func (f fixedRoot) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	return f.blobs.Fetch(ctx, d, offset)
}

func (f fixedRoot) Close() error { return nil }

// A push between the plan and the deletion may need what is about to go.
func TestAPlanIsNotCarriedOutWhereTagsHaveChanged(t *testing.T) {
	at := func(digest string) ocispec.Descriptor { return ocispec.Descriptor{Digest: named(digest)} }
	for name, c := range map[string]struct {
		planned map[string]ocispec.Descriptor
		now     []string
		deletes bool
	}{
		"new tag":   {map[string]ocispec.Descriptor{"a": at("now")}, []string{"a", "b"}, false},
		"tag gone":  {map[string]ocispec.Descriptor{"a": at("now"), "b": at("now")}, []string{"a"}, false},
		"tag moved": {map[string]ocispec.Descriptor{"a": at("then")}, []string{"a"}, false},
		"the same":  {map[string]ocispec.Descriptor{"a": at("now")}, []string{"a"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			repository := &movingRepository{tags: c.now}
			targets := []target{{in: repository, d: at("x")}, {in: repository, d: at("y")}}
			p := &Plan{places: []location{{repository, c.planned}}, targets: targets}
			err := Run(t.Context(), p, run.Options{})
			require.Error(t, err)
			require.False(t, p.Done)
			if c.deletes {
				require.Equal(t, []string{"sha256:x"}, repository.deleted, "the first fault ends it")
				require.Contains(t, err.Error(), "0 of 2 manifests were deleted")
				return
			}
			require.Equal(t, fault.Conflict, fault.ReasonOf(err))
			require.Empty(t, repository.deleted)
		})
	}
}

// pushedMeanwhile is a repository that gets a tag while the first manifest is deleted.
type pushedMeanwhile struct {
	movingRepository
	lost bool // the tag needs what was deleted
	lags bool // the tag was deleted, and is still listed
}

func (m *pushedMeanwhile) Delete(_ context.Context, d ocispec.Descriptor, _ []string) error {
	m.tags, m.deleted = []string{"new"}, append(m.deleted, d.Digest.String())
	return nil
}

func (m *pushedMeanwhile) Lacks(context.Context, []ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	return nil, nil
}

func (m *pushedMeanwhile) Open(id string) (medium.Source, error) {
	switch {
	case id != "new" || m.lags && len(m.deleted) > 0:
		return fixedRoot{}, nil
	case m.lags:
		return fixedRoot{d: ocispec.Descriptor{Digest: named("x")}}, nil
	}
	children := []ocispec.Descriptor{}
	if m.lost {
		children = append(children, bundle.NewIndex(ocispec.Index{}).Descriptor)
	}
	s := bundles.Store{}
	root := bundle.NewIndex(ocispec.Index{Manifests: children})
	return fixedRoot{d: s.Add(root.Descriptor.MediaType, root.Data), blobs: s}, nil
}

// A push that saw a manifest before it was deleted does not send it: prune reads what got a
// tag meanwhile, and says which push has to be repeated. A deleted tag that is still listed is no push.
func TestAPushThatLostAPartToPruneIsNamed(t *testing.T) {
	for _, repository := range []*pushedMeanwhile{{}, {lost: true}, {lags: true}} {
		x, tags := ocispec.Descriptor{Digest: named("x")}, map[string]ocispec.Descriptor{}
		if repository.lags {
			repository.tags, tags["new"] = []string{"new"}, x
		}
		deleted := target{in: repository, d: x, tags: []string{"new"}}
		p := &Plan{places: []location{{repository, tags}}, targets: []target{deleted}}
		err := Run(t.Context(), p, run.Options{})
		require.True(t, p.Done)
		require.Equal(t, repository.lost, err != nil, "%v", err)
		if repository.lost {
			require.Equal(t, fault.Incomplete, fault.ReasonOf(err))
			require.ErrorContains(t, err, "tag new")
			require.Contains(t, fault.HintOf(err), "repeat that push")
		}
	}
}

func named(s string) digest.Digest { return digest.Digest("sha256:" + s) }

// A bundle is pruned only where the registry shows that enough others are newer: a tag
// that was moved today is never among them, whatever it is called and wherever it went.
func TestOnlyWhatIsShownToBeOldIsPruned(t *testing.T) {
	day := func(n int) time.Time {
		if n <= 0 {
			return time.Time{}
		}
		return time.Date(2026, 3, n, 0, 0, 0, 0, time.UTC)
	}
	of := func(tag string, serial int64, pushed int) list.Bundle { // negative: only begun
		return list.Bundle{
			Root: image.DigestOf([]byte(tag)), Tags: []string{tag}, Serial: serial, Issued: day(1),
			Pushed: day(pushed), Begun: day(-pushed),
		}
	}
	for name, c := range map[string]struct {
		bundles []list.Bundle
		keep    Keep
		leave   []string
	}{
		"by the matrix":                {[]list.Bundle{of("v1", 7, 0), of("v2", 8, 0), of("v3", 9, 0)}, Keep{Newest: 2}, []string{"v1"}},
		"one matrix, a moved tag":      {[]list.Bundle{of("v1", 7, 2), of("stable", 7, 9)}, Keep{Newest: 1}, []string{"v1"}},
		"one matrix, nothing is shown": {[]list.Bundle{of("v1", 7, 0), of("stable", 7, 0)}, Keep{Newest: 1}, nil},
		"the same moment":              {[]list.Bundle{of("v1", 7, 2), of("stable", 7, 2)}, Keep{Newest: 1}, nil},
		"moved back to an older one":   {[]list.Bundle{of("v8", 8, 2), of("stable", 7, 9)}, Keep{Newest: 1}, nil},
		"copied, and pushed before":    {[]list.Bundle{of("v8", 8, 0), of("stable", 7, 9)}, Keep{Newest: 1}, nil},
		"copied long ago":              {[]list.Bundle{of("v8", 8, 9), of("v7", 7, 0)}, Keep{Newest: 1}, []string{"v7"}},
		"moved back with crane":        {[]list.Bundle{{Serial: 8, Issued: day(1), Pushed: day(9)}, of("stable", 7, 0)}, Keep{Newest: 1}, nil},
		"about to be moved back":       {[]list.Bundle{of("v8", 8, 2), of("stable", 7, -9)}, Keep{Newest: 1}, nil},
		"about to be moved, as before": {[]list.Bundle{of("v1", 7, -9), of("stable", 7, 5)}, Keep{Newest: 1}, nil},
		"begun long ago":               {[]list.Bundle{of("v1", 7, -2), of("stable", 7, 5)}, Keep{Newest: 1}, []string{"v1"}},
		"two of a moment, one older":   {[]list.Bundle{of("a", 8, 9), of("b", 8, 9), of("c", 7, 2)}, Keep{Newest: 1}, []string{"c"}},
		"kept by tag":                  {[]list.Bundle{of("v8", 8, 9), of("prod-1", 7, 2), of("v6", 6, 1)}, Keep{Newest: 1, Tags: []string{"prod-*"}}, []string{"v6"}},
		"kept by digest": {
			[]list.Bundle{of("v8", 8, 9), of("v7", 7, 2)}, Keep{Newest: 1, Digests: []string{"sha256:" + image.DigestOf([]byte("v7")).Hex()[:12]}}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			slices.SortFunc(c.bundles, list.NewestFirst)
			stay, leave, err := c.keep.part(c.bundles)
			require.NoError(t, err)
			var got []string
			for _, b := range leave {
				got = append(got, b.Tags...)
			}
			require.Equal(t, c.leave, got)
			require.Len(t, stay, len(c.bundles)-len(leave))
			require.NotNil(t, leave, "in JSON it would be null")
			for _, b := range stay {
				require.NotEmpty(t, b.Why)
			}
		})
	}
	for _, k := range []Keep{{Newest: 1, Tags: []string{"stabel"}}, {Newest: 1, Digests: []string{"sha256:abc"}}} {
		_, _, err := k.part([]list.Bundle{of("stable", 7, 1)})
		require.Equal(t, fault.NotFound, fault.ReasonOf(err))
	}
}
