// Package outdated finds newer releases than those in a bundle. It looks in a matrix, and for
// releases that upstream has published and the matrix does not list yet.
//
//	drivers, err := outdated.Find(ctx, outdated.Input{Bundle: b, Matrix: doc, Tags: tags}, o)
//
// A release counts if it is the newest of its minor, and newer than all releases of that minor in
// the bundle. A minor that the bundle lacks counts if it is newer than all releases of the bundle.
// Prereleases never count.
package outdated

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/pinned"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Input is a bundle and what to compare it with.
type Input struct {
	Bundle *pinned.Bundle
	Matrix *matrix.Document
	// Tags returns the tags of the repository where upstream publishes an image.
	Tags func(ctx context.Context, image image.Reference) ([]string, error)
}

// Driver is what a bundle has and lacks of one driver or service. Versions are sorted, oldest first.
type Driver struct {
	Driver matrix.Driver    `json:"driver"`
	Has    []matrix.Version `json:"has"`
	Listed []matrix.Version `json:"listed"` // in the matrix, not withdrawn: `pull` can take them
	// Refused are the listed ones that the operator refuses, see [matrix.Document.Unlisted].
	Refused []matrix.Version `json:"refused,omitempty"`
	// Published are upstream's releases, from the repository of the driver's image, that the matrix does not list. It
	// is empty if no image of the driver has its version as tag.
	Published []matrix.Version `json:"published"`
	Image     string           `json:"image,omitempty"`
	Warnings  []string         `json:"warnings,omitempty"` // which of Has are withdrawn or deprecated, and why
}

// Find returns what a bundle lacks. Upstream repositories that it cannot read are an error beside the rest.
func Find(ctx context.Context, in Input, o run.Options) ([]Driver, error) {
	b, err := in.Bundle.Read(ctx)
	if err != nil {
		return nil, err
	}
	lock := b.Contents.Lock
	var out []Driver
	for _, r := range lock.Releases { // sorted by driver, then version
		if r.Driver == bundle.Operator || r.Driver == bundle.JumpHost {
			continue // of this project, in no matrix
		}
		if n := len(out); n == 0 || out[n-1].Driver != r.Driver {
			out = append(out, Driver{Driver: r.Driver, Listed: []matrix.Version{}, Published: []matrix.Version{}})
		}
		d := &out[len(out)-1]
		d.Has = append(d.Has, r.Version)
	}
	o.Progress.Phase("published releases", len(out), 0)
	err = run.Each(ctx, o.Small(), len(out), func(n int) error {
		err := in.fill(ctx, &out[n], lock)
		o.Progress.Done(string(out[n].Driver), err)
		return err
	})
	return out, err
}

func (in Input) fill(ctx context.Context, d *Driver, lock *bundle.Lock) error {
	known := map[string]bool{}
	lists := func(id matrix.ReleaseID, state matrix.State, reason string) {
		if id.Driver == d.Driver {
			if why := id.Discouraged(state, reason); why != "" && slices.ContainsFunc(d.Has, id.Version.Equal) {
				d.Warnings = append(d.Warnings, why)
			}
			known[id.Version.String()] = true
			if state != matrix.Withdrawn {
				d.Listed = append(d.Listed, id.Version)
			}
		}
	}
	for _, r := range in.Matrix.Releases {
		lists(r.ReleaseID, r.State, r.Reason)
	}
	for _, s := range in.Matrix.Services {
		lists(s.ReleaseID, s.State, s.Reason)
	}
	d.Listed = newer(d.Listed, d.Has)
	unlisted := in.Matrix.Unlisted()
	for _, v := range d.Listed {
		if _, ok := unlisted[matrix.ReleaseID{Driver: d.Driver, Version: v}.String()]; ok {
			d.Refused = append(d.Refused, v)
		}
	}
	at, ok := mainImage(lock, d)
	if !ok {
		return nil
	}
	d.Image = at.Repository()
	tags, err := in.Tags(ctx, at)
	if err != nil {
		return fmt.Errorf("published releases of %s: %w", d.Driver, err)
	}
	for _, tag := range tags {
		v, err := matrix.ParseVersion(tag)
		if err == nil && !known[v.String()] {
			d.Published = append(d.Published, v)
		}
	}
	d.Published = newer(d.Published, slices.Concat(d.Has, d.Listed))
	return nil
}

// mainImage returns an image of a driver with the driver's version as tag.
func mainImage(lock *bundle.Lock, d *Driver) (image.Reference, bool) {
	newest := d.Has[len(d.Has)-1]
	for _, i := range lock.Images {
		of := slices.Contains(i.UsedBy, string(d.Driver)+"@"+newest.String())
		if of && strings.TrimPrefix(i.Reference.Tag(), "v") == newest.String() {
			return i.FetchedFrom(), true
		}
	}
	return image.Reference{}, false
}

// newer returns the versions that count as newer, see the package comment.
func newer(versions, has []matrix.Version) []matrix.Version {
	newest := matrix.Version{}
	ofMinor := map[matrix.Minor]matrix.Version{}
	for _, v := range has {
		if newest.LessThan(v) {
			newest = v
		}
		if ofMinor[v.Minor()].LessThan(v) {
			ofMinor[v.Minor()] = v
		}
	}
	best := map[matrix.Minor]matrix.Version{}
	for _, v := range versions {
		than, held := ofMinor[v.Minor()]
		if !held {
			than = newest
		}
		if !v.IsPrerelease() && than.LessThan(v) && best[v.Minor()].LessThan(v) {
			best[v.Minor()] = v
		}
	}
	out := make([]matrix.Version, 0, len(best))
	for _, v := range best {
		out = append(out, v)
	}
	slices.SortFunc(out, matrix.Version.Compare)
	return out
}
