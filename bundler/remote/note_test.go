package remote_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

func note(g *bundle.Graph) string { return "sha256-" + g.Root.Digest.Encoded() + ".confirmed" }

// repairable is a bundle in a mirror with signatures of every kind: of the root and of
// an image, under tags and as referrers, one of them joined with what others attached.
func repairable(t *testing.T) (g *bundle.Graph, mirror *real.Registry, push func() error) {
	t.Helper()
	source, mirror := real.Start(t, real.Options{}), real.Start(t, real.Options{})
	images.Push(t, source, "csi/driver:v1", images.Spec{Seed: 4, Layers: make([]int64, 3), Platforms: images.Linux})
	c, _ := client(t, remote.Options{}, source, mirror)
	from := repository(c, source, "csi/driver:v1")
	g = graph(t, from)
	child := g.Manifests[0].Descriptor
	g.Attachments = []bundle.Attachment{
		attachment(t, g.Root, true, "ours"), attachment(t, g.Root, false, "theirs"),
		attachment(t, child, true, "upstream"), attachment(t, child, false, "upstream's bill"),
	}
	to := repository(c, mirror, "site/bundle:1")
	push = func() error { return copyGraph(t.Context(), g, from, to) }
	require.NoError(t, push())
	require.NoError(t, to.Attach(t.Context(), attachment(t, g.Root, true, "another signer")))
	require.NoError(t, push())
	return g, mirror, push
}

// holdings are all manifests and blobs of a bundle's repository, with what is attached.
func holdings(t *testing.T, c *remote.Client, reg *real.Registry, g *bundle.Graph) map[string]bool {
	t.Helper()
	repo := repository(c, reg, "site/bundle:1")
	out := map[string]bool{}
	for _, n := range g.Manifests {
		out["/manifests/"+n.Descriptor.Digest.String()] = true
	}
	for _, b := range g.Blobs {
		out["/blobs/"+b.Digest.String()] = true
	}
	for _, subject := range []string{g.Root.Digest.String(), g.Manifests[0].Descriptor.Digest.String()} {
		list, err := repo.Attachments(t.Context(), image.MustDigest(subject))
		require.NoError(t, err)
		for _, d := range list {
			out["/manifests/"+d.Digest.String()] = true
			a, err := bundle.ReadAttachment(t.Context(), repo, image.MustDigest(subject), d)
			require.NoError(t, err)
			for _, b := range a.Blobs {
				out["/blobs/"+b.Digest.String()] = true
			}
		}
		fallback, err := repository(c, reg, "site/bundle:sha256-"+image.MustDigest(subject).Hex()).Root(t.Context())
		require.NoError(t, err)
		out["/manifests/"+fallback.Digest.String()] = true
	}
	return out
}

// A registry that has lost any one blob or manifest is whole again after one push.
func TestWhateverARegistryLosesIsRepaired(t *testing.T) {
	g, mirror, push := repairable(t)
	c, _ := client(t, remote.Options{}, mirror)
	before := holdings(t, c, mirror, g)
	require.Greater(t, len(before), 20)
	another := attachment(t, g.Root, true, "another signer") // the bundle does not have it
	list, err := repository(c, mirror, "site/bundle:1").Attachments(t.Context(), g.Attachments[0].Subject)
	require.NoError(t, err)
	for path := range before {
		if path == "/blobs/"+another.Blobs[1].Digest.String() || path == "/manifests/"+list[0].Digest.String() {
			continue // what another signer signed is gone with these, and nobody else has it
		}
		remove(t, mirror, "/v2/site/bundle"+path)
		require.NoError(t, push(), path)
		require.Equal(t, before, holdings(t, c, mirror, g), path)
	}
}

// The time of a push is told by the note of this repository and of nothing else, and stays
// where a later push moves no tag.
func TestNoteTellsWhenATagWasPut(t *testing.T) {
	source, _ := upstream(t)
	mirror := real.Start(t, real.Options{})
	c, _ := client(t, remote.Options{}, source, mirror)
	from := repository(c, source, "csi/driver:v1")
	g := graph(t, from)
	root := image.MustDigest(g.Root.Digest.String())
	push := func(name string) *remote.Repository {
		to := repository(c, mirror, name)
		require.NoError(t, copyGraph(t.Context(), g, from, to))
		require.NoError(t, to.Remember(t.Context()))
		return to
	}
	pushed := func(r *remote.Repository) time.Time {
		at, err := r.Pushed(t.Context(), root)
		require.NoError(t, err)
		return at
	}
	to := push("site/bundle:1")
	first := pushed(to)
	require.WithinDuration(t, time.Now(), first, time.Minute)
	mirror.ForgetRequests()
	push("site/bundle:1")
	require.Zero(t, mirror.Count("PUT", ""), "it has its tag")
	require.Equal(t, first, pushed(to))

	replica := repository(c, mirror, "replica/bundle:1")
	require.NoError(t, copyGraph(t.Context(), g, from, replica))
	require.Zero(t, pushed(replica), "there is none")
	copyTag(t, mirror, "site/bundle", "replica/bundle", note(g))
	require.Zero(t, pushed(replica), "it is another repository's")
	put(t, mirror, "/v2/replica/bundle/manifests/"+note(g), g.Manifests[0].Descriptor.MediaType, g.Manifests[0].Data)
	require.Zero(t, pushed(replica), "it is no note")
	mirror.Fail(real.Fault{Match: real.Match{Path: ".confirmed"}, Status: 403})
	require.Zero(t, pushed(to), "some registries say so of a tag that is not there")
	to = repository(c, mirror, "site/bundle:2")
	require.NoError(t, copyGraph(t.Context(), g, from, to))
	require.Error(t, to.Remember(t.Context()))
}
