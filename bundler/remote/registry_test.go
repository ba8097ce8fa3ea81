package remote_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // of the registries in this process: a tenth of the processor's time, under the race detector
	os.Exit(m.Run())
}

// naps counts the waits of a client and makes them short.
type naps struct {
	mu   sync.Mutex
	took []time.Duration
}

func (n *naps) sleep(ctx context.Context, d time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.took = append(n.took, d)
	return ctx.Err()
}

func (n *naps) all() []time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.took)
}

// client returns a client that trusts and may log in to the registries.
func client(t testing.TB, o remote.Options, regs ...*real.Registry) (*remote.Client, *naps) {
	n := &naps{}
	o.Sleep = n.sleep
	logins := map[string]remote.CredentialFunc{}
	for _, reg := range regs {
		o.CA = append(o.CA, reg.CA()...)
		if !reg.TLS() {
			o.PlainHTTP = append(o.PlainHTTP, reg.Host)
		}
		f, err := remote.ConfigCredentials("config.json", reg.DockerConfig())
		require.NoError(t, err)
		logins[reg.Host] = f
	}
	if o.Credentials == nil {
		o.Credentials = func(ctx context.Context, host, path string) (remote.Credential, error) {
			if f := logins[host]; f != nil {
				return f(ctx, host, path)
			}
			return remote.Credential{}, nil
		}
	}
	c, err := remote.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c, n
}

// serving returns a client of a registry that a function plays.
func serving(t testing.TB, o remote.Options, answer http.HandlerFunc) (c *remote.Client, host string) {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	host = s.Listener.Addr().String()
	o.PlainHTTP = append(o.PlainHTTP, host)
	c, _ = client(t, o)
	return c, host
}

// always is one login for everything.
func always(user, password string) remote.CredentialFunc {
	return func(context.Context, string, string) (remote.Credential, error) {
		return remote.Credential{Username: user, Password: password}, nil
	}
}

// wantFault checks the reason, and that messages and hints can be acted on.
func wantFault(t testing.TB, err error, reason fault.Reason, texts ...string) {
	require.Error(t, err)
	require.Equal(t, reason, fault.ReasonOf(err), "%s", fault.Text(err))
	for _, text := range texts {
		require.Contains(t, fault.Text(err), text)
	}
	require.NotEmpty(t, fault.HintOf(err), "%v", err)
}

// graph reads the graph of an image.
func graph(t testing.TB, repo *remote.Repository) *bundle.Graph {
	root, err := repo.Root(t.Context())
	require.NoError(t, err)
	tree, err := bundle.ReadTree(t.Context(), repo, root)
	require.NoError(t, err)
	return &bundle.Graph{Root: root, Manifests: tree.Nodes, Blobs: tree.Blobs}
}

// copyGraph is the flow in short: begin, put what is missing, commit.
func copyGraph(ctx context.Context, g *bundle.Graph, from bundle.Fetcher, to *remote.Repository) error {
	missing, err := to.Begin(ctx, g)
	if err != nil {
		return err
	}
	group, ctx2 := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for _, d := range missing {
		group.Go(func() error {
			return to.Put(ctx2, d, func(offset int64) (io.ReadCloser, error) {
				if d.Data != nil {
					return io.NopCloser(bytes.NewReader(d.Data[offset:])), nil
				}
				return from.Fetch(ctx2, d, offset)
			})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return to.Commit(ctx)
}

func readBlob(repo *remote.Repository, d ocispec.Descriptor, offset int64) ([]byte, error) {
	rc, err := repo.Fetch(context.Background(), d, offset)
	if err != nil {
		return nil, err
	}
	defer rc.Close() //nolint:errcheck // only read
	return io.ReadAll(rc)
}

// at is a repository with a client of its own.
func at(t testing.TB, o remote.Options, reg *real.Registry, name string) *remote.Repository {
	t.Helper()
	c, _ := client(t, o, reg)
	return repository(c, reg, name)
}

func repository(c *remote.Client, reg *real.Registry, name string) *remote.Repository {
	return c.Repository(image.MustReference(reg.Host + "/" + name))
}

// upstream is a plain registry with one multi-platform image, of one large layer
// and some small ones.
func upstream(t testing.TB) (*real.Registry, ocispec.Descriptor) {
	t.Helper()
	reg := real.Start(t, real.Options{})
	_, d := images.Push(t, reg, "csi/driver:v1", images.Spec{Seed: 1, SharedLayers: []int64{1_500_000}, Layers: []int64{3000}, Platforms: images.All})
	return reg, d
}

// driver is that registry, and the repository of its image.
func driver(t testing.TB, o remote.Options) (*real.Registry, ocispec.Descriptor, *remote.Repository) {
	t.Helper()
	reg, root := upstream(t)
	return reg, root, at(t, o, reg, "csi/driver:v1")
}

// alone is an empty registry, and a repository of it.
func alone(t testing.TB, options real.Options, o remote.Options) (*real.Registry, *remote.Repository) {
	t.Helper()
	reg := real.Start(t, options)
	return reg, at(t, o, reg, "a/b:1")
}

// pushing is a mirror, and what it takes to push the image of a source to it.
func pushing(
	t testing.TB, source *real.Registry, options real.Options, o remote.Options,
) (mirror *real.Registry, from, to *remote.Repository, g *bundle.Graph) {
	t.Helper()
	mirror = real.Start(t, options)
	c, _ := client(t, o, source, mirror)
	from, to = repository(c, source, "csi/driver:v1"), repository(c, mirror, "site/bundle:1")
	return mirror, from, to, graph(t, from)
}

func largest(g *bundle.Graph) ocispec.Descriptor {
	return slices.MaxFunc(g.Blobs, func(a, b ocispec.Descriptor) int { return int(a.Size - b.Size) })
}

var mirrors = map[string]real.Options{
	"plain":          {},
	"tls+basic":      {TLS: true, Auth: real.Basic},
	"tls+token":      {TLS: true, Auth: real.Token},
	"relative":       {TLS: true, Auth: real.Basic, RelativeURLs: true},
	"referrers":      {Kind: real.Referrers, TLS: true, Auth: real.Basic},
	"without":        {Kind: real.Simple},
	"token+relative": {Auth: real.Token, RelativeURLs: true},
}

func TestCopyIsCompleteAndTheSecondRunSendsNothing(t *testing.T) {
	source, _ := upstream(t)
	for name, options := range mirrors {
		t.Run(name, func(t *testing.T) {
			mirror, from, to, g := pushing(t, source, options, remote.Options{})
			g.Attachments = []bundle.Referrer{newReferrer(t, g.Root, true, "ours"), newReferrer(t, g.Root, false, "ours too")}
			require.NoError(t, copyGraph(t.Context(), g, from, to))

			got, err := to.Root(t.Context())
			require.NoError(t, err)
			require.Equal(t, g.Root.Digest, got.Digest)
			for _, d := range g.Blobs {
				wantBlob(t, to, d)
			}
			for _, n := range g.Manifests {
				data, err := bundle.Read(t.Context(), to, n.Descriptor, bundle.MaxManifestSize)
				require.NoError(t, err)
				require.Equal(t, n.Data, data)
			}

			mirror.ForgetRequests()
			missing, err := to.Begin(t.Context(), g)
			require.NoError(t, err)
			require.Empty(t, missing)
			require.NoError(t, to.Commit(t.Context()))
			require.NoError(t, to.Close())
			for _, q := range mirror.Requests() {
				require.Contains(t, []string{"HEAD", "GET"}, q.Method, q.Path)
			}
		})
	}
}

func digests(list []ocispec.Descriptor) []string {
	out := make([]string, 0, len(list))
	for _, d := range list {
		out = append(out, d.Digest.String())
	}
	return out
}

func remove(t *testing.T, reg *real.Registry, path string) {
	w := httptest.NewRecorder()
	reg.Stored().ServeHTTP(w, httptest.NewRequest(http.MethodDelete, path, nil))
	require.Equal(t, http.StatusAccepted, w.Code)
}

func TestTagIsWrittenLastAndNotAfterAFault(t *testing.T) {
	source, _ := upstream(t)
	mirror, from, to, g := pushing(t, source, real.Options{TLS: true, Auth: real.Token}, remote.Options{})
	child := g.Manifests[0].Descriptor.Digest.String()
	mirror.Fail(real.Fault{Match: real.Match{Method: "PUT", Path: child}, Status: 403})
	wantFault(t, copyGraph(t.Context(), g, from, to), fault.Forbidden, child)
	_, err := to.Root(t.Context())
	wantFault(t, err, fault.NotFound)

	mirror.Heal()
	mirror.ForgetRequests()
	require.NoError(t, copyGraph(t.Context(), g, from, to))
	var puts []string
	for _, q := range mirror.Requests() {
		if q.Method == http.MethodPut {
			puts = append(puts, q.Path)
		}
	}
	require.Zero(t, mirror.Count("PUT", "/blobs/"), "blobs are there since the first run")
	require.Equal(t, "/v2/site/bundle/manifests/1", puts[len(puts)-1])
	require.Equal(t, "/v2/site/bundle/manifests/"+bundle.DigestTag(g.Root.Digest.Encoded()), puts[len(puts)-2])
}

func TestPushByDigestRefusesAnotherBundle(t *testing.T) {
	source, _ := upstream(t)
	c, _ := client(t, remote.Options{}, source)
	g := graph(t, repository(c, source, "csi/driver:v1"))
	other := repository(c, source, "x/y@sha256:"+fmt.Sprintf("%064d", 1))
	_, err := other.Begin(t.Context(), g)
	wantFault(t, err, fault.Conflict, g.Root.Digest.String())
	same := repository(c, source, "x/y@"+g.Root.Digest.String())
	require.NoError(t, copyGraph(t.Context(), g, repository(c, source, "csi/driver:v1"), same))
	require.Zero(t, source.Count("PUT", "/v2/x/y/manifests/v1"))
}

func TestPushRefusesTagsOfOtherManifests(t *testing.T) {
	source, _ := upstream(t)
	c, _ := client(t, remote.Options{}, source)
	g := graph(t, repository(c, source, "csi/driver:v1"))
	hex := g.Root.Digest.Encoded()
	for _, tag := range []string{
		"sha256-" + hex, "sha256-" + hex + ".sig", bundle.NoteTag(hex), bundle.DigestTag(fmt.Sprintf("%064d", 1)),
	} {
		_, err := repository(c, source, "x/y:"+tag).Begin(t.Context(), g)
		wantFault(t, err, fault.InvalidInput, tag)
	}
	for _, tag := range []string{bundle.DigestTag(hex), "digest-1", "sha256-1"} {
		_, err := repository(c, source, "x/y:"+tag).Begin(t.Context(), g)
		require.NoError(t, err, tag)
	}
}

func TestBlobGoesOnWhereTheConnectionBroke(t *testing.T) {
	reg, _ := upstream(t)
	c, n := client(t, remote.Options{}, reg)
	repo := repository(c, reg, "csi/driver:v1")
	d := largest(graph(t, repo))
	blob := real.Match{Method: "GET", Path: "/blobs/" + d.Digest.String()}
	for name, faults := range map[string][]real.Fault{
		"cut":                  {{Match: blob, Times: 1, Cut: 1_000_000}},
		"cut at start":         {{Match: blob, Times: 1, CutAtStart: true}},
		"cut, reset, 503":      {{Match: blob, Times: 1, Cut: 700_001}, {Match: blob, Times: 1, Reset: true}, {Match: blob, Times: 1, Status: 503}},
		"cut, range ignored":   {{Match: blob, Times: 1, Cut: 900_000}, {Match: blob, Times: 1, IgnoreRange: true}},
		"cut, other range":     {{Match: blob, Times: 1, Cut: 900_000}, {Match: blob, Times: 1, ReplaceHeader: map[string]string{"Content-Range": "bytes 5-9/10"}}},
		"cut, 416":             {{Match: blob, Times: 1, Cut: 900_000}, {Match: blob, Times: 1, Status: 416}},
		"cut many times":       {{Match: blob, Times: 4, Cut: 300_000}},
		"no open ranges":       {{Match: real.Match{Method: "GET", Path: blob.Path, Range: "-"}, Status: 416}, {Match: blob, Cut: 400_000}},
		"cut, throttled, cut":  {{Match: blob, Times: 1, Cut: 10}, {Match: blob, Times: 2, Status: 429}, {Match: blob, Times: 1, Cut: 10}},
		"without Content-Type": {{Match: blob, Times: 1, Cut: 10, ReplaceHeader: map[string]string{"Content-Type": ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			reg.Heal()
			reg.ForgetRequests()
			for _, f := range faults {
				reg.Fail(f)
			}
			wantBlob(t, repo, d)
			require.Greater(t, len(n.all()), 0)
			if name == "cut" {
				all := reg.Requests()
				require.Len(t, all, 2)
				require.Equal(t, fmt.Sprintf("bytes=1000000-%d", d.Size-1), all[1].Range, "with its end: some registries refuse open ranges")
				require.Equal(t, d.Size-1_000_000, all[1].Sent, "only the rest was sent again")
			}
		})
	}
}

// A host without ranges that cuts early sends all of it again each time: no progress gives
// it more attempts than there are.
func TestAHostWithoutRangesIsNotAskedWithoutEnd(t *testing.T) {
	reg := real.Start(t, real.Options{})
	images.Push(t, reg, "csi/big:v1", images.Spec{Seed: 5, Layers: []int64{5 << 20}})
	repo := at(t, remote.Options{Attempts: 4}, reg, "csi/big:v1")
	d := largest(graph(t, repo))
	blob := real.Match{Method: "GET", Path: "/blobs/" + d.Digest.String()}
	for n := range 12 {
		reg.Fail(real.Fault{Match: blob, Times: 1, IgnoreRange: true, Cut: int64(n+1) * 300_000})
	}
	_, err := readBlob(repo, d, 0)
	wantFault(t, err, fault.Unreachable)
	require.LessOrEqual(t, reg.Count("GET", "/blobs/"+d.Digest.String()), 5)
}

func TestFetchStartsAtTheOffset(t *testing.T) {
	_, root, repo := driver(t, remote.Options{})
	d := largest(graph(t, repo))
	whole, err := readBlob(repo, d, 0)
	require.NoError(t, err)
	for _, offset := range []int64{1, 1000, d.Size - 1, d.Size} {
		part, err := readBlob(repo, d, offset)
		require.NoError(t, err)
		require.True(t, bytes.Equal(whole[offset:], part), "offset %d", offset)
	}
	_, err = repo.Fetch(t.Context(), d, d.Size+1)
	require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
	manifest, err := readBlob(repo, root, 0)
	require.NoError(t, err)
	part, err := readBlob(repo, root, 10)
	require.NoError(t, err)
	require.Equal(t, manifest[10:], part)
}

func TestBlobThatNeverComesIsUnreachable(t *testing.T) {
	reg, _ := upstream(t)
	c, n := client(t, remote.Options{Attempts: 4}, reg)
	repo := repository(c, reg, "csi/driver:v1")
	d := largest(graph(t, repo))
	reg.Fail(real.Fault{Match: real.Match{Path: "/blobs/" + d.Digest.String()}, Cut: 100})
	_, err := readBlob(repo, d, 0)
	wantFault(t, err, fault.Unreachable, "read", d.Digest.String())
	require.Len(t, n.all(), 3)
	require.Equal(t, 4, reg.Count("GET", "/blobs/"+d.Digest.String()))
}

func TestFaultsThatPassAreTriedAgain(t *testing.T) {
	source, _ := upstream(t)
	mirror := real.Start(t, real.Options{TLS: true, Auth: real.Token})
	for name, f := range map[string]real.Fault{
		"503 everywhere":       {Times: 3, Status: 503},
		"429 everywhere":       {Times: 3, Status: 429, Header: map[string]string{"Retry-After": "7"}},
		"reset everywhere":     {Times: 3, Reset: true},
		"upload refused":       {Match: real.Match{Method: "POST"}, Times: 2, Status: 502},
		"upload reset":         {Match: real.Match{Method: "PUT", Path: "/blobs/uploads/"}, Times: 3, Reset: true},
		"upload answer lost":   {Match: real.Match{Method: "PUT", Path: "/blobs/uploads/"}, Times: 2, CutAtStart: true},
		"manifest reset":       {Match: real.Match{Method: "PUT", Path: "/manifests/"}, Times: 3, Reset: true},
		"token service at 500": {Match: real.Match{Path: "/auth/token"}, Times: 2, Status: 500},
		"check cut":            {Match: real.Match{Method: "HEAD"}, Times: 2, Reset: true},
		"token run out":        {Match: real.Match{Method: "PUT"}, Times: 1, Status: 401, Header: map[string]string{"WWW-Authenticate": "Bearer realm=\"" + mirror.URL() + "/auth/token\",service=\"test registry\""}},
	} {
		t.Run(name, func(t *testing.T) {
			c, n := client(t, remote.Options{Concurrency: 2}, source, mirror)
			mirror.Heal()
			from := repository(c, source, "csi/driver:v1")
			to := repository(c, mirror, fmt.Sprintf("site/%x:1", sha256.Sum256([]byte(name))))
			g := graph(t, from)
			mirror.Fail(f)
			require.NoError(t, copyGraph(t.Context(), g, from, to))
			if f.Status == 429 {
				require.Contains(t, n.all(), 7*time.Second)
			}
		})
	}
}

// A blob goes as a whole or in parts, and its source is read on from where a part ended.
func TestSourceOfOtherContentIsNotPushed(t *testing.T) {
	for _, o := range []remote.Options{{}, {ChunkSize: 100_000}} {
		mirror, to := alone(t, real.Options{Kind: real.Simple}, o)
		good := bytes.Repeat([]byte("x"), 300_000)
		d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: ocidigest(good), Size: int64(len(good))}
		bad := bytes.Clone(good)
		bad[150_000] = 'y'
		var opened []int64
		opener := func(data []byte) func(int64) (io.ReadCloser, error) {
			return func(offset int64) (io.ReadCloser, error) {
				opened = append(opened, offset)
				return io.NopCloser(bytes.NewReader(data[offset:])), nil
			}
		}
		wantFault(t, to.Put(t.Context(), d, opener(bad)), fault.Corrupt, d.Digest.String())
		var sent int64
		for _, n := range append(sizes(mirror, "PUT"), sizes(mirror, "PATCH")...) {
			sent += n
		}
		require.Less(t, sent, d.Size, "a registry that compares nothing gets no whole blob")
		wantFault(t, to.Put(t.Context(), d, opener(good[:200_000])), fault.Incomplete, "300000 bytes")
		broken := &fault.Error{Reason: fault.Storage, Op: "read", Subject: "drivers.tar", Hint: "mend the disk"}
		require.ErrorIs(t, to.Put(t.Context(), d, func(int64) (io.ReadCloser, error) { return nil, broken }), broken)
		_, err := readBlob(to, d, 0)
		wantFault(t, err, fault.NotFound)

		opened = nil
		require.NoError(t, to.Put(t.Context(), d, opener(append(good, "more"...))), "what follows the blob is not read")
		require.Equal(t, []int64{0}, opened)
		wantBlob(t, to, d)
		empty := ocispec.Descriptor{MediaType: ocispec.MediaTypeEmptyJSON, Digest: ocidigest(nil)}
		require.NoError(t, to.Put(t.Context(), empty, opener(nil)))
	}
}

func TestCancelledWorkEndsAtOnceAndLeavesNoGoroutine(t *testing.T) {
	reg, _ := upstream(t)
	before := runtime.NumGoroutine()
	c, _ := client(t, remote.Options{}, reg)
	repo := repository(c, reg, "csi/driver:v1")
	d := largest(graph(t, repo))
	gate, seen := make(chan struct{}), make(chan string, 1)
	defer close(gate)
	reg.Fail(real.Fault{Match: real.Match{Path: "/blobs/"}, Wait: gate, Seen: seen})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := repo.Fetch(ctx, d, 0)
		done <- err
	}()
	<-seen
	cancel()
	err := <-done
	wantFault(t, err, fault.Interrupted)
	require.ErrorIs(t, err, context.Canceled)
	reg.Heal()

	ctx, cancel = context.WithCancel(t.Context())
	rc, err := repo.Fetch(ctx, d, 0)
	require.NoError(t, err)
	cancel()
	_, err = io.Copy(io.Discard, rc)
	if err != nil { // all of it may have been under way already
		wantFault(t, err, fault.Interrupted)
	}
	require.NoError(t, rc.Close())
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 }, 10*time.Second, time.Millisecond)
}

func TestSilentHostIsGivenUp(t *testing.T) {
	reg, _, repo := driver(t, remote.Options{Stall: 100 * time.Millisecond, Attempts: 2})
	gate := make(chan struct{})
	defer close(gate)
	reg.Fail(real.Fault{Match: real.Match{Path: "/manifests/"}, Wait: gate})
	_, err := repo.Root(t.Context())
	wantFault(t, err, fault.Unreachable, "silent")

	mirror, to := alone(t, real.Options{}, remote.Options{Stall: 200 * time.Millisecond, Attempts: 1, ChunkSize: 1000})
	d, open := randomBlob(3000)
	stored := make(chan struct{}) // it may take longer to put parts together
	mirror.Fail(real.Fault{Match: real.Match{Method: "PUT"}, Wait: stored})
	time.AfterFunc(400*time.Millisecond, func() { close(stored) })
	require.NoError(t, to.Put(t.Context(), d, open))
}

func ocidigest(data []byte) godigest.Digest { return godigest.FromBytes(data) }
