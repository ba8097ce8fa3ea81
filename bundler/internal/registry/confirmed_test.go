package registry_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// manyParts is a plain registry with one image of so many parts that a sample is a
// small part of them.
func manyParts(t *testing.T) *real.Registry {
	reg := real.Start(t, real.Options{})
	images.Push(t, reg, "csi/driver:v1", images.Spec{Seed: 4, Layers: make([]int64, 12), Platforms: images.All})
	return reg
}

// pushRemembered pushes a graph, and has the registry remember it.
func pushRemembered(ctx context.Context, g *bundle.Graph, from, to *registry.Repository) error {
	if err := copyGraph(ctx, g, from, to); err != nil {
		return err
	}
	return to.Remember(ctx)
}

func note(g *bundle.Graph) string { return "sha256-" + g.Root.Digest.Encoded() + ".confirmed" }

func TestSecondPushOfARememberedBundleAsksForASampleOnly(t *testing.T) {
	source := manyParts(t)
	for name, options := range mirrors {
		t.Run(name, func(t *testing.T) {
			mirror := real.Start(t, options)
			c, _ := client(t, registry.Options{}, source, mirror)
			from, to := repository(c, source, "csi/driver:v1"), repository(c, mirror, "site/bundle:1")
			g := graph(t, from)
			g.Attachments = []bundle.Attachment{attachment(t, g.Root, true, "ours"), attachment(t, g.Root, false, "theirs")}
			for range 2 {
				require.NoError(t, pushRemembered(t.Context(), g, from, to))
			}
			require.NoError(t, to.Close())

			fresh, _ := client(t, registry.Options{}, mirror)
			to = repository(fresh, mirror, "site/bundle:1")
			mirror.ForgetRequests()
			missing, err := to.Begin(t.Context(), g)
			require.NoError(t, err)
			require.Empty(t, missing)
			require.True(t, to.Confirmed())
			require.NoError(t, to.Commit(t.Context()))
			require.NoError(t, to.Remember(t.Context()))
			require.Less(t, len(mirror.Requests()), 17, "%v", mirror.Requests())
			require.Equal(t, len(mirror.Requests()), mirror.Count("HEAD", "")+mirror.Count("GET", ""), "nothing is written")

			all, _ := client(t, registry.Options{CheckAll: true}, mirror)
			to = repository(all, mirror, "site/bundle:1")
			mirror.ForgetRequests()
			_, err = to.Begin(t.Context(), g)
			require.NoError(t, err)
			require.False(t, to.Confirmed())
			require.GreaterOrEqual(t, len(mirror.Requests()), len(g.Order()))
		})
	}
}

// Whatever is missing behind the note is found: the root always, the rest as soon
// as the sample meets a gap.
func TestGapsBehindTheNoteLeadToTheFullLook(t *testing.T) {
	source := manyParts(t)
	mirror := real.Start(t, real.Options{})
	c, _ := client(t, registry.Options{}, source, mirror)
	from, to := repository(c, source, "csi/driver:v1"), repository(c, mirror, "site/bundle:1")
	g := graph(t, from)
	require.NoError(t, pushRemembered(t.Context(), g, from, to))

	// A garbage collection that keeps what has a tag, and the layers of nothing.
	for _, b := range g.Blobs {
		remove(t, mirror, "/v2/site/bundle/blobs/"+b.Digest.String())
	}
	for _, n := range g.Manifests[:len(g.Manifests)-1] {
		remove(t, mirror, "/v2/site/bundle/manifests/"+n.Descriptor.Digest.String())
	}
	missing, err := to.Begin(t.Context(), g)
	require.NoError(t, err)
	require.False(t, to.Confirmed())
	require.Len(t, missing, len(g.Order())-1)
	require.NoError(t, copyGraph(t.Context(), g, from, to))

	// The root alone.
	_, err = to.Begin(t.Context(), g)
	require.NoError(t, err)
	require.True(t, to.Confirmed(), "the note is still there")
	remove(t, mirror, "/v2/site/bundle/manifests/"+g.Root.Digest.String())
	missing, err = to.Begin(t.Context(), g)
	require.NoError(t, err)
	require.Equal(t, []string{g.Root.Digest.String()}, digests(missing))
}

func TestNoteOfAnotherRepositoryOrBundleIsNotBelieved(t *testing.T) {
	source := manyParts(t)
	mirror := real.Start(t, real.Options{})
	c, _ := client(t, registry.Options{}, source, mirror)
	from, to := repository(c, source, "csi/driver:v1"), repository(c, mirror, "site/bundle:1")
	g := graph(t, from)
	require.NoError(t, pushRemembered(t.Context(), g, from, to))

	// A replication that has copied the tags, and of the rest what the sample may meet.
	replica := repository(c, mirror, "replica/bundle:1")
	require.NoError(t, copyGraph(t.Context(), g, from, replica))
	copyTag(t, mirror, "site/bundle", "replica/bundle", note(g))
	_, err := replica.Begin(t.Context(), g)
	require.NoError(t, err)
	require.False(t, replica.Confirmed())

	// The same bundle with a signature more.
	signed := *g
	signed.Attachments = []bundle.Attachment{attachment(t, g.Root, true, "ours")}
	missing, err := to.Begin(t.Context(), &signed)
	require.NoError(t, err)
	require.False(t, to.Confirmed())
	require.NotEmpty(t, missing)

	// Something else under the note's tag.
	mirror2 := repository(c, mirror, "other/bundle:1")
	require.NoError(t, copyGraph(t.Context(), g, from, mirror2))
	child := g.Manifests[0]
	put(t, mirror, "/v2/other/bundle/manifests/"+note(g), child.Descriptor.MediaType, child.Data)
	_, err = mirror2.Begin(t.Context(), g)
	require.NoError(t, err)
	require.False(t, mirror2.Confirmed())
}

// A registry that says 403 for a tag that is not there, and one that takes no note.
func TestRegistriesThatTakeNoNote(t *testing.T) {
	source := manyParts(t)
	mirror := real.Start(t, real.Options{})
	c, _ := client(t, registry.Options{}, source, mirror)
	from, to := repository(c, source, "csi/driver:v1"), repository(c, mirror, "site/bundle:1")
	g := graph(t, from)
	mirror.Fail(real.Fault{Match: real.Match{Path: confirmedSuffix}, Status: 403})
	require.NoError(t, copyGraph(t.Context(), g, from, to))
	require.Error(t, to.Remember(t.Context()))
	_, err := to.Begin(t.Context(), g)
	require.NoError(t, err)
	require.False(t, to.Confirmed())
}

const confirmedSuffix = ".confirmed"
