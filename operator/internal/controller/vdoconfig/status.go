package vdoconfig

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
)

// reasonExpiring is of a certificate that ends soon.
const reasonExpiring = "Expiring"

const (
	// The status is bounded whatever happens to however large a cluster: the API
	// server stores no object above 1.5 MB, and one that cannot be written says nothing.
	maxNodes   = 50      // findings listed; the rest is counted
	maxPending = 50      // likewise
	maxReasons = 20      // of a driver
	maxText    = 1 << 10 // of an item of a list
	maxHealth  = 4 << 10 // of a driver's message
)

// partOf are the conditions of the drivers.
var partOf = []struct {
	driver matrix.Driver
	typ    string
}{
	{matrix.CNI, v1alpha1.ConditionCNI},
	{matrix.CPI, v1alpha1.ConditionCPI},
	{matrix.CSI, v1alpha1.ConditionCSI},
}

// Record makes the status of what the pass came to: the one place that does.
func (p *pass) Record(config *v1alpha1.VDOConfig) {
	st := &config.Status
	st.ObservedGeneration = config.Generation
	st.HandledReconcileAt = p.config.Annotations[v1alpha1.AnnotationRequestedAt]
	if v := p.site.kubernetes.reported; v != "" {
		st.Kubernetes = v
	}
	st.Bundle = p.installedFrom()
	st.Pending = p.pending()
	if rep := p.outcome.report; rep != nil {
		st.Drivers = p.drivers(rep)
		st.Nodes = nodes(rep)
		st.NodesReady = fmt.Sprintf("%d/%d", rep.NodesReady, rep.NodesAll)
	} else if p.outcome.applied != nil {
		for i := range st.Drivers {
			st.Drivers[i].Ready = false // nobody knows
		}
	}
	p.conditions(config)
}

// pending is what is held back: upgrades that wait for a person; under suspend
// everything that a pass would change.
func (p *pass) pending() []string {
	all := slices.Clone(p.decision.pending[:min(len(p.decision.pending), maxPending)])
	count := len(p.decision.pending)
	if p.config.Spec.Suspend && p.outcome.plan != nil {
		steps := p.outcome.plan.Pending()
		count += len(steps)
		for _, s := range steps[:min(len(steps), maxPending-len(all))] {
			all = append(all, s.String())
		}
	}
	if count > maxPending {
		all = append(all, fmt.Sprintf("and %d more", count-maxPending))
	}
	return cut(all)
}

func reasons(all []string) []string {
	return cut(slices.Clone(all[:min(len(all), maxReasons)]))
}

// cut bounds each of a list's texts.
func cut(all []string) []string {
	for i := range all {
		all[i] = condition.Cut(all[i], maxText)
	}
	return all
}

func (p *pass) drivers(rep *assess.Report) []v1alpha1.DriverStatus {
	var all []v1alpha1.DriverStatus
	for _, d := range inOrder {
		h, judged := rep.Drivers[d]
		if !judged && p.decision.version(d) == "" {
			continue
		}
		st := v1alpha1.DriverStatus{
			Driver: string(d), Version: p.running(d, h), Wanted: p.decision.version(d), Reasons: reasons(p.decision.reasons[d]),
			Ready: judged && h.Healthy(), Message: condition.Cut(message(h), maxHealth), Withdrawn: condition.Cut(p.decision.withdrawn[d], maxText),
		}
		all = append(all, st)
	}
	return all
}

// running is the version whose roll-out is complete: the one seen now, else the last
// that was, as long as another is rolled out.
func (p *pass) running(d matrix.Driver, h assess.Health) string {
	if h.Complete && h.Version != "" {
		return h.Version
	}
	if _, there := p.site.installed[d]; there {
		return p.site.inventory.Complete(d)
	}
	return ""
}

func message(h assess.Health) string {
	if err := h.Err(); err != nil {
		return fault.Text(err)
	}
	return h.Waits()
}

func nodes(rep *assess.Report) []v1alpha1.NodeStatus {
	var all []v1alpha1.NodeStatus
	for _, f := range rep.Nodes[:min(len(rep.Nodes), maxNodes)] {
		all = append(all, v1alpha1.NodeStatus{
			Name: f.Node, Driver: string(f.Driver), Reason: string(f.Reason), Message: condition.Cut(strings.TrimSpace(f.Message+": "+f.Remedy), maxText)})
	}
	return all
}

// conditions sets all of them, parts first, Ready from all of them.
func (p *pass) conditions(config *v1alpha1.VDOConfig) {
	conds, gen := &config.Status.Conditions, config.Generation
	p.resolvedCondition(conds, gen)
	p.appliedCondition(conds, gen, config.Status.Pending)
	p.nextCondition(conds, gen)
	p.certificateCondition(conds, gen)
	var errs []error
	var waits []string
	for _, part := range partOf {
		p.partCondition(conds, gen, part.driver, part.typ)
	}
	if rep := p.outcome.report; rep != nil {
		for _, d := range inOrder {
			h := rep.Drivers[d]
			errs = append(errs, h.Err())
			if w := h.Waits(); w != "" {
				waits = append(waits, w)
			}
		}
	}
	for _, w := range []string{p.outcome.waiting, p.outcome.gate} {
		if w != "" {
			waits = append([]string{"waiting for " + w}, waits...)
		}
	}
	err := fault.Join(p.outcome.resolved, p.site.kubernetes.unread, p.outcome.applied, p.outcome.renewed, p.outcome.leaving, fault.Join(errs...))
	p.readyCondition(config, err, waits)
}

func (p *pass) readyCondition(config *v1alpha1.VDOConfig, err error, waits []string) {
	conds, gen := &config.Status.Conditions, config.Generation
	switch {
	case err != nil:
		condition.Fault(conds, gen, fault.Join(err, p.outcome.volumes))
	case p.outcome.volumes != nil:
		condition.Waiting(conds, gen, p.outcome.volumes)
	case config.Spec.Suspend && (len(waits) > 0 || len(config.Status.Pending) > 0):
		condition.Suspended(conds, gen)
	case len(waits) > 0:
		condition.Progressing(conds, gen, "", strings.Join(waits, "; "))
	default:
		condition.Ready(conds, gen, p.summary(&config.Status))
	}
}

// summary is what Ready says: "cpi@1.33.1, csi@3.5.1; 3 nodes".
func (p *pass) summary(st *v1alpha1.VDOConfigStatus) string {
	var parts []string
	for _, d := range st.Drivers {
		if d.Version != "" {
			parts = append(parts, d.Driver+"@"+d.Version)
		}
	}
	text := strings.Join(parts, ", ")
	if rep := p.outcome.report; rep != nil {
		text += fmt.Sprintf("; %d nodes", rep.NodesAll)
	}
	if p.config.Spec.Suspend {
		text += "; suspended"
	}
	return strings.TrimPrefix(text, "; ")
}

func (p *pass) resolvedCondition(conds *[]metav1.Condition, gen int64) {
	why := fault.Join(p.outcome.resolved, p.site.kubernetes.unread)
	switch {
	case why != nil:
		condition.Part(conds, gen, v1alpha1.ConditionResolved, why, "")
	case p.outcome.waiting != "":
		unknown(conds, gen, v1alpha1.ConditionResolved, p.outcome.waiting)
	case !p.decision.made && p.outcome.applied != nil:
		condition.Set(conds, gen, metav1.Condition{Type: v1alpha1.ConditionResolved, Status: metav1.ConditionUnknown,
			Reason: string(fault.ReasonOf(p.outcome.applied)), Message: "nothing was chosen: " + fault.Text(p.outcome.applied)})
	case !p.decision.made:
		unknown(conds, gen, v1alpha1.ConditionResolved, "nothing is chosen: the VDOConfig is being deleted")
	default:
		condition.Part(conds, gen, v1alpha1.ConditionResolved, nil, p.chosen())
	}
}

// chosen is what Resolved says: "cpi@1.33.1, csi@3.5.1", and what is worth knowing.
func (p *pass) chosen() string {
	var parts []string
	for _, id := range p.decision.releases {
		parts = append(parts, id.String())
	}
	text := strings.Join(parts, ", ")
	if text == "" {
		text = "no driver is asked for"
	}
	for _, more := range append(slices.Clone(p.decision.warnings), p.outcome.notes...) {
		text += "; " + more
	}
	return text
}

func (p *pass) appliedCondition(conds *[]metav1.Condition, gen int64, pending []string) {
	switch {
	case p.outcome.applied != nil:
		condition.Part(conds, gen, v1alpha1.ConditionApplied, p.outcome.applied, "")
	case p.config.Spec.Suspend && len(pending) > 0:
		condition.Set(conds, gen, metav1.Condition{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse,
			Reason: condition.ReasonSuspended, Message: fmt.Sprintf("%d changes are held back: see status.pending", len(pending))})
	case p.outcome.gate != "":
		unknown(conds, gen, v1alpha1.ConditionApplied, "waiting for "+p.outcome.gate)
	case p.outcome.plan == nil:
		if meta.FindStatusCondition(*conds, v1alpha1.ConditionApplied) == nil {
			unknown(conds, gen, v1alpha1.ConditionApplied, "nothing was chosen yet")
		}
	default:
		condition.Part(conds, gen, v1alpha1.ConditionApplied, nil, fmt.Sprintf("%d objects", p.site.inventory.Len()))
	}
}

func (p *pass) nextCondition(conds *[]metav1.Condition, gen int64) {
	if p.decision.nextMinor.IsZero() {
		return
	}
	condition.Part(conds, gen, v1alpha1.ConditionNextMin, p.decision.next, "the bundle has drivers for Kubernetes "+p.decision.nextMinor.String())
}

// certificateCondition warns of the end of the webhook's certificate: of one that is as
// near to it, renewing has failed for a while.
func (p *pass) certificateCondition(conds *[]metav1.Condition, gen int64) {
	cert, err := p.site.certificate, p.outcome.renewed
	switch {
	case cert == nil && err == nil:
		condition.Remove(conds, v1alpha1.ConditionCertificate)
	case cert == nil:
		condition.Part(conds, gen, v1alpha1.ConditionCertificate, err, "")
	case cert.EndsAt().Sub(p.now) < webhookcert.WarnBefore:
		text := fmt.Sprintf("the certificate of the storage driver's webhook ends at %s, and with it writes of StorageClasses and changes of claims", cert.EndsAt().UTC().Format(time.RFC3339))
		if err != nil {
			text += "; it could not be renewed: " + fault.Text(err)
		}
		condition.Set(conds, gen, metav1.Condition{Type: v1alpha1.ConditionCertificate, Status: metav1.ConditionFalse, Reason: reasonExpiring, Message: text})
	default:
		condition.Part(conds, gen, v1alpha1.ConditionCertificate, err, "it counts until "+cert.EndsAt().UTC().Format(time.RFC3339))
	}
}

func (p *pass) partCondition(conds *[]metav1.Condition, gen int64, d matrix.Driver, typ string) {
	rep := p.outcome.report
	if rep == nil {
		p.unseenCondition(conds, gen, typ)
		return
	}
	h, judged := rep.Drivers[d]
	switch {
	case !judged:
		condition.Remove(conds, typ)
	case h.Err() == nil && h.Waits() != "":
		unknown(conds, gen, typ, h.Waits())
	default:
		condition.Part(conds, gen, typ, h.Err(), string(d)+"@"+h.Version)
	}
}

// unseenCondition is of a driver that this pass did not look at. What was known before
// is not known any more where it could not.
func (p *pass) unseenCondition(conds *[]metav1.Condition, gen int64, typ string) {
	if err := p.outcome.applied; err != nil && meta.FindStatusCondition(*conds, typ) != nil {
		condition.Set(conds, gen, metav1.Condition{Type: typ, Status: metav1.ConditionUnknown,
			Reason: string(fault.ReasonOf(err)), Message: "it could not be looked at: " + fault.Text(err)})
	}
}

func unknown(conds *[]metav1.Condition, gen int64, typ, message string) {
	condition.Set(conds, gen, metav1.Condition{Type: typ, Status: metav1.ConditionUnknown, Reason: condition.ReasonProgressing, Message: message})
}
