package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/strictyaml"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
)

const maxRules = 256

var format = strictyaml.Format{
	Op: "parse upstream policy", APIVersion: "vdo.vmware.com/upstream/v1", Kind: "UpstreamPolicy", Limit: 1 << 20,
	Hint: "see its form in `vdo-bundle pull --help`: apiVersion, kind, rules of images with policy or unsigned",
}

// Policy says whose signatures upstream images need:
//
//	apiVersion: vdo.vmware.com/upstream/v1
//	kind: UpstreamPolicy
//	rules:
//	- images: registry.k8s.io            # this host or repository, and all below it
//	  policy: kubernetes.yaml            # a trust policy file
//	- images: registry.k8s.io/csi-vsphere
//	  unsigned: true                     # accepted without a signature
//
// The most specific rule applies. An image without a rule is refused.
type Policy struct{ rules []rule }

type policyFile struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Rules      []rule `yaml:"rules"`
}

type rule struct {
	Images   string `yaml:"images"`
	Policy   string `yaml:"policy"` // the file
	Unsigned bool   `yaml:"unsigned"`

	policy *trust.Policy // nil: unsigned
}

func (r *rule) read(load func(path string) (*trust.Policy, error)) (err error) {
	given := r.Images
	r.Images = strings.TrimSuffix(given, "/")
	switch {
	case !isPrefix(r.Images):
		err = fmt.Errorf("%.200q is not HOST or HOST/PATH of images", given)
	case (r.Policy == "") == !r.Unsigned:
		err = errors.New("give exactly one of policy and unsigned: true")
	case r.Policy != "":
		r.policy, err = load(r.Policy)
	}
	return err
}

// ParsePolicy parses the file. It uses load to read the trust policies.
func ParsePolicy(name string, data []byte, load func(path string) (*trust.Policy, error)) (*Policy, error) {
	bad := func(where string, err error) (*Policy, error) {
		hint := cmp.Or(fault.HintOf(err), format.Hint)
		return nil, fault.Errorf(fault.InvalidInput, format.Op, name+where, hint, "%w", err)
	}
	var f policyFile
	if err := format.Decode(name, data, &f); err != nil {
		return nil, err
	}
	switch {
	case len(f.Rules) == 0:
		return bad("", errors.New("it has no rules: every image would be refused"))
	case len(f.Rules) > maxRules:
		return bad("", fmt.Errorf("%d rules are more than %d", len(f.Rules), maxRules))
	}
	p := &Policy{f.Rules}
	seen := map[string]bool{}
	for i := range p.rules {
		r := &p.rules[i]
		err := r.read(load)
		if err == nil && seen[r.Images] {
			err = fmt.Errorf("there are two rules for %s", r.Images)
		}
		if err != nil {
			return bad(fmt.Sprintf(": rules[%d]", i), err)
		}
		seen[r.Images] = true
	}
	slices.SortFunc(p.rules, func(a, b rule) int { return cmp.Compare(len(b.Images), len(a.Images)) }) // most specific first
	return p, nil
}

// isPrefix reports whether s is a host, or the beginning of a repository's name.
func isPrefix(s string) bool {
	if s == "" || strings.ContainsAny(s, "*@ ") {
		return false
	}
	probe := s + "/x/x" // of one component, docker.io would be under library/
	ref, err := image.ParseReference(probe)
	return err == nil && ref.Repository() == probe
}

func (p *Policy) ruleOf(repository string) (rule, bool) {
	for _, r := range p.rules {
		if repository == r.Images || strings.HasPrefix(repository, r.Images+"/") {
			return r, true
		}
	}
	return rule{}, false
}

// VerifiedImage is the result of checking an upstream image's own signatures.
type VerifiedImage struct {
	Reference image.Reference `json:"reference"`
	Digest    image.Digest    `json:"digest"`
	SignedBy  []string        `json:"signedBy"` // ids of the policy; none if the policy says unsigned
	Policy    string          `json:"policy,omitempty"`
	// Index is the signed index that names the image, if that was signed instead.
	Index image.Digest `json:"index,omitzero"`
}

func (r rule) verify(ctx context.Context, p *parts, d image.Digest, now time.Time) (trust.Verified, error) {
	attached, err := p.from.Attachments(ctx, d)
	if err != nil {
		return trust.Verified{}, err
	}
	evidence, err := trust.ReadEvidence(ctx, p.from, attached...)
	if err != nil {
		return trust.Verified{}, err
	}
	return r.policy.Verify(d, evidence, now)
}

// verify checks the signatures of one image, or of the index that contains it as a platform.
func (p *Policy) verify(ctx context.Context, of *parts, now time.Time) (VerifiedImage, error) {
	i := of.image
	v := VerifiedImage{Reference: i.Reference, Digest: i.Digest, SignedBy: []string{}}
	repository := i.FetchedFrom().Repository()
	rule, ok := p.ruleOf(repository)
	switch {
	case !ok:
		return v, fault.Errorf(fault.Untrusted, "verify", i.Reference.String(),
			"add a rule for "+i.FetchedFrom().Host()+": with the trust policy of who signs its images, or with unsigned: true",
			"%w", run.Repeated(fmt.Errorf("the upstream policy has no rule for %s", repository)))
	case rule.policy == nil:
		return v, nil
	}
	verified, err := rule.verify(ctx, of, i.Digest, now)
	switch whole, isPart := i.Index(); {
	case err == nil && isPart: // signed itself, and part of an index, which the registry may hide
		err = rule.policy.Admits(whole)
	case err == nil, of.index == nil, errors.Is(err, trust.ErrRevoked):
	default:
		v.Index = whole
		verified, err = rule.verify(ctx, of, whole, now)
	}
	if err != nil {
		var hint string
		if fault.ReasonOf(err) == fault.Untrusted {
			hint = "do not take an image that its maker did not sign; where its maker signs none, " +
				"the upstream policy can say unsigned: true for it"
		}
		by := fmt.Sprintf("%s, by %s", i.Reference, rule.Policy)
		return v, fault.Errorf(fault.ReasonOf(err), "image", by, hint, "%w", err)
	}
	v.SignedBy, v.Policy = verified.Keys(), rule.Policy
	return v, nil
}
