package vdoconfig

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// A driver that is held (hold.go) keeps what its release is made of. Where the bundle that all
// else is installed from has the same release made of something else, the driver is rendered
// from that of a revision which has it as it was applied: so its repairs and its configuration
// go on. Where there is none, what differs stays as it is, and what is missing is not made of
// anything else. The same holds once it is held no more, until the upgrade begins that has it go
// over to its bundle, and where a revision is gone back to that was begun without it.

// origin is where a driver comes from that does not come from the bundle of all else.
type origin struct {
	id   matrix.ReleaseID
	was  string // what it is made of
	from *opened
	err  error // why it is not known
}

// gatherOrigins opens what drivers come from that stay as they are, where that is another bundle
// than is decided on.
func (g *gatherer) gatherOrigins(ctx context.Context) error {
	stay := g.staying()
	if len(stay) == 0 {
		return nil
	}
	d := g.resolve()
	made, err := content(d)
	if err != nil {
		return err
	}
	for driver, o := range stay {
		if _, is, _ := strings.Cut(made[driver], "/"); d.version(driver) != o.id.Version.String() || o.was == is {
			continue
		}
		if g.origins == nil {
			g.origins = map[matrix.Driver]origin{}
		}
		o.from, o.err = g.originOf(ctx, o.id, o.was)
		g.origins[driver] = o
	}
	return nil
}

// staying are the drivers that stay what they are: those that are held what runs, and those that
// are apart in the revision in force what that has.
func (s *site) staying() map[matrix.Driver]origin {
	r := &s.revisions
	rec, _ := r.history.InForce()
	if r.kept != nil {
		rec = *r.kept
	} else if r.verdict.Begins && r.candidate != nil {
		rec.Revision = *r.candidate
	}
	all := apart(rec.Revision)
	for driver := range s.holds() {
		v, there := s.installed[driver]
		id := matrix.ReleaseID{Driver: driver, Version: v}
		if was := s.contentOf(id.String()); there && was != "" && (r.kept == nil || r.kept.Version(string(driver)) == v.String()) {
			all[driver] = origin{id: id, was: was}
		}
	}
	return all
}

// apart are the drivers of a revision that do not come from its bundle.
func apart(rev revision.Revision) map[matrix.Driver]origin {
	all := map[matrix.Driver]origin{}
	for _, text := range rev.Releases {
		if id, err := matrix.ParseReleaseID(text); err == nil && rev.Apart(string(id.Driver)) {
			all[id.Driver] = origin{id: id, was: rev.Contents[string(id.Driver)]}
		}
	}
	return all
}

// originOf opens the bundle of a revision that has a release as it was applied: the newest one.
func (g *gatherer) originOf(ctx context.Context, id matrix.ReleaseID, was string) (*opened, error) {
	why := errors.New("no revision that is remembered has it")
	for _, rec := range slices.Backward(g.revisions.history.Records) {
		if rec.Contents[string(id.Driver)] != was {
			continue
		}
		o, err := g.openRevision(ctx, rec)
		if err != nil {
			why = err
			continue
		}
		if made, err := o.made(id); err == nil && strings.HasSuffix(made, "/"+was) {
			return o, nil
		}
	}
	return nil, why
}

// fromOrigins has drivers that stay as they are come from where they do.
func (s *site) fromOrigins(d decision) decision {
	for driver, o := range s.origins {
		if o.from == nil || d.version(driver) != o.id.Version.String() {
			continue
		}
		if d.apart == nil {
			d.apart = map[matrix.Driver]*opened{}
		}
		d.apart[driver] = o.from
	}
	return d
}

// bundleOf is the bundle that a driver comes from.
func (d decision) bundleOf(driver matrix.Driver) *opened {
	if o := d.apart[driver]; o != nil {
		return o
	}
	return d.from
}

// origin is what a bundle's releases are rendered from.
func (o *opened) origin() render.Origin {
	return render.Origin{
		Lock: o.contents.Lock, Manifests: o.contents.Manifests, Matrix: o.matrix,
		Repository: o.source.Status.Repository, ImageNames: o.source.Spec.ImageNames,
	}
}

// fixedTexts are why what drivers are made of stays.
func (s *site) fixedTexts() map[matrix.Driver]string {
	all := heldTexts(s.holds())
	for driver, o := range s.origins {
		if o.err != nil {
			all[driver] = cmp.Or(all[driver], s.revisions.why, "it was held when its revision was begun") + "; what it runs from cannot be read: " + fault.Text(o.err)
		}
	}
	return all
}

// unmade are the faults of drivers of which something that was applied is gone, and is not made
// again.
func (s *site) unmade(made plan.Plan, live plan.Live) map[matrix.Driver]error {
	var all map[matrix.Driver]error
	gone := map[matrix.Driver][]string{}
	for _, step := range made.Steps {
		if was, known := s.inventory.Get(step.Key); step.Held && live[step.Key] == nil && known && was.Release != "" {
			gone[step.Driver] = append(gone[step.Driver], step.Key.String())
		}
	}
	for driver, names := range gone {
		all = joined(all, driver, &fault.Error{
			Reason: fault.NotFound, Op: "repair", Subject: string(driver), Err: errors.New(few(names) + " was deleted, and is not made of another bundle than what runs: " + s.fixedTexts()[driver]),
			Hint: "see to what holds the driver back, or have the mirror serve the bundle that it was installed from: it is made again then",
		})
	}
	return all
}
