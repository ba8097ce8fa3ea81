package driverbundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
)

// look checks the accepted bundle and, unless suspended, the mirror. Faults are part of the outcome. If the highest
// serial is unknown, it accepts nothing.
func (r *Reconciler) look(ctx context.Context, b *v1alpha1.DriverBundle, unknown error) outcome {
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.Timeout, defaultTimeout))
	defer cancel()
	// Read the version first. If a policy changes in between, the version is that of the earlier one.
	version, errVersion := source.PolicyVersion(ctx, r.Reader, b, r.FloorID)
	p, err := r.policies(ctx, b)
	if err := fault.Join(errVersion, err); err != nil {
		return outcome{fault: err, blind: err}
	}
	out := outcome{policy: version}
	if b.Status.Digest != "" {
		out.gated = r.reverify(ctx, b, p)
	}
	if out.fault = unknown; !b.Spec.Suspend && unknown == nil {
		out.lookAtMirror(ctx, r, b, p)
	}
	if out.unread != nil { // the mirror may have used all the time
		out.lookAtCopy(whole, r, b, p)
	}
	return out
}

// reverify checks the accepted bundle against the current policies, without the mirror.
func (r *Reconciler) reverify(ctx context.Context, b *v1alpha1.DriverBundle, p policies) stored {
	c := candidate{root: ocispec.Descriptor{Digest: digest.Digest(b.Status.Digest)}}
	return p.judge(ctx, r.Store.Copy(b, b.Status.Repository, c.root.Digest), c.root, c.times(b, r.Now()))
}

// lookAtMirror resolves the reference, and accepts or refuses the bundle.
func (o *outcome) lookAtMirror(ctx context.Context, r *Reconciler, b *v1alpha1.DriverBundle, p policies) {
	mirror, err := r.Store.Open(ctx, b)
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
	if c.isAccepted(b) && o.gated.good() {
		o.accepted = &acceptance{candidate: c, keys: o.gated.keys}
		return
	}
	o.accepted, o.fault = r.consider(ctx, b, p, mirror, c, o)
}

// origin returns the signatures and the contents of a root.
type origin interface {
	// Evidence returns all signatures of a root; none is no error.
	Evidence(ctx context.Context, root ocispec.Descriptor) ([]trust.Evidence, error)
	// Contents returns the contents of a root, every byte verified.
	Contents(ctx context.Context, root ocispec.Descriptor) (*bundle.Contents, error)
	// Keep stores in the cluster the blobs that Evidence and Contents have read.
	Keep(ctx context.Context, root ocispec.Descriptor, contents *bundle.Contents) error
}

// judge reads a bundle's signatures, then its contents, so that it reads only the root of an unsigned bundle. A key
// may be valid at any of the times.
func (p policies) judge(ctx context.Context, from origin, root ocispec.Descriptor, times []time.Time) (h stored) {
	evidence, err := from.Evidence(ctx, root)
	if err != nil {
		return stored{missing: err}
	}
	digest, err := image.ParseDigest(root.Digest.String())
	if err != nil {
		return stored{missing: err}
	}
	verified, err := p.verify(digest, evidence, times)
	if err != nil {
		return stored{untrusted: err}
	}
	if h.contents, h.missing = from.Contents(ctx, root); h.missing != nil {
		return h
	}
	if h.untrusted = p.verifyMatrix(h.contents, times); h.untrusted == nil {
		h.keys = verified.Keys()
	}
	return h
}

// consider judges a candidate, and keeps a copy if it accepts it.
func (r *Reconciler) consider(
	ctx context.Context, b *v1alpha1.DriverBundle, p policies, from origin, c candidate, out *outcome,
) (*acceptance, error) {
	h := p.judge(ctx, from, c.root, c.times(b, r.Now()))
	switch {
	case h.missing != nil:
		out.unread = h.missing
		return nil, unlessPassing(c, b, h.missing)
	case h.untrusted != nil:
		if b.Status.Digest == c.root.Digest.String() {
			out.gated = h
		}
		return nil, c.refused(b, h.untrusted)
	}
	found, err := inspect(h.contents)
	if err == nil {
		err = fresh(b, c.root.Digest.String(), found.Matrix, r.Now())
	}
	if err != nil {
		return nil, c.refused(b, err)
	}
	if err := from.Keep(ctx, c.root, h.contents); err != nil {
		return nil, err
	}
	return &acceptance{candidate: c, keys: h.keys, found: found}, nil
}

// candidate is the bundle that the reference names now.
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

// refused returns an error with the candidate, and the bundle that stays in use.
func (c candidate) refused(b *v1alpha1.DriverBundle, why error) error {
	if b.Status.Digest != "" && b.Status.Digest != c.root.Digest.String() {
		why = fmt.Errorf("%w; the bundle accepted before, %s, stays in use", why, b.Status.Digest)
	}
	return fault.Errorf(fault.ReasonOf(why), "accept", c.String(), fault.HintOf(why), "%w", why)
}

// unlessPassing returns a refusal for a damaged bundle, and other errors, as of an unreachable mirror, unchanged.
func unlessPassing(c candidate, b *v1alpha1.DriverBundle, err error) error {
	switch fault.ReasonOf(err) {
	case fault.Corrupt, fault.Incomplete, fault.InvalidInput, fault.NotFound:
		return c.refused(b, err)
	}
	return err
}

var errSerial = errors.New("the lock names another serial than the matrix has")

// times returns the times at which keys may be valid: now, and for the accepted bundle also its acceptance.
func (c candidate) times(b *v1alpha1.DriverBundle, now time.Time) []time.Time {
	if b.Status.Digest == c.root.Digest.String() {
		return []time.Time{acceptedAt(b), now}
	}
	return []time.Time{now}
}

// lookAtCopy judges a reference by digest that the mirror did not return, from the copy of a revision. Signatures
// and contents must satisfy the same rules. The mirror's fault stays, since nodes pull images from there.
func (o *outcome) lookAtCopy(ctx context.Context, r *Reconciler, b *v1alpha1.DriverBundle, p policies) {
	c, ok := namedByDigest(b)
	if !ok {
		return
	}
	why := o.unread
	if c.isAccepted(b) {
		if o.gated.good() {
			o.fault = fromCopy(why)
		}
		return
	}
	copied := r.Store.Copy(b, c.repository.Repository(), c.root.Digest)
	if _, err := copied.Evidence(ctx, c.root); fault.ReasonOf(err) == fault.NotFound {
		return
	}
	var err error
	if o.accepted, err = r.consider(ctx, b, p, copied, c, o); err != nil {
		o.fault = fault.Errorf(fault.ReasonOf(o.fault), "", "", fault.HintOf(o.fault),
			"%w; nor is it accepted from the copy in the cluster: %s", o.fault, fault.Text(err))
		return
	}
	o.fault = fromCopy(why)
}

// namedByDigest returns the candidate of a reference by digest, if it is in the accepted bundle's repository;
// another repository needs the mirror.
func namedByDigest(b *v1alpha1.DriverBundle) (candidate, bool) {
	ref, err := image.ParseReference(b.Spec.Reference)
	if err != nil || ref.Digest().IsZero() || b.Spec.Versions != "" || ref.Repository() != b.Status.Repository {
		return candidate{}, false
	}
	return candidate{
		repository: ref, tag: ref.Tag(), root: ocispec.Descriptor{Digest: digest.Digest(ref.Digest().String())},
	}, true
}

// fromCopy returns the mirror's fault while the copy in the cluster replaces it.
func fromCopy(why error) error {
	return fault.Errorf(fault.ReasonOf(why), "", "", fault.HintOf(why),
		"%w; the bundle is taken from the copy in the cluster, and images that nodes do not have may be missing", why)
}

// Trusted checks the bundle in status.digest, accepted at status.acceptedAt, against the current trust policies,
// with the signatures in the cluster's copy. It returns Untrusted if they refuse it, or the error that prevents the
// check.
func (r *Reconciler) Trusted(ctx context.Context, b *v1alpha1.DriverBundle) error {
	p, err := r.policies(ctx, b)
	if err != nil {
		return err
	}
	h := r.reverify(ctx, b, p)
	switch {
	case h.untrusted != nil:
		return &fault.Error{Reason: fault.Untrusted, Op: "trust", Subject: b.Status.Repository + "@" + b.Status.Digest, Err: h.untrusted}
	case h.missing != nil:
		return h.missing
	}
	return nil
}
