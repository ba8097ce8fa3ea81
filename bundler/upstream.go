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

// Lister is a Source that knows without asking for each what has attachments.
type Lister interface {
	// Attached returns the digests that something is attached to, sorted.
	Attached(ctx context.Context) ([]image.Digest, error)
}

// Carry says whose signatures, attestations and SBOMs travel in a bundle, besides
// the root's own.
type Carry string

// The values of Carry. Signatures upstream may become more at any time: a bundle
// that carries them is not the same bytes at every pull, so that none is the default.
const (
	CarryNone   Carry = "none"
	CarryImages Carry = "images" // of each image of the lock
	CarryAll    Carry = "all"    // of each image and of the manifest of each platform
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
	repository := whereabouts(i).Repository()
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
	var evidence []trust.Evidence
	for _, d := range attached {
		found, err := trust.ReadEvidence(ctx, up, d)
		if err != nil && fault.ReasonOf(err) != fault.Corrupt {
			return v, err
		}
		evidence = append(evidence, found...)
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
	err := forEach(ctx, o.limit(), len(in.Lock.Images), func(n int) error {
		i := in.Lock.Images[n]
		var err error
		verified[n], found[n], err = lookBeside(ctx, in, i, trees[n], o.now())
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
func lookBeside(ctx context.Context, in PullInput, i bundle.Image, tree bundle.Tree, now time.Time) (VerifiedImage, []bundle.Attachment, error) {
	up, ok := in.Registry(whereabouts(i)).(SignedUpstream)
	if !ok {
		return VerifiedImage{}, nil, fmt.Errorf("image %s: its registry does not list signatures", i.Reference)
	}
	attached, err := up.Attachments(ctx, i.Digest)
	if err != nil {
		return VerifiedImage{}, nil, fmt.Errorf("image %s: %w", i.Reference, err)
	}
	var v VerifiedImage
	if in.Upstream != nil {
		if v, err = in.Upstream.verify(ctx, up, i, attached, now); err != nil {
			return v, nil, err
		}
	}
	if in.Carry == "" || in.Carry == CarryNone {
		return v, nil, nil
	}
	out, err := readAttachments(ctx, up, i.Digest, attached)
	if err != nil || in.Carry != CarryAll {
		return v, out, err
	}
	for _, n := range tree.Nodes {
		subject, err := image.ParseDigest(n.Descriptor.Digest.String())
		if err != nil || subject == i.Digest {
			continue
		}
		attached, err := up.Attachments(ctx, subject)
		if err != nil {
			return v, nil, fmt.Errorf("image %s: %w", i.Reference, err)
		}
		more, err := readAttachments(ctx, up, subject, attached)
		if err != nil {
			return v, nil, err
		}
		out = append(out, more...)
	}
	return v, out, nil
}

// readAttachments reads the manifests of attachments. An index that refers to a
// subject is none: nobody's signatures, attestations or SBOMs come in that form.
func readAttachments(ctx context.Context, f bundle.Fetcher, subject image.Digest, attached []ocispec.Descriptor) ([]bundle.Attachment, error) {
	out := make([]bundle.Attachment, 0, len(attached))
	var problems []error
	for _, d := range attached {
		if isIndex(d.MediaType) {
			continue
		}
		a, err := bundle.ReadAttachment(ctx, f, subject, d)
		if err != nil {
			problems = append(problems, fmt.Errorf("attachment %s of %s: %w", d.Digest, subject, err))
			continue
		}
		out = append(out, a)
	}
	return out, fault.Join(problems...)
}

// subjectsOf returns what of a graph attachments are looked for: all of it where the
// source knows them, else the root and the images, since each is asked for.
func subjectsOf(ctx context.Context, s Source, g *bundle.Graph) ([]image.Digest, error) {
	known := map[image.Digest]bool{}
	for _, n := range g.Manifests {
		if d, err := image.ParseDigest(n.Descriptor.Digest.String()); err == nil {
			known[d] = true
		}
	}
	if l, ok := s.(Lister); ok {
		attached, err := l.Attached(ctx)
		return slices.DeleteFunc(attached, func(d image.Digest) bool { return !known[d] }), err
	}
	var out []image.Digest
	for _, d := range append([]ocispec.Descriptor{g.Root}, g.Images()...) {
		digest, err := image.ParseDigest(d.Digest.String())
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, digest) {
			out = append(out, digest)
		}
	}
	return out, nil
}
