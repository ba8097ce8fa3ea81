package bundler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

// Types of the provenance statement: SLSA's predicate, and how a bundle is built.
const (
	ProvenanceType = "https://slsa.dev/provenance/v1"
	BuildType      = "https://vdo.vmware.com/bundle/pull/v1"
	builderID      = "https://github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/vdo-bundle"
)

// Builder is the program that builds a bundle.
type Builder struct {
	Version  string
	Revision string // of its source; "" where it is not known
}

// provenance is the predicate https://slsa.dev/provenance/v1.
type provenance struct {
	BuildDefinition buildDefinition `json:"buildDefinition"`
	RunDetails      struct {
		Builder struct {
			ID      string            `json:"id"`
			Version map[string]string `json:"version"`
		} `json:"builder"`
		Metadata struct {
			StartedOn string `json:"startedOn"`
		} `json:"metadata"`
	} `json:"runDetails"`
}

type buildDefinition struct {
	BuildType            string               `json:"buildType"`
	ExternalParameters   externalParameters   `json:"externalParameters"`
	ResolvedDependencies []resourceDescriptor `json:"resolvedDependencies"`
}

// externalParameters are what the user asked for, fixed by the lock.
type externalParameters struct {
	Lock           resourceDescriptor `json:"lock"`
	Matrix         int64              `json:"matrixSerial"`
	Platforms      []image.Platform   `json:"platforms"`
	Releases       []string           `json:"releases"`
	UpstreamPolicy bool               `json:"upstreamVerified"` // images' own signatures were checked
}

// resourceDescriptor is in-toto's.
type resourceDescriptor struct {
	Name             string            `json:"name,omitempty"`
	URI              string            `json:"uri,omitempty"`
	Digest           map[string]string `json:"digest"`
	DownloadLocation string            `json:"downloadLocation,omitempty"`
	Annotations      map[string]any    `json:"annotations,omitempty"`
}

func sha256Of(d image.Digest) map[string]string { return map[string]string{"sha256": d.Hex()} }

// attest adds the signed statement of how the bundle was built. One that the key has
// signed before, and that the target has already, is kept: the bundle was built then.
func (in PullInput) attest(ctx context.Context, g *bundle.Graph, beside upstreams, now time.Time) error {
	if in.Provenance == nil {
		return nil
	}
	if in.Signer == nil {
		return &fault.Error{
			Reason: fault.InvalidInput, Op: "attest provenance", Err: errors.New("there is no key to sign it with"), Hint: "give a private key",
		}
	}
	subject, err := image.ParseDigest(g.Root.Digest.String())
	if err != nil {
		return err
	}
	there, err := atPlace(ctx, in.Target, subject, trust.AttestationTag(subject))
	if err != nil {
		return err
	}
	if in.attested(ctx, subject, there, now) {
		g.Attachments = append(g.Attachments, there)
		return nil
	}
	p, err := in.provenance(beside, now)
	if err != nil {
		return err
	}
	predicate, err := json.Marshal(p)
	if err != nil {
		return err
	}
	signed, err := in.Signer.Attest(subject, in.Reference.Repository(), ProvenanceType, predicate, there.Node.Data)
	if err != nil {
		return err
	}
	g.Attachments = append(g.Attachments, withData(attachmentOf(subject, signed), there))
	return nil
}

// attested tells whether an attachment has a statement that the key has signed.
func (in PullInput) attested(ctx context.Context, subject image.Digest, there bundle.Attachment, now time.Time) bool {
	if there.Node.Data == nil {
		return false
	}
	key, err := in.Signer.Key("signer", trust.KeyOptions{})
	if err != nil {
		return false
	}
	policy, err := trust.NewPolicy(1, key)
	if err != nil {
		return false
	}
	held := carried(there)
	statements, err := trust.ReadStatements(ctx, held, []ocispec.Descriptor{there.Node.Descriptor}, ProvenanceType)
	if err != nil {
		return false
	}
	_, _, err = policy.VerifyStatement(subject, statements, now)
	return err == nil
}

// carried is the content of an attachment that has its bytes.
type carried bundle.Attachment

// Fetch gives the bytes of a descriptor.
func (c carried) Fetch(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	for _, b := range append([]ocispec.Descriptor{{Digest: c.Node.Descriptor.Digest, Data: c.Node.Data}}, c.Blobs...) {
		if b.Digest == d.Digest {
			return io.NopCloser(bytes.NewReader(b.Data)), nil
		}
	}
	return nil, &fault.Error{Reason: fault.NotFound, Op: "read", Subject: d.Digest.String()}
}

// provenance says what the bundle was made of, where that came from, and when.
func (in PullInput) provenance(beside upstreams, now time.Time) (provenance, error) {
	var p provenance
	var err error
	if p.BuildDefinition, err = in.definition(); err != nil {
		return p, err
	}
	p.BuildDefinition.ExternalParameters.UpstreamPolicy = in.Upstream != nil
	images := p.BuildDefinition.ResolvedDependencies[len(p.BuildDefinition.ResolvedDependencies)-len(in.Lock.Images):]
	for n, i := range in.Lock.Images {
		if from := in.SourceOf(i.FetchedFrom()).String(); "oci://"+from != images[n].URI {
			images[n].DownloadLocation = "oci://" + from
		}
		if n < len(beside.verified) && len(beside.verified[n].SignedBy) > 0 {
			images[n].Annotations = map[string]any{"signedBy": beside.verified[n].SignedBy}
		}
	}
	run := &p.RunDetails
	run.Builder.ID, run.Builder.Version = builderID, map[string]string{"vdo-bundle": in.Provenance.Version}
	if in.Provenance.Revision != "" {
		run.Builder.Version["revision"] = in.Provenance.Revision
	}
	run.Metadata.StartedOn = now.UTC().Format(time.RFC3339)
	return p, nil
}

// definition says what follows from the lock alone: every byte of the bundle is one of
// the resolved dependencies, or made of the lock. The images come last.
func (in PullInput) definition() (buildDefinition, error) {
	lock, err := in.Lock.JSON()
	if err != nil {
		return buildDefinition{}, err
	}
	def := buildDefinition{BuildType: BuildType, ExternalParameters: externalParameters{
		Lock:   resourceDescriptor{Name: "lock", Digest: sha256Of(image.DigestOf(lock))},
		Matrix: in.Lock.Matrix.Serial, Platforms: in.Lock.Platforms,
	}}
	def.ResolvedDependencies = append(def.ResolvedDependencies,
		resourceDescriptor{Name: "matrix", Digest: sha256Of(in.Lock.Matrix.Digest)})
	for _, r := range in.Lock.Releases {
		def.ExternalParameters.Releases = append(def.ExternalParameters.Releases, r.ID())
		for _, f := range r.Manifests {
			def.ResolvedDependencies = append(def.ResolvedDependencies, resourceDescriptor{Name: r.Path(f), URI: f.URL, Digest: sha256Of(f.Digest)})
		}
	}
	for _, i := range in.Lock.Images {
		def.ResolvedDependencies = append(def.ResolvedDependencies,
			resourceDescriptor{Name: i.Reference.String(), URI: "oci://" + i.FetchedFrom().String(), Digest: sha256Of(i.Digest)})
	}
	return def, nil
}
