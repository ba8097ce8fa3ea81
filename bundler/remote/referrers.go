package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	godigest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

const (
	maxReferrers     = 1000
	maxReferrerPages = 50
	maxReferrerBytes = 2 * bundle.MaxManifestSize // of all pages together
	opAbout          = "list signatures of"
)

// Attachments lists the manifests that are about a subject: those under cosign's
// tags, with the tag in org.opencontainers.image.ref.name, and its referrers. That
// there is none is only reported of a subject that can be read: registries answer 403
// or 404 for an absent tag and for one that may not be seen alike.
func (r *Repository) Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	return r.about(ctx, subject, image.CosignSuffixes()...)
}

// Signatures lists those of them that may be signatures.
func (r *Repository) Signatures(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	return r.about(ctx, subject, image.Signatures)
}

func (r *Repository) about(ctx context.Context, subject image.Digest, suffixes ...image.Suffix) ([]ocispec.Descriptor, error) {
	name := r.At(subject.String())
	_, found, err := r.Stat(ctx, Look{Op: opAbout, ID: subject.String()})
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, notThere(opAbout, name, "check the name and the digest")
	}
	var out []ocispec.Descriptor
	for _, suffix := range suffixes {
		tag := suffix.TagOf(subject)
		d, found, err := r.Stat(ctx, Look{Op: opAbout, Subject: name, ID: tag})
		if mayBeAbsent(err) {
			continue // the subject itself can be read
		}
		if err != nil {
			return nil, err
		}
		if found {
			d.Annotations = map[string]string{ocispec.AnnotationRefName: tag}
			out = append(out, d)
		}
	}
	referrers, err := r.Referrers(ctx, opAbout, subject, r.Pulls())
	return append(out, referrers...), err
}

// mayBeAbsent tells whether a fault is one that registries have for an absent tag too,
// where what is there can be read.
func mayBeAbsent(err error) bool {
	reason := fault.ReasonOf(err)
	return reason == fault.Forbidden || reason == fault.Unauthorized
}

// Referrers lists what names the subject: by the API, or where there is none, by
// the tag sha256-<hex> (OCI distribution specification 1.1, "Listing Referrers").
func (r *Repository) Referrers(ctx context.Context, op string, subject image.Digest, right Access) ([]ocispec.Descriptor, error) {
	list, supported, err := r.referrersAPI(ctx, op, subject)
	if err != nil || supported {
		return list, err
	}
	index, err := r.fallbackIndex(ctx, op, subject, right)
	return index.listed, err
}

// referrersAPI asks the API, page by page. Whether it is there is asked, not
// concluded from headers as oras does: some registries announce what they do not have.
func (r *Repository) referrersAPI(ctx context.Context, op string, subject image.Digest) (list []ocispec.Descriptor, supported bool, err error) {
	if r.host.lacksReferrers(r.ref.Path()) {
		return nil, false, nil
	}
	x := r.exchange(Look{Op: op, ID: subject.String()}, bundle.MaxManifestSize, 200, 400, 403, 404, 405, 406, 501)
	size := 0
	err = x.oras().Referrers(ctx, ocispec.Descriptor{Digest: godigest.Digest(subject.String())}, "", func(page []ocispec.Descriptor) error {
		page, err := checkReferrers(page)
		list, size = append(list, page...), size+len(x.last.Data)
		switch {
		case err != nil:
		case len(list) > maxReferrers:
			err = fmt.Errorf("there are more than %d", maxReferrers)
		case size > maxReferrerBytes:
			err = fmt.Errorf("the list of them is longer than %d bytes", maxReferrerBytes)
		default:
			return nil
		}
		return x.corrupt(err)
	})
	if errors.Is(err, errdef.ErrUnsupported) {
		if x.last.Status == http.StatusNotFound {
			r.host.noteNoReferrers(r.ref.Path())
		}
		return nil, false, nil
	}
	_, err = x.outcome(err)
	if mayBeAbsent(err) {
		return nil, false, nil // who asks has read the subject
	}
	return list, true, err
}

// checkReferrers refuses lists with descriptors that cannot be. Of a descriptor it keeps
// what tells which manifest it is: its annotations have no end, and one of them could pass
// for a tag, see [Repository.Attachments].
func checkReferrers(list []ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	out := make([]ocispec.Descriptor, 0, len(list))
	for _, d := range list {
		if err := bundle.CheckDescriptor(d); err != nil {
			return nil, err
		}
		if bundle.IsManifest(d.MediaType) {
			out = append(out, ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, ArtifactType: d.ArtifactType})
		}
	}
	return out, nil
}

// fallback is the list of referrers that clients keep under the tag sha256-<hex>.
type fallback struct {
	digest godigest.Digest // of what is under the tag; "": nothing
	index  ocispec.Index
	listed []ocispec.Descriptor // of the index, what may be
	other  bool                 // what is under the tag is no such list
}

// fallbackIndex reads the list; none is an empty one. An index that is the subject
// itself is none: some registries resolve sha256-<hex> so.
func (r *Repository) fallbackIndex(ctx context.Context, op string, subject image.Digest, right Access) (fallback, error) {
	f := fallback{index: ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}}
	look := Look{Op: op, Subject: r.At(subject.String()), ID: image.ReferrersList.TagOf(subject), Access: right}
	d, data, found, err := r.Get(ctx, look)
	if found {
		f.digest = d.Digest
	}
	if mayBeAbsent(err) && right.Actions == "pull" {
		return f, nil
	}
	if err != nil || !found || d.Digest.String() == subject.String() {
		return f, err
	}
	if f.other = d.MediaType != ocispec.MediaTypeImageIndex; f.other {
		return f, nil
	}
	x := r.exchange(look, 0)
	if err := json.Unmarshal(data, &f.index); err != nil {
		return f, x.corrupt(errors.New("it is not JSON of the right form"))
	}
	if f.listed, err = checkReferrers(f.index.Manifests); err != nil {
		return f, x.corrupt(err)
	}
	return f, nil
}

const listAttempts = 8

// EnsureListed makes sure that a manifest is listed as a referrer of its subject. Where
// the registry has no API for it, the client keeps the list, under the tag sha256-<hex>,
// and kept is true.
//
// The specification knows no lock for such a list, nor a write on a condition: registries
// ignore If-Match of a manifest. So the list is looked at again right before it is
// replaced, and after each write until it has the manifest, [listAttempts] times at most.
// What is left is a writer whose request is on its way all that time: who has a list
// kept calls this once more when everything else is done.
func (r *Repository) EnsureListed(ctx context.Context, op string, subject image.Digest, n bundle.Node) (kept bool, err error) {
	tag := image.ReferrersList.TagOf(subject)
	for range listAttempts {
		listed, api, err := r.referrersAPI(ctx, op, subject)
		if err != nil || api && contains(listed, n.Descriptor.Digest) {
			return false, err
		}
		there, err := r.fallbackIndex(ctx, op, subject, r.Pushes())
		if err != nil || contains(there.index.Manifests, n.Descriptor.Digest) {
			return err == nil, err
		}
		if there.other {
			return false, &fault.Error{
				Reason: fault.Conflict, Op: op, Subject: r.At(tag), Err: errors.New("it is no list of referrers, and would be replaced by one"),
				Hint: "see who has put it there, and remove this tag",
			}
		}
		list, err := there.with(n)
		if err != nil {
			return false, err
		}
		now, _, err := r.Stat(ctx, Look{Op: op, ID: tag, Access: r.Pushes()})
		if err != nil {
			return false, err
		}
		if now.Digest != there.digest {
			continue // somebody else has written it
		}
		if _, err := r.PutManifest(ctx, op, tag, list); err != nil {
			return false, err
		}
	}
	return false, &fault.Error{
		Reason: fault.Conflict, Op: op, Subject: r.At(subject.String()), Hint: "run it again",
		Err: fmt.Errorf("others keep writing the list of referrers under the tag %s", tag),
	}
}

// with returns the list with one more entry.
func (f fallback) with(n bundle.Node) (bundle.Node, error) {
	index := f.index
	index.Manifests = append(slices.Clone(index.Manifests), referrer(n))
	data, err := json.Marshal(index)
	d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: godigest.FromBytes(data), Size: int64(len(data))}
	return bundle.Node{Descriptor: d, Data: data}, err
}

func contains(list []ocispec.Descriptor, digest godigest.Digest) bool {
	return slices.ContainsFunc(list, func(d ocispec.Descriptor) bool { return d.Digest == digest })
}

// referrer describes a manifest as lists of referrers do.
func referrer(n bundle.Node) ocispec.Descriptor {
	var m ocispec.Manifest
	_ = json.Unmarshal(n.Data, &m) // a list without the type is still a list
	d := ocispec.Descriptor{
		MediaType: n.Descriptor.MediaType, Digest: n.Descriptor.Digest, Size: n.Descriptor.Size,
		ArtifactType: m.ArtifactType, Annotations: m.Annotations,
	}
	if d.ArtifactType == "" {
		d.ArtifactType = m.Config.MediaType
	}
	return d
}
