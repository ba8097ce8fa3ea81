package vdoconfig

import (
	"cmp"
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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

const (
	reasonExpiring = "Expiring" // for a certificate that expires soon

	// The limits bound the status in a cluster of any size: the API server stores no object above 1.5 MB, and a status
	// that cannot be written is lost.
	maxNodes   = 20      // listed findings; the others are counted
	maxReasons = 8       // per driver
	maxText    = 1 << 10 // bytes per list item
	maxHealth  = 4 << 10 // bytes of a driver's message
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

// result is what a pass found, decided and did. The status is made of it alone.
type result struct {
	decided
	decision decision // without what rendering omitted
	outcome  outcome

	inventory   inventory.Inventory      // as recorded now
	kept        record                   // its record
	certificate *webhookcert.Certificate // of the registered webhook, as stored now
}

// outcome are the effects of the pass.
type outcome struct {
	failures
	spec     v1alpha1.VDOConfigSpec // the rendered or previewed one
	next     nextStage
	again    bool        // start the next pass at once
	changed  int         // number of written objects
	did      []plan.Step // steps of the plan or removal
	plan     *plan.Plan
	removal  *plan.Plan           // of all objects, under deletion
	foreseen *v1alpha1.PlanStatus // the plan without gates, if any gates
	report   *assess.Report
	notes    []string
	drift    []v1alpha1.DriftStatus // unrepaired; a part of driftAll
	driftAll int
	// contested are the drivers whose pods run what another manager keeps setting.
	contested []matrix.Driver
}

// failures are why parts of the pass failed.
type failures struct {
	resolved   error                   // why no releases could or may be chosen
	applied    error                   // why objects could not be applied
	broken     error                   // its part without a driver: the API server did not answer
	failed     map[matrix.Driver]error // its part by driver: the API server refused
	renewed    error                   // why the webhook's certificate could not be renewed
	retentions error                   // why obsolete objects cannot be removed
	volumes    error                   // the volumes that a removal waits for
	unwatched  error                   // what the operator may not watch
}

// nextStage is the wait of the next stage.
type nextStage struct {
	waits string          // "" if it does not wait
	of    []matrix.Driver // the drivers that wait; none means all
}

// Next returns the normal interval, no delay for unfinished work, and a short one while the VDOConfig is not Ready.
func (p result) Next(config *v1alpha1.VDOConfig) reconciler.Next {
	next := reconciler.Next{Interval: config.Spec.Interval.Duration}
	if next.Interval <= 0 {
		next.Interval = defaultInterval
	}
	switch {
	case p.outcome.again:
		next.AtMost = reconciler.Soon
	case !meta.IsStatusConditionTrue(config.Status.Conditions, v1alpha1.ConditionReady):
		next.AtMost = notReadyInterval
	}
	return p.soonEnough(next)
}

// Record makes the status of the result; no other function does.
func (p result) Record(config *v1alpha1.VDOConfig) {
	st := &config.Status
	st.ObservedGeneration = config.Generation
	st.HandledReconcileAt = v1alpha1.Asked(p.config, v1alpha1.AnnotationRequestedAt)
	if v := p.facts.kubernetes.reported; v != "" {
		st.Kubernetes = v
	}
	// A decision alone is no installation.
	st.Bundle, st.DriverBundle = installedFrom(p.config, p.inventory)[0], cmp.Or(p.facts.follows, st.DriverBundle)
	if st.Plan = p.planStatus(st.Plan); p.outcome.plan != nil {
		st.Drift = p.outcome.drift
	}
	p.recordRevisions(st)
	if p.facts.checks.reported() {
		st.Preflight = p.facts.checks.status
	}
	if rep := p.outcome.report; rep != nil {
		st.Drivers = p.drivers(rep)
		st.Nodes = nodes(rep)
		st.NodesReady = fmt.Sprintf("%d/%d", rep.NodesReady, rep.NodesAll)
	} else if p.outcome.removal != nil {
		st.Drivers, st.Nodes, st.NodesReady = p.drivers(&assess.Report{}), nil, ""
	} else if p.outcome.applied != nil {
		for i := range st.Drivers {
			st.Drivers[i].Ready = false // unknown
		}
	}
	p.conditions(config).Set(&st.Conditions, config.Generation, p.now)
}

func reasons(all []string) []string {
	all = slices.Clone(all[:min(len(all), maxReasons)])
	for i := range all {
		all[i] = condition.Cut(all[i], maxText/4)
	}
	return all
}

func (p *result) drivers(rep *assess.Report) []v1alpha1.DriverStatus {
	var all []v1alpha1.DriverStatus
	for _, d := range inOrder {
		h, judged := rep.Drivers[d]
		if p.going(d) {
			all = append(all, v1alpha1.DriverStatus{Driver: string(d), Version: p.lastRun(d), Message: textRemoving})
			continue
		}
		if !judged && p.decision.version(d) == "" {
			continue
		}
		st := v1alpha1.DriverStatus{
			Driver: string(d), Version: p.running(d, h), Wanted: p.decision.version(d), Reasons: reasons(p.decision.reasons[d]),
			Ready: judged && h.Healthy(), Message: condition.Cut(message(h),
				maxHealth), Withdrawn: condition.Cut(p.decision.withdrawn[d], maxText),
		}
		if cur, _ := p.history()[revision.GroupOf(d)].InForce(); !cur.Version(d).IsZero() {
			st.Source = cur.Bundle
		}
		all = append(all, st)
	}
	return all
}

func (p *result) lastRun(d matrix.Driver) string {
	for _, was := range p.config.Status.Drivers {
		if was.Driver == string(d) {
			return was.Version
		}
	}
	return ""
}

// running returns the version with a complete rollout: the observed one, or the last one while another is rolled out.
func (p *result) running(d matrix.Driver, h assess.Health) string {
	if h.Complete && h.Version != "" {
		return h.Version
	}
	if _, exists := p.facts.site.Installed[d]; exists {
		return p.lastRun(d)
	}
	return ""
}

// conditions returns the conditions of a VDOConfig whose status is otherwise complete. It is pure. It only looks at
// existing conditions to see whether they exist.
func (p *result) conditions(config *v1alpha1.VDOConfig) condition.Report {
	st := &config.Status
	parts := []metav1.Condition{p.resolvedCondition(), p.appliedCondition(st), p.nextCondition(), p.driftedCondition(),
		p.upgradedCondition(), p.certificateCondition(), p.preflightCondition(),
		condition.Absent("NextMinorCovered"), // of programs before v0.1, to be dropped in v0.2
	}
	for _, part := range partOf {
		parts = append(parts, p.partCondition(st, part.driver, part.typ))
	}
	return condition.Report{Parts: parts, Phase: p.phase(st), Suspended: p.config.Spec.Suspend, DryRun: p.config.Spec.DryRun}
}

func (p *result) phase(st *v1alpha1.VDOConfigStatus) condition.Phase {
	err, waits := p.problems(), p.waits()
	switch {
	case err != nil:
		unseen := p.outcome.report == nil && p.outcome.changed > 0 // the effect of the changes is unknown
		err = fault.Join(err, p.outcome.volumes)
		return condition.Phase{State: condition.StateFault, Err: err, AtOnce: len(waits) > 0 || unseen}
	case p.outcome.volumes != nil:
		return condition.Phase{State: condition.StateWaiting, Err: p.outcome.volumes}
	case p.stoppedChanges() > 0:
		return condition.Phase{State: condition.StateSuspended, Message: p.gatedChanges()}
	case stopped(&p.config.Spec) && len(waits) > 0:
		return condition.Phase{State: condition.StateSuspended}
	case len(waits) > 0:
		return condition.Phase{State: condition.StateProgressing, Message: strings.Join(waits, "; ")}
	}
	return condition.Phase{State: condition.StateReady, Message: p.summary(st)}
}

func (p *result) stoppedChanges() int {
	if !stopped(&p.config.Spec) || p.outcome.plan == nil {
		return 0
	}
	return p.outcome.plan.Writes()
}

func (p *result) gatedChanges() string {
	return fmt.Sprintf("%s: %d changes are blocked, see status.plan", stoppedBy(&p.config.Spec), p.stoppedChanges())
}

func (p *result) problems() error {
	var unhealthy []error
	if rep := p.outcome.report; rep != nil {
		for _, d := range inOrder {
			unhealthy = append(unhealthy, rep.Drivers[d].Err())
		}
	}
	_, unresolved := p.unresolved()
	return fault.Join(unresolved, p.unfit(), p.upgradeFault(), p.facts.kubernetes.unread, p.outcome.applied,
		p.outcome.renewed, p.outcome.retentions, p.outcome.unwatched, fault.Join(unhealthy...))
}

// unfit returns the running drivers that do not suit the cluster, and stay unchanged.
func (p *result) unfit() error {
	var all []error
	for _, d := range p.facts.requested() {
		why, requested := p.decision.unfit[d], p.decision.version(d)
		if why != "" && (requested == "" || requested == p.facts.site.Installed[d].String()) {
			all = append(all, fault.Errorf(fault.Incompatible, "run", string(d),
				"see in status.candidate what its upgrade waits for, or push a bundle with a release that fits", "%s",
				why))
		}
	}
	return fault.Join(all...)
}

// unresolved returns why no releases could or may be chosen, for all drivers or single ones, and open checks without a
// fault. A failed check gates nothing while its driver matches the request.
func (p *result) unresolved() (awaited string, why error) {
	awaited, why = p.facts.waiting, fault.Join(p.outcome.resolved, p.facts.starts)
	for _, h := range p.facts.driverHolds() {
		is := p.desired.version(h.driver)
		differs := p.facts.checks.kept[h.driver] || (is != "" && is != p.decision.version(h.driver))
		switch {
		case h.check && !differs:
		case h.waits != "":
			awaited = cmp.Or(awaited, h.waits)
		default:
			why = fault.Join(why, h.err)
		}
	}
	return awaited, why
}

func (p *result) waits() []string {
	var all []string
	if p.outcome.next.waits != "" {
		all = append(all, "waiting for "+p.outcome.next.waits)
	}
	if w, _ := p.unresolved(); w != "" {
		all = append(all, w)
	}
	if rep := p.outcome.report; rep != nil {
		for _, d := range inOrder {
			if w := rep.Drivers[d].Waits(); w != "" {
				all = append(all, w)
			}
		}
	}
	return all
}

// summary returns the text of Ready: "cpi@1.33.1, csi@3.5.1; 3 nodes".
func (p *result) summary(st *v1alpha1.VDOConfigStatus) string {
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
	return strings.TrimPrefix(text, "; ")
}

func (p *result) resolvedCondition() metav1.Condition {
	const typ = v1alpha1.ConditionResolved
	awaited, why := p.unresolved()
	why = fault.Join(why, p.facts.kubernetes.unread)
	switch {
	case why != nil:
		return condition.False(typ, why)
	case awaited != "":
		return condition.Pending(typ, awaited)
	case p.decision.from == nil && p.outcome.applied != nil:
		return condition.Unseen(typ, "no release was chosen", p.outcome.applied)
	case p.decision.from == nil:
		return condition.Pending(typ, "no release is chosen, since the VDOConfig is being deleted")
	}
	return condition.Judged(typ, nil, p.chosen())
}

// chosen returns the text of Resolved: "cpi@1.33.1, csi@3.5.1", with warnings.
func (p *result) chosen() string {
	var parts []string
	for _, id := range p.decision.releases {
		parts = append(parts, id.String())
	}
	text := strings.Join(parts, ", ")
	if text == "" {
		text = "no driver is requested"
	}
	for _, more := range append(p.decision.warned(), p.outcome.notes...) {
		text += "; " + more
	}
	return text
}

func (p *result) appliedCondition(st *v1alpha1.VDOConfigStatus) metav1.Condition {
	const typ = v1alpha1.ConditionApplied
	switch {
	case p.outcome.applied != nil:
		return condition.False(typ, p.outcome.applied)
	case p.stoppedChanges() > 0:
		return metav1.Condition{Type: typ, Status: metav1.ConditionFalse, Reason: condition.Stopped(p.config.Spec.DryRun),
			Message: p.gatedChanges()}
	case p.outcome.next.waits != "":
		return condition.Pending(typ, "waiting for "+p.outcome.next.waits)
	case p.outcome.plan != nil:
		return condition.Judged(typ, nil, fmt.Sprintf("%d objects", p.inventory.Len()))
	case meta.FindStatusCondition(st.Conditions, typ) == nil:
		return condition.Pending(typ, "no release was chosen yet")
	}
	return metav1.Condition{} // no plan: it stays
}

func (p *result) nextCondition() metav1.Condition {
	o, lacking := p.decision.outlook, error(nil)
	looked := strings.Join(o.Looked, ", ")
	if looked == "" {
		return metav1.Condition{}
	}
	if len(o.Lacks) > 0 {
		lacking = fault.Errorf(fault.Incompatible, "check the next versions", "",
			"do that before the upgrade; what is installed stays", "%s", few(o.Lacks))
	}
	return condition.Judged(v1alpha1.ConditionUpgradeable, lacking,
		"what is installed and what the bundle holds serve "+looked)
}

// certificateCondition warns of the expiry of the webhook's certificate: its renewal has failed for a while.
func (p *result) certificateCondition() metav1.Condition {
	const typ = v1alpha1.ConditionCertificate
	cert, err := p.certificate, p.outcome.renewed
	switch {
	case cert == nil && err == nil:
		return condition.Absent(typ)
	case cert == nil:
		return condition.False(typ, err)
	case cert.EndsAt().Sub(p.now) < webhookcert.WarnBefore:
		text := fmt.Sprintf("the certificate of the storage driver's webhook expires at %s; from then on the API server refuses changes of StorageClasses and claims", cert.EndsAt().UTC().Format(time.RFC3339))
		if err != nil {
			text += "; it could not be renewed: " + fault.Text(err)
		}
		return metav1.Condition{Type: typ, Status: metav1.ConditionFalse, Reason: reasonExpiring, Message: text}
	}
	return condition.Judged(typ, err, "it is valid until "+cert.EndsAt().UTC().Format(time.RFC3339))
}

// partCondition returns the condition of one driver. It is Unknown if this pass failed to observe the driver, and stays
// if it did not try.
func (p *result) partCondition(st *v1alpha1.VDOConfigStatus, d matrix.Driver, typ string) metav1.Condition {
	rep := p.outcome.report
	switch {
	case p.going(d):
		text := string(d) + " " + textRemoving
		return metav1.Condition{Type: typ, Status: metav1.ConditionFalse, Reason: reasonRemoving, Message: text}
	case p.outcome.removal != nil:
		return condition.Absent(typ)
	case rep == nil:
		if err := p.outcome.applied; err != nil && meta.FindStatusCondition(st.Conditions, typ) != nil {
			return condition.Unseen(typ, "it could not be checked", err)
		}
		return metav1.Condition{}
	}
	h, judged := rep.Drivers[d]
	switch {
	case !judged:
		return condition.Absent(typ)
	case h.Err() == nil && h.Waits() != "":
		return condition.Pending(typ, h.Waits())
	}
	return condition.Judged(typ, h.Err(), strings.TrimSuffix(string(d)+"@"+h.Version+"; "+h.Note, "; "))
}
