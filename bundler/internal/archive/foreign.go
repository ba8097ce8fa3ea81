package archive

import (
	"context"
	"fmt"
	"maps"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// checkEntries holds an index.json, which any tool may have written, against the bundle
// that is there, and returns the attachments that it names. Entries may lack and have any
// order; the root may have any name. But all that is named is of the bundle or about a part
// of it, and what has a name of its own is an image under its upstream name.
func checkEntries(ctx context.Context, medium string, x *index, g *bundle.Graph) (atts []bundle.Attachment, err error) {
	c := &entryCheck{medium: medium, x: x, root: g.Root, images: map[string]ocispec.Descriptor{}, known: map[string]bool{}, of: map[string]ocispec.Descriptor{}}
	for _, n := range g.Names[1:] {
		c.images[n.Annotations[ocispec.AnnotationRefName]] = n
	}
	for _, n := range g.Manifests {
		c.of[n.Descriptor.Digest.String()] = n.Descriptor
		c.known[n.Descriptor.Digest.String()] = true
	}
	listed, err := c.attachments(ctx)
	errs := []error{err}
	for _, d := range listed {
		a, err := c.attachment(ctx, d)
		atts, errs = append(atts, a), append(errs, err)
	}
	for _, d := range x.entries {
		errs = append(errs, c.entry(d))
	}
	return atts, fault.Join(errs...)
}

type entryCheck struct {
	medium string
	x      *index
	root   ocispec.Descriptor
	images map[string]ocispec.Descriptor // by upstream name
	of     map[string]ocispec.Descriptor // the bundle's manifests by digest
	known  map[string]bool               // digests of them, and of what is about them
}

// an about is an attachment, and what it is about.
type about struct {
	ocispec.Descriptor
	subject string
}

// attachments are all that index.json lists by a tag, by a fallback tag, or by their
// subject. They are known from then on: a signature may have an attestation.
func (c *entryCheck) attachments(ctx context.Context) (out []about, err error) {
	var errs []error
	for _, d := range c.x.entries {
		tag := d.Annotations[ocispec.AnnotationRefName]
		if tag == bundle.NoteTag(c.root.Digest.Encoded()) { // copied along with other tags; it proves nothing
			c.known[d.Digest.String()] = true
			continue
		}
		if tag == "" && c.known[d.Digest.String()] {
			continue // a manifest of the bundle
		}
		of, isList, err := c.x.about(ctx, d)
		errs = append(errs, err)
		if of == "" {
			continue
		}
		listed, err := c.x.listed(ctx, d, isList)
		errs = append(errs, err)
		c.known[d.Digest.String()] = c.known[d.Digest.String()] || isList
		for _, l := range listed {
			out = append(out, about{l, of})
		}
	}
	for _, a := range out {
		c.known[a.Digest.String()] = true
	}
	return out, fault.Join(errs...)
}

// attachment reads all of an attachment.
func (c *entryCheck) attachment(ctx context.Context, a about) (read bundle.Attachment, err error) {
	subject, err := image.ParseDigest(a.subject)
	if err != nil || !c.known[a.subject] {
		return read, offEntry(c.medium, "index.json names %s, which is about %.100s, and that is not there", a.Digest, a.subject)
	}
	if read, err = bundle.ReadAttachment(ctx, c.x.fetch, subject, a.Descriptor); err != nil {
		return read, fmt.Errorf("%s: %w", c.medium, err)
	}
	errs := make([]error, 0, len(read.Blobs))
	for _, b := range read.Blobs {
		if err := discardAll(ctx, c.x.fetch, b); err != nil {
			errs = append(errs, ofAttachment(c.medium, a.Descriptor, err))
		}
	}
	return read, fault.Join(errs...)
}

// entry demands that an entry is of the bundle, and that its name does not deceive.
func (c *entryCheck) entry(d ocispec.Descriptor) error {
	name := d.Annotations[ocispec.AnnotationRefName]
	if want, ok := c.images[name]; ok && want.Digest != d.Digest {
		return offEntry(c.medium, "index.json names %s as %s, which is %s in this bundle", d.Digest, name, want.Digest)
	}
	part, ok := c.of[d.Digest.String()]
	switch {
	case !ok && c.known[d.Digest.String()]: // about it, and looked at before
		return nil
	case !ok:
		return offEntry(c.medium, "index.json names %s as %.200q, which is not of this bundle", d.Digest, name)
	case d.MediaType != part.MediaType || d.Size != part.Size:
		return offEntry(c.medium, "index.json describes %s as %.100s of %d bytes, and it is %s of %d", d.Digest, d.MediaType, d.Size, part.MediaType, part.Size)
	case name == "" || d.Digest == c.root.Digest || c.images[name].Digest == d.Digest:
		return nil
	}
	return offEntry(c.medium, "index.json names %s as %.200q, which is not its name in this bundle", d.Digest, name)
}

func offEntry(path, format string, args ...any) error {
	return &fault.Error{
		Reason: fault.Corrupt, Op: "verify", Subject: path, Err: fmt.Errorf(format, args...),
		Hint: "copy the bundle alone to a place of its own, from where it was made",
	}
}

// withPlainTags gives entries that were named by a whole reference, as `crane pull
// --annotate-ref` does, the tag alone where that is one of an attachment's.
func withPlainTags(entries []ocispec.Descriptor) []ocispec.Descriptor {
	for i, d := range entries {
		name := d.Annotations[ocispec.AnnotationRefName]
		at := strings.LastIndex(name, ":sha256-")
		if at < 0 || strings.Contains(name[at+1:], "/") {
			continue
		}
		entries[i].Annotations = maps.Clone(d.Annotations)
		entries[i].Annotations[ocispec.AnnotationRefName] = name[at+1:]
	}
	return entries
}
