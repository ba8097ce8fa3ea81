package remote_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
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
	t.Helper()
	data, err := readBlob(repo, d, 0)
	require.NoError(t, err)
	require.Equal(t, d.Digest.String(), hashOf(data))
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
			mirror := real.Start(t, options)
			c, _ := client(t, remote.Options{ChunkSize: 1_000_000}, mirror)
			repo := repository(c, mirror, "a/b:1")
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
			mirror := real.Start(t, real.Options{TLS: true, Auth: real.Basic})
			limit.Match.Path = "/blobs/uploads/"
			mirror.Fail(limit)
			c, _ := client(t, remote.Options{}, mirror)
			repo := repository(c, mirror, "a/b:1")
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

// What arrived of a part before a fault is not sent again, where the registry says
// how much that is.
func TestUploadInPartsGoesOnFromTheServersOffset(t *testing.T) {
	d, open := randomBlob(3_000_000)
	patch, get, last := real.Match{Method: "PATCH"}, real.Match{Method: "GET", Path: "/blobs/uploads/"}, real.Match{Method: "PUT"}
	for name, c := range map[string]struct {
		faults []real.Fault
		most   int64 // bytes sent in parts
	}{
		"reset in a part":           {[]real.Fault{{Match: patch, Times: 1, ResetAfter: 400_000}}, 3_200_000},
		"reset in every other part": {[]real.Fault{{Match: patch, Times: 1, ResetAfter: 900_000}, {Match: patch, Times: 1}, {Match: patch, Times: 1, ResetAfter: 10}, {Match: patch, Times: 1}, {Match: patch, Times: 1, Reset: true}}, 4_000_000},
		"answer of a part lost":     {[]real.Fault{{Match: patch, Times: 1, CutAtStart: true}}, 3_000_000},
		"503":                       {[]real.Fault{{Match: patch, Times: 2, Status: 503}}, 3_000_000},
		"429":                       {[]real.Fault{{Match: patch, Times: 2, Status: 429, Header: map[string]string{"Retry-After": "2"}}}, 3_000_000},
		"the last answer lost":      {[]real.Fault{{Match: last, Times: 1, CutAtStart: true}}, 3_000_000},
		"the end refused":           {[]real.Fault{{Match: last, Times: 2, Status: 502}}, 3_000_000},
		"status not told":           {[]real.Fault{{Match: get, Status: 404}, {Match: patch, Times: 1, ResetAfter: 400_000}}, 3_500_000},
		"session forgotten":         {[]real.Fault{{Match: patch, Times: 1}, {Match: patch, Times: 1, Status: 404, Body: `{"errors":[{"code":"BLOB_UPLOAD_UNKNOWN"}]}`}}, 4_000_000},
		"out of step":               {[]real.Fault{{Match: patch, Times: 1}, {Match: patch, Times: 1, Status: 416}}, 4_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			mirror := real.Start(t, real.Options{TLS: true, Auth: real.Token, Dir: t.TempDir()})
			for _, f := range c.faults {
				mirror.Fail(f)
			}
			cl, _ := client(t, remote.Options{ChunkSize: 1_000_000}, mirror)
			repo := repository(cl, mirror, "a/b:1")
			require.NoError(t, repo.Put(t.Context(), d, open))
			wantBlob(t, repo, d)
			var sent int64
			for _, n := range sizes(mirror, "PATCH") {
				sent += n
			}
			require.LessOrEqual(t, sent, c.most)
		})
	}
}

// The source is read on, not from its start, and what is wrong with it is found.
func TestPartsOfABadSource(t *testing.T) {
	mirror := real.Start(t, real.Options{})
	c, _ := client(t, remote.Options{ChunkSize: 1_000_000}, mirror)
	repo := repository(c, mirror, "a/b:1")
	d, open := randomBlob(2_500_000)
	var opened []int64
	require.NoError(t, repo.Put(t.Context(), d, func(offset int64) (io.ReadCloser, error) {
		opened = append(opened, offset)
		return open(offset)
	}))
	require.Equal(t, []int64{0}, opened)

	other := d
	other.Digest = ocidigest([]byte("x"))
	wantFault(t, repo.Put(t.Context(), other, open), fault.Corrupt, "digest")
	_, err := readBlob(repo, other, 0)
	wantFault(t, err, fault.NotFound)
	other.Size = d.Size + 1
	wantFault(t, repo.Put(t.Context(), other, open), fault.Incomplete)
}

func TestPartsGoToAnotherHostWithoutTheLogin(t *testing.T) {
	mirror := real.Start(t, real.Options{TLS: true, Auth: real.Basic})
	store := mirror.Storage(t)
	mirror.Fail(real.Fault{Match: real.Match{Method: "POST"}, LocationBase: store.URL()})
	store.Fail(real.Fault{Match: real.Match{Method: "PATCH"}, LocationBase: store.URL()})
	store.Fail(real.Fault{LocationBase: store.URL()})
	c, _ := client(t, remote.Options{ChunkSize: 1_000_000}, mirror)
	d, open := randomBlob(2_100_000)
	repo := repository(c, mirror, "a/b:1")
	require.NoError(t, repo.Put(t.Context(), d, open))
	wantBlob(t, repo, d)
	require.Len(t, sizes(store, "PATCH"), 3)
	for _, q := range store.Requests() {
		require.False(t, q.Authorization)
	}
}

// A registry that takes no parts, behind a link that breaks: it is sent as a whole.
func TestRegistryThatTakesNoParts(t *testing.T) {
	mirror := real.Start(t, real.Options{})
	mirror.Fail(real.Fault{Match: real.Match{Method: "PATCH"}, Status: 405})
	mirror.Fail(real.Fault{Match: real.Match{Method: "PUT"}, Times: 1, ResetAfter: 1 << 20})
	c, _ := client(t, remote.Options{}, mirror)
	d, open := randomBlob(5 << 20)
	repo := repository(c, mirror, "a/b:1")
	require.NoError(t, repo.Put(t.Context(), d, open))
	wantBlob(t, repo, d)
}

// The registry may ask for parts of a least size.
func TestLeastSizeOfAPartIsKept(t *testing.T) {
	mirror := real.Start(t, real.Options{})
	mirror.Fail(real.Fault{Match: real.Match{Method: "POST"}, ReplaceHeader: map[string]string{"OCI-Chunk-Min-Length": "2000000"}})
	c, _ := client(t, remote.Options{ChunkSize: 1_000_000}, mirror)
	d, open := randomBlob(4_500_000)
	require.NoError(t, repository(c, mirror, "a/b:1").Put(t.Context(), d, open))
	require.Equal(t, []int64{2_000_000, 2_000_000, 500_000}, sizes(mirror, "PATCH"))
}

func TestBlobsOfTheSameRegistryAreMounted(t *testing.T) {
	for _, options := range []real.Options{{}, {TLS: true, Auth: real.Token}, {TLS: true, Auth: real.Basic, RelativeURLs: true}} {
		mirror := real.Start(t, options)
		images.Push(t, mirror, "upstream/driver:v1", images.Spec{Seed: 2, Layers: []int64{300_000}})
		c, _ := client(t, remote.Options{}, mirror)
		from, to := repository(c, mirror, "upstream/driver:v1"), repository(c, mirror, "site/bundle:1")
		g := graph(t, from)
		missing, err := to.Begin(t.Context(), g)
		require.NoError(t, err)
		mirror.ForgetRequests()
		for _, d := range missing {
			if d.MediaType == ocispec.MediaTypeImageManifest {
				continue
			}
			done, err := to.Mount(t.Context(), d, from.Reference())
			require.NoError(t, err)
			require.True(t, done)
		}
		require.Zero(t, mirror.Count("PUT", ""))
		require.Zero(t, mirror.Count("GET", "/blobs/"))
		require.NoError(t, to.Commit(t.Context()))
		for _, d := range g.Blobs {
			wantBlob(t, to, d)
		}
	}
}

// Harbor answers 401 to a mount from another project; others open an upload.
func TestRefusedMountsAreUploads(t *testing.T) {
	for _, status := range []int{0, 401, 403, 404, 405} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			mirror := real.Start(t, real.Options{TLS: true, Auth: real.Token})
			images.Push(t, mirror, "upstream/driver:v1", images.Spec{Seed: 2, Layers: []int64{300_000, 400_000}})
			c, _ := client(t, remote.Options{}, mirror)
			from, to := repository(c, mirror, "upstream/driver:v1"), repository(c, mirror, "site/bundle:1")
			g := graph(t, from)
			if status != 0 {
				mirror.Fail(real.Fault{Match: real.Match{Method: "POST", Query: "mount="}, Status: status})
			}
			var asked int
			for _, b := range g.Blobs {
				d := b
				if status == 0 { // nothing that the registry has there
					d = plain(part("application/x", "unknown "+b.Digest.String()))
				}
				before := len(mirror.Requests())
				done, err := to.Mount(t.Context(), d, from.Reference())
				require.NoError(t, err)
				require.False(t, done)
				if len(mirror.Requests()) > before {
					asked++
				}
				if status == 0 {
					mirror.ForgetRequests()
					require.NoError(t, to.Put(t.Context(), d, func(int64) (io.ReadCloser, error) {
						return io.NopCloser(bytes.NewReader([]byte("unknown " + b.Digest.String()))), nil
					}))
					require.Zero(t, mirror.Count("POST", ""), "the upload that was opened is used")
				} else {
					require.NoError(t, to.Put(t.Context(), d, func(offset int64) (io.ReadCloser, error) { return from.FetchFrom(t.Context(), d, offset) }))
					wantBlob(t, to, d)
				}
			}
			if status != 0 {
				require.Equal(t, 1, asked, "a refusal is not asked for again")
			}
		})
	}
	other := real.Start(t, real.Options{})
	c, _ := client(t, remote.Options{}, other)
	d, _ := randomBlob(10)
	done, err := repository(c, other, "a/b:1").Mount(t.Context(), d, image.MustReference("registry.elsewhere/a/b:1"))
	require.NoError(t, err)
	require.False(t, done)
	require.Empty(t, other.Requests())
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
// an empty one.
func TestRefusedEmptyBlobIsAFault(t *testing.T) {
	mirror := real.Start(t, real.Options{})
	c, _ := client(t, remote.Options{}, mirror)
	for name, match := range map[string]real.Match{"its body": {Method: "PUT"}, "its upload": {Method: "POST"}} {
		t.Run(name, func(t *testing.T) {
			mirror.Heal()
			mirror.Fail(real.Fault{Match: match, Status: 413})
			for _, size := range []int{0, 1} {
				d, open := randomBlob(size)
				wantFault(t, repository(c, mirror, "a/b:1").Put(t.Context(), d, open), fault.Refused, "body limit")
			}
		})
	}
}
