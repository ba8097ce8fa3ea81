package bundler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

// Provenance is what a statement says of how a bundle was built, and on whose word.
type Provenance struct {
	SignedBy []string `json:"signedBy,omitempty"` // ids of the policy
	// Builder is the program's version, and Started when it began to build.
	Builder          string `json:"builder,omitempty"`
	Started          string `json:"started,omitempty"`
	UpstreamVerified bool   `json:"upstreamVerified,omitempty"` // images' own signatures were checked
	// Problem is why there is no statement to rely on; the rest is empty then.
	Problem string `json:"problem,omitempty"`
}

// provenance looks for a signed statement of how the bundle was built, which agrees
// with its lock. What is wrong is an error where the rules demand one, and else told
// where there is any statement.
func (v *Verification) provenance(ctx context.Context, s Source, attached []ocispec.Descriptor, lock *bundle.Lock, rules VerifyRules, now time.Time) error {
	if lock == nil {
		return nil // which is a fault of its own
	}
	found, there, err := v.proven(ctx, s, attached, lock, rules.Policy, now)
	switch {
	case err == nil:
		v.Provenance = &found
		return nil
	case rules.Provenance:
		return &fault.Error{Reason: fault.ReasonOf(err), Op: "verify provenance", Subject: v.Root.String(), Hint: fault.HintOf(err), Err: unnamed(err)}
	case there:
		v.Provenance = &Provenance{Problem: unnamed(err).Error()}
	}
	return nil
}

// unnamed drops what the outer fault says again: the operation and the root.
func unnamed(err error) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Op == "verify" && f.Err != nil {
		return f.Err
	}
	return err
}

// proven finds the statement; there says whether there is one at all.
func (v *Verification) proven(ctx context.Context, s Source, attached []ocispec.Descriptor, lock *bundle.Lock, policy *trust.Policy, now time.Time) (p Provenance, there bool, err error) {
	statements, err := trust.ReadStatements(ctx, s, attached, ProvenanceType)
	if err != nil {
		return p, true, err
	}
	if len(statements) == 0 {
		return p, false, &fault.Error{
			Reason: fault.Untrusted, Err: errors.New("there is no statement of how it was built"),
			Hint: "have it pulled with --provenance, and bring its attestations along (tag " + trust.AttestationTag(v.Root) + ")",
		}
	}
	verified, predicate, err := policy.VerifyStatement(v.Root, statements, now)
	if err != nil {
		return p, true, err
	}
	var said provenance
	if err := json.Unmarshal(predicate, &said); err != nil {
		return p, true, misdescribed(errors.New("it cannot be read"))
	}
	if err := said.fits(lock); err != nil {
		return p, true, misdescribed(err)
	}
	return Provenance{
		SignedBy: verified.Keys(), Builder: said.RunDetails.Builder.Version["vdo-bundle"], Started: said.RunDetails.Metadata.StartedOn,
		UpstreamVerified: said.BuildDefinition.ExternalParameters.UpstreamPolicy,
	}, true, nil
}

func misdescribed(why error) error {
	return &fault.Error{
		Reason: fault.Untrusted, Err: fmt.Errorf("the statement does not describe this bundle: %w", why),
		Hint: "ask who signed it how it came to be; do not rely on it",
	}
}

// fits holds a statement against the lock: it is of such a build, and names the lock,
// the matrix, and each manifest file and image with its digest, and nothing else.
func (p provenance) fits(lock *bundle.Lock) error {
	def := p.BuildDefinition
	if def.BuildType != BuildType {
		return fmt.Errorf("it is of a build of type %.120q, not %s", def.BuildType, BuildType)
	}
	want, err := PullInput{Lock: lock}.definition()
	if err != nil {
		return err
	}
	got, expected := def.ExternalParameters, want.ExternalParameters
	switch {
	case !maps.Equal(got.Lock.Digest, expected.Lock.Digest):
		return fmt.Errorf("its lock has the digest sha256:%.64s, that of the bundle %s", got.Lock.Digest["sha256"], "sha256:"+expected.Lock.Digest["sha256"])
	case got.Matrix != expected.Matrix:
		return fmt.Errorf("its matrix has the serial %d, that of the bundle %d", got.Matrix, expected.Matrix)
	case !slices.Equal(got.Releases, expected.Releases):
		return errors.New("it lists other releases")
	}
	return sameDependencies(def.ResolvedDependencies, want.ResolvedDependencies)
}

func sameDependencies(got, want []resourceDescriptor) error {
	named := func(in []resourceDescriptor) map[string]string {
		out := map[string]string{}
		for _, d := range in {
			out[d.Name+" sha256:"+d.Digest["sha256"]] = d.Name
		}
		return out
	}
	has, wants := named(got), named(want)
	var missing, more []string
	for _, k := range slices.Sorted(maps.Keys(wants)) {
		if _, ok := has[k]; !ok {
			missing = append(missing, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(has)) {
		if _, ok := wants[k]; !ok {
			more = append(more, fmt.Sprintf("%.200q", k))
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("it does not name %s", few(missing))
	case len(more) > 0:
		return fmt.Errorf("it names %s, which the bundle does not have", few(more))
	}
	return nil
}

// few lists the first of many.
func few(names []string) string {
	const enough = 3
	if more := len(names) - enough; more > 0 {
		return strings.Join(names[:enough], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}
