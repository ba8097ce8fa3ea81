package vdoconfig

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// goBackTo makes a revision's drivers the current ones, if all that they come from is trusted still and
// suits the cluster of now.
func (g *gatherer) goBackTo(ctx context.Context, rec revision.Record) error {
	for _, reference := range bundles([]revision.Record{rec}) {
		if err := g.trusts(ctx, reference); err != nil {
			return err
		}
	}
	o, err := g.openSource(ctx, rec.Bundle)
	if err != nil {
		return err
	}
	if why := g.unsuited(o, rec); why != "" {
		return &fault.Error{Reason: fault.Incompatible, Op: "go back to", Subject: "revision " + rec.Name(), Err: errors.New(why)}
	}
	back := g.currentOfRecord(ctx, rec)
	for _, d := range inOrder {
		if err := back[d].err; err != nil {
			return err
		}
	}
	g.current = back
	return nil
}

// unsuited says why a revision may not be gone back to, "" where it may: by the matrix of its
// own bundle, or by what the accepted one says of the same releases since.
func (g *gatherer) unsuited(o *opened, rec revision.Record) string {
	own := rec
	own.Releases = slices.DeleteFunc(slices.Clone(rec.Releases), func(id string) bool {
		d, _, _ := strings.Cut(id, "@")
		return rec.BundleOf(d) != rec.Bundle && !lists(o.matrix, id) // its own bundle's matrix does
	})
	why := g.unfit(o.matrix, own)
	if why != "" || !g.bundle.verified {
		return why
	}
	rec.Releases = slices.DeleteFunc(slices.Clone(rec.Releases),
		func(id string) bool { return !lists(g.bundle.matrix, id) })
	return g.unfit(g.bundle.matrix, rec)
}

func lists(doc *matrix.Document, id string) bool {
	return slices.ContainsFunc(doc.Releases, func(r matrix.Release) bool { return r.ReleaseID.String() == id })
}

// unfit says why a revision's releases do not suit the cluster any more, "" where they do.
func (g *gatherer) unfit(doc *matrix.Document, rec revision.Record) string {
	pins, rules := matrix.Pins{}, map[matrix.Driver]matrix.Rule{}
	for _, d := range inOrder {
		v, err := matrix.ParseVersion(rec.Version(string(d)))
		if err != nil {
			rules[d] = matrix.Disabled
			continue
		}
		pins[d], rules[d] = v, matrix.Latest
	}
	facts := matrix.Facts{Kubernetes: g.kubernetes.version, VCenters: g.versions, Distribution: g.distribution}
	if _, refusal := matrix.Resolve(doc, facts, pins, matrix.Policy{Rules: rules}, nil); refusal != nil {
		return refusal.Error()
	}
	return ""
}

// openSource opens a bundle that releases came from, whether or not that may be installed from: the
// copy in the cluster, or the mirror. It tries once: several drivers come from one bundle, and a mirror
// that is away takes its time to say so.
func (g *gatherer) openSource(ctx context.Context, reference string) (*opened, error) {
	if g.bundle != nil && g.bundle.reference() == reference {
		return g.bundle, nil
	}
	if t, known := g.tried[reference]; known {
		return t.opened, t.err
	}
	var t tried
	b, err := g.sourceOf(ctx, reference)
	if t.err = err; err == nil {
		t.opened, t.err = g.open(ctx, b)
	}
	if g.tried == nil {
		g.tried = map[string]tried{}
	}
	g.tried[reference] = t
	return t.opened, t.err
}

// tried is what came of opening a bundle.
type tried struct {
	opened *opened
	err    error
}

// trusts fails where a bundle is not trusted now, or it cannot be known.
func (g *gatherer) trusts(ctx context.Context, reference string) error {
	if g.bundle.verified && g.bundle.reference() == reference {
		return nil
	}
	b, err := g.sourceOf(ctx, reference)
	if err != nil {
		return err
	}
	return g.Trust.Trusted(ctx, b)
}

// sourceOf returns the DriverBundle of a bundle that releases came from, as it was when that was
// accepted. Where it is gone, the trust policies of the one that the site has now count.
func (g *gatherer) sourceOf(ctx context.Context, reference string) (*v1alpha1.DriverBundle, error) {
	site, err := g.findBundle(ctx)
	if fault.ReasonOf(err) == fault.Unreachable {
		return nil, err
	}
	rec, known := g.inventory.Memory().Revisions.OfBundle(reference)
	b := &v1alpha1.DriverBundle{}
	b.Namespace, b.Name, b.Spec.Reference = g.name.Namespace, g.sourceName(rec, site), reference
	var there v1alpha1.DriverBundle
	switch err := g.Client.Get(ctx, client.ObjectKeyFromObject(b), &there); {
	case err == nil:
		b, site = there.DeepCopy(), &there
	case !apierrors.IsNotFound(err):
		return nil, &fault.Error{Reason: fault.Unreachable, Op: "read", Subject: "DriverBundle " + b.Name, Err: err}
	case site != nil:
		b.Spec.Trust, b.Spec.MatrixTrust = site.Spec.Trust, site.Spec.MatrixTrust
	}
	b.Spec.ImageNames = g.imageNames(site, reference)
	b.Status.Repository, b.Status.Digest, _ = strings.Cut(reference, "@")
	if b.Status.AcceptedAt = nil; known {
		b.Status.AcceptedAt = timeOf(rec.Made)
	}
	return b, nil
}

// sourceName is the name of the DriverBundle that a revision's bundle came from, by which its copy is
// found: as the revision says, else as the site names it now.
func (g *gatherer) sourceName(rec revision.Record, site *v1alpha1.DriverBundle) string {
	switch {
	case rec.Source != "":
		return rec.Source
	case g.config.Spec.Bundle != nil:
		return g.config.Spec.Bundle.Name
	case site != nil:
		return site.Name
	}
	return ""
}

func timeOf(t time.Time) *metav1.Time {
	m := metav1.NewTime(t)
	return &m
}

// keepRevisions writes what revisions consist of, of those that are retained, before the
// history says that they are in force; what is not retained any more goes after.
func (a *applier) keepRevisions(ctx context.Context, h revision.History) error {
	cur, ok := h.InForce()
	was := a.inventory.Memory().Revisions
	if known, _ := was.InForce(); !ok || (known.Number == cur.Number && maps.Equal(known.Contents,
		cur.Contents) && maps.Equal(known.Bundles, cur.Bundles)) {
		return nil
	}
	return a.Cluster.KeepRevision(ctx, a.name, revision.ManifestOf(cur.Revision))
}

// dropRevisions removes what is kept of revisions that are not retained any more, where
// those have changed.
func (p *pass) dropRevisions(ctx context.Context, was, now inventory.Inventory) error {
	limit := historyLimit(&p.config.Spec)
	before, after := bundles(was.Memory().Revisions.Retained(limit)), bundles(now.Memory().Revisions.Retained(limit))
	if slices.Equal(before, after) {
		return nil
	}
	return p.Cluster.DropRevisions(ctx, p.name, after)
}

// bundles are those that drivers of revisions come from, each once; none of a record that is none.
func bundles(all []revision.Record) []string {
	var out []string
	for _, r := range all {
		if r.Bundle != "" {
			out = append(append(out, r.Bundle), slices.Collect(maps.Values(r.Bundles))...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
