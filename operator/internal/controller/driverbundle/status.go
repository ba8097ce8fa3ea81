package driverbundle

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/condition"
)

// outcome is what a pass found out.
type outcome struct {
	held              held        // of the bundle accepted before
	accepted          *acceptance // what the reference names now, where it is accepted
	candidateVerified bool        // what the reference names now has good signatures
	fault             error       // why there is no acceptance
	blind             error       // why the policies of now are not known
	policy            string      // identifies what they were read from
	// login is the one that the mirror let in to repository; "" where it let in none.
	login, repository string
}

// held is how the bundle accepted before stands. The zero value is none.
type held struct {
	keys      []string // whose signatures count
	untrusted error    // the policies of now do not accept it
	lost      error    // its copy cannot be read: it is read from the mirror again
}

// distrust notes that the policies of now do not accept a candidate.
func (o *outcome) distrust(b *v1alpha1.DriverBundle, c candidate, why error) {
	o.candidateVerified = false
	if b.Status.Digest == c.root.Digest.String() {
		o.held = held{untrusted: why}
	}
}

func (h held) good() bool { return len(h.keys) > 0 }

// acceptance is a bundle that is accepted.
type acceptance struct {
	candidate
	keys  []string
	found found // zero where it is the one accepted before
}

func acceptedAt(b *v1alpha1.DriverBundle) time.Time {
	if b.Status.AcceptedAt == nil {
		return time.Time{}
	}
	return b.Status.AcceptedAt.Time
}

// record puts the outcome into the status.
func (o outcome) record(b *v1alpha1.DriverBundle, now time.Time) {
	if o.accepted != nil {
		o.accepted.record(&b.Status, now)
	}
	if o.login != "" && b.Status.Repository == o.repository {
		b.Status.VerifiedLogin = o.login
	}
	o.recordHeld(b, now)
	if o.fault != nil {
		condition.Fault(&b.Status.Conditions, b.Generation, o.fault)
		return
	}
	condition.Ready(&b.Status.Conditions, b.Generation, readyMessage(b))
}

// recordHeld records how the accepted bundle stands.
func (o outcome) recordHeld(b *v1alpha1.DriverBundle, now time.Time) {
	if o.accepted == nil && o.held.good() {
		b.Status.VerifiedBy = o.held.keys
	}
	o.verified(b)
	recordFresh(b, o, now)
}

func (a *acceptance) record(s *v1alpha1.DriverBundleStatus, now time.Time) {
	digest := a.root.Digest.String()
	if s.Digest != digest || s.AcceptedAt == nil {
		s.AcceptedAt = &metav1.Time{Time: now}
	}
	s.Digest, s.Repository, s.Tag, s.VerifiedBy = digest, a.repository.Repository(), a.tag, a.keys
	if a.found.matrix.Digest == "" {
		return
	}
	s.Matrix, s.Releases, s.Kubernetes = &a.found.matrix, a.found.releases, a.found.kubernetes
	s.HighestSerial = max(s.HighestSerial, a.found.matrix.Serial)
}

// verified sets the condition Verified, and of which policies it speaks.
func (o outcome) verified(b *v1alpha1.DriverBundle) {
	if o.blind != nil || o.judged() {
		b.Status.VerifiedPolicy = o.policy
	}
	conds, generation := &b.Status.Conditions, b.Generation
	set := func(err error) {
		condition.Part(conds, generation, v1alpha1.ConditionVerified, err, "signed by "+strings.Join(b.Status.VerifiedBy, ", "))
	}
	unknown := func(what string, err error) {
		condition.Set(conds, generation, metav1.Condition{
			Type: v1alpha1.ConditionVerified, Status: metav1.ConditionUnknown, Reason: string(fault.ReasonOf(err)),
			Message: what + " cannot be read: " + fault.Text(err),
		})
	}
	switch {
	case o.blind != nil:
		unknown("the trust policy", o.blind)
	case o.accepted != nil || o.held.good():
		set(nil)
	case o.held.untrusted != nil:
		set(fmt.Errorf("the accepted bundle no longer satisfies the trust policy, and stays in use: %w", o.held.untrusted))
	case b.Status.Digest != "" && o.held.lost != nil:
		unknown("the accepted bundle", o.held.lost)
	case b.Status.Digest != "":
		// nothing was found out about it: what was said of it stays
	case o.candidateVerified:
		condition.Set(conds, generation, metav1.Condition{
			Type: v1alpha1.ConditionVerified, Status: metav1.ConditionTrue, Reason: condition.ReasonSucceeded,
			Message: "its signatures satisfy the trust policy",
		})
	case fault.ReasonOf(o.fault) == fault.Untrusted:
		set(o.fault)
	}
}

// recordFresh sets the condition Fresh.
func recordFresh(b *v1alpha1.DriverBundle, o outcome, now time.Time) {
	conds, generation := &b.Status.Conditions, b.Generation
	reason := fault.ReasonOf(o.fault)
	switch {
	case b.Status.Matrix != nil:
		m := *b.Status.Matrix
		err := freshness(m, b.Status.HighestSerial, now)
		if err != nil {
			err = &fault.Error{
				Reason: fault.ReasonOf(err), Op: "check", Subject: "the matrix of the accepted bundle", Hint: fault.HintOf(err), Err: err,
			}
		}
		condition.Part(conds, generation, v1alpha1.ConditionFresh, err,
			fmt.Sprintf("matrix serial %d, until %s", m.Serial, m.Expires.UTC().Format(time.RFC3339)))
	case reason == fault.Expired || reason == fault.Superseded:
		condition.Part(conds, generation, v1alpha1.ConditionFresh, o.fault, "")
	default:
		condition.Remove(conds, v1alpha1.ConditionFresh)
	}
}

// judged tells whether signatures were held against the policies.
func (o outcome) judged() bool {
	return o.accepted != nil || o.held.good() || o.held.untrusted != nil || o.candidateVerified || fault.ReasonOf(o.fault) == fault.Untrusted
}

func readyMessage(b *v1alpha1.DriverBundle) string {
	s := b.Status
	text := fmt.Sprintf("accepted %s of %s", s.Digest, s.Repository)
	if s.Tag != "" {
		text += ", tag " + s.Tag
	}
	if s.Matrix != nil {
		text += fmt.Sprintf(", matrix serial %d", s.Matrix.Serial)
	}
	return text + ", signed by " + strings.Join(s.VerifiedBy, ", ")
}
