package vdoconfig

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
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
	// from is what it is rendered from: its own bundle, or the accepted one where that has the same. It is
	// nil where neither can be read, and err says why: then the driver is left as it is.
	from    *opened
	err     error
	revoked string // why its own bundle is not trusted any more while it is rolled out
}

func (p *pass) currentOfRecords(ctx context.Context, all ...revision.Record) map[matrix.Driver]current {
	out := map[matrix.Driver]current{}
	for _, rec := range all {
		for _, text := range rec.Releases {
			id, err := matrix.ParseReleaseID(text)
			if err != nil {
				continue
			}
			c := current{id: id, content: rec.Contents[string(id.Driver)], bundle: rec.Bundle}
			c.from, c.err = p.openCurrent(ctx, c)
			out[id.Driver] = c
		}
	}
	return out
}

// openCurrent opens what a driver is rendered from while it stays what it is.
func (p *pass) openCurrent(ctx context.Context, c current) (*opened, error) {
	made := p.bundle.made(c.id)
	own := p.bundle.reference() == c.bundle
	if made != "" && (own || (!p.bundleHeld && c.content != "" && strings.HasSuffix(made, "/"+c.content))) {
		return p.bundle, nil
	}
	o, err := p.openSource(ctx, c.bundle)
	if err == nil && o.made(c.id) == "" {
		err = fault.Errorf(fault.Incomplete, "open", c.bundle, "", "it does not hold %s", c.id)
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// currentOf returns what a driver is, and whether it is installed. What somebody else installed is
// rendered from the accepted bundle, which has to be trusted.
func (s *site) currentOf(d matrix.Driver) (current, bool) {
	v, ok := s.installed[d]
	if c, recorded := s.current[d]; recorded && (ok || s.revisionWith(d).Outcome == revision.Progressing) {
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

func (o *opened) origin() render.Origin {
	return render.Origin{
		Lock: o.contents.Lock, Manifests: o.contents.Manifests, Matrix: o.matrix,
		Repository: o.source.Status.Repository, ImageNames: o.source.Spec.ImageNames,
	}
}

// untrusted are the drivers of a decision of which nothing may be applied that was not applied before, since what
// they come from was revoked, and why.
func (d decision) untrusted() map[matrix.Driver]string {
	all := map[matrix.Driver]string{}
	for driver, c := range d.current {
		if c.revoked != "" {
			all[driver] = c.revoked
		}
	}
	return all
}

// unrepaired are the faults of installed drivers that no bundle which can be read holds.
func (s *site) unrepaired(d decision) map[matrix.Driver]error {
	var all map[matrix.Driver]error
	for driver, c := range s.current {
		if _, gated := d.held[driver]; c.err == nil || !gated {
			continue
		}
		all = joined(all, driver, fault.Errorf(fault.ReasonOf(c.err), "repair", c.id.String(),
			"have the mirror serve "+c.bundle+" again, or resolve what gates the upgrade of "+string(driver),
			"%w", c.err))
	}
	return all
}

// program identifies this program by the commit that it was built from: another one
// may make something else of the same release.
var program = func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}()

// content identifies, for each driver decided for, what its objects are made of beside the site's configuration:
// PROGRAM/BUNDLE, hashes of the program, with how pods name images, and of the mirror and the release with its images.
func content(d decision) map[matrix.Driver]string {
	all := map[matrix.Driver]string{}
	for _, id := range d.releases {
		if b := d.bundleOf(id.Driver); b != nil {
			all[id.Driver] = b.made(id)
		}
	}
	return all
}

// made is the content of a release of a bundle, "" where it does not hold it.
func (o *opened) made(id matrix.ReleaseID) string {
	maker := program
	if names := o.source.Spec.ImageNames; names != "" && names != v1alpha1.ImageNamesRepository {
		maker += " " + string(names)
	}
	by := sha256.Sum256([]byte(maker))
	lock := o.contents.Lock
	i := slices.IndexFunc(lock.Releases, func(r bundle.Release) bool { return r.ID() == id.String() })
	if i < 0 {
		return ""
	}
	digests, images := map[string]string{}, map[string]string{}
	for _, i := range lock.Images {
		digests[i.Reference.String()] = i.Digest.String()
	}
	for _, ref := range lock.Releases[i].Images {
		images[ref] = digests[ref]
	}
	data, _ := json.Marshal([]any{o.source.Status.Repository, lock.Releases[i], images}) //nolint:errchkjson // none of it can fail
	sum := sha256.Sum256(data)
	return hex.EncodeToString(by[:4]) + "/" + hex.EncodeToString(sum[:16])
}
