package remote_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// randomBlob is a blob of so many bytes, and what opens it at an offset.
func randomBlob(size int) (ocispec.Descriptor, func(int64) (io.ReadCloser, error)) {
	data := make([]byte, size)
	source := rand.NewChaCha8([32]byte{byte(size)})
	_, _ = source.Read(data)
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerGzip, Digest: ocidigest(data), Size: int64(size)}
	return d, func(offset int64) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data[offset:])), nil }
}

func wantBlob(t *testing.T, repo *remote.Repository, d ocispec.Descriptor) {
	data, err := readBlob(repo, d, 0)
	require.NoError(t, err)
	require.Equal(t, d.Digest, ocidigest(data))
}

// sizes are the bodies that a registry was sent with a method.
func sizes(reg *real.Registry, method string) (out []int64) {
	for _, q := range reg.Requests() {
		if q.Method == method {
			out = append(out, q.Received)
		}
	}
	return out
}

func TestBlobsLargerThanAChunkAreSentInParts(t *testing.T) {
	d, open := randomBlob(2_500_000)
	small, openSmall := randomBlob(900_000)
	for name, options := range mirrors {
		t.Run(name, func(t *testing.T) {
			mirror, repo := alone(t, options, remote.Options{ChunkSize: 1_000_000})
			require.NoError(t, repo.Put(t.Context(), d, open))
			require.Equal(t, []int64{1_000_000, 1_000_000, 500_000}, sizes(mirror, "PATCH"))
			wantBlob(t, repo, d)
			mirror.ForgetRequests()
			require.NoError(t, repo.Put(t.Context(), small, openSmall))
			require.Empty(t, sizes(mirror, "PATCH"))
			wantBlob(t, repo, small)
		})
	}
}

// A proxy that refuses, or cuts off, bodies over its limit: the parts become small
// enough, and the next blob does not have to find out again.
func TestBodyLimitsAreFoundOut(t *testing.T) {
	first, openFirst := randomBlob(6 << 20)
	second, openSecond := randomBlob(5 << 20)
	for name, limit := range map[string]real.Fault{
		"413":           {BodyLimit: 1 << 20},
		"413 at 300 KB": {BodyLimit: 300 << 10},
		"cut":           {BodyLimit: 4 << 20, Reset: true},
	} {
		t.Run(name, func(t *testing.T) {
			mirror, repo := alone(t, real.Options{TLS: true, Auth: real.Basic}, remote.Options{})
			limit.Match.Path = "/blobs/uploads/"
			mirror.Fail(limit)
			require.NoError(t, repo.Put(t.Context(), first, openFirst))
			wantBlob(t, repo, first)
			mirror.ForgetRequests()
			require.NoError(t, repo.Put(t.Context(), second, openSecond))
			wantBlob(t, repo, second)
			for _, q := range mirror.Requests() {
				require.Less(t, q.Status, 400, "%s %s", q.Method, q.Path)
				require.LessOrEqual(t, q.Received, limit.BodyLimit)
			}
		})
	}
}

// What arrived of a part before a fault is not sent again, where the registry says how much that is. A
// registry may ask for parts of a least size, or take none: behind a link that breaks the blob is sent
// as a whole then.
func TestUploadInPartsGoesOnFromTheServersOffset(t *testing.T) {
	patch, last := real.Match{Method: "PATCH"}, real.Match{Method: "PUT"}
	get := real.Match{Method: "GET", Path: "/blobs/uploads/"}
	unknown := `{"errors":[{"code":"BLOB_UPLOAD_UNKNOWN"}]}`
	least := map[string]string{"OCI-Chunk-Min-Length": "2000000"}
	for name, c := range map[string]struct {
		most   int64 // bytes sent in parts
		faults []real.Fault
	}{
		"reset in a part": {3_200_000, []real.Fault{{Match: patch, Times: 1, ResetAfter: 400_000}}},
		"reset in every other part": {4_000_000, []real.Fault{
			{Match: patch, Times: 1, ResetAfter: 900_000}, {Match: patch, Times: 1},
			{Match: patch, Times: 1, ResetAfter: 10}, {Match: patch, Times: 1}, {Match: patch, Times: 1, Reset: true},
		}},
		"answer of a part lost": {3_000_000, []real.Fault{{Match: patch, Times: 1, CutAtStart: true}}},
		"503":                   {3_000_000, []real.Fault{{Match: patch, Times: 2, Status: 503}}},
		"429": {3_000_000, []real.Fault{
			{Match: patch, Times: 2, Status: 429, Header: map[string]string{"Retry-After": "2"}},
		}},
		"the last answer lost": {3_000_000, []real.Fault{{Match: last, Times: 1, CutAtStart: true}}},
		"the end refused":      {3_000_000, []real.Fault{{Match: last, Times: 2, Status: 502}}},
		"status not told": {3_500_000, []real.Fault{
			{Match: get, Status: 404}, {Match: patch, Times: 1, ResetAfter: 400_000},
		}},
		"session forgotten": {4_000_000, []real.Fault{
			{Match: patch, Times: 1}, {Match: patch, Times: 1, Status: 404, Body: unknown},
		}},
		"the Range stays": {3_000_000, []real.Fault{
			{Match: real.Match{Path: "/blobs/uploads/"}, ReplaceHeader: map[string]string{"Range": "0-999999"}},
		}},
		"out of step": {4_000_000, []real.Fault{{Match: patch, Times: 1}, {Match: patch, Times: 1, Status: 416}}},
		"least size":  {3_000_000, []real.Fault{{Match: real.Match{Method: "POST"}, ReplaceHeader: least}}},
		"takes no parts": {0, []real.Fault{
			{Match: patch, Status: 405}, {Match: last, Times: 1, ResetAfter: 1 << 20},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o, size := remote.Options{ChunkSize: 1_000_000}, 3_000_000
			if c.most == 0 {
				o.ChunkSize, size = 0, 5<<20
			}
			mirror, repo := alone(t, real.Options{TLS: true, Auth: real.Token, Dir: t.TempDir()}, o)
			for _, f := range c.faults {
				mirror.Fail(f)
			}
			d, open := randomBlob(size)
			require.NoError(t, repo.Put(t.Context(), d, open))
			wantBlob(t, repo, d)
			var sent int64
			for _, n := range sizes(mirror, "PATCH") {
				sent += n
			}
			require.LessOrEqual(t, sent, c.most)
			if name == "least size" {
				require.Equal(t, []int64{2_000_000, 1_000_000}, sizes(mirror, "PATCH"))
			}
		})
	}
}

// A blob of the same registry is mounted, and one that is not is uploaded. Harbor answers 401
// to a mount from another project; others open an upload.
func TestBlobsOfTheSameRegistryAreMountedOrUploaded(t *testing.T) {
	for name, c := range map[string]struct {
		options real.Options
		status  int // of a mount; 0: as the registry answers
		unknown bool
		posts   int // for two blobs, with those of uploads
	}{
		"mounted":         {options: real.Options{}, posts: 2},
		"with a token":    {options: real.Options{TLS: true, Auth: real.Token}, posts: 2},
		"with a password": {options: real.Options{TLS: true, Auth: real.Basic, RelativeURLs: true}, posts: 2},
		"unknown":         {options: real.Options{TLS: true, Auth: real.Token}, unknown: true, posts: 4},
		"401":             {options: real.Options{TLS: true, Auth: real.Token}, status: 401, posts: 4}, // asked with a new token as well
		"403":             {options: real.Options{}, status: 403, posts: 3},                            // a refusal is not requested again
		"404":             {options: real.Options{}, status: 404, posts: 3},
		"405":             {options: real.Options{}, status: 405, posts: 3},
	} {
		t.Run(name, func(t *testing.T) {
			mirror := real.Start(t, c.options)
			cl, _ := client(t, remote.Options{}, mirror)
			from, to := repository(cl, mirror, "upstream/driver:v1"), repository(cl, mirror, "site/bundle:1")
			if c.status != 0 {
				mirror.Fail(real.Fault{Match: real.Match{Method: "POST", Query: "mount="}, Status: c.status})
			}
			for _, size := range []int{300_000, 400_000} {
				d, open := randomBlob(size)
				if !c.unknown {
					require.NoError(t, from.Put(t.Context(), d, open))
				}
				if size == 300_000 {
					mirror.ForgetRequests()
				}
				done, err := to.Mount(t.Context(), d, from.Reference())
				require.NoError(t, err)
				if require.Equal(t, c.status == 0 && !c.unknown, done); !done {
					require.NoError(t, to.Put(t.Context(), d, open))
				}
				wantBlob(t, to, d)
			}
			require.Equal(t, c.posts, mirror.Count("POST", "/site/bundle/"))
		})
	}
}

// A host that has had enough is left alone by all who would ask it, not only by the
// one who heard so.
func TestThrottledHostIsLeftAloneByAll(t *testing.T) {
	reg, _ := upstream(t)
	c, n := client(t, remote.Options{}, reg)
	_, err := repository(c, reg, "csi/driver:v1").Root(t.Context())
	require.NoError(t, err)
	require.Empty(t, n.all())
	reg.Fail(real.Fault{Match: real.Match{Method: "HEAD"}, Times: 1, Status: 429, Header: map[string]string{"Retry-After": "60"}})
	_, err = repository(c, reg, "csi/driver:v1").Root(t.Context())
	require.NoError(t, err)
	before := len(n.all())
	_, err = repository(c, reg, "csi/driver:v1").Root(t.Context())
	require.NoError(t, err)
	require.Len(t, n.all(), before+1)
	require.Greater(t, n.all()[before], 30*time.Second)
}

func TestRateHoldsForAllTransfersTogether(t *testing.T) {
	mirror := real.Start(t, real.Options{})
	c, n := client(t, remote.Options{Rate: 1000, Concurrency: 4}, mirror)
	repo := repository(c, mirror, "a/b:1")
	var group errgroup.Group
	for i := range 4 {
		d, open := randomBlob(100_000 + i)
		group.Go(func() error { return repo.Put(t.Context(), d, open) })
	}
	require.NoError(t, group.Wait())
	require.Greater(t, slices.Max(n.all()), 300*time.Second, "400 kB up at 1 kB a second")
	d, _ := randomBlob(100_000)
	wantBlob(t, repo, d)
	require.Greater(t, slices.Max(n.all()), 400*time.Second, "and 100 kB down")
}

// A registry, or a proxy before it, may refuse any body: there is nothing smaller than
// an empty one, or than the parts that it demands.
func TestRefusedBlobIsAFault(t *testing.T) {
	least := map[string]string{"OCI-Chunk-Min-Length": "2000000"}
	for name, faults := range map[string][]real.Fault{
		"its body":   {{Match: real.Match{Method: "PUT"}, Status: 413}},
		"its upload": {{Match: real.Match{Method: "POST"}, Status: 413}},
		"its parts": {
			{Match: real.Match{Method: "POST"}, ReplaceHeader: least},
			{Match: real.Match{Path: "/blobs/uploads/"}, Times: 99, Status: 413},
		},
	} {
		t.Run(name, func(t *testing.T) {
			mirror, repo := alone(t, real.Options{}, remote.Options{ChunkSize: 1_000_000})
			for _, f := range faults {
				mirror.Fail(f)
			}
			for _, size := range []int{0, 1, 3_000_000} {
				d, open := randomBlob(size)
				wantFault(t, repo.Put(t.Context(), d, open), fault.Refused, "body limit")
			}
		})
	}
}

func TestAnUploadThatAlwaysRestartsEnds(t *testing.T) {
	mirror, repo := alone(t, real.Options{}, remote.Options{ChunkSize: 1_000_000})
	mirror.Fail(real.Fault{Match: real.Match{Method: "GET", Path: "/blobs/uploads/"}, Status: 404})
	for range 8 {
		mirror.Fail(real.Fault{Match: real.Match{Method: "PATCH"}, Times: 1})
		mirror.Fail(real.Fault{Match: real.Match{Method: "PATCH"}, Times: 2, ResetAfter: 10})
	}
	d, open := randomBlob(3_000_000)
	wantFault(t, repo.Put(t.Context(), d, open), fault.Unreachable)
}
