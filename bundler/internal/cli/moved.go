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

// movedText says how much of a bundle had to be moved to where it is now.
func movedText(to place, n int64) string {
	verb := "fetched"
	if to.medium == inRegistry {
		verb = "sent"
	}
	if n == 0 {
		return "up to date, nothing " + verb
	}
	return size.Format(n) + " " + verb
}

func printMoved(a *app, f *outputFlags, to place, p *pull.Pulled, dryRun bool) error {
	root, err := image.ParseDigest(p.Root.Digest.String())
	if err != nil {
		return err
	}
	m := moved{Root: root, Reference: to.String(), Images: p.Images, Bytes: p.Bytes, Moved: p.Moved, NewItems: p.Missing, Left: p.Left, Upstream: p.Verified, Attached: p.Attached}
	if to.medium == inRegistry {
		m.Reference = to.reference.Pin(root).String()
	}
	out := a.out
	if dryRun {
		return printPlan(a, f, m, p.Plan)
	}
	if to.medium == inStream {
		out = a.err // the bundle itself is on the other
	}
	if f.json() {
		return command.WriteJSON(out, m)
	}
	a.say("%s, %s; %s", command.Plural(m.Images, "image", "images"), size.Format(m.Bytes), movedText(to, m.Moved))
	if m.Left != nil {
		a.say("a delta: %s", leftLine(m.Left))
	}
	if to.medium == inRegistry {
		_, err = fmt.Fprintln(out, m.Reference)
	} else {
		_, err = fmt.Fprintln(out, root, m.Reference)
	}
	return err
}

// printPlan prints what a dry run has found.
func printPlan(a *app, f *outputFlags, m moved, plan []mover.Planned) error {
	if m.DryRun, m.Plan = true, plan; f.json() {
		return command.WriteJSON(a.out, m)
	}
	t := command.NewTable()
	for _, i := range plan {
		t.Row(size.Format(i.Size), f.digest(i.Digest), i.Name)
	}
	if err := t.Write(a.out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.out, "%s, %s; %s of it in %s would be moved to %s\n", command.Plural(m.Images, "image", "images"), size.Format(m.Bytes), size.Format(m.Moved), command.Plural(m.NewItems, "item", "items"), m.Reference)
	return err
}
