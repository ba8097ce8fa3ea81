package driverbundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
)

// policies are whose signatures count.
type policies struct {
	floor  *trust.Policy // the operator's own; nil: the DriverBundle's is enough
	bundle *trust.Policy
	matrix *trust.Policy // nil: the bundle's signature is enough
}

// look looks at the accepted bundle, and unless it is suspended at the mirror. Faults are part of the
// outcome. Where it is unknown what was accepted before, nothing is.
func (r *Reconciler) look(ctx context.Context, b *v1alpha1.DriverBundle, unknown error) outcome {
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.Timeout, defaultTimeout))
	defer cancel()
	// The version first: where a policy changes in between, it is that of the one before.
	version, errVersion := source.PolicyVersion(ctx, r.Reader, b, r.FloorID)
	p, err := r.policies(ctx, b)
	if err := fault.Join(errVersion, err); err != nil {
		return outcome{fault: err, blind: err}
	}
	out := outcome{policy: version}
	if b.Status.Digest != "" {
		out.held = r.reverify(ctx, b, p)
	}
	if out.fault = unknown; !b.Spec.Suspend && unknown == nil {
		out.lookAtMirror(ctx, r, b, p)
	}
	if out.unread != nil { // the mirror may have used all the time up
		out.lookAtCopy(whole, r, b, p)
	}
	return out
}

// reverify holds the accepted bundle against the policies of now, without the
// mirror.
func (r *Reconciler) reverify(ctx context.Context, b *v1alpha1.DriverBundle, p policies) (h held) {
	evidence, err := r.Store.Evidence(ctx, b)
	if err != nil {
		return held{lost: err}
	}
	digest, err := image.ParseDigest(b.Status.Digest)
	if err != nil {
		return held{lost: err}
	}
	contents, err := r.Store.Contents(ctx, b)
	if err != nil {
		return held{lost: err}
	}
	h.keys, h.untrusted = p.stillGood(digest, contents, evidence, []time.Time{acceptedAt(b), r.Now()})
	return h
}

// lookAtMirror sees what the reference names now, and accepts or refuses it.
func (o *outcome) lookAtMirror(ctx context.Context, r *Reconciler, b *v1alpha1.DriverBundle, p policies) {
	mirror, err := r.Open(ctx, b)
	if err != nil {
		o.fault, o.unread = err, err
		return
	}
	root, tag, err := mirror.Resolve(ctx)
	if err != nil {
		o.fault, o.unread = err, err
		return
	}
	repository, err := image.ParseReference(b.Spec.Reference)
	if err != nil {
		o.fault = err
		return
	}
	o.login, o.repository = mirror.Login(), repository.Repository()
	c := candidate{repository: repository, tag: tag, root: root}
	if c.isAccepted(b) && o.held.good() {
		o.accepted = &acceptance{candidate: c, keys: o.held.keys}
		return
	}
	o.accepted, o.fault = r.consider(ctx, b, p, mirror, c, o)
}

// consider reads a candidate's signatures and contents, in this order, so that
// nothing of an unsigned bundle is read but its root, and keeps what is accepted.
func (r *Reconciler) consider(ctx context.Context, b *v1alpha1.DriverBundle, p policies, from origin, c candidate, out *outcome) (*acceptance, error) {
	evidence, err := from.Evidence(ctx, c.root)
	if err != nil {
		out.unread = err
		return nil, err
	}
	digest, err := image.ParseDigest(c.root.Digest.String())
	if err != nil {
		return nil, err
	}
	times := c.times(b, r.Now())
	verified, err := p.verify(digest, evidence, times)
	if err != nil {
		out.distrust(b, c, err)
		return nil, c.refused(b, err)
	}
	out.candidateVerified = true
	contents, err := from.Contents(ctx, c.root)
	if err != nil {
		out.unread = err
		return nil, unlessPassing(c, b, err)
	}
	found, err := inspect(contents)
	if err != nil {
		return nil, c.refused(b, err)
	}
	if err := p.verifyMatrix(contents, times); err != nil {
		out.distrust(b, c, err)
		return nil, c.refused(b, err)
	}
	if err := fresh(b, digest, found, r.Now()); err != nil {
		return nil, c.refused(b, err)
	}
	if err := from.Keep(ctx, c.root, contents); err != nil {
		return nil, err
	}
	return &acceptance{candidate: c, keys: verified.Keys(), found: found}, nil
}

// candidate is what the reference names now.
type candidate struct {
	repository image.Reference
	tag        string
	root       ocispec.Descriptor
}

func (c candidate) isAccepted(b *v1alpha1.DriverBundle) bool {
	return b.Status.Digest == c.root.Digest.String() && b.Status.Repository == c.repository.Repository()
}

func (c candidate) String() string {
	s := c.repository.Repository()
	if c.tag != "" {
		s += ":" + c.tag
	}
	return s + "@" + c.root.Digest.String()
}

// refused names the candidate, and what goes on serving.
func (c candidate) refused(b *v1alpha1.DriverBundle, why error) error {
	if b.Status.Digest != "" && b.Status.Digest != c.root.Digest.String() {
		why = fmt.Errorf("%w; the bundle accepted before, %s, stays in use", why, b.Status.Digest)
	}
	return &fault.Error{Reason: fault.ReasonOf(why), Op: "accept", Subject: c.String(), Hint: fault.HintOf(why), Err: why}
}

// unlessPassing tells a damaged bundle, which is refused, from a mirror that does
// not answer.
func unlessPassing(c candidate, b *v1alpha1.DriverBundle, err error) error {
	switch fault.ReasonOf(err) {
	case fault.Corrupt, fault.Incomplete, fault.InvalidInput, fault.NotFound:
		return c.refused(b, err)
	}
	return err
}

// found is what a bundle holds.
type found struct {
	matrix     v1alpha1.MatrixStatus
	releases   []v1alpha1.ReleaseStatus
	kubernetes string
}

var errSerial = errors.New("the lock names another serial than the matrix has")

// times are those at which keys may be in force: now, and for the bundle accepted
// before also the time of its acceptance.
func (c candidate) times(b *v1alpha1.DriverBundle, now time.Time) []time.Time {
	if b.Status.Digest == c.root.Digest.String() {
		return []time.Time{acceptedAt(b), now}
	}
	return []time.Time{now}
}

// verify holds a bundle's signatures against the operator's own policy and against the
// DriverBundle's, and returns whom the latter counts.
func (p policies) verify(digest image.Digest, evidence []trust.Evidence, times []time.Time) (trust.Verified, error) {
	if p.floor != nil {
		if _, err := verifyAt(p.floor, digest, evidence, times); err != nil {
			return trust.Verified{}, fmt.Errorf("the operator's --trust-floor: %w", err)
		}
	}
	return verifyAt(p.bundle, digest, evidence, times)
}

// verifyAt checks signatures at each of several times, until one does.
func verifyAt(p *trust.Policy, digest image.Digest, evidence []trust.Evidence, times []time.Time) (v trust.Verified, err error) {
	for _, t := range times {
		if v, err = p.Verify(digest, evidence, t); err == nil {
			return v, nil
		}
	}
	return v, err
}

// verifyMatrix checks the matrix's own signature where that is asked for.
func (p policies) verifyMatrix(c *bundle.Contents, times []time.Time) (err error) {
	if p.matrix == nil {
		return nil
	}
	for _, t := range times {
		if _, err = p.matrix.VerifyBlob(c.Matrix, c.MatrixSignature, t); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the matrix inside: %w", err)
}
