package vdoconfig

import (
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
)

// An upgrade of many objects is a line for each driver, and a repair a line of its own.
func TestAChangeIsToldInAFewLines(t *testing.T) {
	var lines []string
	ctx := log.IntoContext(context.Background(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	p := &pass{}
	for range 60 {
		s := stepOf(plan.Change, matrix.CSI, "Role", "r")
		s.Release = "csi@3.7.3"
		p.logStep(ctx, s)
	}
	p.logStep(ctx, stepOf(plan.Prune, matrix.CSI, "Secret", "old"))
	p.logStep(ctx, stepOf(plan.Change, drivers.MirrorSet, "ImageDigestMirrorSet", "vdo-operator"))
	drifted := stepOf(plan.Change, matrix.CPI, "DaemonSet", "d")
	drifted.Cause, drifted.Release = plan.Drift, "cpi@1.33.1"
	p.logStep(ctx, drifted)
	p.outcome.gate = "a node"
	p.logChanges(ctx)
	require.Len(t, lines, 4, strings.Join(lines, "\n"))
	require.Contains(t, lines[0], `"msg"="changed" "object"="DaemonSet ns/d"`)
	require.Contains(t, lines[1], `"driver"="mirror-set" "release"="" "objects"="change 1 (release)"`)
	require.Contains(t, lines[2], `"driver"="cpi" "release"="cpi@1.33.1" "objects"="change 1 (drift)" "waitingFor"="a node"`)
	require.Contains(t, lines[3], `"driver"="csi" "release"="csi@3.7.3" "objects"="change 60 (release), prune 1"`)
}
