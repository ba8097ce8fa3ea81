package driverbundle

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/reconciler"
)

// outcome is the result of a reconcile.
type outcome struct {
	gated    stored      // the bundle accepted before
	accepted *acceptance // the bundle that the reference names, if accepted
	fault    error       // why it is not accepted, or comes from the copy in the cluster
	unread   error       // why the mirror did not return the bundle
	blind    error       // why the current policies are unknown
	policy   string      // identifies the sources of the policies
	// login is the one that the mirror of repository accepted; "" for none.
	login, repository string

	highest   int64 // the highest serial accepted before
	requested string
	at        time.Time
}

// stored is a bundle under the current policies. The zero value means none.
type stored struct {
	contents  *bundle.Contents
	keys      []string // with valid signatures
	untrusted error    // why the current policies refuse it
	missing   error    // why it cannot be read
}

func (h stored) good() bool { return len(h.keys) > 0 }

// acceptance is an accepted bundle.
type acceptance struct {
	candidate
	keys  []string
	found v1alpha1.DriverBundleStatus // of its contents; zero for the bundle that was accepted before
}

func acceptedAt(b *v1alpha1.DriverBundle) time.Time {
	if b.Status.AcceptedAt == nil {
		return time.Time{}
	}
	return b.Status.AcceptedAt.Time
}

// Next returns the interval or, of a suspended DriverBundle, when its matrix expires.
func (o outcome) Next(b *v1alpha1.DriverBundle) reconciler.Next {
	switch m := b.Status.Matrix; {
	case b.Spec.Suspend && m != nil:
		return reconciler.Next{AtMost: max(m.Expires.Sub(o.at), 0)}
	case b.Spec.Suspend:
		return reconciler.Next{}
	case b.Spec.Interval.Duration <= 0:
		return reconciler.Next{Interval: defaultInterval}
	}
	return reconciler.Next{Interval: b.Spec.Interval.Duration}
}

// Record writes the outcome into the status.
func (o outcome) Record(b *v1alpha1.DriverBundle) {
	st := &b.Status
	st.HandledReconcileAt, st.ObservedGeneration = o.requested, b.Generation
	st.HighestSerial = o.highest
	if o.accepted != nil {
		o.accepted.record(st, o.at)
	}
	if o.login != "" && st.Repository == o.repository {
		st.VerifiedLogin = o.login
	}
	if o.accepted == nil && o.gated.good() {
		st.VerifiedBy = o.gated.keys
	}
	if o.blind != nil || o.judged() {
		st.VerifiedPolicy = o.policy
	}
	o.conditions(b).Set(&st.Conditions, b.Generation, o.at)
}

func (a *acceptance) record(s *v1alpha1.DriverBundleStatus, now time.Time) {
	digest := a.root.Digest.String()
	if s.Digest != digest || s.AcceptedAt == nil {
		s.AcceptedAt = &metav1.Time{Time: now}
	}
	s.Digest, s.Repository, s.Tag, s.VerifiedBy = digest, a.repository.Repository(), a.tag, a.keys
	if m := a.found.Matrix; m != nil {
		s.Matrix, s.Releases, s.Kubernetes = m, a.found.Releases, a.found.Kubernetes
		s.HighestSerial = max(s.HighestSerial, m.Serial)
	}
}

// conditions returns the conditions for the outcome, with the status as Record writes it. It is pure.
func (o outcome) conditions(b *v1alpha1.DriverBundle) condition.Report {
	why := o.fault
	if text := b.Annotations[v1alpha1.AnnotationMessage]; text != "" {
		why = errors.Join(&fault.Error{Reason: fault.Refused, Err: errors.New(text)}, o.fault)
	}
	r := condition.Report{Suspended: b.Spec.Suspend, Parts: []metav1.Condition{o.verified(&b.Status), o.fresh(b)}}
	switch {
	case b.Spec.Suspend:
		r.Phase = condition.Phase{State: condition.StateSuspended}
	case why != nil:
		r.Phase = condition.Phase{State: condition.StateFault, Err: why}
	default:
		r.Phase = condition.Phase{State: condition.StateReady, Message: readyMessage(&b.Status)}
	}
	return r
}

// verified returns the condition Verified.
func (o outcome) verified(s *v1alpha1.DriverBundleStatus) metav1.Condition {
	const typ = v1alpha1.ConditionVerified
	signed := "signed by " + strings.Join(s.VerifiedBy, ", ")
	switch {
	case o.blind != nil:
		return condition.Unseen(typ, "the trust policy cannot be read", o.blind)
	case o.accepted != nil || o.gated.good():
		return condition.Judged(typ, nil, signed)
	case o.gated.untrusted != nil:
		return condition.False(typ, fmt.Errorf(
			"the accepted bundle no longer satisfies the trust policy, and stays in use only where it is healthy: %w", o.gated.untrusted,
		))
	case o.gated.missing != nil:
		return condition.Unseen(typ, "the accepted bundle cannot be read", o.gated.missing)
	case fault.ReasonOf(o.fault) == fault.Untrusted:
		return condition.False(typ, o.fault)
	}
	return condition.Absent(typ)
}

// fresh returns the condition Fresh.
func (o outcome) fresh(b *v1alpha1.DriverBundle) metav1.Condition {
	const typ = v1alpha1.ConditionFresh
	s := &b.Status
	if s.Matrix == nil {
		return condition.Absent(typ)
	}
	highest := s.HighestSerial
	if moved(b) { // the highest serial is of the new repository
		highest = 0
	}
	err := freshness(b, s.Matrix, highest, o.at)
	text := fmt.Sprintf("matrix serial %d, until %s", s.Matrix.Serial, s.Matrix.Expires.UTC().Format(time.RFC3339))
	switch {
	case err != nil && b.Spec.AcceptOlder == s.Digest:
		err, text = nil, text+", accepted by spec.acceptOlder"
	case err != nil:
		const accepted = "the matrix of the accepted bundle"
		err = fault.Errorf(fault.ReasonOf(err), "check", accepted, fault.HintOf(err), "%w", err)
	}
	return condition.Judged(typ, err, text)
}

// judged reports whether signatures were checked against the policies.
func (o outcome) judged() bool {
	return o.accepted != nil || o.gated.good() || o.gated.untrusted != nil || fault.ReasonOf(o.fault) == fault.Untrusted
}

func readyMessage(s *v1alpha1.DriverBundleStatus) string {
	return fmt.Sprintf("accepted %s of %s, signed by %s", s.Digest, s.Repository, strings.Join(s.VerifiedBy, ", "))
}
