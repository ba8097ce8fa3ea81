package vdoctl

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

func TestWhatIsToBeDoneIsSaidOnceForAllThatNeedIt(t *testing.T) {
	o := &statusOptions{prose: true, app: &app{getenv: func(string) (string, bool) { return "", false }, now: time.Now}}
	same := "the operator has not seen it as it is now; if that stays so: `kubectl -n vmware-system-vdo get deployment vdo-operator`"
	screen := columns.Screen{Wide: 60}
	require.NoError(t, o.text(&screen, statusReport{
		Waiting: []waiting{{"DriverBundle a", "NotObserved", same}, {"VDOConfig b", "NotObserved", same}},
		Preflight: &v1alpha1.PreflightStatus{Results: []v1alpha1.PreflightResult{
			{ID: "cluster", Action: "Warn", Found: "one", Remedy: "mend it"}, {ID: "cluster-id", Action: "Warn", Found: "two", Remedy: "mend it"}, {ID: "node-vm", Action: "Warn", Found: "three", Remedy: "and that"}}},
	}))
	require.Contains(t, screen.String(), `
  DriverBundle a (NotObserved)
  VDOConfig b (NotObserved)
    the operator has not seen it as it is now; if that stays
    so:
    `+"`kubectl -n vmware-system-vdo get deployment vdo-operator`"+`
`)
	require.Equal(t, 1, strings.Count(screen.String(), "mend it"))
	require.Contains(t, screen.String(), "three\n        do and that")
}

func TestFurtherLinesAreBelowTheFirst(t *testing.T) {
	screen := columns.Screen{Wide: 40}
	l := &lines{w: &screen}
	l.block("why", "csi@3.5.1 is installed and serves Kubernetes 1.33")
	l.block("   not yet", "csi@3.5.1 is installed and serves Kubernetes 1.33")
	require.NoError(t, l.err)
	require.Equal(t, `  why: csi@3.5.1 is installed and serves
    Kubernetes 1.33
     not yet: csi@3.5.1 is installed and
       serves Kubernetes 1.33
`, screen.String())
}
