package vdoconfig

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/rollout"
)

// A storage driver that was removed during its rollout was never healthy and has no revision, so that its next
// installation is none of an upgrade. Its namespace is kept.
func TestARemovedDriverHasNoRevision(t *testing.T) {
	g, _ := withRevision(t)
	bad := revision.Revision{Bundle: "mirror.site/vdo@sha256:new", Source: "site", Releases: []string{"csi@3.7.3"}}
	all := revision.Histories{matrix.CSI: g.upgrades.history[matrix.CSI].Start(bad, revision.Beginning{Now: g.at0()})}
	kept := inventory.Of(inventory.Entry{ID: core("Namespace", "", render.CSINamespace), UID: "u", Driver: matrix.CSI, Release: "csi@3.5.1"})
	g.facts.inventory = kept.WithMemory(inventory.Memory{Revisions: all})
	g.inventory, g.site.Installed = g.facts.inventory, map[matrix.Driver]matrix.Version{}
	g.bundle, g.outcome.report, g.config.Spec.StorageProvider = holding(t, "sha256:new", "csi@3.7.3 snapshot-controller@8.2.0"), &assess.Report{}, nil
	for range 5 {
		g.now = g.now.Add(time.Minute)
		g.decideAll(t.Context())
		all, _ = g.afterLook(all)
	}
	cur, _ := all[matrix.CSI].Named(bad.Name())
	require.Zero(t, cur.Healthy, cur.Outcome)
	require.Empty(t, inForce(g.begun(rendering{Rendered: &render.Rendered{}, decision: g.resolve()})))
}

// An upgrade that became healthy without the canary policy is open on no canary nodes once the policy is back.
func TestAHealthyRevisionIsNotForCanaryNodes(t *testing.T) {
	g, _ := withRevision(t)
	next := revision.Revision{Bundle: "mirror.site/vdo@sha256:new", Source: "site", Releases: []string{"csi@3.7.3"}}
	h := g.upgrades.history[matrix.CSI].Start(next, revision.Beginning{Now: g.at0(), Canary: true})
	for at := range 5 {
		h = rollout.Judge(h, rollout.Facts{Now: g.at0().Add(time.Duration(at) * time.Minute), Complete: true})
	}
	cur, _ := h.InForce()
	require.Equal(t, revision.Healthy, cur.Outcome)
	selector := metav1.LabelSelector{MatchLabels: map[string]string{"role": "canary"}}
	g.config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{Canary: &v1alpha1.Canary{NodeSelector: selector}}
	require.False(t, g.canaryOpen(revision.Histories{matrix.CSI: h}))
}
