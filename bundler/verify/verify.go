// Package verify checks a bundle: the signature of its root, and then every byte that the root
// reaches. The result is bound to the digest, so that later steps read nothing else.
//
//	v, err := verify.Bundle(ctx, b, verify.Rules{Policy: policy}, o)
//
// It reports all problems at once, and changes nothing. The root does not reach the attachments of
// images and platforms, such as upstream's signatures, so the bundle's signature does not cover
// them. The package still checks these in a file or directory, which it reads as a whole. It does
// not read them from a registry: push reads them, and names what is lost.
package verify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/matrixfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/provenance"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

// Rules are the requirements for a bundle.
type Rules struct {
	Policy *trust.Policy // whose signatures the root needs
	Matrix matrixfile.Rules
	// Provenance demands a statement of the build, signed as Policy demands; else Bundle only reports any statement.
	Provenance bool
}

// Verification is the result of a successful check. `vdo-bundle verify --format json` prints it as JSON.
type Verification struct {
	Root           image.Digest `json:"root"`
	SignedBy       []string     `json:"signedBy"` // ids of the policy's keys
	MatrixSignedBy []string     `json:"matrixSignedBy,omitempty"`
	// Signers are those of SignedBy, and MatrixSigners those of MatrixSignedBy.
	Signers       []trust.CountedSigner `json:"signers"`
	MatrixSigners []trust.CountedSigner `json:"matrixSigners,omitempty"`
	Serial        int64                 `json:"serial"`            // of the matrix
	Expires       time.Time             `json:"expires"`           // of the matrix
	Expired       bool                  `json:"expired,omitempty"` // it has, and the rules allow that
	Images        int                   `json:"images"`
	Blobs         int                   `json:"blobs"`
	Bytes         int64                 `json:"bytes"`
	Left          *bundle.Omitted       `json:"leftToBase,omitempty"` // omitted by a delta, not checked
	// Provenance is the statement of how the bundle was built; nil if there is none.
	Provenance *Provenance `json:"provenance,omitempty"`
}

// Bundle checks the signature of a bundle's root and then every byte below it. It returns all problems at once.
func Bundle(ctx context.Context, b *pinned.Bundle, rules Rules, o run.Options) (*Verification, error) {
	c := checker{Bundle: b, rules: rules, options: o, now: time.Now(), found: &Verification{Root: b.Digest()}}
	if err := c.check(ctx); err != nil {
		return nil, fault.Distinct(err)
	}
	return c.found, nil
}

type checker struct {
	*pinned.Bundle
	rules   Rules
	options run.Options
	now     time.Time
	found   *Verification // filled during the check
}

func (c *checker) check(ctx context.Context) error {
	attached, untrusted := c.signatures(ctx)
	var layout error // the medium's bytes outside blobs and manifests
	if check := c.Can().CheckLayout; check != nil {
		layout = check(ctx)
	}
	g, err := c.Load(ctx)
	if err != nil || g == nil {
		return c.Diagnosed(ctx, fault.Join(untrusted, layout, err), pinned.Mixed...)
	}
	lock, content := c.contents(ctx, g, untrusted == nil)
	provenance := c.provenance(ctx, attached, lock)
	blobs := c.blobs(ctx, g)
	if ctx.Err() != nil {
		return run.Interrupted(ctx)
	}
	if err := fault.Join(untrusted, layout, content, provenance, blobs); err != nil {
		return c.Diagnosed(ctx, err, pinned.Mixed...)
	}
	return nil
}

// signatures checks who signed the root, and returns its attachments.
func (c *checker) signatures(ctx context.Context) ([]ocispec.Descriptor, error) {
	attached, err := c.Attachments(ctx, c.Digest())
	if err != nil {
		return nil, err
	}
	signed, problems := trust.ReadEvidence(ctx, c, attached...)
	if fault.ReasonOf(problems) == fault.Untrusted { // too many to read
		return attached, problems
	}
	verified, err := c.rules.Policy.Verify(c.Digest(), signed, c.now)
	if err != nil {
		return attached, fault.Join(problems, err)
	}
	c.found.SignedBy, c.found.Signers = verified.Keys(), verified.Signers()
	return attached, nil // a damaged signature beside enough good ones changes nothing
}

// contents checks the lock against index and matrix, and returns it. It parses manifests only of trusted bundles.
func (c *checker) contents(ctx context.Context, g *bundle.Graph, trusted bool) (*bundle.Lock, error) {
	held, err := g.Contents(ctx, c)
	if err != nil {
		return nil, err
	}
	m, err := matrixfile.Open("the bundle's matrix", held.Matrix, held.MatrixSignature, c.rules.Matrix, c.now)
	if m.Document == nil {
		return held.Lock, err
	}
	c.found.Serial, c.found.Expires, c.found.Images = m.Document.Serial, m.Document.Expires, len(held.Lock.Images)
	c.found.Expired = !c.now.Before(m.Document.Expires)
	c.found.MatrixSignedBy, c.found.MatrixSigners = m.Verified.Keys(), m.Verified.Signers()
	if !trusted {
		held.Manifests = nil
	}
	return held.Lock, fault.Join(err, matrixfile.Agree(held.Lock, m.Document, held.Manifests))
}

// blobs verifies every blob on all cores, as hashing dominates, the largest first, so that all cores end together.
func (c *checker) blobs(ctx context.Context, g *bundle.Graph) error {
	names, held, o, v := g.Owners(), g.Held(), c.options, c.found
	o.Progress.Phase("verify", len(held), bundle.SizeOf(held))
	v.Blobs, v.Bytes, v.Left = len(held), g.HeldSize(), g.OmittedList()
	largestFirst := func(a, b ocispec.Descriptor) int { return cmp.Compare(b.Size, a.Size) }
	blobs := slices.SortedStableFunc(slices.Values(held), largestFirst)
	return run.Each(ctx, max(o.Limit(), runtime.GOMAXPROCS(0)), len(blobs), func(n int) error {
		d := blobs[n]
		err := c.readBlob(ctx, d)
		if err != nil && ctx.Err() == nil {
			err = damaged(names.Name(d), d, err)
		}
		o.Progress.Done(names.Name(d), err)
		return err
	})
}

// damaged names the owner of a blob, and keeps the reason of the medium's fault.
func damaged(name string, d ocispec.Descriptor, err error) error {
	hint := cmp.Or(fault.HintOf(err), "copy the bundle again from where it was made, or pull it again")
	reason := fault.ReasonOf(err)
	switch reason {
	case fault.Internal: // a fault without a reason
		reason = fault.Corrupt
	case fault.NotFound: // the bundle exists, this part is missing
		reason = fault.Incomplete
		hint = "copy the bundle again from where it was made; in a registry, `vdo-bundle push BUNDLE REGISTRY/REPO:TAG` adds whatever is missing"
	}
	return fault.Errorf(reason, "verify", fmt.Sprintf("%s (%s)", name, d.Digest), hint, "%w", fault.CauseOf(err))
}

// verifyBuffer is the read buffer in bytes: large enough for few calls, and fits a core's cache.
const verifyBuffer = 128 << 10

func (c *checker) readBlob(ctx context.Context, d ocispec.Descriptor) error {
	r, err := c.Fetch(ctx, d, 0)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // only read
	buf := make([]byte, min(max(d.Size, 1), verifyBuffer))
	_, err = io.CopyBuffer(&tick{c.options.Progress, ctx}, bundle.Verify(r, bundle.Plain(d)), buf)
	return err
}

// tick reports the bytes written to it, and stops when ctx ends.
type tick struct {
	progress *run.Progress
	ctx      context.Context //nolint:containedctx // io.Copy has no context of its own
}

func (t *tick) Write(b []byte) (int, error) {
	t.progress.Moved(int64(len(b)))
	return len(b), t.ctx.Err()
}

// Provenance is the verified statement of how a bundle was built.
type Provenance struct {
	SignedBy []string `json:"signedBy,omitempty"` // ids of the policy
	// Builder is the program's version, and Started the start of the build.
	Builder          string `json:"builder,omitempty"`
	Started          string `json:"started,omitempty"`
	UpstreamVerified bool   `json:"upstreamVerified,omitempty"` // the own signatures of all images were checked
	UpstreamSigned   int    `json:"upstreamSigned"`             // images whose own signatures were checked
	// ServedBy are the mirrors that served images in place of their sources, by reference.
	ServedBy map[string]string `json:"servedBy,omitempty"`
	// Problem is why there is no trusted statement; the other fields are then empty.
	Problem string `json:"problem,omitempty"`
}

// provenance checks the signed statement of how the bundle was built against the lock. A problem is an error if the
// rules demand a statement; else it is reported if there is any statement.
func (c *checker) provenance(ctx context.Context, attached []ocispec.Descriptor, lock *bundle.Lock) error {
	if lock == nil {
		return nil // reported elsewhere
	}
	found, exists, err := c.statement(ctx, attached, lock)
	switch {
	case err == nil:
		c.found.Provenance = &found
		return nil
	case c.rules.Provenance:
		return &fault.Error{Reason: fault.ReasonOf(err), Op: "verify provenance", Subject: c.Digest().String(), Hint: fault.HintOf(err), Err: fault.CauseOf(err)}
	case exists:
		c.found.Provenance = &Provenance{Problem: fault.CauseOf(err).Error()}
	}
	return nil
}

// statement returns the verified statement; exists reports whether there is any.
func (c *checker) statement(ctx context.Context, attached []ocispec.Descriptor, lock *bundle.Lock) (p Provenance, exists bool, err error) {
	statements, unread := trust.ReadStatements(ctx, c, attached, provenance.Type)
	switch {
	case len(statements) > 0:
	case unread != nil:
		return p, true, unread
	default:
		return p, false, fault.Errorf(fault.Untrusted, "", "",
			"have it pulled with --provenance, and copy its attestations too (tag "+image.Attestations.TagOf(c.Digest())+")",
			"there is no statement of how it was built")
	}
	slices.SortStableFunc(statements, func(a, b trust.Statement) int { return startOf(b).Compare(startOf(a)) })
	verified, predicate, err := c.rules.Policy.VerifyStatement(c.Digest(), statements, c.now)
	if err != nil {
		return p, true, fault.Join(err, unread)
	}
	var found provenance.Statement
	if err := json.Unmarshal(predicate, &found); err != nil {
		return p, true, misdescribed(errors.New("it cannot be read"))
	}
	if err := found.Fits(lock); err != nil {
		return p, true, misdescribed(err)
	}
	signed := 0
	for _, d := range found.BuildDefinition.ResolvedDependencies {
		if d.Annotations["signedBy"] != nil {
			signed++
		}
	}
	return Provenance{
		SignedBy: verified.Keys(), Builder: found.RunDetails.Builder.Version["vdo-bundle"], Started: found.RunDetails.Metadata.StartedOn,
		UpstreamVerified: signed == len(lock.Images), UpstreamSigned: signed, ServedBy: found.ServedBy(),
	}, true, nil
}

// startOf returns the unverified start of a build, or zero. It only sorts, so that the newest valid one is used.
func startOf(s trust.Statement) time.Time {
	var p provenance.Statement
	if json.Unmarshal(s.UnverifiedPredicate(), &p) != nil {
		return time.Time{}
	}
	at, _ := time.Parse(time.RFC3339, p.RunDetails.Metadata.StartedOn)
	return at
}

func misdescribed(why error) error {
	return fault.Errorf(fault.Untrusted, "", "", "ask who signed it how it came to be; do not rely on it",
		"the statement does not describe this bundle: %w", why)
}
