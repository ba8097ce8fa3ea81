package bundler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

// Signatures, attestations and SBOMs that upstream images have of their own.

// SignedUpstream is an Upstream that knows what is attached to its images.
type SignedUpstream interface {
	Upstream
	Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error)
}

// Carry says whose signatures, attestations and SBOMs travel in a bundle, besides
// the root's own.
type Carry string

// The values of Carry. Signatures upstream may become more at any time: a bundle
// that carries them is not the same bytes at every pull, so that none is the default.
const (
	CarryNone   Carry = "none"
	CarryImages Carry = "images" // of each image of the lock
	CarryAll    Carry = "all"    // of each image, of the manifest of each platform, and of what is attached
)

// The header and the bounds of a file that says whose signatures upstream images need.
const (
	UpstreamAPIVersion = "vdo.vmware.com/upstream/v1"
	UpstreamKind       = "UpstreamPolicy"

	maxUpstreamPolicy = 1 << 20
	maxUpstreamRules  = 256
)

// UpstreamPolicy says whose signatures upstream images need:
//
//	apiVersion: vdo.vmware.com/upstream/v1
//	kind: UpstreamPolicy
//	rules:
//	- images: registry.k8s.io            # this host or repository, and all below it
//	  policy: kubernetes.yaml            # a trust policy file
//	- images: registry.k8s.io/csi-vsphere
//	  unsigned: true                     # taken as it is: nobody signs it
//
// Of several rules the most specific holds. An image without a rule is refused.
type UpstreamPolicy struct{ rules []upstreamRule }

type upstreamRule struct {
	images string
	file   string
	policy *trust.Policy // nil: unsigned
}

type upstreamFile struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Rules      []struct {
		Images   string `yaml:"images"`
		Policy   string `yaml:"policy"`
		Unsigned bool   `yaml:"unsigned"`
	} `yaml:"rules"`
}

// ParseUpstreamPolicy reads the file. load reads the trust policies that it names.
func ParseUpstreamPolicy(name string, data []byte, load func(path string) (*trust.Policy, error)) (*UpstreamPolicy, error) {
	var problems []error
	bad := func(where string, err error) {
		problems = append(problems, &fault.Error{
			Reason: fault.InvalidInput, Op: "parse upstream policy", Subject: name + where, Err: err,
			Hint: cmp.Or(fault.HintOf(err), "see its form in `vdo-bundle pull --help`: apiVersion, kind, rules of images with policy or unsigned"),
		})
	}
	f, err := decodeUpstream(data)
	if err != nil {
		bad("", err)
		return nil, fault.Join(problems...)
	}
	p := &UpstreamPolicy{}
	seen := map[string]bool{}
	for i, r := range f.Rules {
		at := fmt.Sprintf(": rules[%d]", i)
		rule := upstreamRule{images: strings.TrimSuffix(r.Images, "/"), file: r.Policy}
		switch {
		case !isPrefix(rule.images):
			bad(at, fmt.Errorf("%.200q is no HOST or HOST/PATH of images", r.Images))
		case seen[rule.images]:
			bad(at, fmt.Errorf("there are two rules for %s", rule.images))
		case (r.Policy == "") == !r.Unsigned:
			bad(at, errors.New("give exactly one of policy and unsigned: true"))
		case r.Policy != "":
			if rule.policy, err = load(r.Policy); err != nil {
				bad(at, err)
			}
		}
		seen[rule.images] = true
		p.rules = append(p.rules, rule)
	}
	if len(problems) > 0 {
		return nil, fault.Join(problems...)
	}
	slices.SortFunc(p.rules, func(a, b upstreamRule) int { return cmp.Compare(len(b.images), len(a.images)) }) // most specific first
	return p, nil
}

func decodeUpstream(data []byte) (upstreamFile, error) {
	var f upstreamFile
	if len(data) > maxUpstreamPolicy {
		return f, fmt.Errorf("longer than %d bytes", maxUpstreamPolicy)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil {
		return f, errors.New(strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " "))
	}
	switch {
	case !errors.Is(dec.Decode(new(yaml.Node)), io.EOF):
		return f, errors.New("there is something after the first YAML document")
	case f.APIVersion != UpstreamAPIVersion || f.Kind != UpstreamKind:
		return f, fmt.Errorf("it is %q %q, not %s %s", f.APIVersion, f.Kind, UpstreamAPIVersion, UpstreamKind)
	case len(f.Rules) == 0:
		return f, errors.New("it has no rules: every image would be refused")
	case len(f.Rules) > maxUpstreamRules:
		return f, fmt.Errorf("%d rules are more than %d", len(f.Rules), maxUpstreamRules)
	}
	return f, nil
}

// isPrefix reports whether a text is a host, or the beginning of a repository's name.
func isPrefix(s string) bool {
	if s == "" || strings.ContainsAny(s, "*@ ") {
		return false
	}
	probe := s
	if !strings.Contains(s, "/") {
		probe = s + "/x"
	}
	ref, err := image.ParseReference(probe)
	return err == nil && ref.Repository() == probe
}

// rule finds the rule of an image.
func (p *UpstreamPolicy) rule(repository string) (upstreamRule, bool) {
	for _, r := range p.rules {
		if repository == r.images || strings.HasPrefix(repository, r.images+"/") {
			return r, true
		}
	}
	return upstreamRule{}, false
}

// VerifiedImage is an upstream image whose own signatures were looked at.
type VerifiedImage struct {
	Reference image.Reference `json:"reference"`
	Digest    image.Digest    `json:"digest"`
	SignedBy  []string        `json:"signedBy"` // ids of the policy; none where the policy says unsigned
	Policy    string          `json:"policy,omitempty"`
}

// verifyUpstream checks one image's signatures.
func (p *UpstreamPolicy) verify(ctx context.Context, up SignedUpstream, i bundle.Image, attached []ocispec.Descriptor, now time.Time) (VerifiedImage, error) {
	v := VerifiedImage{Reference: i.Reference, Digest: i.Digest, SignedBy: []string{}}
	repository := i.FetchedFrom().Repository()
	rule, ok := p.rule(repository)
	switch {
	case !ok:
		return v, &fault.Error{
			Reason: fault.Untrusted, Op: "verify", Subject: i.Reference.String(), Err: fmt.Errorf("the upstream policy has no rule for %s", repository),
			Hint: "add a rule for it: with the trust policy of who signs it, or with unsigned: true",
		}
	case rule.policy == nil:
		return v, nil
	}
	evidence, err := trust.ReadEvidence(ctx, up, attached...)
	if err != nil && fault.ReasonOf(err) != fault.Corrupt {
		return v, err
	}
	verified, err := rule.policy.Verify(i.Digest, evidence, now)
	if err != nil {
		return v, &fault.Error{
			Reason: fault.ReasonOf(err), Op: "image", Subject: fmt.Sprintf("%s, by %s", i.Reference, rule.file), Err: err,
			Hint: "do not take an image that its maker did not sign; where its maker signs none, the upstream policy can say unsigned: true for it",
		}
	}
	v.SignedBy, v.Policy = verified.Keys(), rule.file
	return v, nil
}

// upstreams is what was found beside the images of a lock.
type upstreams struct {
	verified    []VerifiedImage
	attachments []bundle.Attachment
	from        map[string]bundle.Image // blob digest -> an image beside which it is
}

// readUpstream looks at what is attached to the images of a lock: verifies their
// signatures where there is a policy, and reads what is to travel. All images that
// fail are named together.
func readUpstream(ctx context.Context, in PullInput, trees []bundle.Tree, o Options) (upstreams, error) {
	u := upstreams{from: map[string]bundle.Image{}}
	if in.Upstream == nil && (in.Carry == "" || in.Carry == CarryNone) {
		return u, nil
	}
	o.progress().Phase("upstream signatures", len(in.Lock.Images), 0)
	found := make([][]bundle.Attachment, len(in.Lock.Images))
	verified := make([]VerifiedImage, len(in.Lock.Images))
	var r attachmentReader
	err := forEach(ctx, o.limit(), len(in.Lock.Images), func(n int) error {
		i := in.Lock.Images[n]
		var err error
		verified[n], found[n], err = r.lookBeside(ctx, in, i, trees[n], o)
		o.progress().Done(i.Reference.String(), err)
		return err
	})
	if err != nil {
		return u, err
	}
	if in.Upstream != nil {
		u.verified = verified
	}
	seen := map[string]bool{}
	for n, attachments := range found {
		for _, a := range attachments {
			key := a.Subject.String() + " " + cmp.Or(a.Tag, a.Node.Descriptor.Digest.String())
			if seen[key] { // one image under two references
				continue
			}
			seen[key] = true
			u.attachments = append(u.attachments, a)
			for _, b := range a.Blobs {
				u.from[b.Digest.String()] = in.Lock.Images[n]
			}
		}
	}
	return u, nil
}

// lookBeside verifies one image and reads its attachments.
func (r *attachmentReader) lookBeside(ctx context.Context, in PullInput, i bundle.Image, tree bundle.Tree, o Options) (VerifiedImage, []bundle.Attachment, error) {
	up, ok := in.Registry(i.FetchedFrom()).(SignedUpstream)
	if !ok {
		return VerifiedImage{}, nil, fmt.Errorf("image %s: its registry does not list signatures", i.Reference)
	}
	from := &sameList{SignedUpstream: up}
	attached, err := from.Attachments(ctx, i.Digest)
	if err != nil {
		return VerifiedImage{}, nil, fmt.Errorf("image %s: %w", i.Reference, err)
	}
	var v VerifiedImage
	if in.Upstream != nil {
		if v, err = in.Upstream.verify(ctx, up, i, attached, o.now()); err != nil {
			return v, nil, err
		}
	}
	if in.Carry == "" || in.Carry == CarryNone {
		return v, nil, nil
	}
	subjects := []image.Digest{i.Digest}
	if in.Carry != CarryAll {
		out, err := r.read(ctx, up, i.Digest, attached)
		return v, out, err
	}
	for _, n := range tree.Nodes {
		if d, err := image.ParseDigest(n.Descriptor.Digest.String()); err == nil && d != i.Digest {
			subjects = append(subjects, d)
		}
	}
	out, err := r.below(ctx, from, subjects, o)
	if err != nil {
		return v, nil, fmt.Errorf("image %s: %w", i.Reference, err)
	}
	return v, out, nil
}

// sameList is an upstream whose signatures are those that were verified.
type sameList struct {
	SignedUpstream
	attached attachedOnce
}

// Attachments returns what refers to subject, as it was when that was asked first.
func (s *sameList) Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	return s.attached.of(ctx, s.SignedUpstream, subject)
}

// asked is what is asked for attachments.
type asked interface {
	bundle.Fetcher
	Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error)
}

// Bounds of the attachments of one bundle, all together.
const (
	maxAttachments     = 4096
	maxAttachmentBytes = 64 << 20 // of their manifests
)

// attachmentReader reads attachments of one bundle, and counts them. It is safe for
// concurrent use.
type attachmentReader struct {
	mu     sync.Mutex
	number int
	bytes  int64
}

// room takes a part of what one bundle may have, before that is read.
func (r *attachmentReader) room(ds []ocispec.Descriptor) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number += len(ds)
	r.bytes += bundle.SizeOf(ds)
	if r.number <= maxAttachments && r.bytes <= maxAttachmentBytes {
		return nil
	}
	return &fault.Error{
		Reason: fault.Refused, Op: "read signatures and attestations", Err: fmt.Errorf("there are more than %d, or their manifests have more than %d bytes", maxAttachments, maxAttachmentBytes),
		Hint: "remove those that are out of use",
	}
}

// below reads what is attached to subjects, what is attached to that, and so on: a
// signature of an attestation. Each is asked for, since no medium is sure to know all
// of them by itself.
func (r *attachmentReader) below(ctx context.Context, s asked, subjects []image.Digest, o Options) ([]bundle.Attachment, error) {
	var out []bundle.Attachment
	known := map[image.Digest]bool{}
	for len(subjects) > 0 {
		for _, d := range subjects {
			known[d] = true
		}
		found := make([][]bundle.Attachment, len(subjects))
		err := forEach(ctx, o.small(), len(subjects), func(n int) error {
			if err := r.room(nil); err != nil {
				return err
			}
			attached, err := s.Attachments(ctx, subjects[n])
			if err != nil {
				return err
			}
			found[n], err = r.read(ctx, s, subjects[n], attached)
			return err
		})
		if err != nil {
			return nil, once(err)
		}
		out, subjects = append(out, slices.Concat(found...)...), nil
		for _, a := range slices.Concat(found...) {
			if d, err := image.ParseDigest(a.Node.Descriptor.Digest.String()); err == nil && !known[d] {
				known[d] = true
				subjects = append(subjects, d)
			}
		}
	}
	return out, nil
}

// read reads the manifests of attachments. An index that refers to a subject is none:
// nobody's signatures, attestations or SBOMs come in that form.
func (r *attachmentReader) read(ctx context.Context, f bundle.Fetcher, subject image.Digest, attached []ocispec.Descriptor) ([]bundle.Attachment, error) {
	attached = slices.DeleteFunc(slices.Clone(attached), func(d ocispec.Descriptor) bool { return bundle.IsIndex(d.MediaType) })
	if err := r.room(attached); err != nil {
		return nil, err
	}
	out := make([]bundle.Attachment, 0, len(attached))
	var problems []error
	for _, d := range attached {
		a, err := bundle.ReadAttachment(ctx, f, subject, d)
		if err != nil {
			problems = append(problems, fmt.Errorf("attachment %s of %s: %w", d.Digest, subject, err))
			continue
		}
		out = append(out, a)
	}
	return out, fault.Join(problems...)
}
