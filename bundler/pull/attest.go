package pull

import (
	"context"
	"encoding/json"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/provenance"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/signatures"
)

// attest adds the signed statement of how the bundle was built. It reuses a statement of the same build by the same
// key from the bundle's registry, which has the original time.
func (in Input) attest(ctx context.Context, a *assembled, now time.Time) error {
	if in.Provenance == nil {
		return nil
	}
	if in.Signer == nil {
		return fault.Errorf(fault.InvalidInput, "attest provenance", "", "give a private key",
			"there is no key to sign it with")
	}
	subject := bundle.DigestOf(a.graph.Root)
	statement, err := a.build(now).Statement()
	if err != nil {
		return err
	}
	predicate, err := json.Marshal(statement)
	if err != nil {
		return err
	}
	exists, err := in.exists(ctx, subject, image.Attestations)
	if err != nil {
		return err
	}
	name := in.Reference.Repository()
	made, err := signatures.Maker{
		Has: func(exists bundle.Referrer) bool { return in.attested(ctx, statement, exists, now) },
		Tagged: func(existing bundle.Referrer) (bundle.Referrer, error) {
			return in.Signer.Attest(subject, name, provenance.Type, predicate, existing)
		},
		Referrer: func() (bundle.Referrer, error) {
			return in.Signer.AttestBundle(bundle.Plain(a.graph.Root), name, provenance.Type, predicate)
		},
	}.Make(in.SignatureFormat, exists)
	a.graph.Attachments = append(a.graph.Attachments, made...)
	return err
}

// build returns the sources of the bundle and the time of the build.
func (a *assembled) build(now time.Time) provenance.Build {
	b := provenance.Build{Lock: a.in.Lock, Builder: *a.in.Provenance, Started: now, UpstreamVerified: true}
	for n, i := range a.in.Lock.Images {
		from := provenance.Image{From: a.in.Registry(i.FetchedFrom()).Can().Repository}
		if n < len(a.signed.Verified) {
			from.SignedBy = a.signed.Verified[n].SignedBy
		}
		b.UpstreamVerified = b.UpstreamVerified && len(from.SignedBy) > 0
		b.Images = append(b.Images, from)
	}
	return b
}

// attested reports whether an attachment holds the key's statement of the same build.
func (in Input) attested(ctx context.Context, same provenance.Statement, exists bundle.Referrer, now time.Time) bool {
	policy, err := in.Signer.Policy()
	if err != nil {
		return false
	}
	held := signatures.Carried(exists)
	statements, err := trust.ReadStatements(ctx, held, []ocispec.Descriptor{exists.Node.Descriptor}, provenance.Type)
	if err != nil {
		return false
	}
	for _, s := range statements {
		_, predicate, err := policy.VerifyStatement(exists.Subject, []trust.Statement{s}, now)
		if err == nil && same.IsOfBuild(predicate) {
			return true
		}
	}
	return false
}
