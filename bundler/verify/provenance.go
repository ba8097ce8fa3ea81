package verify

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/provenance"
)

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
