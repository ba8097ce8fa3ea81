package registry_test

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
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
			// Of these are eight of the two signatures, all of whose parts are asked for.
			require.Less(t, len(mirror.Requests()), 25, "%v", mirror.Requests())
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
	require.NoError(t, pushRemembered(t.Context(), g, from, to)) // the note was taken back

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

// repairable is a bundle in a mirror with signatures of every kind: of the root and of
// an image, under tags and as referrers, one of them joined with what others attached.
func repairable(t *testing.T) (g *bundle.Graph, mirror *real.Registry, push func(o registry.Options) (*registry.Repository, error)) {
	t.Helper()
	source, mirror := real.Start(t, real.Options{}), real.Start(t, real.Options{})
	images.Push(t, source, "csi/driver:v1", images.Spec{Seed: 4, Layers: make([]int64, 3), Platforms: images.Linux})
	c, _ := client(t, registry.Options{}, source, mirror)
	from := repository(c, source, "csi/driver:v1")
	g = graph(t, from)
	child := g.Manifests[0].Descriptor
	g.Attachments = []bundle.Attachment{
		attachment(t, g.Root, true, "ours"), attachment(t, g.Root, false, "theirs"),
		attachment(t, child, true, "upstream"), attachment(t, child, false, "upstream's bill"),
	}
	push = func(o registry.Options) (*registry.Repository, error) {
		c, _ := client(t, o, source, mirror)
		from, to := repository(c, source, "csi/driver:v1"), repository(c, mirror, "site/bundle:1")
		return to, pushRemembered(t.Context(), g, from, to)
	}
	to, err := push(registry.Options{})
	require.NoError(t, err)
	require.NoError(t, to.Attach(t.Context(), attachment(t, g.Root, true, "another signer")))
	_, err = push(registry.Options{CheckAll: true})
	require.NoError(t, err)
	return g, mirror, push
}

// holdings are all manifests and blobs of a bundle's repository, with what is attached.
func holdings(t *testing.T, c *registry.Client, reg *real.Registry, g *bundle.Graph) map[string]bool {
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
		fallback, err := repository(c, reg, "site/bundle:sha256-"+image.MustDigest(subject).Hex()).Resolve(t.Context())
		require.NoError(t, err)
		out["/manifests/"+fallback.Digest.String()] = true
	}
	return out
}

// A registry that has lost any one blob or manifest is whole again after one push that
// asks for everything; and where it is one of the root's signatures, after any push.
func TestWhateverARegistryLosesIsRepaired(t *testing.T) {
	g, mirror, push := repairable(t)
	c, _ := client(t, registry.Options{}, mirror)
	before := holdings(t, c, mirror, g)
	require.Greater(t, len(before), 20)
	another := attachment(t, g.Root, true, "another signer") // the bundle does not have it
	rootly := map[string]bool{"/manifests/" + g.Root.Digest.String(): true}
	repo := repository(c, mirror, "site/bundle:1")
	list, err := repo.Attachments(t.Context(), g.Attachments[0].Subject)
	require.NoError(t, err)
	for _, d := range list {
		rootly["/manifests/"+d.Digest.String()] = true
		a, err := bundle.ReadAttachment(t.Context(), repo, g.Attachments[0].Subject, d)
		require.NoError(t, err)
		for _, b := range a.Blobs {
			rootly["/blobs/"+b.Digest.String()] = true
		}
	}
	for path := range before {
		if path == "/blobs/"+another.Blobs[1].Digest.String() || path == "/manifests/"+list[0].Digest.String() {
			continue // what another signer signed is gone with these, and nobody else has it
		}
		for _, o := range []registry.Options{{CheckAll: true}, {}} {
			if !o.CheckAll && !rootly[path] {
				continue
			}
			remove(t, mirror, "/v2/site/bundle"+path)
			_, err := push(o)
			require.NoError(t, err, path)
			require.Equal(t, before, holdings(t, c, mirror, g), "%s, all asked for: %t", path, o.CheckAll)
		}
	}
}

// A push that found a loss and broke off leaves no note that the next one believes.
func TestNoteIsWithdrawnWhereAnythingIsMissing(t *testing.T) {
	g, mirror, push := repairable(t)
	c, _ := client(t, registry.Options{}, mirror)
	to := repository(c, mirror, "site/bundle:1")
	var blobs [][]byte
	for _, b := range g.Blobs { // so that any sample meets it
		data, err := readBlob(to, b, 0)
		require.NoError(t, err)
		blobs = append(blobs, data)
		remove(t, mirror, "/v2/site/bundle/blobs/"+b.Digest.String())
	}
	mirror.Fail(real.Fault{Match: real.Match{Method: "POST", Path: "/blobs/uploads/"}, After: 3, Status: 507})
	_, err := push(registry.Options{})
	wantFault(t, err, fault.Refused)
	mirror.Heal()

	for i, b := range g.Blobs { // all is there again by other means, so that a sample would find nothing
		require.NoError(t, to.Put(t.Context(), b, func(offset int64) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(blobs[i][offset:])), nil
		}))
	}
	_, err = to.Begin(t.Context(), g)
	require.NoError(t, err)
	require.False(t, to.Confirmed(), "the note was taken back")
	to, err = push(registry.Options{})
	require.NoError(t, err)
	_, err = to.Begin(t.Context(), g)
	require.NoError(t, err)
	require.True(t, to.Confirmed(), "it is noted again")
	asked, of := to.Sampled()
	require.Positive(t, asked)
	require.Greater(t, of, asked)
}
