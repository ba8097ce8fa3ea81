package sipcluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
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
	// maxMessage bounds the message of one host, in bytes.
	maxMessage = 512
)

type outcome struct {
	status airship.SIPClusterStatus // without conditions
	ready  judgement
	chosen bool // the hosts are known: else Degraded stays
	// degraded names the failed hosts; "" for none.
	degraded string
	next     reconciler.Next
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

// failed returns the judgement of an error, with the reason of the first of several.
func failed(err error) judgement {
	reason := airship.ReasonInfraServiceFailure
	if c, ok := errors.AsType[*cause](err); ok {
		reason = c.reason
	}
	stalled := !condition.Passing(err)
	return judgement{reason: reason, message: fault.Text(err), status: metav1.ConditionFalse, stalled: stalled}
}

func (p *pass) outcome(err error) outcome {
	o := outcome{
		status: p.status(), ready: p.judge(err), chosen: p.chosen, degraded: p.degraded(),
		next: reconciler.Next{Interval: interval, AtMost: p.graceEnds},
	}
	if o.ready.status != metav1.ConditionTrue {
		o.next.Interval = unreadyInterval
		was := meta.FindStatusCondition(p.sip.Status.Conditions, v1alpha1.ConditionReady)
		if was != nil && was.Status == o.ready.status {
			o.next.Interval = min(max(p.Now().Sub(was.LastTransitionTime.Time)/8, unreadyInterval), interval)
		}
	}
	if p.again {
		o.next.AtMost = soon(p.sip.Status.Conditions, p.Now())
	}
	return o
}

func (p *pass) judge(err error) judgement {
	missing, unfinished := p.missing(), p.unfinished()
	hosts := errors.Join(p.inUse(), p.leftOutFault())
	text := ""
	if hosts != nil {
		text = "\n" + fault.Text(hosts)
	}
	if missing != "" {
		missing += ". See status.missing for the causes; add BareMetalHosts that fit, or lower the count"
		if text = "\n" + missing + text; p.invalid != nil { // they may have permitted the missing hosts
			text += "\n" + fault.Text(p.invalid)
		}
	}
	switch {
	case err != nil:
		j := failed(err)
		j.message += text
		return j
	case missing != "":
		return judgement{reason: airship.ReasonUnschedulable, message: text[1:], status: metav1.ConditionFalse}
	case hosts != nil:
		return failed(hosts)
	case unfinished != "":
		return judgement{reason: airship.ReasonProgressing, message: unfinished, status: metav1.ConditionUnknown}
	}
	return judgement{reason: airship.ReasonSucceeded, message: p.summary(), status: metav1.ConditionTrue}
}

// maxSoon bounds the time between checks of unwatched progress.
const maxSoon = 30 * time.Second

// soon returns when to check pending work again: later the longer it takes, since it may never end.
func soon(conds []metav1.Condition, now time.Time) time.Duration {
	since := cmp.Or(condition.Since(conds, v1alpha1.ConditionReconciling),
		condition.Since(conds, v1alpha1.ConditionStalled))
	if since.IsZero() {
		return reconciler.Soon
	}
	return min(max(now.Sub(since)/8, reconciler.Soon), maxSoon)
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
	problems := []string{r.Problem(h), p.leftOut(h.Key())}
	if e := p.extracted[h.Key()]; e != nil {
		if e.problem == nil || len(hs.Addresses) == 0 {
			hs.Addresses = e.all(p.sip.Spec.Services.Interfaces())
		}
		problems = append(problems, fault.Text(e.problem))
	}
	problems = slices.DeleteFunc(problems, func(text string) bool { return text == "" })
	hs.Problem = condition.Cut(strings.Join(problems, "; "), maxMessage)
	return hs
}

// missing returns the missing hosts, role by role; "" for none.
func (p *pass) missing() string {
	var all []string
	for _, r := range p.choice.Roles {
		if n := r.Missing.Count; n > 0 {
			all = append(all, fmt.Sprintf("%d of %d %s hosts are missing", n, r.Wanted, r.Role))
		}
	}
	return strings.Join(all, "; ")
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
		"free them, or annotate the SIPCluster with "+airship.AnnotationReleaseInUse+"=true", "%s", few(all)))
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
	all = slices.DeleteFunc(append(all, p.waits, p.leading), func(text string) bool { return text == "" })
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
	for i, a := range p.sip.Spec.Services.Auth { // an event would tell only of a changed spec
		if a.CASecret != "" && a.TLSSecret == "" {
			text += fmt.Sprintf("; spec.services.auth[%d].caSecret has no effect: write a certificate into tlsSecret", i)
		}
	}
	return text
}

func (o outcome) Record(sip object) {
	conds := sip.Status.Conditions
	sip.Status = o.status
	sip.Status.Conditions, sip.Status.ObservedGeneration = conds, sip.Generation
	o.ready.set(&sip.Status.Conditions, sip.Generation)
	switch {
	case o.chosen && o.degraded == "":
		condition.Remove(&sip.Status.Conditions, airship.ConditionDegraded)
	case o.chosen:
		condition.Set(&sip.Status.Conditions, sip.Generation, metav1.Condition{
			Type: airship.ConditionDegraded, Status: metav1.ConditionTrue,
			Reason: airship.ReasonHostsFailed, Message: o.degraded,
		})
	}
}

func (o outcome) Next(object) reconciler.Next { return o.next }
