package cli

import (
	"fmt"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/mover"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/pull"
)

// moved is what pull and push print.
type moved struct {
	Root      image.Digest `json:"root"`
	Reference string       `json:"reference"` // to name it with: FILE, oci:DIR or REPO@DIGEST
	Images    int          `json:"images"`
	Bytes     int64        `json:"bytes"`    // of the bundle
	Moved     int64        `json:"moved"`    // bytes that were not there
	NewItems  int          `json:"newItems"` // blobs and manifests that were not there
	// Upstream are the images whose own signatures were checked.
	Upstream []upstream.VerifiedImage `json:"upstream,omitempty"`
	Attached int                      `json:"attached,omitempty"` // signatures and the like of images
	// Of a dry run, in which nothing was moved: what would be.
	DryRun bool            `json:"dryRun,omitempty"`
	Plan   []mover.Planned `json:"plan,omitempty"`

	Left *bundle.LeftOut `json:"leftToBase,omitempty"` // of a delta
}

// showMoved prints what was moved to a place, or in a dry run would be.
func (c *common) showMoved(to place, p *pull.Pulled) error {
	root, err := image.ParseDigest(p.Root.Digest.String())
	if err != nil {
		return err
	}
	m := moved{
		Root: root, Reference: to.String(), Images: p.Images, Bytes: p.Bytes, Moved: p.Moved, NewItems: p.Missing,
		Left: p.Left, Upstream: p.Verified, Attached: p.Attached,
	}
	name := fmt.Sprint(root, " ", m.Reference)
	if to.medium == inRegistry {
		m.Reference = to.reference.Pin(root).String()
		name = m.Reference
	}
	if c.dryRun {
		m.DryRun, m.Plan = true, p.Plan
		return c.show(m, func() error { return c.printPlan(m) })
	}
	on := *c
	if to.medium == inStream { // the bundle itself is on standard output
		told := *c.app
		told.out, on.app = c.err, &told
	}
	return on.show(m, func() error {
		on.say("%s, %s; %s moved", command.Plural(m.Images, "image", "images"), size.Format(m.Bytes), size.Format(m.Moved))
		if m.Left != nil {
			on.say("a delta: %s", leftLine(m.Left))
		}
		return on.print(name)
	})
}

// printPlan prints what a dry run has found.
func (c *common) printPlan(m moved) error {
	t := command.NewTable()
	for _, i := range m.Plan {
		t.Row(size.Format(i.Size), short(i.Digest), i.Name)
	}
	if err := t.Write(c.out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.out, "%s, %s; %s of it in %s would be moved to %s\n", command.Plural(m.Images, "image", "images"), size.Format(m.Bytes), size.Format(m.Moved), command.Plural(m.NewItems, "item", "items"), m.Reference)
	return err
}
