package vdoconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// current is what a driver is now: its release, what that is made of, and where it comes from. A
// driver that something gates (gates.go) stays that, and is repaired from there, whatever the accepted
// bundle makes of the same release.
type current struct {
	id      matrix.ReleaseID
	content string // what it is made of, "" where nobody knows
	bundle  string // REPOSITORY@DIGEST that it comes from, "" of what somebody else installed
	// from is what it is rendered from: its own bundle, the accepted one where that has the same, nil
	// where there is none.
	from *opened
	// err is why its own bundle cannot be read. Then from is the accepted one, and what that makes
	// otherwise stays as it is.
	err     error
	revoked string // why its own bundle is not trusted any more while it is rolled out
	why     string // why it stays, in a decision
}

// currentOfRecord are the drivers of a revision.
func (g *gatherer) currentOfRecord(ctx context.Context, rec revision.Record) map[matrix.Driver]current {
	all := map[matrix.Driver]current{}
	for _, text := range rec.Releases {
		id, err := matrix.ParseReleaseID(text)
		if err != nil {
			continue
		}
		d := string(id.Driver)
		c := current{id: id, content: rec.Contents[d], bundle: rec.BundleOf(d)}
		c.from, c.err = g.openCurrent(ctx, c)
		all[id.Driver] = c
	}
	return all
}

// openCurrent opens what a driver is rendered from while it stays what it is.
func (g *gatherer) openCurrent(ctx context.Context, c current) (*opened, error) {
	made, err := g.bundle.made(c.id)
	if err != nil {
		return nil, err
	}
	own := g.bundle.reference() == c.bundle
	if made != "" && (own || (!g.bundleHeld && c.content != "" && strings.HasSuffix(made, "/"+c.content))) {
		return g.bundle, nil
	}
	o, err := g.openSource(ctx, c.bundle)
	if err == nil {
		if holds, unknown := o.made(c.id); holds == "" {
			err = cmp.Or(unknown, error(&fault.Error{
				Reason: fault.Incomplete, Op: "open", Subject: c.bundle, Err: fmt.Errorf("it does not hold %s", c.id),
				Hint: "it is not installed from"}))
		}
	}
	switch {
	case err == nil:
		return o, nil
	case made != "":
		return g.bundle, err
	}
	return nil, err
}

// currentOf returns what a driver is, and whether it is installed. What somebody else installed is
// rendered from the accepted bundle, which has to be trusted.
func (s *site) currentOf(d matrix.Driver) (current, bool) {
	v, ok := s.installed[d]
	cur, _ := s.revisions.history.InForce()
	if c, recorded := s.current[d]; recorded && (ok || cur.Outcome == revision.Progressing) {
		return c, true
	}
	c := current{id: matrix.ReleaseID{Driver: d, Version: v}}
	if available(s.bundle.contents.Lock)[c.id.String()] && !s.bundleHeld {
		c.from = s.bundle
	}
	return c, ok
}

// stay returns a decision in which the drivers that are gated stay what they are, in order of
// installation. Those that are not installed, or that nothing can be made of, are left out.
func (s *site) stay(d decision) decision {
	d.current = map[matrix.Driver]current{}
	for _, driver := range inOrder {
		why, gated := d.held[driver]
		c, installed := s.currentOf(driver)
		switch {
		case !gated || !installed:
		case c.from == nil:
			d.held[driver] = fmt.Sprintf("%s is installed and no bundle that can be read holds it: %s", c.id,
				sentences(why, fault.Text(c.err)))
		default:
			delete(d.held, driver)
			c.why = why
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

// bundleOf is the bundle that a driver comes from.
func (d decision) bundleOf(driver matrix.Driver) *opened {
	if c, stays := d.current[driver]; stays {
		return c.from
	}
	return d.from
}

// sources are the bundles that a decision's releases come from, each once.
func (d decision) sources() []*opened {
	var all []*opened
	for _, id := range d.releases {
		if b := d.bundleOf(id.Driver); b != nil && !slices.Contains(all, b) {
			all = append(all, b)
		}
	}
	return all
}

// origin is what a bundle's releases are rendered from.
func (o *opened) origin() render.Origin {
	return render.Origin{
		Lock: o.contents.Lock, Manifests: o.contents.Manifests, Matrix: o.matrix,
		Repository: o.source.Status.Repository, ImageNames: o.source.Spec.ImageNames,
	}
}

// fixed are the drivers that are rendered from the accepted bundle in the place of their own, which
// cannot be read: what they are made of stays.
func (d decision) fixed() map[matrix.Driver]string {
	all := map[matrix.Driver]string{}
	for driver, c := range d.current {
		if c.err != nil {
			all[driver] = c.why + "; what it runs from cannot be read: " + fault.Text(c.err)
		}
	}
	return all
}

// untrusted are the drivers of a decision of which nothing may be applied that was not applied before,
// and why: what they come from was revoked, or is the accepted bundle and not their own, and that is not
// trusted, or, as since says, not any more since it was gathered.
func (s *site) untrusted(d decision, since string) map[matrix.Driver]string {
	all := map[matrix.Driver]string{}
	cur, _ := s.revisions.history.InForce()
	for _, id := range d.releases {
		driver := id.Driver
		c, stays := d.current[driver]
		own := cur.BundleOf(string(driver))
		if stays {
			own = c.bundle
		}
		foreign := d.bundleOf(driver) == s.bundle && own != s.bundle.reference()
		switch {
		case c.revoked != "":
			all[driver] = c.revoked
		case foreign && stays && s.bundleHeld:
			all[driver] = s.hold().Error()
		case foreign && since != "":
			all[driver] = since
		}
	}
	return all
}

// unmade are the faults of drivers of which something that was applied is gone, and is not made again.
func (s *site) unmade(made plan.Plan, live plan.Live, d decision) map[matrix.Driver]error {
	var all map[matrix.Driver]error
	gone := map[matrix.Driver][]string{}
	for _, step := range made.Steps {
		if was, known := s.inventory.Get(step.Key); step.Held && live[step.Key] == nil && known && was.Release != "" {
			gone[step.Driver] = append(gone[step.Driver], step.Key.String())
		}
	}
	for driver, names := range gone {
		all = joined(all, driver, &fault.Error{
			Reason: fault.NotFound, Op: "repair", Subject: string(driver),
			Err:  errors.New(few(names) + " was deleted, and is not made of another bundle than what runs: " + d.fixed()[driver]),
			Hint: "see to what holds the driver back, or have the mirror serve the bundle that it was installed from: it is made again then",
		})
	}
	return all
}
