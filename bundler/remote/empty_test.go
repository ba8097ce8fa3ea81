package remote_test

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	real "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// manySmallParts is a plain registry with one image of 140 small layers and a large
// one.
func manySmallParts(t *testing.T) *real.Registry {
	t.Helper()
	reg := real.Start(t, real.Options{})
	images.Push(t, reg, "csi/driver:v1", images.Spec{Seed: 7, Layers: append(make([]int64, 140), 300_000)})
	return reg
}

// copyOf returns what opens a blob of another repository.
func copyOf(t *testing.T, from *remote.Repository, d ocispec.Descriptor) func(int64) (io.ReadCloser, error) {
	return func(offset int64) (io.ReadCloser, error) { return from.FetchFrom(t.Context(), d, offset) }
}

func TestPushToAnEmptyRegistryAsksForASampleOnly(t *testing.T) {
	source, mirror := manySmallParts(t), real.Start(t, real.Options{})
	c, _ := client(t, remote.Options{}, source, mirror)
	from, to := repository(c, source, "csi/driver:v1"), repository(c, mirror, "site/bundle:1")
	g := graph(t, from)
	missing, err := to.Begin(t.Context(), g)
	require.NoError(t, err)
	require.Equal(t, g.Order(), missing)
	require.Less(t, mirror.Count("HEAD", ""), 50)
	mirror.ForgetRequests()
	missing, err = to.Plan(t.Context(), g)
	require.NoError(t, err)
	require.Equal(t, g.Order(), missing)
	require.GreaterOrEqual(t, mirror.Count("HEAD", ""), len(g.Blobs), "what is to be told is asked for")
	mirror.ForgetRequests()
	require.NoError(t, copyGraph(t.Context(), g, from, to))
	require.Less(t, mirror.Count("HEAD", ""), len(g.Blobs)+60, "before the upload a sample, after it each")
	require.LessOrEqual(t, mirror.Count("POST", ""), len(g.Blobs)+1)
	for _, d := range g.Blobs {
		wantBlob(t, to, d)
	}
}

// crowded relays to a host and cuts connections over a number, as small proxies and
// firewalls do.
func crowded(t *testing.T, host string, most int64) (at string, cut *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var group errgroup.Group
	var open atomic.Int64
	cut = new(atomic.Int64)
	relay := func(client net.Conn) error {
		defer client.Close() //nolint:errcheck // either side may have ended it
		defer open.Add(-1)
		if open.Add(1) > most {
			cut.Add(1)
			return nil
		}
		server, err := net.Dial("tcp", host)
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(server, client)
			_ = server.Close()
		}()
		_, _ = io.Copy(client, server)
		return nil
	}
	group.Go(func() error {
		for {
			client, err := listener.Accept()
			if err != nil {
				return nil //nolint:nilerr // the test is over
			}
			group.Go(func() error { return relay(client) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		require.NoError(t, group.Wait())
	})
	return listener.Addr().String(), cut
}

// A host that has no room for many connections gets fewer.
func TestFewerConnectionsWhereTheyAreCut(t *testing.T) {
	source, mirror := manySmallParts(t), real.Start(t, real.Options{})
	at, cut := crowded(t, mirror.Host, 6)
	c, err := remote.NewClient(remote.Options{PlainHTTP: []string{source.Host, at}, Backoff: 20 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	from := repository(c, source, "csi/driver:v1")
	g := graph(t, from)
	to := c.Repository(image.MustReference(at + "/site/bundle:1"))
	missing, err := to.Begin(t.Context(), g)
	require.NoError(t, err)
	var group errgroup.Group
	for _, d := range missing {
		if !bundle.IsManifest(d.MediaType) && !strings.HasSuffix(d.MediaType, "json") {
			group.Go(func() error { return to.Put(t.Context(), d, copyOf(t, from, d)) })
		}
	}
	require.NoError(t, group.Wait())
	require.Positive(t, cut.Load(), "it was too much at first")
	for _, d := range g.Blobs {
		if !strings.HasSuffix(d.MediaType, "json") {
			wantBlob(t, to, d)
		}
	}
}
