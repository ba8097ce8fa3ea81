package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// Some registries answer 405 to every manifest with a subject. Nothing is lost in
// silence: the tag is not written, unless it is allowed to leave them out.
func TestRegistryThatTakesNoSubjects(t *testing.T) {
	source, root := upstream(t)
	for _, status := range []int{405, 400} {
		mirror := real.Start(t, real.Options{})
		mirror.Fail(real.Fault{Match: real.Match{Method: "PUT", Path: "/manifests/", Body: `"subject":`}, Status: status})
		c, _ := client(t, remote.Options{}, source, mirror)
		from, to := repository(c, source, "csi/driver:v1"), repository(c, mirror, "site/bundle:1")
		g := graph(t, from)
		referrer, tagged := attachment(t, root, false, "of the site"), attachment(t, root, true, "ours")
		g.Attachments = []bundle.Attachment{tagged, referrer}
		wantFault(t, copyGraph(t.Context(), g, from, to), fault.Refused, referrer.Node.Descriptor.Digest.String(), "--omit-refused")
		_, err := to.Root(t.Context())
		wantFault(t, err, fault.NotFound)

		c, _ = client(t, remote.Options{OmitRefused: true}, source, mirror)
		from, to = repository(c, source, "csi/driver:v1"), repository(c, mirror, "site/bundle:1")
		require.NoError(t, copyGraph(t.Context(), g, from, to))
		require.Len(t, to.Omitted(), 1)
		require.Contains(t, to.Omitted()[0], referrer.Node.Descriptor.Digest.String())
		_, err = to.Root(t.Context())
		require.NoError(t, err)
		found, err := to.Attachments(t.Context(), tagged.Subject)
		require.NoError(t, err)
		require.Len(t, found, 1)
	}
}

// A registry that refuses an index without its children says so; a bundle never is
// one, since it has all that its root names.
func TestSparseIndexIsRefusedByTheRegistry(t *testing.T) {
	source, _ := upstream(t)
	mirror := real.Start(t, real.Options{})
	c, _ := client(t, remote.Options{}, source, mirror)
	from, to := repository(c, source, "csi/driver:v1"), repository(c, mirror, "site/bundle:1")
	g := graph(t, from)
	sparse := *g
	sparse.Manifests = g.Manifests[1:]
	wantFault(t, copyGraph(t.Context(), &sparse, from, to), fault.Incomplete, bundle.DigestTag(g.Root.Digest.Encoded()))
	_, err := to.Root(t.Context())
	wantFault(t, err, fault.NotFound)
	require.NoError(t, copyGraph(t.Context(), g, from, to))
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
			c, _ := client(t, remote.Options{Credentials: find}, reg)
			repo := repository(c, reg, "csi/driver:v1")
			d := largest(graph(t, repo))
			_, err = readBlob(repo, d, 0)
			require.NoError(t, err)
			err = repo.Put(t.Context(), d, func(int64) (io.ReadCloser, error) { return repo.Fetch(t.Context(), d) })
			wantFault(t, err, fault.Unauthorized, "login")
		})
	}
}

// An identity token is a refresh token for the token service, which gets it in a
// POST and nobody else does.
func TestIdentityTokenLogin(t *testing.T) {
	reg := real.Start(t, real.Options{TLS: true, Auth: real.Token})
	_, root := images.Push(t, reg, "csi/driver:v1", images.Spec{})
	config, err := json.Marshal(map[string]any{"auths": map[string]any{reg.Host: map[string]string{"identitytoken": reg.IdentityToken()}}})
	require.NoError(t, err)
	find, err := remote.ConfigCredentials("config.json", config)
	require.NoError(t, err)
	c, _ := client(t, remote.Options{Credentials: find}, reg)
	repo := repository(c, reg, "csi/driver:v1")
	got, err := repo.Root(t.Context())
	require.NoError(t, err)
	require.Equal(t, root.Digest, got.Digest)
	require.Equal(t, 1, reg.Count("POST", "/auth/token"))
	d, open := randomBlob(1000)
	require.NoError(t, repo.Put(t.Context(), d, open), "another scope is another token")
	require.Equal(t, 2, reg.Count("POST", "/auth/token"))
}

// An upload is opened before anything is sent.
func TestPreflightTellsWhatAPushWould(t *testing.T) {
	reg := real.Start(t, real.Options{TLS: true, Auth: real.Token})
	c, _ := client(t, remote.Options{}, reg)
	require.NoError(t, repository(c, reg, "a/b:1").Preflight(t.Context()))
	repo := repository(c, reg, "a/b:1")
	require.NoError(t, repo.Preflight(t.Context()))
	reg.ForgetRequests()
	d, open := randomBlob(1000)
	require.NoError(t, repo.Put(t.Context(), d, open))
	require.Zero(t, reg.Count("POST", ""), "the upload that was opened is used")
	require.NoError(t, repo.Preflight(t.Context()))
	reg.Fail(real.Fault{Match: real.Match{Method: "PUT"}, Times: 1, Status: 404, Body: `{"errors":[{"code":"BLOB_UPLOAD_UNKNOWN"}]}`})
	d, open = randomBlob(2000)
	require.NoError(t, repo.Put(t.Context(), d, open), "and not missed where it was forgotten")
	wantBlob(t, repo, d)

	reg.Fail(real.Fault{Match: real.Match{Method: "POST"}, Status: 503, Times: 2})
	require.NoError(t, repository(c, reg, "a/b:1").Preflight(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantFault(t, repository(c, reg, "a/b:1").Preflight(ctx), fault.Interrupted)

	readOnly := real.Start(t, real.Options{ReadOnly: true})
	c, _ = client(t, remote.Options{}, readOnly)
	wantFault(t, repository(c, readOnly, "a/b:1").Preflight(t.Context()), fault.Refused, "read-only")
	pullOnly := real.Start(t, real.Options{TLS: true, Auth: real.Token, PullOnly: true})
	c, _ = client(t, remote.Options{}, pullOnly)
	wantFault(t, repository(c, pullOnly, "a/b:1").Preflight(t.Context()), fault.Forbidden)
}

// A layer may have the bytes of a manifest: a registry keeps it as a blob as well.
func TestALayerThatIsAManifestIsPushed(t *testing.T) {
	mirror := real.Start(t, real.Options{})
	c, _ := client(t, remote.Options{}, mirror)
	content := map[digest.Digest][]byte{}
	describe := func(mediaType string, data []byte) ocispec.Descriptor {
		d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
		content[d.Digest] = data
		return d
	}
	config := describe(ocispec.MediaTypeImageConfig, []byte("{}"))
	g := &bundle.Graph{Blobs: []ocispec.Descriptor{config}}
	layer := config
	for range 2 {
		data, err := json.Marshal(ocispec.Manifest{
			Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
			Config: config, Layers: []ocispec.Descriptor{layer},
		})
		require.NoError(t, err)
		g.Root = describe(ocispec.MediaTypeImageManifest, data)
		g.Manifests = append(g.Manifests, bundle.Node{Descriptor: g.Root, Data: data})
		layer = describe("application/vnd.example.other", data)
	}
	twin := describe("application/vnd.example.other", g.Manifests[0].Data)
	g.Blobs = append(g.Blobs, twin)
	to := repository(c, mirror, "site/bundle:1")
	missing, err := to.Begin(t.Context(), g)
	require.NoError(t, err)
	for _, d := range missing {
		require.NoError(t, to.Put(t.Context(), d, func(offset int64) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(content[d.Digest][offset:])), nil
		}))
	}
	require.NoError(t, to.Commit(t.Context()))
	lacks, err := to.Lacks(t.Context(), []ocispec.Descriptor{twin, g.Manifests[0].Descriptor, g.Root})
	require.NoError(t, err)
	require.Empty(t, lacks)
}
