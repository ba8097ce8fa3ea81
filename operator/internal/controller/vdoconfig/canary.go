package vdoconfig

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drift"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/rollout"
)

// While an upgrade of the storage driver is on canary nodes only, the node plugin's DaemonSets replace no pods by
// themselves. They have the new template. The operator deletes the pods on the canary nodes, one at a time, and package
// rollout judges the new ones. The status names other nodes whose missing pod came from the new template.

func (s *facts) canaryPolicy() *v1alpha1.Canary { return policyOf(&s.config.Spec).Canary }

// canarySelector returns the selector of canary nodes; an invalid one selects none.
func canarySelector(c *v1alpha1.Canary) (labels.Selector, error) {
	chosen, err := metav1.LabelSelectorAsSelector(&c.NodeSelector)
	if err != nil {
		return labels.Nothing(), fault.Errorf(fault.InvalidInput, "read", "spec.upgradePolicy.canary.nodeSelector",
			"write labels of nodes, such as matchLabels: {role: canary}", "%w", err)
	}
	return chosen, nil
}

// canaryNodes returns the state of the canary nodes under the DaemonSets' present templates. Without a policy there are
// none, and the other nodes follow as soon as a start has no gate.
func (s *facts) canaryNodes() assess.Canaries {
	if s.canaryPolicy() == nil {
		return assess.Canaries{}
	}
	chosen, _ := canarySelector(s.canaryPolicy()) //nolint:errcheck // reported with the policy
	return s.observed.Canaries(chosen)
}

// canaries returns the state of the canary nodes under the current revision. Until the DaemonSets have that revision,
// their pods belong to another one and do not count.
func (p *result) canaries() assess.Canaries {
	c := p.facts.canaryNodes()
	changes := func(s plan.Step) bool {
		return s.Kind == "DaemonSet" && s.Action != plan.Unchanged && !p.tolerated(s)
	}
	if p.outcome.plan == nil || slices.ContainsFunc(p.outcome.plan.Stage(render.StageCSINode), changes) {
		c.Updated, c.Replace, c.Others, c.Why, c.Idle = 0, nil, nil, "their DaemonSet does not have it yet", false
	}
	return c
}

// canaryOpen reports whether only canary nodes may have the storage driver's current revision.
func (s *facts) canaryOpen(all revision.Histories) bool {
	cur, ok := all[matrix.CSI].InForce()
	return ok && cur.Canary.Open()
}

// canaryStarts reports whether a group's starting revision comes to canary nodes first.
func (s *decided) canaryStarts(group revision.Group) bool {
	u := &s.upgrades
	cur, installed := u.history[group].InForce()
	starts := u.verdicts[group].Starts && decide.Canaries(cur, *u.candidates[group])
	return installed && s.canaryPolicy() != nil && starts
}

func (s *decided) canarying() bool {
	u := &s.upgrades
	v := u.verdicts[matrix.CSI]
	if v.Action == decide.RollBack {
		return false
	}
	if v.Starts {
		return s.canaryStarts(matrix.CSI)
	}
	return s.canaryOpen(u.history)
}

// canaryInterlock returns why an upgrade cannot come to canary nodes first, "" if it can.
func (s *decided) canaryInterlock() string {
	if s.canaryPolicy() == nil || s.revisionWith(matrix.CSI).Version(matrix.CSI).IsZero() {
		return ""
	}
	const field = "spec.upgradePolicy.canary.nodeSelector "
	switch c := s.canaryNodes(); {
	case len(c.Nodes) == 0:
		return field + "chooses no node: correct it, or label a node"
	case len(c.Missing) > 0:
		return fmt.Sprintf("%schooses nodes without a pod of the storage driver: %s", field, few(c.Missing))
	}
	if rules, _ := drift.Parse(s.config.Spec.Drift); rules.Omits("DaemonSet", matrix.CSI, "spec", "updateStrategy") { //nolint:errcheck // it is reported when it is applied
		return "spec.drift.ignore leaves how the storage driver's pods are replaced to others, so that canary nodes cannot be first"
	}
	return ""
}

// canaryStage replaces the next pod, and makes all later steps wait. It replaces none while the pass waits for another
// condition or only repairs.
func (a *applier) canaryStage(ctx context.Context) error {
	cur, ok := a.history()[matrix.CSI].InForce()
	frozen := cmp.Or(a.facts.frozen, fault.Text(a.rendering.refused[matrix.CSI]),
		a.rendering.decision.current[matrix.CSI].revoked)
	if !ok || frozen != "" || a.waitsForOthers(matrix.CSI) || a.outcome.next.ofAll() {
		return nil
	}
	a.outcome.next = nextStage{waits: a.canaryWait(cur), of: []matrix.Driver{matrix.CSI}}
	next := a.canaries().Replace
	if next == nil || cur.Outcome != revision.Progressing || a.out(matrix.CSI) {
		return nil
	}
	key := client.ObjectKeyFromObject(next)
	if err := a.Cluster.DeletePod(ctx, key, next.UID); err != nil {
		return err
	}
	a.outcome.changed++
	a.emit(corev1.EventTypeNormal, "Updated", "Apply", fmt.Sprintf(
		"Replaced pod %s on canary node %s by one of revision %s", key, next.Spec.NodeName, cur.Name()))
	return nil
}

func (p *result) canaryWait(cur revision.Record) string {
	c := p.canaries()
	if p.facts.canaryPolicy() == nil {
		return fmt.Sprintf("the other nodes to follow with revision %s: %s", cur.Name(),
			cmp.Or(p.facts.followGated(), c.Why, "they are next"))
	}
	soaked := cur.Canary != nil && time.Duration(cur.Canary.Soaked)*time.Second >= p.facts.soak()
	if gated := p.facts.followGated(); c.Why == "" && soaked && gated != "" {
		return fmt.Sprintf("the other nodes to follow with revision %s: %s", cur.Name(), gated)
	}
	if c.Why == "" && cur.Canary != nil && !cur.Canary.Good.IsZero() {
		return fmt.Sprintf("the canary nodes (%s) to be healthy for %s with revision %s, since %s", few(c.Nodes), p.facts.soak(), cur.Name(), cur.Canary.Good.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("the canary nodes (%s) to be healthy with revision %s: %s", few(c.Nodes), cur.Name(),
		cmp.Or(c.Why, "their pods are new and ready"))
}

const maxOthers = 20

func (s *facts) soak() time.Duration {
	if s.canaryPolicy() == nil {
		return 0
	}
	return cmp.Or(max(s.canaryPolicy().Soak.Duration, 0), rollout.DefaultSoak)
}

// canaryLook returns the state of the canary nodes, nil if all nodes may have the current revision.
func (p *pass) canaryLook() *rollout.Canary {
	if !p.facts.canaryOpen(p.history()) {
		return nil
	}
	c := p.canaries()
	lacks := []string{c.Why}
	for _, f := range p.outcome.report.Nodes {
		if f.Driver == matrix.CSI && slices.Contains(c.Nodes, f.Node) {
			lacks = append(lacks, f.Node+" "+f.Message)
		}
	}
	return &rollout.Canary{Idle: c.Idle, Soak: p.facts.soak(), Why: condition.Cut(sentences(lacks...), maxText/2),
		Gated: p.facts.followGated()}
}

// rolloutStatus returns the status of the canary nodes, nil without any.
func (p *result) rolloutStatus(all revision.Histories) *v1alpha1.RolloutStatus {
	if p.facts.observed == nil || !p.facts.canaryOpen(all) {
		return nil
	}
	cur, _ := all[matrix.CSI].InForce()
	c := p.canaries()
	st := &v1alpha1.RolloutStatus{Revision: cur.Name(), Nodes: fmt.Sprintf("%d/%d", c.Updated, len(c.Nodes))}
	st.Message = "waiting for " + p.canaryWait(cur)
	if cur.Outcome != revision.Progressing {
		st.Message = "the other nodes do not get it: " + cur.Reason
	}
	st.OtherNodes = len(c.Others)
	for _, n := range c.Others[:min(len(c.Others), maxOthers)] {
		reason := v1alpha1.CanaryPodReplaced
		if n.CreationTimestamp.After(cur.Since) {
			reason = v1alpha1.CanaryJoined
		}
		st.Others = append(st.Others, v1alpha1.CanaryNode{Name: n.Name, Reason: reason})
	}
	st.HealthySince = timeUnlessZero(cur.Canary.Good)
	return st
}
