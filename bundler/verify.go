package bundler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

// VerifyRules say what a bundle has to satisfy.
type VerifyRules struct {
	Policy *trust.Policy // whose signatures the root needs
	Matrix MatrixRules
	// Provenance demands a statement of how the bundle was built, signed as the policy
	// demands. Where it is not demanded, what was found of it is told.
	Provenance bool
}

// Verification is what was checked and found good. As JSON it is what
// `vdo-bundle verify --format json` prints.
type Verification struct {
	Root           image.Digest    `json:"root"`
	SignedBy       []string        `json:"signedBy"` // ids of the policy's keys
	MatrixSignedBy []string        `json:"matrixSignedBy,omitempty"`
	Serial         int64           `json:"serial"`  // of the matrix
	Expires        time.Time       `json:"expires"` // of the matrix
	Images         int             `json:"images"`
	Blobs          int             `json:"blobs"`
	Bytes          int64           `json:"bytes"`
	Left           *bundle.LeftOut `json:"leftToBase,omitempty"` // of a delta: not checked, since it is not there
	// Provenance is what a signed statement says of how the bundle was built; nil where
	// there is none.
	Provenance *Provenance `json:"provenance,omitempty"`
}

// Verify resolves a source, checks the signature of the bundle's root and then every
// byte below it. It returns the bundle, bound to that digest, or all that is wrong at
// once.
func Verify(ctx context.Context, s Source, rules VerifyRules, o Options) (*Bundle, error) {
	b, err := Open(ctx, s)
	if err != nil {
		return nil, err
	}
	v := &Verification{Root: b.digest}
	attached, untrusted := v.signatures(ctx, b, rules.Policy, o.now())
	layout := b.checkLayout(ctx)
	g, err := b.load(ctx)
	if err != nil || g == nil {
		return nil, b.diagnosed(ctx, fault.Join(untrusted, layout, err))
	}
	lock, content := v.contents(ctx, b, g, rules.Matrix, o.now())
	provenance := v.provenance(ctx, b, attached, lock, rules, o.now())
	blobs := v.blobs(ctx, b, g, o)
	if err := ctx.Err(); err != nil {
		return nil, interrupted(ctx)
	}
	if err := fault.Join(untrusted, layout, content, provenance, blobs); err != nil {
		return nil, once(b.diagnosed(ctx, err))
	}
	b.verified = v
	return b, nil
}

// diagnosed adds to what is wrong with content the parts of the medium that are
// damaged: that is what the user has to copy again.
func (b *Bundle) diagnosed(ctx context.Context, err error) error {
	d, ok := b.source.(Diagnoser)
	if !ok || !slices.ContainsFunc(fault.All(err), func(f *fault.Error) bool { return f.Reason == fault.Corrupt }) {
		return err
	}
	return fault.Join(err, d.Damage(ctx))
}

// once drops a fault that says what another one says already.
func once(err error) error {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // only the outermost level is split
	if !ok {
		return err
	}
	seen := map[string]bool{}
	var out []error
	for _, e := range joined.Unwrap() {
		if !seen[e.Error()] {
			seen[e.Error()] = true
			out = append(out, e)
		}
	}
	return fault.Join(out...)
}

func (b *Bundle) checkLayout(ctx context.Context) error {
	checker, ok := b.source.(LayoutChecker)
	if !ok {
		return nil
	}
	return checker.CheckLayout(ctx)
}

// signatures checks who signed the root, and returns what is attached to it.
func (v *Verification) signatures(ctx context.Context, s Source, policy *trust.Policy, now time.Time) ([]ocispec.Descriptor, error) {
	attached, err := s.Attachments(ctx, v.Root)
	if err != nil {
		return nil, err
	}
	evidence, problems := trust.ReadEvidence(ctx, s, attached...)
	if fault.ReasonOf(problems) == fault.Untrusted { // more than is read
		return attached, problems
	}
	verified, err := policy.Verify(v.Root, evidence, now)
	if err != nil {
		return attached, fault.Join(problems, err)
	}
	v.SignedBy = verified.Keys()
	return attached, nil // a damaged signature beside enough good ones changes nothing
}

// contents checks the lock against the index, and the matrix. It returns the lock
// where that could be read.
func (v *Verification) contents(ctx context.Context, s Source, g *bundle.Graph, rules MatrixRules, now time.Time) (*bundle.Lock, error) {
	c, err := g.Contents(ctx, s)
	if err != nil {
		return nil, err
	}
	m, err := OpenMatrix("the bundle's matrix", c.Matrix, c.MatrixSignature, rules, now)
	if m.Document == nil {
		return c.Lock, err
	}
	v.Serial, v.Expires, v.Images = m.Document.Serial, m.Document.Expires, len(c.Lock.Images)
	if rules.Policy != nil && err == nil {
		if verified, err := rules.Policy.VerifyBlob(c.Matrix, c.MatrixSignature, now); err == nil {
			v.MatrixSignedBy = verified.Keys()
		}
	}
	return c.Lock, fault.Join(err, agree(c.Lock, m.Document))
}

// blobs reads every blob, in parallel: on all cores, since hashing is what takes the
// time, and the largest first, so that no core is left alone with one at the end.
func (v *Verification) blobs(ctx context.Context, s Source, g *bundle.Graph, o Options) error {
	names, held := g.Owners(), g.Held()
	o.progress().Phase("verify", len(held), bundle.SizeOf(held))
	v.Blobs, v.Bytes, v.Left = len(held), g.HeldSize(), g.LeftOut()
	blobs := slices.SortedStableFunc(slices.Values(held), func(a, b ocispec.Descriptor) int { return cmp.Compare(b.Size, a.Size) })
	buffers := sync.Pool{New: func() any { b := make([]byte, verifyBuffer); return &b }}
	return forEach(ctx, max(o.limit(), runtime.GOMAXPROCS(0)), len(blobs), func(n int) error {
		d := blobs[n]
		buf := buffers.Get().(*[]byte) //nolint:forcetypeassert // the pool's own
		defer buffers.Put(buf)
		err := readBlob(ctx, s, d, o.progress(), *buf)
		if err != nil && ctx.Err() == nil {
			err = damaged(names.Name(d), d, err)
		}
		o.progress().Done(names.Name(d), err)
		return err
	})
}

// damaged says what a blob belongs to, keeping the reason of a fault of the medium.
func damaged(name string, d ocispec.Descriptor, err error) error {
	f := &fault.Error{Reason: fault.Corrupt, Op: "verify", Subject: fmt.Sprintf("%s (%s)", name, d.Digest), Err: err}
	var inner *fault.Error
	if errors.As(err, &inner) && inner.Reason != "" && inner.Err != nil {
		f.Reason, f.Err = inner.Reason, inner.Err
	}
	if f.Reason == fault.NotFound { // the bundle is there, this part of it is not
		f.Reason = fault.Incomplete
		f.Hint = "copy the bundle again from where it was made; in a registry, `vdo-bundle push BUNDLE REGISTRY/REPO:TAG --check-all` adds whatever is missing"
		return f
	}
	if f.Hint = fault.HintOf(err); f.Reason == fault.Incomplete && bundle.IsForeign(d) {
		return foreignFault(d, f)
	}
	if f.Hint == "" {
		f.Hint = "copy the bundle again from where it was made, or pull it again"
	}
	return f
}

// verifyBuffer is read at a time: few calls, and it stays in a core's cache.
const verifyBuffer = 128 << 10

func readBlob(ctx context.Context, s Source, d ocispec.Descriptor, p Progress, buf []byte) error {
	r, err := s.Fetch(ctx, d)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // only read
	_, err = io.CopyBuffer(&tick{p, ctx}, bundle.Verify(r, bundle.Plain(d)), buf)
	return err
}

// tick reports what is written to it, and stops when ctx is done.
type tick struct {
	progress Progress
	ctx      context.Context //nolint:containedctx // io.Copy has no context of its own
}

func (t *tick) Write(b []byte) (int, error) {
	t.progress.Moved(int64(len(b)))
	return len(b), t.ctx.Err()
}
