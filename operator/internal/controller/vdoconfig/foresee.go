package vdoconfig

import (
	"context"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// foresee plans what would be done if nothing were held back, for status.plan: nothing of
// it is done. Only a bundle whose bytes satisfy the trust policy of now is planned from:
// what nobody trusts is not given to the API server, be it to try it. A fault of foreseeing
// is the plan's and not the pass's.
func (p *pass) foresee(ctx context.Context) {
	why := p.heldBack()
	if why == "" || p.site.frozen != "" || !p.site.bundle.verified {
		return
	}
	q := *p
	q.site = p.site.released()
	q.decision = q.site.choose(q.site.bundle, nil, q.site.faults)
	p.outcome.foreseen = &shown{decision: q.decision, held: why}
	if err := q.imagine(ctx, p.outcome.foreseen); err != nil {
		p.outcome.foreseen.held += "; it cannot be planned: " + fault.Text(err)
	}
}

// imagine renders and tries what was decided, and notes the plan.
func (p *pass) imagine(ctx context.Context, s *shown) error {
	if p.decision.refused != nil {
		return p.decision.refused
	}
	rendered, err := p.site.render(p.decision)
	s.malformed = rendered.malformed
	if err := fault.Join(err, rendered.refused); err != nil {
		return err
	}
	tried, err := p.dryRun(ctx, rendered)
	if err != nil {
		return err
	}
	made := p.site.plan(tried)
	s.plan = &made
	return nil
}

// heldBack is why a release or its content may not change now, "" where all may.
func (p *pass) heldBack() string {
	if err := fault.Join(p.site.hold(), together(p.site.holds())); err != nil {
		return fault.Text(err)
	}
	if v := p.site.revisions.verdict; v.Holds() {
		return v.Message
	}
	return ""
}

// released is the site without gates.
func (s *site) released() site {
	free := *s
	free.ungated, free.bundleHeld, free.revisions, free.checks = true, false, revisions{}, checks{}
	if s.checks.kept[matrix.CPI] {
		free.spec.CloudProvider = s.config.Spec.CloudProvider
	}
	if s.checks.kept[matrix.CSI] {
		free.spec.StorageProvider = s.config.Spec.StorageProvider
	}
	free.notes = slices.Clone(s.notes)
	return free
}
