package push_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/archive"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/push"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

// written writes a bundle into a folder.
func written(t *testing.T, b *bundles.Bundle, attached ...bundle.Referrer) (opened *pinned.Bundle, path string) {
	g := *b.Graph
	g.Attachments = attached
	path = filepath.Join(t.TempDir(), "b")
	w, err := archive.CreateDir(path, archive.Options{})
	require.NoError(t, err)
	missing, err := w.Begin(t.Context(), &g)
	require.NoError(t, err)
	for _, d := range missing {
		require.NoError(t, w.Put(t.Context(), d, b.Store.Opener(t.Context(), d)))
	}
	require.NoError(t, w.Commit(t.Context()))
	f, err := archive.OpenDir(path)
	require.NoError(t, err)
	opened, err = pinned.Open(t.Context(), f)
	require.NoError(t, err)
	t.Cleanup(func() { _ = opened.Close() })
	return opened, path
}

// A copy that lacks what is attached, or a blob, is refused; one that has more is not.
func TestACopyIsComparedWithItsSource(t *testing.T) {
	b := bundles.New(t, bundles.Options{Seed: 1})
	plain, _ := written(t, b)
	signed, path := written(t, b, bundles.Signature(t, plain.Digest(), 1))

	both, err := push.Compare(t.Context(), signed, plain, true, run.Options{})
	require.Equal(t, fault.Incomplete, fault.ReasonOf(err))
	require.ErrorContains(t, err, "a referrer of the bundle")
	require.Equal(t, 1, both.Attached)
	require.Zero(t, both.Copied)
	attached := map[*pinned.Bundle]int{signed: 1}
	for _, c := range []struct {
		from, to *pinned.Bundle
		all      bool
	}{{signed, plain, false}, {plain, signed, true}, {signed, signed, true}} {
		both, err = push.Compare(t.Context(), c.from, c.to, c.all, run.Options{})
		require.NoError(t, err)
		require.Equal(t, [2]int{attached[c.from], attached[c.to]}, [2]int{both.Attached, both.Copied})
	}
	lost := b.Graph.Blobs[0].Digest
	require.NoError(t, os.Remove(filepath.Join(path, "blobs/sha256", lost.Encoded())))
	_, err = push.Compare(t.Context(), plain, signed, true, run.Options{})
	require.Equal(t, fault.Incomplete, fault.ReasonOf(err))
	require.ErrorContains(t, err, lost.String())
}

// leavesOut is a target that tells what it did not take.
type leavesOut struct{ medium.Target }

func (leavesOut) Can() medium.Capabilities {
	return medium.Capabilities{Notices: func() []string { return []string{"left out"} }}
}

type staysOpen struct{ medium.Source }

func (staysOpen) Close() error { return nil }

// What the registry does not take of an image beside the bundle is told.
func TestWhatIsLeftOutOfImagesBesideTheBundleIsNamed(t *testing.T) {
	b, _ := written(t, bundles.New(t, bundles.Options{Seed: 2}))
	dir := t.TempDir()
	open := func(r image.Reference) string { return filepath.Join(dir, strings.ReplaceAll(r.String(), "/", "_")) }
	var out bytes.Buffer
	notices, err := push.Images(t.Context(), push.Input{
		Bundle: b, Reference: image.MustReference("registry.site/vdo/drivers:1"),
		Open: func(r image.Reference) medium.Target {
			w, err := archive.CreateFile(open(r), archive.Options{})
			require.NoError(t, err)
			return leavesOut{w}
		},
		Registry: func(image.Reference) medium.Source { return staysOpen{b} },
	}, run.Options{Concurrency: 1, Progress: &run.Progress{Out: &out}})
	require.NoError(t, err)
	require.Contains(t, out.String(), "left out\n")
	require.Contains(t, notices, "left out")
}
