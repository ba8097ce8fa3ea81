package push_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/archive"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/push"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/bundles"
)

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
	notices, err := push.Images(t.Context(), push.ImagesInput{
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
