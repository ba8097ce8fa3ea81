package vdoconfig

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/store"
)

// collectBundle finds and opens the bundle. If it cannot, installed drivers are repaired from the bundle that they were
// last installed from.
func (p *pass) collectBundle(ctx context.Context) error {
	b, err := FindBundle(ctx, p.Client, p.config)
	if err == nil {
		p.follows = b.Name
		p.bundle, err = p.openAccepted(ctx, b)
	}
	if p.bundle != nil {
		return p.collectLogin(ctx)
	}
	last, unopened := p.openLast(ctx, b)
	if last == nil {
		p.facts.unresolved = fault.Join(err, unopened) // the pass goes on to assess the drivers
		return nil
	}
	p.bundle = last
	p.gateBundle(err)
	p.login = p.installedLogin()
	return nil
}

// openAccepted opens the accepted bundle; if none is accepted, the pass waits for one.
func (p *pass) openAccepted(ctx context.Context, b *v1alpha1.DriverBundle) (*opened, error) {
	if b.Status.Digest == "" {
		return nil, p.notAccepted(b)
	}
	policy, err := p.Cluster.PolicyVersion(ctx, b)
	if err != nil {
		return nil, err
	}
	verified := p.verifiedBundle(b, policy)
	if fresh := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionFresh); fresh != nil && fresh.Status == metav1.ConditionFalse {
		p.starts = fault.Join(p.starts, fault.Errorf(fault.Reason(fresh.Reason), "install from", "DriverBundle "+b.Name,
			"what is installed stays; push a newer bundle, or accept this one in spec.acceptOlder of the DriverBundle",
			"%s", fresh.Message))
		p.bundleGated = true
	}
	source := b.DeepCopy()
	source.Spec.ImageNames = p.imageNames(b, b.Status.Repository+"@"+b.Status.Digest)
	o, err := p.open(ctx, source)
	if err != nil {
		return nil, err
	}
	o.policy, o.verified = policy, verified
	return o, nil
}

func (p *pass) open(ctx context.Context, b *v1alpha1.DriverBundle) (*opened, error) {
	contents, err := p.Store.Contents(ctx, b)
	if err != nil {
		return nil, err
	}
	doc, err := store.ParseMatrix(b.Status.Digest, contents)
	if err != nil {
		return nil, err
	}
	return &opened{source: b, contents: contents, matrix: doc}, nil
}

// openLast opens the bundle that drivers were last installed from. It returns nil if that is the given one, which could
// not be opened, or if nothing is installed.
func (p *pass) openLast(ctx context.Context, b *v1alpha1.DriverBundle) (*opened, error) {
	all := slices.DeleteFunc(installedFrom(p.config, p.facts.inventory), func(reference string) bool {
		return reference == "" || (b != nil && b.Status.Repository+"@"+b.Status.Digest == reference)
	})
	if len(all) == 0 || p.facts.inventory.Len() == 0 {
		return nil, nil
	}
	var unopened error
	for _, reference := range all {
		o, err := p.openSource(ctx, reference)
		if err == nil {
			return o, nil
		}
		unopened = &fault.Error{
			Reason: fault.ReasonOf(err), Op: "repair from", Subject: reference, Err: err,
			Hint: "what runs stays, and is not repaired until the bundle that it came from, or another one that is " +
				"accepted, can be read",
		}
	}
	return nil, unopened
}

// imageNames returns how pods name the images of a bundle. The DriverBundle says so while it refers to the bundle's
// repository, else the last record for that bundle. Another mirror may have another layout.
func (p *pass) imageNames(b *v1alpha1.DriverBundle, bundle string) v1alpha1.ImageNames {
	repository, _, _ := strings.Cut(bundle, "@")
	if b != nil {
		if ref, err := image.ParseReference(b.Spec.Reference); err == nil && ref.Repository() == repository {
			return b.Spec.ImageNames
		}
	}
	r, _ := p.facts.inventory.Memory().Revisions.OfBundle(bundle)
	return r.ImageNames
}

// installedFrom returns the bundles of installed drivers, that of the last installed ones first. The status has it if
// the inventory was lost; "" before the first installation.
func installedFrom(config *v1alpha1.VDOConfig, inv inventory.Inventory) []string {
	var all []string
	for _, cur := range slices.Backward(inv.Memory().Revisions.InForce()) {
		all = append(all, cur.Bundle)
	}
	return append(all, config.Status.Bundle)
}

// verifiedBundle reports whether the accepted bundle's signature satisfies today's trust policy. If not, or before that
// check, it gates installations and upgrades.
func (p *pass) verifiedBundle(b *v1alpha1.DriverBundle, policy string) bool {
	verified := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionVerified)
	switch {
	case verified == nil || verified.ObservedGeneration != b.Generation,
		verified.Status == metav1.ConditionTrue && b.Status.VerifiedPolicy != policy:
		p.waiting, p.bundleGated = "DriverBundle "+b.Name+" is being verified", true
	case verified.Status != metav1.ConditionTrue:
		p.gateBundle(fault.Errorf(fault.Reason(verified.Reason), "install from", "DriverBundle "+b.Name,
			"push a bundle that the trust policy accepts, or correct the policy; healthy drivers stay, an untrusted rollout goes back",
			"%s", verified.Message))
	default:
		return true
	}
	return false
}

// FindBundle returns the DriverBundle that a VDOConfig names, or the only one that exists.
func FindBundle(ctx context.Context, c client.Reader, config *v1alpha1.VDOConfig) (*v1alpha1.DriverBundle, error) {
	namespace := config.Namespace
	var all v1alpha1.DriverBundleList
	if err := c.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		reason := fault.Unreachable
		if apierrors.IsForbidden(err) {
			reason = fault.Forbidden
		}
		return nil, &fault.Error{Reason: reason, Op: "list", Subject: "DriverBundles", Err: err}
	}
	names := make([]string, len(all.Items))
	for i := range all.Items {
		names[i] = all.Items[i].Name
	}
	if ref := config.Spec.Bundle; ref != nil {
		if i := slices.Index(names, ref.Name); i >= 0 {
			return &all.Items[i], nil
		}
		return nil, fault.Errorf(fault.NotFound, "find", "DriverBundle "+ref.Name,
			"correct spec.bundle.name, or create the DriverBundle", "namespace %s has no DriverBundle of that name",
			namespace)
	}
	switch len(all.Items) {
	case 1:
		return &all.Items[0], nil
	case 0:
		return nil, fault.Errorf(fault.NotFound, "find", "DriverBundle",
			"create a DriverBundle whose spec.reference is the bundle in the mirror",
			"namespace %s has no DriverBundle", namespace)
	}
	slices.Sort(names)
	return nil, fault.Errorf(fault.InvalidInput, "choose", "DriverBundle", "name one in spec.bundle.name",
		"namespace %s has %d: %s", namespace, len(names), few(names))
}

// notAccepted returns why a bundle cannot be installed from. Before the first look at a bundle, the pass waits.
func (p *pass) notAccepted(b *v1alpha1.DriverBundle) error {
	ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		p.waiting = "DriverBundle " + b.Name + " is being verified"
		return nil
	}
	return fault.Errorf(fault.Reason(ready.Reason), "install from", "DriverBundle "+b.Name,
		"correct what the DriverBundle's conditions name first", "%s", ready.Message)
}

// goBackTo makes a revision's drivers current if their bundle is still trusted and suits the cluster.
func (p *pass) goBackTo(ctx context.Context, rec revision.Record) error {
	if err := p.trusts(ctx, rec.Bundle); err != nil {
		return err
	}
	o, err := p.openSource(ctx, rec.Bundle)
	if err != nil {
		return err
	}
	if why := p.unsuited(o, rec); why != "" {
		return fault.Errorf(fault.Incompatible, "go back to", "revision "+rec.Name(), "", "%s", why)
	}
	back := p.currentOfRecords(ctx, rec)
	for _, d := range inOrder {
		if err := back[d].err; err != nil {
			return err
		}
	}
	maps.Copy(p.upgrades.current, back)
	return nil
}

// Unsuited returns why no rollback by hand to a revision is possible, "" if one is: its own bundle decides then. It
// writes nothing.
func (r *Reconciler) Unsuited(ctx context.Context, config *v1alpha1.VDOConfig, rev revision.Revision) (string, error) {
	p := r.newPass(config)
	if err := cmp.Or(p.collectInstalled(ctx), p.collect(ctx)); err != nil {
		return "", err
	}
	o, err := p.openSource(ctx, rev.Bundle)
	if err != nil {
		return "", err
	}
	p.bundle = nil
	return p.unsuited(o, revision.Record{Revision: rev}), nil
}

// unsuited returns why no rollback to a revision is possible, "" if one is. It asks the matrix of the revision's own
// bundle, and the accepted one about the same releases.
func (p *pass) unsuited(o *opened, rec revision.Record) string {
	facts := p.site
	facts.Installed = map[matrix.Driver]matrix.Version{}
	for _, d := range rec.Drivers() {
		facts.Installed[d] = rec.Version(d)
	}
	why := misfits(o.matrix, facts, matrix.WarnInstalledUnknown, matrix.WarnInstalledWithdrawn, matrix.WarnInstalledUnfit)
	if why != "" || p.bundle == nil || !p.bundle.verified {
		return why
	}
	return misfits(p.bundle.matrix, facts, matrix.WarnInstalledWithdrawn, matrix.WarnInstalledUnfit)
}

// misfits returns a document's warnings with these codes about installed drivers.
func misfits(doc *matrix.Document, facts matrix.Facts, of ...matrix.WarningCode) string {
	selection, _ := matrix.Resolve(doc, facts, nil, matrix.Policy{}, nil)
	var all []string
	for _, w := range selection.Warnings {
		if slices.Contains(of, w.Code) {
			all = append(all, w.Text)
		}
	}
	return strings.Join(all, "; ")
}

// openSource opens a bundle that releases came from, installable or not: the cluster's copy, or the mirror. It tries
// once per pass, since several drivers share a bundle and a mirror that is down answers late.
func (p *pass) openSource(ctx context.Context, reference string) (*opened, error) {
	if p.bundle != nil && p.bundle.reference() == reference {
		return p.bundle, nil
	}
	if p.tried == nil {
		p.tried = map[string]func() (*opened, error){}
	}
	if p.tried[reference] == nil {
		p.tried[reference] = sync.OnceValues(func() (*opened, error) {
			b, err := p.sourceOf(ctx, reference)
			if err != nil {
				return nil, err
			}
			return p.open(ctx, b)
		})
	}
	return p.tried[reference]()
}

// trusts fails if a bundle is not trusted now, or its trust is unknown.
func (p *pass) trusts(ctx context.Context, reference string) error {
	if p.bundle.verified && p.bundle.reference() == reference {
		return nil
	}
	b, err := p.sourceOf(ctx, reference)
	if err != nil {
		return err
	}
	return p.Trust.Trusted(ctx, b)
}

// sourceOf returns the DriverBundle of a bundle that releases came from, in its state at acceptance. If that is gone,
// today's trust policies count.
func (p *pass) sourceOf(ctx context.Context, reference string) (*v1alpha1.DriverBundle, error) {
	named, err := FindBundle(ctx, p.Client, p.config)
	if r := fault.ReasonOf(err); r == fault.Unreachable || r == fault.Forbidden {
		return nil, err
	}
	rec, known := p.facts.inventory.Memory().Revisions.OfBundle(reference)
	b := &v1alpha1.DriverBundle{}
	b.Namespace, b.Name, b.Spec.Reference = p.name.Namespace, rec.Source, reference
	if named != nil {
		b.Name = cmp.Or(b.Name, named.Name)
	}
	var exists v1alpha1.DriverBundle
	switch err := p.Client.Get(ctx, client.ObjectKeyFromObject(b), &exists); {
	case err == nil:
		b, named = exists.DeepCopy(), &exists
	case !apierrors.IsNotFound(err):
		return nil, &fault.Error{Reason: fault.Unreachable, Op: "read", Subject: "DriverBundle " + b.Name, Err: err}
	case named != nil:
		b.Spec.Trust, b.Spec.MatrixTrust = named.Spec.Trust, named.Spec.MatrixTrust
	}
	b.Spec.ImageNames = p.imageNames(named, reference)
	b.Status.Repository, b.Status.Digest, _ = strings.Cut(reference, "@")
	if b.Status.AcceptedAt = nil; known {
		b.Status.AcceptedAt = &metav1.Time{Time: rec.Made}
	}
	return b, nil
}

func timeUnlessZero(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

// current is a driver's present state: its release, the release's content and its bundle. A gated driver (gates.go)
// stays in it and is repaired from there, whatever the accepted bundle has under the same release.
type current struct {
	id      matrix.ReleaseID
	content string // of the release, "" if unknown
	bundle  string // REPOSITORY@DIGEST of its source, "" for a foreign driver
	// from is what it is rendered from: its own bundle, or the accepted one if that has the same content. If neither is
	// readable, it is nil, err says why, and the driver stays unchanged.
	from    *opened
	err     error
	revoked string // why its own bundle is no longer trusted during its rollout
}

func (p *pass) currentOfRecords(ctx context.Context, all ...revision.Record) map[matrix.Driver]current {
	out := map[matrix.Driver]current{}
	for _, rec := range all {
		for _, d := range rec.Drivers() {
			id := matrix.ReleaseID{Driver: d, Version: rec.Version(d)}
			c := current{id: id, content: rec.Contents[d], bundle: rec.Bundle}
			c.from, c.err = p.openCurrent(ctx, c)
			out[d] = c
		}
	}
	return out
}

// openCurrent opens the bundle that a driver is rendered from while it stays in its state.
func (p *pass) openCurrent(ctx context.Context, c current) (*opened, error) {
	content := p.bundle.contentOf(c.id, p.program)
	own := p.bundle.reference() == c.bundle
	if content != "" && (own || (!p.bundleGated && c.content != "" && strings.HasSuffix(content, "/"+c.content))) {
		return p.bundle, nil
	}
	o, err := p.openSource(ctx, c.bundle)
	if err == nil && o.contentOf(c.id, p.program) == "" {
		err = fault.Errorf(fault.Incomplete, "open", c.bundle, "", "it does not hold %s", c.id)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// currentOf returns a driver's state, and whether it is installed. A foreign driver is rendered from the accepted
// bundle, which must be trusted.
func (s *decided) currentOf(d matrix.Driver) (current, bool) {
	v, ok := s.site.Installed[d]
	if c, recorded := s.upgrades.current[d]; recorded && (ok || s.revisionWith(d).Outcome == revision.Progressing) {
		return c, true
	}
	c := current{id: matrix.ReleaseID{Driver: d, Version: v}}
	if available(s.bundle.contents.Lock)[c.id.String()] && !s.bundleGated {
		c.from = s.bundle
	}
	return c, ok
}

// stay returns a decision in which gated drivers keep their state, in order of installation. It omits those that are
// not installed or cannot be rendered.
func (s *decided) stay(d decision) decision {
	d.current = map[matrix.Driver]current{}
	for _, driver := range inOrder {
		why, gated := d.gated[driver]
		c, installed := s.currentOf(driver)
		switch {
		case !gated || !installed:
		case c.from == nil:
			d.gated[driver] = fmt.Sprintf("%s is installed and no bundle that can be read holds it: %s", c.id,
				sentences(why, fault.Text(c.err)))
		default:
			delete(d.gated, driver)
			d.current[driver] = c
			d.releases = append(d.releases, c.id)
			d.reasons[driver] = []string{"it is installed, and nothing else may be: " + why}
		}
	}
	slices.SortStableFunc(d.releases, func(a, b matrix.ReleaseID) int {
		return slices.Index(inOrder, a.Driver) - slices.Index(inOrder, b.Driver)
	})
	return d
}

func (d decision) bundleOf(driver matrix.Driver) *opened {
	if c, stays := d.current[driver]; stays {
		return c.from
	}
	return d.from
}

// sources returns the bundles of a decision's releases, each once.
func (d decision) sources() []*opened {
	var all []*opened
	for _, id := range d.releases {
		if b := d.bundleOf(id.Driver); b != nil && !slices.Contains(all, b) {
			all = append(all, b)
		}
	}
	return all
}

func (o *opened) origin() render.Origin {
	return render.Origin{
		Lock: o.contents.Lock, Manifests: o.contents.Manifests, Matrix: o.matrix,
		Repository: o.source.Status.Repository, ImageNames: o.source.Spec.ImageNames,
	}
}

// untrusted returns the drivers with a revoked bundle, and why. The operator applies nothing new of them.
func (d decision) untrusted() map[matrix.Driver]string {
	all := map[matrix.Driver]string{}
	for driver, c := range d.current {
		if c.revoked != "" {
			all[driver] = c.revoked
		}
	}
	return all
}

// unrepaired returns the faults of installed drivers that no readable bundle contains.
func (s *decided) unrepaired(d decision) error {
	var all []error
	for driver, c := range s.upgrades.current {
		if _, gated := d.gated[driver]; c.err != nil && gated {
			all = append(all, fault.Errorf(fault.ReasonOf(c.err), "repair", c.id.String(),
				"have the mirror serve "+c.bundle+" again, or resolve what gates the upgrade of "+string(driver),
				"%w", c.err))
		}
	}
	return fault.Join(all...)
}

// content returns, for each driver, an identity of all inputs of its objects except the site's configuration. It is
// PROGRAM/BUNDLE: hashes of the program and the image names, and of the mirror and the release with its images.
func (s *facts) content(d decision) map[matrix.Driver]string {
	all := map[matrix.Driver]string{}
	for _, id := range d.releases {
		if b := d.bundleOf(id.Driver); b != nil {
			all[id.Driver] = b.contentOf(id, s.program)
		}
	}
	return all
}

// contentOf returns the content of a release of a bundle for a program, "" if the bundle lacks it.
func (o *opened) contentOf(id matrix.ReleaseID, maker string) string {
	if names := o.source.Spec.ImageNames; names != "" && names != v1alpha1.ImageNamesRepository {
		maker += " " + string(names)
	}
	lock := o.contents.Lock
	i := slices.IndexFunc(lock.Releases, func(r bundle.Release) bool { return r.ID() == id.String() })
	if i < 0 {
		return ""
	}
	images := map[string]string{}
	for _, ref := range lock.Releases[i].Images {
		known, _ := lock.Image(ref)
		images[ref] = known.Digest.String()
	}
	data, _ := json.Marshal([]any{o.source.Status.Repository, lock.Releases[i], images}) //nolint:errchkjson // it cannot fail
	return image.DigestOf([]byte(maker)).Hex()[:8] + "/" + image.DigestOf(data).Hex()[:32]
}
