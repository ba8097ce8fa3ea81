package sipcluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

const (
	// interval is the time between reconciles without a change. Secrets and HostDeployPolicies are not watched, so
	// their changes may wait for it. A SIPCluster that is not ready is tried again after unreadyInterval, and later
	// less often.
	interval        = 10 * time.Minute
	unreadyInterval = time.Minute
	maxSoon         = 30 * time.Second // between checks of work that nothing watches
	// maxMessage bounds the message of one host, in bytes.
	maxMessage = 512
)

// outcome is a pass that is over.
type outcome struct {
	*pass
	ready judgement
}

// judgement sets the condition Ready, and with it Reconciling (unless Ready is True or stalled) and Stalled.
type judgement struct {
	reason, message string
	status          metav1.ConditionStatus
	stalled         bool
}

func (j judgement) set(conds *[]metav1.Condition, generation int64) {
	beside := v1alpha1.ConditionReconciling
	switch {
	case j.status == metav1.ConditionTrue:
		beside = ""
	case j.stalled:
		beside = v1alpha1.ConditionStalled
	}
	c := metav1.Condition{Status: j.status, Reason: j.reason, Message: j.message}
	condition.SetReady(conds, generation, c, beside)
}

// judge decides on Ready. The first fault gives the reason, and the message has all of them.
func (p *pass) judge(err error) judgement {
	faults := []error{err, p.missing(), errors.Join(p.inUse(), p.leftOutFault())}
	if faults[1] != nil { // they may have permitted the missing hosts
		faults = append(faults, p.invalid)
	}
	faults = slices.DeleteFunc(faults, func(err error) bool { return err == nil })
	if len(faults) > 0 {
		j := judgement{reason: airship.ReasonInfraServiceFailure, status: metav1.ConditionFalse}
		if c, ok := errors.AsType[*cause](faults[0]); ok {
			j.reason = c.reason
		}
		j.message, j.stalled = fault.Text(errors.Join(faults...)), !condition.Passing(faults[0])
		return j
	}
	if unfinished := p.unfinished(); unfinished != "" {
		return judgement{reason: airship.ReasonProgressing, message: unfinished, status: metav1.ConditionUnknown}
	}
	return judgement{reason: airship.ReasonSucceeded, message: p.summary(), status: metav1.ConditionTrue}
}

// status returns the status without conditions: the previous one, updated by this reconcile.
func (p *pass) status() airship.SIPClusterStatus {
	st := p.sip.Status
	st.HostSelector = map[string]string{
		airship.LabelClusterNamespace: p.key.Namespace, airship.LabelClusterName: p.key.Name,
	}
	st.Wanted = 0
	for _, set := range p.sip.Spec.Nodes {
		total, _ := set.Wanted()
		st.Wanted += int32(total) //nolint:gosec // validated: at most 2000 a role
	}
	if p.chosen {
		p.hostsInto(&st)
	}
	if p.applied {
		st.Services, st.Namespace, st.ClusterName = p.states, "", p.clusterName
		if !p.sip.Spec.Services.IsEmpty() {
			st.Namespace = p.home
		}
	}
	return st
}

// maxHosts bounds the hosts in a status: etcd limits a resource to 1.5 MB, and every watcher receives each change.
const maxHosts = 1000

func (p *pass) hostsInto(st *airship.SIPClusterStatus) {
	st.Hosts, st.Missing = nil, nil
	for _, r := range p.choice.Roles {
		for _, h := range slices.Concat(r.Held(), r.Leave) {
			if slices.Contains(r.Take, h) || p.cluster.Holds(h) { // else the host is released
				st.Hosts = append(st.Hosts, p.hostStatus(r, h))
			}
		}
		if r.Missing.Count > 0 {
			st.Missing = append(st.Missing, r.Missing)
		}
	}
	st.Held = int32(len(st.Hosts)) //nolint:gosec // hosts of a site
	if len(st.Hosts) > maxHosts {  // the next reconcile reads from here since when a host has failed
		slices.SortStableFunc(st.Hosts, func(a, b airship.HostStatus) int { return failedFirst(a) - failedFirst(b) })
		st.Hosts = st.Hosts[:maxHosts]
	}
	st.HostsOmitted = st.Held - int32(len(st.Hosts)) //nolint:gosec // as above
}

func failedFirst(h airship.HostStatus) int {
	if h.FailedSince != nil {
		return 0
	}
	return 1
}

// hostStatus returns the status of a host. A leaving or unread host keeps its previous addresses.
func (p *pass) hostStatus(r choose.Role, h *choose.Host) airship.HostStatus {
	hs := airship.HostStatus{
		Role: r.Role, Namespace: h.Namespace, Name: h.Name, Topology: h.Labels[r.TopologyKey],
		Labelled: h.Labelled(p.key, r.Role), Addresses: p.was(h.Key()).Addresses,
	}
	if since := p.failedSince(h); !since.IsZero() {
		hs.FailedSince = &metav1.Time{Time: since}
	}
	problems := []string{r.Problem(h), p.leftOut(h)}
	if e := p.extracted[h.Key()]; e != nil {
		if e.problem == nil || len(hs.Addresses) == 0 {
			hs.Addresses = e.all(p.sip.Spec.Services.Interfaces(r.Role))
		}
		problems = append(problems, fault.Text(e.problem))
	}
	problems = slices.DeleteFunc(problems, func(text string) bool { return text == "" })
	hs.Problem = condition.Cut(strings.Join(problems, "; "), maxMessage)
	return hs
}

// missing names the missing hosts, role by role; nil for none.
func (p *pass) missing() error {
	var all []string
	for _, r := range p.choice.Roles {
		if n := r.Missing.Count; n > 0 {
			all = append(all, fmt.Sprintf("%d of %d %s hosts are missing", n, r.Wanted, r.Role))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return because(airship.ReasonUnschedulable, fmt.Errorf(
		"%s. See status.missing for the causes; add BareMetalHosts that fit, or lower the count", strings.Join(all, "; ")))
}

// degraded names the held hosts that failed; "" for none.
func (p *pass) degraded() string {
	all, held := p.heldWith(func(h *choose.Host) string { return condition.Cut(h.Failed(), maxMessage) })
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d hosts failed: %s", len(all), held, few(all))
}

// heldWith names the held hosts for which why is not "", and counts all.
func (p *pass) heldWith(why func(*choose.Host) string) (all []string, held int) {
	for _, h := range p.choice.Held() {
		held++
		if text := why(h); text != "" {
			all = append(all, h.Key().String()+": "+text)
		}
	}
	return all, held
}

// inUse names the excess hosts that stay because they are in use; nil for none.
func (p *pass) inUse() error {
	var all []string
	for _, r := range p.choice.Roles {
		for _, h := range r.InUse() {
			why := h.InUse()
			if !h.Permitted {
				why += ", and its owner does not permit it to this namespace"
			}
			all = append(all, h.Key().String()+": "+why)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return because(airship.ReasonUnableToDecommission, fault.Errorf(fault.Conflict, "release", "hosts in use",
		"free them, or annotate the SIPCluster with "+airship.AnnotationReleaseInUse+
			"=true; remove the annotation once they have left", "%s", few(all)))
}

// unfinished returns the pending work, or "".
func (p *pass) unfinished() string {
	var all, leave []string
	for _, s := range p.states {
		if !s.Ready {
			all = append(all, "waiting for "+s.Name+": "+s.Message)
		}
	}
	if out := p.outgoing(); p.applied && len(out) > 0 {
		all = append(all, "removing "+few(out))
	}
	for _, h := range p.choice.Leaving() {
		if p.cluster.Holds(h) {
			leave = append(leave, h.Key().String())
		}
	}
	if len(leave) > 0 {
		all = append(all, "hosts leave: "+few(leave))
	}
	if p.waits != "" {
		all = append(all, p.waits)
	}
	if len(all) == 0 && p.again {
		return "removing obsolete objects"
	}
	return strings.Join(all, "; ")
}

func (p *pass) summary() string {
	text := fmt.Sprintf("%d hosts, %d services", p.status().Held, len(p.states))
	if p.unusable != nil {
		text += "; services keep the images that they have, since the bundle cannot be used: " +
			condition.Cut(fault.Text(p.unusable), maxMessage)
	}
	if p.cluster.ReleaseInUse {
		text += "; hosts in use may leave: remove the annotation " + airship.AnnotationReleaseInUse + " once they have left"
	}
	for i, a := range p.sip.Spec.Services.Auth { // an event would tell only of a changed spec
		if a.CASecret != "" && a.TLSSecret == "" {
			text += fmt.Sprintf("; spec.services.auth[%d].caSecret has no effect: write a certificate into tlsSecret", i)
		}
	}
	return text
}

// Record keeps the status, but for conditions, of a SIPCluster that is being deleted.
func (o outcome) Record(sip object) {
	conds := &sip.Status.Conditions
	if !o.cluster.Deleting {
		st := o.status()
		st.Conditions = *conds
		sip.Status = st
	}
	sip.Status.ObservedGeneration = sip.Generation
	o.ready.set(conds, sip.Generation)
	if degraded := o.degraded(); o.chosen && degraded != "" { // else the hosts are unknown
		condition.Set(conds, sip.Generation, metav1.Condition{
			Type: airship.ConditionDegraded, Status: metav1.ConditionTrue,
			Reason: airship.ReasonHostsFailed, Message: degraded,
		})
	} else if o.chosen {
		condition.Remove(conds, airship.ConditionDegraded)
	}
}

// Next is soon while there is work that nothing watches. A deletion that waits is tried again each minute.
func (o outcome) Next(sip object) reconciler.Next {
	next := reconciler.Next{Interval: interval, AtMost: o.graceEnds}
	if o.ready.status != metav1.ConditionTrue {
		next.Interval = wait(sip.Status.Conditions, o.Now(), unreadyInterval, interval)
	}
	if o.cluster.Deleting {
		next.Interval = min(next.Interval, unreadyInterval)
	}
	if o.again && (!o.cluster.Deleting || o.ready.status == metav1.ConditionUnknown) {
		next.AtMost = wait(sip.Status.Conditions, o.Now(), reconciler.Soon, maxSoon)
	}
	return next
}

// wait returns when to check again: later the longer Ready has had its status, since that may not end.
func wait(conds []metav1.Condition, now time.Time, least, most time.Duration) time.Duration {
	return min(max(now.Sub(condition.Since(conds, v1alpha1.ConditionReady))/8, least), most)
}
