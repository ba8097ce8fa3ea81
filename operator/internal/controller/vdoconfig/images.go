package vdoconfig

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"sync"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// gatherImages checks what the bundle holds against the cluster as it is now, which needs no
// answer of anybody: whatever is asked of cluster and vCenters, and whether they have answered.
// Of a VDOConfig for which nothing but repairs is done nothing is checked.
func (g *gatherer) gatherImages(ctx context.Context) error {
	if g.frozen != "" {
		return nil
	}
	g.gatherMirrors(ctx)
	var found []preflight.Result
	if images := g.images(&g.workloads); images != nil {
		found = preflight.Turned(preflight.CheckImages(images), g.config.Spec.Preflight)
	}
	g.checks = g.checks.with(found)
	return nil
}

// with is all that is known once the bundle is checked: what was found now in the place of what
// was found before. Where cluster and vCenters have not answered to what is asked now, what the
// bundle lacks alone says what is kept back: pure.
func (c checks) with(found []preflight.Result) checks {
	c.bundle, c.bundleChecked = found, true
	if c.answered() {
		c.status = preflight.Merged(c.status, found)
		c.holds = preflight.Gate(preflight.Listed(c.status))
		return c
	}
	c.status, c.holds = c.unanswered(found), preflight.Gate(found)
	return c
}

// unanswered is what is recorded where cluster and vCenters were not checked for what is asked
// for now: beside what they were found to be for another question, if anybody has looked. What
// the bundle alone has passed is told only where nothing else is to come.
func (c *checks) unanswered(found []preflight.Result) *v1alpha1.PreflightStatus {
	if c.made && c.status != nil && c.status.CheckedAt != nil {
		return preflight.Merged(c.status, found)
	}
	now := preflight.Status(found)
	if len(found) == 0 || (c.made && len(now.Results) == 0) {
		return nil
	}
	return now
}

// gatherMirrors reads what leads upstream's names to the mirror, where pods have such names. That
// it cannot be read is a finding.
func (g *gatherer) gatherMirrors(ctx context.Context) {
	if g.bundle == nil || g.distribution != openshift || g.bundle.source.Spec.ImageNames != v1alpha1.ImageNamesUpstream {
		return
	}
	g.mirrors = &preflight.Mirrors{Repository: g.bundle.source.Status.Repository, Bundle: g.bundle.reference()}
	if g.leads {
		g.mirrors.Rules = g.sets.rules
		g.countOwnSet(ctx, g.mirrors)
		return
	}
	g.mirrors.Rules, g.mirrors.Err = g.Cluster.MirrorRules(ctx)
}

// images are those of the releases that the bundle would be installed in if no check kept
// anything back, and the nodes; nil where there is no bundle: pure, but for what made keeps.
func (s *site) images(made *workloads) *preflight.Images {
	if s.bundle == nil {
		return nil
	}
	lock := s.bundle.contents.Lock
	out := &preflight.Images{Platforms: s.bundle.contents.Platforms, Nodes: s.cluster.Nodes, Mirrors: s.mirrors}
	if len(lock.Platforms) == 1 {
		out.Kept = lock.Platforms[0]
	}
	free := s.unchecked()
	free.revisions.gates = nil
	chosen := free.choose(s.bundle, nil, nil)
	chosen.releases = slices.DeleteFunc(chosen.releases,
		func(id matrix.ReleaseID) bool { return chosen.bundleOf(id.Driver) != s.bundle })
	out.Workloads = made.of(s.bundle.reference(), render.Input{
		Lock: lock, Manifests: s.bundle.contents.Manifests, Matrix: s.bundle.matrix, Installed: s.installed,
		Repository: s.bundle.source.Status.Repository, Releases: chosen.releases, Spec: s.spec, Cluster: s.cluster,
	})
	return out
}

// Images are what the checks of the bundle look at, as a pass over the VDOConfig would find
// it. It writes nothing.
func (r *Reconciler) Images(ctx context.Context, config *v1alpha1.VDOConfig) (*preflight.Images, error) {
	p := r.newPass(config)
	if _, err := p.look(ctx); err != nil {
		return nil, err
	}
	return p.site.images(&r.workloads), nil
}

// workloads keeps what was rendered last for the checks of images: every pass asks for the
// same, whatever nodes there are, until a bundle or a setting changes.
type workloads struct {
	mu   sync.Mutex
	sum  [sha256.Size]byte
	made []render.Workload
}

// of is render.Workloads of a bundle by its digest. What it returns is not changed.
func (w *workloads) of(digest string, in render.Input) []render.Workload {
	facts := in.Cluster
	facts.Nodes = nil
	text, err := json.Marshal([]any{digest, in.Repository, in.Releases, in.Installed, in.Spec, facts})
	if err != nil {
		return render.Workloads(in)
	}
	sum := sha256.Sum256(text)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sum != sum {
		w.sum, w.made = sum, render.Workloads(in)
	}
	return w.made
}
