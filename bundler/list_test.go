package bundler

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

func TestTagsAreOrderedWithTheirNumbersAsNumbers(t *testing.T) {
	want := []string{"", "1.9", "1.10", "1.10.1", "2", "010", "a1", "v9", "v10", "v10-rc1"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, compareNatural)
	require.Equal(t, want, got)
}

func FuzzCompareNatural(f *testing.F) {
	f.Add("v9", "v10", "v010")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		require.Equal(t, compareNatural(a, b), -compareNatural(b, a))
		require.Equal(t, a == b, compareNatural(a, b) == 0)
		if compareNatural(a, b) <= 0 && compareNatural(b, c) <= 0 {
			require.LessOrEqual(t, compareNatural(a, c), 0)
		}
	})
}

func TestTagsOfAttachmentsAreNoBundles(t *testing.T) {
	hex := strings.Repeat("a", 64)
	for tag, want := range map[string]bool{
		"sha256-" + hex: true, "sha256-" + hex + ".sig": true, "sha256-" + hex + ".att": true, "sha256-" + hex + ".sbom": true, "sha256-" + hex + ".confirmed": true,
		"sha256-" + hex + ".other": false, "sha256-" + hex + "0": false, "sha256-abc.sig": false, "v1": false, "": false,
	} {
		require.Equal(t, want, isAttachmentTag(tag), tag)
	}
}

// movingShelf is a repository whose tags change behind one's back.
type movingShelf struct {
	Shelf
	tags    []string
	deleted []string
}

func (m *movingShelf) Tags(context.Context) ([]string, error) { return m.tags, nil }
func (m *movingShelf) At(string) (Source, error) {
	return fixedRoot{d: ocispec.Descriptor{Digest: "sha256:now"}}, nil
}
func (m *movingShelf) Delete(_ context.Context, d ocispec.Descriptor, _ []string) error {
	m.deleted = append(m.deleted, d.Digest.String())
	return errors.New("it is gone wrong")
}

type fixedRoot struct {
	Source
	d ocispec.Descriptor
}

func (f fixedRoot) Root(context.Context) (ocispec.Descriptor, error) { return f.d, nil }
func (f fixedRoot) Close() error                                     { return nil }

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
			shelf := &movingShelf{tags: c.now}
			p := &PrunePlan{tags: c.planned, victims: []victim{{d: at("x")}, {d: at("y")}}}
			err := Prune(t.Context(), shelf, p, Options{})
			require.Error(t, err)
			require.False(t, p.Done)
			if c.deletes {
				require.Equal(t, []string{"sha256:x"}, shelf.deleted, "the first fault ends it")
				require.Contains(t, err.Error(), "0 of 2 manifests were deleted")
				return
			}
			require.Equal(t, fault.Conflict, fault.ReasonOf(err))
			require.Empty(t, shelf.deleted)
		})
	}
}

func named(s string) digest.Digest { return digest.Digest("sha256:" + s) }
