package vdoconfig_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// emptied cordons a node, until what it returns is called.
func (w *world) emptied(name string) func() {
	w.t.Helper()
	node := get(w, &corev1.Node{}, "", name)
	w.change(node, func() { node.Spec.Unschedulable = true })
	w.until("the cluster has noted since when", func() bool {
		for _, taint := range get(w, &corev1.Node{}, "", name).Spec.Taints {
			if taint.Key == corev1.TaintNodeUnschedulable && taint.TimeAdded != nil {
				return true
			}
		}
		return false
	})
	return func() { w.change(node, func() { node.Spec.Unschedulable = false }) }
}

// An upgrade waits while a node is emptied, and after a vCenter was upgraded, by what an
// operator remembers that was started since.
func TestAnUpgradeWaitsForNodesAndVCentersThatChange(t *testing.T) {
	w, v := installed(t)
	w.spoilt = true // the older csi is not put back until the vCenter has had its version for a while
	was := v.Status.Revision
	w.look(v)
	defer w.emptied("worker-2")()
	vcc := get(w, &v1alpha1.VsphereCloudConfig{}, w.ns, "vc-one")
	vcc.Status.Version = "8.0.2"
	require.NoError(t, w.Status().Update(context.Background(), vcc))
	w.offer(nextDigest, newerPair()...)
	w.look(v)
	w.restart()
	w.look(v)
	require.Equal(t, "Interlocked", v.Status.Candidate.Reason, describe(v))
	require.Contains(t, v.Status.Candidate.Message, "nodes are being emptied: worker-2")
	require.Contains(t, v.Status.Candidate.Message, "vCenter vc-one is of version 8.0.2 since")
	require.True(t, isTrue(v, "Ready"), describe(v))
	require.Equal(t, []revision.VCenter{{Name: "vc-one", Version: "8.0.2", Changed: w.inventory(v).Memory().Seen[0].Changed}}, w.inventory(v).Memory().Seen)

	w.change(v, func() {
		v.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{IgnoreInterlocks: []string{"Nodes"}}
	})
	w.look(v)
	require.NotContains(t, v.Status.Candidate.Message, "nodes")
	require.Equal(t, was, v.Status.Revision)
	w.ahead += 11 * time.Minute
	w.ready(v)
	require.Equal(t, "3.7.3", driver(v, "csi").Version, describe(v))
}
