package remote_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

func note(g *bundle.Graph) string { return "sha256-" + g.Root.Digest.Encoded() + ".confirmed" }

// repairable is a bundle in a mirror with signatures of every kind: of the root and of
// an image, under tags and as referrers, one of them joined with what others attached.
func repairable(t *testing.T) (g *bundle.Graph, mirror *real.Registry, push func() error) {
	source, mirror := real.Start(t, real.Options{}), real.Start(t, real.Options{})
	images.Push(t, source, "csi/driver:v1", images.Spec{Seed: 4, Layers: make([]int64, 3), Platforms: images.Linux})
	c, _ := client(t, remote.Options{}, source, mirror)
	from := repository(c, source, "csi/driver:v1")
	g = graph(t, from)
	child := g.Manifests[0].Descriptor
	g.Attachments = []bundle.Referrer{
		newReferrer(t, g.Root, true, "ours"), newReferrer(t, g.Root, false, "theirs"),
		newReferrer(t, child, true, "upstream"), newReferrer(t, child, false, "upstream's bill"),
	}
	to := repository(c, mirror, "site/bundle:1")
	push = func() error { return copyGraph(t.Context(), g, from, to) }
	require.NoError(t, push())
	require.NoError(t, to.Attach(t.Context(), newReferrer(t, g.Root, true, "another signer")))
	require.NoError(t, push())
	return g, mirror, push
}

// holdings are all manifests and blobs of a bundle's repository, with what is attached.
func holdings(t *testing.T, c *remote.Client, reg *real.Registry, g *bundle.Graph) map[string]bool {
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
			a, err := bundle.ReadReferrer(t.Context(), repo, image.MustDigest(subject), d)
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
	another := newReferrer(t, g.Root, true, "another signer") // the bundle does not have it
	list, err := repository(c, mirror, "site/bundle:1").Attachments(t.Context(), g.Attachments[0].Subject)
	require.NoError(t, err)
	for path := range before {
		if path == "/blobs/"+another.Blobs[1].Digest.String() || path == "/manifests/"+list[0].Digest.String() {
			continue // what another signer signed is gone with these, and no one else has it
		}
		remove(t, mirror, "/v2/site/bundle"+path)
		require.NoError(t, push(), path)
		require.Equal(t, before, holdings(t, c, mirror, g), path)
	}
}

// The time of a push is told by the note of this repository and of nothing else, and stays
// where a later push moves no tag.
func TestNoteTellsWhenATagWasPut(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 1})
	g, root := b.Graph, image.MustDigest(b.Graph.Root.Digest.String())
	mirror := real.Start(t, real.Options{})
	push := func(name string) *remote.Repository {
		to := at(t, remote.Options{}, mirror, name)
		require.NoError(t, copyGraph(t.Context(), g, b.Store, to))
		return to
	}
	pushed := func(r *remote.Repository) time.Time {
		at, _, err := r.Pushed(t.Context(), root, nil)
		require.NoError(t, err)
		return at
	}
	to := push("site/bundle:1")
	require.Empty(t, to.Notices())
	first := pushed(to)
	require.WithinDuration(t, time.Now(), first, time.Minute)
	mirror.ForgetRequests()
	push("site/bundle:1")
	require.Zero(t, mirror.Count("PUT", ""), "it has its tag")
	require.Equal(t, first, pushed(to))

	require.Zero(t, pushed(at(t, remote.Options{}, mirror, "other/bundle:1")), "there is none")
	replica := push("replica/bundle:1")
	d, data, _, err := to.Get(t.Context(), remote.Look{ID: note(g)})
	require.NoError(t, err)
	for why, n := range map[string]bundle.Node{
		"it is another repository's": {Descriptor: d, Data: data}, "it is no note": g.Manifests[0],
	} {
		_, err := replica.PutManifest(t.Context(), "push", note(g), n)
		require.NoError(t, err)
		require.Zero(t, pushed(replica), why)
	}
	mirror.Fail(real.Fault{Match: real.Match{Path: ".confirmed"}, Status: 403})
	require.Zero(t, pushed(to), "some registries say so of a tag that is not there")
	require.Len(t, push("site/bundle:2").Notices(), 1)

	mirror.Heal()
	mirror.Fail(real.Fault{Match: real.Match{Method: "PUT", Path: "/manifests/3"}, Status: 403})
	third := at(t, remote.Options{}, mirror, "site/bundle:3")
	wantFault(t, copyGraph(t.Context(), g, b.Store, third), fault.Forbidden)
	none, begun, err := third.Pushed(t.Context(), root, nil)
	require.NoError(t, err)
	require.Zero(t, none, "it may not have its tag")
	require.WithinDuration(t, time.Now(), begun, time.Minute)
	has, _, err := third.Pushed(t.Context(), root, []string{"3"})
	require.NoError(t, err)
	require.Equal(t, begun, has)
	mirror.Heal()
	mirror.Fail(real.Fault{Match: real.Match{Method: "GET", Path: "/manifests/3"}, Status: 403})
	wantFault(t, copyGraph(t.Context(), g, b.Store, third), fault.Forbidden)
	require.NotZero(t, pushed(third), "it has its tag")
	mirror.Heal()
	mirror.Fail(real.Fault{Match: real.Match{Method: "PUT", Path: ".confirmed"}, After: 1, Status: 400})
	require.Empty(t, push("site/bundle:4").Notices(), "tags are immutable")
}

func TestPushToAnEmptyRegistryAsksForASampleOnly(t *testing.T) {
	source := real.Start(t, real.Options{})
	images.Push(t, source, "csi/driver:v1", images.Spec{Seed: 7, Layers: append(make([]int64, 140), 300_000)})
	mirror, from, to, g := pushing(t, source, real.Options{}, remote.Options{})
	missing, err := to.Begin(t.Context(), g)
	require.NoError(t, err)
	require.Equal(t, g.Order(), missing)
	require.Less(t, mirror.Count("HEAD", ""), 50)
	mirror.ForgetRequests()
	require.NoError(t, copyGraph(t.Context(), g, from, to))
	require.Less(t, mirror.Count("HEAD", ""), len(g.Blobs)+60, "before the upload a sample, after it each")
	require.LessOrEqual(t, mirror.Count("POST", ""), len(g.Blobs)+1)
	for _, d := range g.Blobs {
		wantBlob(t, to, d)
	}
}

// A success that a registry, or a proxy before it, gives and does not mean is found
// out before the push says that it is done; the next push mends it.
func TestPushAsksForWhatTheRegistryAccepted(t *testing.T) {
	source, _ := upstream(t)
	blobs, manifests := real.Match{Method: "PUT", Path: "/blobs/uploads/"}, real.Match{Method: "PUT", Path: "/manifests/"}
	for name, f := range map[string]real.Fault{
		"no blob":       {Match: blobs, Status: 201},
		"all but one":   {Match: blobs, After: 3, Times: 1, Status: 201},
		"a mount":       {Match: real.Match{Method: "POST", Query: "mount="}, Status: 201},
		"a manifest":    {Match: manifests, Times: 1, Status: 201},
		"the tag":       {Match: real.Match{Method: "PUT", Path: "/manifests/1"}, Status: 201},
		"its signature": {Match: real.Match{Method: "PUT", Path: ".sig"}, Status: 201},
		"the referrer":  {Match: real.Match{Method: "PUT", Path: "/manifests/sha256:", Body: `"subject":`}, Status: 201},
	} {
		t.Run(name, func(t *testing.T) {
			mirror, from, to, g := pushing(t, source, real.Options{Kind: real.Simple}, remote.Options{})
			mirror.Fail(f)
			g.Attachments = []bundle.Referrer{newReferrer(t, g.Root, true, "ours"), newReferrer(t, g.Root, false, "theirs")}
			if name == "a mount" {
				_, err := to.Begin(t.Context(), g)
				require.NoError(t, err)
				for _, d := range g.Blobs {
					done, err := to.Mount(t.Context(), d, image.MustReference(mirror.Host+"/other/driver:v1"))
					require.NoError(t, err)
					require.True(t, done, "the registry says so")
				}
				wantFault(t, to.Commit(t.Context()), fault.Incomplete)
			} else {
				wantFault(t, copyGraph(t.Context(), g, from, to), fault.Incomplete)
			}
			mirror.Heal()
			require.NoError(t, copyGraph(t.Context(), g, from, to))
			for _, d := range g.Blobs {
				wantBlob(t, to, d)
			}
		})
	}
}

// What is stored may be shorter than it was: then it is sent again. Some registries give no length.
func TestABlobOfAnotherLengthIsNotThere(t *testing.T) {
	for announced, want := range map[string]int{"8": 1, "4": 0, "0": 0, "0 of what is there": 1, "": 0, " of what is there": 1} {
		length, has, _ := strings.Cut(announced, " ")
		c, host := serving(t, remote.Options{}, func(w http.ResponseWriter, req *http.Request) {
			if req.Method == http.MethodHead && length != "" {
				w.Header().Set("Content-Length", length)
			} else if has != "" {
				_, _ = w.Write([]byte("x"))
			}
			_ = http.NewResponseController(w).Flush()
		})
		d, _ := randomBlob(8)
		lacks, err := c.Repository(image.MustReference(host+"/a/b:1")).Lacks(t.Context(), []ocispec.Descriptor{d})
		require.NoError(t, err)
		require.Len(t, lacks, 1-want, announced)
	}
}

// Some registries answer 405 to every manifest with a subject. Nothing is lost in
// silence: the tag is not written, unless it is allowed to leave them out.
func TestRegistryThatTakesNoSubjects(t *testing.T) {
	source, root := upstream(t)
	for status, hint := range map[int]string{405: "--omit-refused", 400: "--omit-refused", 413: "client_max_body_size"} {
		mirror, from, to, g := pushing(t, source, real.Options{}, remote.Options{})
		mirror.Fail(real.Fault{Match: real.Match{Method: "PUT", Path: "/manifests/", Body: `"subject":`}, Status: status})
		referrer, tagged := newReferrer(t, root, false, "of the site"), newReferrer(t, root, true, "ours")
		g.Attachments = []bundle.Referrer{tagged, referrer}
		wantFault(t, copyGraph(t.Context(), g, from, to), fault.Refused, referrer.Node.Descriptor.Digest.String(), hint)
		_, err := to.Root(t.Context())
		wantFault(t, err, fault.NotFound)

		to = at(t, remote.Options{OmitRefused: true}, mirror, "site/bundle:1")
		require.NoError(t, copyGraph(t.Context(), g, from, to))
		require.Len(t, to.Notices(), 1)
		require.Contains(t, to.Notices()[0], referrer.Node.Descriptor.Digest.String())
		_, err = to.Root(t.Context())
		require.NoError(t, err)
		found, err := to.Attachments(t.Context(), tagged.Subject)
		require.NoError(t, err)
		require.Len(t, found, 1)
	}
}

// Who has no login sends none, not an empty one, and gets what is for everyone.
func TestEmptyLoginIsNoLogin(t *testing.T) {
	reg := real.Start(t, real.Options{TLS: true, Auth: real.Token, AnonymousPull: true})
	images.Push(t, reg, "csi/driver:v1", images.Spec{})
	for name, config := range map[string]string{
		"nothing": "", "no entry": `{"auths":{}}`, "empty entry": `{"auths":{"` + reg.Host + `":{}}}`,
		"empty auth": `{"auths":{"` + reg.Host + `":{"auth":""}}}`, "auth of nothing": `{"auths":{"` + reg.Host + `":{"auth":"Og=="}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			find, err := remote.ConfigCredentials("config.json", []byte(config))
			require.NoError(t, err)
			repo := at(t, remote.Options{Credentials: find}, reg, "csi/driver:v1")
			d := largest(graph(t, repo))
			_, err = readBlob(repo, d, 0)
			require.NoError(t, err)
			err = repo.Put(t.Context(), d, func(int64) (io.ReadCloser, error) { return repo.Fetch(t.Context(), d, 0) })
			wantFault(t, err, fault.Unauthorized, "login")
		})
	}
}

// An identity token is a refresh token for the token service, which gets it in a
// POST and no one else does.
func TestIdentityTokenLogin(t *testing.T) {
	reg := real.Start(t, real.Options{TLS: true, Auth: real.Token})
	_, root := images.Push(t, reg, "csi/driver:v1", images.Spec{})
	config, err := json.Marshal(map[string]any{"auths": map[string]any{reg.Host: map[string]string{"identitytoken": reg.IdentityToken()}}})
	require.NoError(t, err)
	find, err := remote.ConfigCredentials("config.json", config)
	require.NoError(t, err)
	repo := at(t, remote.Options{Credentials: find}, reg, "csi/driver:v1")
	got, err := repo.Root(t.Context())
	require.NoError(t, err)
	require.Equal(t, root.Digest, got.Digest)
	require.Equal(t, 1, reg.Count("POST", "/auth/token"))
	d, open := randomBlob(1000)
	require.NoError(t, repo.Put(t.Context(), d, open), "another scope is another token")
	require.Equal(t, 2, reg.Count("POST", "/auth/token"))
}

// An upload is opened before anything is sent.
func TestReadyTellsWhatAPushWould(t *testing.T) {
	reg := real.Start(t, real.Options{TLS: true, Auth: real.Token})
	c, _ := client(t, remote.Options{}, reg)
	reg.Fail(real.Fault{Match: real.Match{Method: "POST"}, Status: 503, Times: 2})
	require.NoError(t, repository(c, reg, "a/b:1").Ready(t.Context(), 0))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantFault(t, repository(c, reg, "a/b:1").Ready(ctx, 0), fault.Interrupted)

	_, readOnly := alone(t, real.Options{ReadOnly: true}, remote.Options{})
	wantFault(t, readOnly.Ready(t.Context(), 0), fault.Refused, "read-only")
	_, pullOnly := alone(t, real.Options{TLS: true, Auth: real.Token, PullOnly: true}, remote.Options{})
	wantFault(t, pullOnly.Ready(t.Context(), 0), fault.Forbidden, "ask the registry's administrator")
}

// A layer may have the bytes of a manifest: a registry keeps it as a blob as well.
func TestALayerThatIsAManifestIsPushed(t *testing.T) {
	_, to := alone(t, real.Options{}, remote.Options{})
	s := bundles.Store{}
	config := s.Add(ocispec.MediaTypeImageConfig, []byte("{}"))
	g := &bundle.Graph{Blobs: []ocispec.Descriptor{config}}
	layer := config
	for range 2 {
		n := bundle.NewManifest(ocispec.Manifest{Config: config, Layers: []ocispec.Descriptor{layer}})
		g.Root, g.Manifests = n.Descriptor, append(g.Manifests, n)
		layer = s.Add("application/vnd.example.other", n.Data)
	}
	twin := s.Add("application/vnd.example.other", g.Manifests[0].Data)
	g.Blobs = append(g.Blobs, twin)
	require.NoError(t, copyGraph(t.Context(), g, s, to))
	lacks, err := to.Lacks(t.Context(), []ocispec.Descriptor{twin, g.Manifests[0].Descriptor, g.Root})
	require.NoError(t, err)
	require.Empty(t, lacks)
}
