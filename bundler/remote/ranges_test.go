package remote_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// largeBlob puts a blob of so many bytes into a registry that keeps it on the disk.
func largeBlob(t *testing.T, size int) (*real.Registry, ocispec.Descriptor) {
	t.Helper()
	reg := real.Start(t, real.Options{Dir: t.TempDir()})
	c, _ := client(t, remote.Options{}, reg)
	d, open := randomBlob(size)
	require.NoError(t, repository(c, reg, "a/b:1").Put(t.Context(), d, open))
	return reg, d
}

func wantStream(t *testing.T, repo *remote.Repository, d ocispec.Descriptor, offset int64, sum string) {
	t.Helper()
	rc, err := repo.FetchFrom(t.Context(), d, offset)
	require.NoError(t, err)
	h := sha256.New()
	n, err := io.Copy(h, rc)
	require.NoError(t, err)
	require.NoError(t, rc.Close())
	require.Equal(t, d.Size-offset, n)
	if sum != "" {
		require.Equal(t, sum, "sha256:"+hex.EncodeToString(h.Sum(nil)))
	}
}

func ranged(reg *real.Registry) (n int) {
	for _, q := range reg.Requests() {
		if q.Method == http.MethodGet && q.Range != "" {
			n++
		}
	}
	return n
}

func TestLargeBlobsAreReadOverSeveralConnections(t *testing.T) {
	const size = 70<<20 + 12345
	reg, d := largeBlob(t, size)
	blob := real.Match{Method: "GET", Path: "/blobs/" + d.Digest.String()}
	for name, faults := range map[string][]real.Fault{
		"none":                 nil,
		"cuts":                 {{Match: blob, Times: 5, Cut: 1_000_000}, {Match: blob, Times: 2, Reset: true}, {Match: blob, Times: 2, Status: 503}},
		"ranges ignored":       {{Match: blob, IgnoreRange: true}},
		"ranges ignored later": {{Match: blob, After: 9, IgnoreRange: true}},
		"416":                  {{Match: blob, After: 3, Times: 1, Status: 416}},
		"other ranges":         {{Match: blob, After: 2, Times: 1, ReplaceHeader: map[string]string{"Content-Range": "bytes 5-9/10"}}},
	} {
		t.Run(name, func(t *testing.T) {
			reg.Heal()
			reg.ForgetRequests()
			for _, f := range faults {
				reg.Fail(f)
			}
			c, _ := client(t, remote.Options{Ranges: 4, Concurrency: 4}, reg)
			wantStream(t, repository(c, reg, "a/b:1"), d, 0, d.Digest.String())
			if name == "none" {
				require.Equal(t, 71, ranged(reg), "1 MiB each")
				wantStream(t, repository(c, reg, "a/b:1"), d, 1<<20, "")
			}
		})
	}
	reg.Heal()
	reg.ForgetRequests()
	c, _ := client(t, remote.Options{}, reg)
	wantStream(t, repository(c, reg, "a/b:1"), d, 0, d.Digest.String())
	require.Zero(t, ranged(reg), "one connection unless it was asked for")
}

// Slots that others need are not taken, and all are given back.
func TestSegmentsGiveTheirSlotsBack(t *testing.T) {
	reg, d := largeBlob(t, 66<<20)
	before := runtime.NumGoroutine()
	c, _ := client(t, remote.Options{Ranges: 4, Concurrency: 2, Attempts: 2}, reg)
	repo := repository(c, reg, "a/b:1")
	for range 3 {
		rc, err := repo.Fetch(t.Context(), d)
		require.NoError(t, err)
		_, err = io.CopyN(io.Discard, rc, 5<<20)
		require.NoError(t, err)
		require.NoError(t, rc.Close())
		_, err = rc.Read(make([]byte, 1))
		require.Error(t, err)
	}
	reg.Fail(real.Fault{Match: real.Match{Method: "GET", Path: "/blobs/"}, After: 3, Status: 404})
	rc, err := repo.Fetch(t.Context(), d)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, rc)
	wantFault(t, err, fault.NotFound, d.Digest.String())
	require.NoError(t, rc.Close())

	reg.Heal()
	gate, seen := make(chan struct{}), make(chan string, 1)
	defer close(gate)
	reg.Fail(real.Fault{Match: real.Match{Method: "GET", Path: "/blobs/"}, Wait: gate, Seen: seen})
	ctx, cancel := context.WithCancel(t.Context())
	rc, err = repo.Fetch(ctx, d)
	require.NoError(t, err)
	<-seen
	cancel()
	_, err = io.Copy(io.Discard, rc)
	wantFault(t, err, fault.Interrupted)
	require.NoError(t, rc.Close())
	reg.Heal()
	wantStream(t, repo, d, 0, d.Digest.String())
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+4 }, 10*time.Second, time.Millisecond)
}

// However many blobs and connections are asked for, what is in memory has one bound.
func TestSegmentsOfAllBlobsHaveOneBound(t *testing.T) {
	reg, d := largeBlob(t, 64<<20)
	for _, o := range []remote.Options{{Ranges: 8, Concurrency: 64}, {Ranges: 4, Concurrency: 6}} {
		c, _ := client(t, o, reg)
		var group errgroup.Group
		for range 12 {
			group.Go(func() error {
				rc, err := repository(c, reg, "a/b:1").Fetch(t.Context(), d)
				if err != nil {
					return err
				}
				buf := make([]byte, 1<<20)
				for range 8 {
					if _, err = io.ReadFull(rc, buf); err != nil {
						return errors.Join(err, rc.Close())
					}
					if held := remote.SegmentBytes(c); held > 16<<20 {
						return errors.Join(fmt.Errorf("%d bytes are held", held), rc.Close())
					}
				}
				return rc.Close()
			})
		}
		require.NoError(t, group.Wait())
		require.Zero(t, remote.SegmentBytes(c), "all is given back")
	}
}
