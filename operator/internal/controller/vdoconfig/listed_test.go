package vdoconfig_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/vdoconfig"
)

// late is a cluster of which listing shows, while it is behind, that nothing is rolled out,
// which what is watched does not show yet.
type late struct {
	vdoconfig.Cluster
	behind bool
	listed int
}

func (l *late) ObserveListed(ctx context.Context) (assess.Observed, error) {
	l.listed++
	o, err := l.Cluster.ObserveListed(ctx)
	for i := range o.DaemonSets {
		if l.behind {
			o.DaemonSets[i].Status.NumberAvailable, o.DaemonSets[i].Status.UpdatedNumberScheduled = 0, 0
			o.DaemonSets[i].Status.DesiredNumberScheduled = 1
		}
	}
	return o, err
}

// Neither is anything removed nor a revision called healthy by what is watched alone: all
// of it is listed before.
func TestWhatIsNotTakenBackIsListedBefore(t *testing.T) {
	w, v := installed(t)
	healthy := func() bool { return revisionNamed(v, v.Status.Revision).Outcome == "Healthy" }
	w.advance(v, "healthy", healthy)
	was, l := v.Status.Revision, &late{Cluster: w.r.Cluster, behind: true}
	w.r.Cluster = l
	w.store.contents = bundleOf(t, strings.Fields(newer)...)
	w.advance(v, "another revision is looked at", func() bool {
		require.False(t, v.Status.Revision != was && healthy(), "it is not rolled out")
		return v.Status.Revision != was && l.listed >= 2
	})
	l.behind = false
	w.advance(v, "healthy", healthy)

	l.behind, l.listed = true, 0
	w.change(v, func() { v.Spec.StorageProvider = nil })
	there := func() bool { return !gone(w, &appsv1.Deployment{}, "vmware-system-csi", csiController) }
	w.until("the removal is looked at", func() bool {
		w.play()
		w.look(v)
		require.True(t, there(), "nothing is removed: the cloud provider is not rolled out")
		return l.listed >= 2
	})
	l.behind = false
	w.until("the storage driver is gone", func() bool { w.look(v); return !there() })
}
