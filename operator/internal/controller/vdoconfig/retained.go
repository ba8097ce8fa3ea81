package vdoconfig

import (
	"context"
	"errors"
	"fmt"
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

// suits tells whether a revision can go on as it is. It fails where that cannot be known.
func (g *gatherer) suits(ctx context.Context, rec revision.Record) (bool, error) {
	o, err := g.openRevision(ctx, rec)
	if err != nil {
		return false, err
	}
	return g.unfit(o.matrix, rec) == "", nil
}

// keep has a revision be in force: its bundle is opened as its digest says.
func (g *gatherer) keep(ctx context.Context, rec revision.Record) error {
	o, err := g.openRevision(ctx, rec)
	if err != nil {
		return err
	}
	if g.bundleHeld && o != g.bundle { // what it is held for is not this one's
		o.trusted = g.trusts(ctx, rec) == nil
	}
	if why := g.revisions.untrusted; why != "" {
		revoked := *o
		revoked.revoked, o = why, &revoked
	}
	g.revisions.kept, g.revisions.from = &rec, o
	return nil
}

// revoked says why the bundle of a revision that is rolled out is not trusted any more, "" where it is,
// or nobody can tell.
func (g *gatherer) revoked(ctx context.Context) string {
	cur, ok := g.revisions.history.InForce()
	if !ok || cur.Outcome != revision.Progressing || cur.Returned {
		return ""
	}
	if err := g.trusts(ctx, cur); fault.ReasonOf(err) == fault.Untrusted {
		return fault.Text(err)
	}
	return ""
}

// keepTarget has a revision be put back in force, if it is trusted still and suits the
// cluster of now.
func (g *gatherer) keepTarget(ctx context.Context, rec revision.Record) error {
	b, err := g.sourceOf(ctx, rec)
	if err != nil {
		return err
	}
	if err := g.Trust.Trusted(ctx, b); err != nil {
		return err
	}
	o, err := g.openRevision(ctx, rec)
	if err != nil {
		return err
	}
	if why := g.unsuited(o, rec); why != "" {
		return &fault.Error{Reason: fault.Incompatible, Op: "go back to", Subject: "revision " + rec.Name(), Err: errors.New(why)}
	}
	parts := apart(rec.Revision)
	for _, d := range slices.Sorted(maps.Keys(parts)) {
		if _, err := g.originOf(ctx, parts[d].id, parts[d].was); err != nil {
			return unopened(rec, fmt.Errorf("it has %s of another bundle: %w", parts[d].id, err))
		}
	}
	o.trusted = o != g.bundle
	g.revisions.kept, g.revisions.from = &rec, o
	return nil
}

// unsuited says why a revision may not be gone back to, "" where it may: by the matrix of its
// own bundle, or by what the accepted one says of the same releases since.
func (g *gatherer) unsuited(o *opened, rec revision.Record) string {
	why := g.unfit(o.matrix, rec)
	if why != "" || !g.bundle.verified {
		return why
	}
	rec.Releases = slices.DeleteFunc(slices.Clone(rec.Releases), func(id string) bool {
		return !slices.ContainsFunc(g.bundle.matrix.Releases, func(r matrix.Release) bool { return r.ReleaseID.String() == id })
	})
	return g.unfit(g.bundle.matrix, rec)
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

// openRevision opens the bundle of a revision, whether or not that may be installed from: the copy
// in the cluster, or the mirror.
func (g *gatherer) openRevision(ctx context.Context, rec revision.Record) (*opened, error) {
	if g.bundle.reference() == rec.Bundle {
		return g.bundle, nil
	}
	b, err := g.sourceOf(ctx, rec)
	if err != nil {
		return nil, err
	}
	o, err := g.open(ctx, b)
	if err != nil {
		return nil, err
	}
	if missing := missingIn(o, rec); missing != "" {
		return nil, unopened(rec, fmt.Errorf("its bundle does not hold %s", missing))
	}
	return o, nil
}

func unopened(rec revision.Record, why error) error {
	return &fault.Error{Reason: fault.Incomplete, Op: "open", Subject: "revision " + rec.Name(), Err: why, Hint: "it is not installed from"}
}

// trusts fails where a revision's bundle is not trusted now, or it cannot be known.
func (g *gatherer) trusts(ctx context.Context, rec revision.Record) error {
	if g.bundle.verified && g.bundle.reference() == rec.Bundle {
		return nil
	}
	b, err := g.sourceOf(ctx, rec)
	if err != nil {
		return err
	}
	return g.Trust.Trusted(ctx, b)
}

// sourceOf returns the DriverBundle of a revision, as it was when that was accepted. Where it
// is gone, the trust policies of the one that the site has now count.
func (g *gatherer) sourceOf(ctx context.Context, rec revision.Record) (*v1alpha1.DriverBundle, error) {
	b := &v1alpha1.DriverBundle{}
	b.Namespace, b.Name, b.Spec.Reference = g.name.Namespace, rec.Source, rec.Bundle
	b.Spec.ImageNames = g.imageNames(g.bundle.source, rec.Bundle)
	var there v1alpha1.DriverBundle
	switch err := g.Client.Get(ctx, client.ObjectKeyFromObject(b), &there); {
	case err == nil:
		b = there.DeepCopy()
		b.Spec.ImageNames = g.imageNames(&there, rec.Bundle)
	case !apierrors.IsNotFound(err):
		return nil, &fault.Error{Reason: fault.Unreachable, Op: "read", Subject: "DriverBundle " + rec.Source, Err: err}
	default:
		site, err := g.findBundle(ctx)
		if err != nil && fault.ReasonOf(err) != fault.NotFound {
			return nil, err
		}
		if site != nil {
			b.Spec.Trust, b.Spec.MatrixTrust = site.Spec.Trust, site.Spec.MatrixTrust
		}
	}
	b.Status.Repository, b.Status.Digest, _ = strings.Cut(rec.Bundle, "@")
	b.Status.AcceptedAt = timeOf(rec.Made)
	return b, nil
}

func timeOf(t time.Time) *metav1.Time {
	m := metav1.NewTime(t)
	return &m
}

// missingIn returns a release of a revision that a bundle does not hold, or "".
func missingIn(o *opened, rec revision.Record) string {
	holds := available(o.contents.Lock)
	for _, id := range rec.Releases {
		if !holds[id] {
			return id
		}
	}
	return ""
}

// keepRevisions writes what revisions consist of, of those that are retained, before the
// history says that they are in force; what is not retained any more goes after.
func (a *applier) keepRevisions(ctx context.Context, h revision.History) error {
	cur, ok := h.InForce()
	was := a.inventory.Memory().Revisions
	if known, _ := was.InForce(); !ok || (known.Number == cur.Number && maps.Equal(known.Contents, cur.Contents)) {
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

// bundles are those that revisions are of.
func bundles(all []revision.Record) []string {
	var out []string
	for _, r := range all {
		out = append(out, r.Bundle)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
