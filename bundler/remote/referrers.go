package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

const (
	maxReferrers     = 1000
	maxReferrerPages = 50
	maxReferrerBytes = 2 * bundle.MaxManifestSize // of all pages
	opReferrers      = "list signatures of"
)

// Attachments lists the referrers of a subject and the manifests under cosign's tags, with the tag in
// org.opencontainers.image.ref.name. It first checks that the subject is readable: registries answer 403 or 404 alike
// for a missing and a hidden tag.
func (r *Repository) Attachments(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	return r.referrers(ctx, subject, image.CosignSuffixes()...)
}

// Signatures lists the attachments that may be signatures.
func (r *Repository) Signatures(ctx context.Context, subject image.Digest) ([]ocispec.Descriptor, error) {
	return r.referrers(ctx, subject, image.Signatures)
}

func (r *Repository) referrers(ctx context.Context, subject image.Digest, suffixes ...image.Suffix) ([]ocispec.Descriptor, error) {
	name := r.At(subject.String())
	_, found, err := r.Stat(ctx, Look{Op: opReferrers, ID: subject.String()})
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, notFound(opReferrers, name, "check the name and the digest")
	}
	var out []ocispec.Descriptor
	for _, suffix := range suffixes {
		tag := suffix.TagOf(subject)
		d, found, err := r.Stat(ctx, Look{Op: opReferrers, Subject: name, ID: tag})
		if mayBeAbsent(err) {
			continue // the subject itself is readable
		}
		if err != nil {
			return nil, err
		}
		if found {
			d.Annotations = map[string]string{ocispec.AnnotationRefName: tag}
			out = append(out, d)
		}
	}
	referrers, err := r.Referrers(ctx, opReferrers, subject)
	return append(out, referrers...), err
}

// mayBeAbsent reports whether registries return this fault also for a missing tag of a readable repository.
func mayBeAbsent(err error) bool {
	reason := fault.ReasonOf(err)
	return reason == fault.Forbidden || reason == fault.Unauthorized
}

// Referrers lists the referrers of a subject: by the API or, without it, by the tag sha256-<hex> (OCI distribution
// specification 1.1, "Listing Referrers").
func (r *Repository) Referrers(ctx context.Context, op string, subject image.Digest) ([]ocispec.Descriptor, error) {
	list, supported, err := r.referrersAPI(ctx, op, subject)
	if err != nil || supported {
		return list, err
	}
	look := r.listOf(op, subject)
	d, data, _, err := r.Get(ctx, look)
	if mayBeAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	index, err := r.fallback(look, subject, d, data)
	if err != nil {
		return nil, err
	}
	if list, err = checkReferrers(index.Manifests); err != nil {
		err = r.corrupt(look, err)
	}
	return list, err
}

// listOf returns the tag under which clients keep the list of a subject's referrers.
func (r *Repository) listOf(op string, subject image.Digest) Look {
	return Look{Op: op, Subject: r.At(subject.String()), ID: image.ReferrersList.TagOf(subject)}
}

// referrersAPI reads the API page by page. It always asks, since some registries announce an API that they lack. Any
// answer but an image index means that there is none.
func (r *Repository) referrersAPI(
	ctx context.Context, op string, subject image.Digest,
) (found []ocispec.Descriptor, supported bool, err error) {
	if _, lacks := r.host.noReferrers.Load(r.ref.Path()); lacks {
		return nil, false, nil
	}
	look, size := Look{Op: op, ID: subject.String()}, 0
	q := Request{
		Method: http.MethodGet, URL: r.Address("referrers", subject.String()),
		Header: map[string]string{"Accept": ocispec.MediaTypeImageIndex}, OK: []int{200, 400, 403, 404, 405, 406, 501},
	}
	for a, err := range r.pages(ctx, look, q, maxReferrerPages) {
		isIndex := a.Status == http.StatusOK && a.mediaType() == ocispec.MediaTypeImageIndex
		switch {
		case !supported && (err == nil && !isIndex || mayBeAbsent(err)): // the caller has read the subject
			if a.Status == http.StatusNotFound {
				r.host.noReferrers.Store(r.ref.Path(), true)
			}
			return nil, false, nil
		case err != nil:
			return nil, true, err
		case !isIndex:
			return nil, true, r.corrupt(look, errors.New("it goes on with what is no image index"))
		}
		var index ocispec.Index
		if err = decode(a.Data, &index); err == nil {
			index.Manifests, err = checkReferrers(index.Manifests)
		}
		found, size, supported = append(found, index.Manifests...), size+len(a.Data), true
		switch {
		case err != nil:
		case len(found) > maxReferrers:
			err = fmt.Errorf("there are more than %d", maxReferrers)
		case size > maxReferrerBytes:
			err = fmt.Errorf("the list of them is longer than %d bytes", maxReferrerBytes)
		}
		if err != nil {
			return nil, true, r.corrupt(look, err)
		}
	}
	return found, true, nil
}

// checkReferrers refuses lists with invalid descriptors. It keeps only the fields that identify a manifest:
// annotations are unbounded, and one could pass for a tag, see [Repository.Attachments].
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

// fallback parses the list that clients keep under the tag sha256-<hex>; no data is an empty list. It ignores an
// index that is the subject itself, as some registries resolve sha256-<hex> so. It refuses other content if a push
// would replace it, else returns an empty list.
func (r *Repository) fallback(
	l Look, subject image.Digest, d ocispec.Descriptor, data []byte,
) (ocispec.Index, error) {
	var index ocispec.Index
	switch {
	case data == nil || d.Digest.String() == subject.String():
	case d.MediaType == ocispec.MediaTypeImageIndex:
		if json.Unmarshal(data, &index) != nil {
			return index, r.corrupt(l, errors.New("it is not JSON of the right form"))
		}
	case l.Access.Actions == r.Pushes().Actions:
		return index, fault.Errorf(fault.Conflict, l.Op, r.At(l.ID), "see who has put it there, and remove this tag",
			"it is no list of referrers, and would be replaced by one")
	}
	return index, nil
}

// listedAttempts limits the checks for an accepted referrer: some registries list it a moment later.
const listedAttempts = 5

// EnsureListed makes sure that a manifest is listed as a referrer of its subject. If the registry has no API, the
// client keeps the list under the tag sha256-<hex>.
func (r *Repository) EnsureListed(ctx context.Context, op string, subject image.Digest, n bundle.Node) error {
	for asked := 1; ; asked++ {
		listed, api, err := r.referrersAPI(ctx, op, subject)
		if err != nil || api && contains(listed, n.Descriptor.Digest) {
			return err
		}
		if !api {
			break
		}
		id := r.At(n.Descriptor.Digest.String())
		if asked == listedAttempts {
			return fault.Errorf(fault.Refused, op, id, "look at the registry's logs, and run it again",
				"the registry has taken it and does not list it as a referrer of %s", subject)
		}
		if err := r.client.opts.Sleep(ctx, backoff(asked)); err != nil {
			return r.client.Explain(ctx, r.host, op, id, err)
		}
	}
	look := r.listOf(op, subject)
	look.Access = r.Pushes()
	return r.rewrite(ctx, look, func(d ocispec.Descriptor, data []byte) (none bundle.Node, err error) {
		index, err := r.fallback(look, subject, d, data)
		if err != nil || contains(index.Manifests, n.Descriptor.Digest) {
			return none, err
		}
		index.Manifests = append(index.Manifests, n.Referrer())
		return bundle.NewIndex(index), nil
	})
}

const rewriteAttempts = 8

// rewrite writes what change returns for a tag's content (nil data: no manifest) until change returns a node without
// data. Registries have neither locks nor If-Match for manifests. So it reads the tag right before and after each
// write, up to [rewriteAttempts] times; one race remains, with a request in flight throughout.
func (r *Repository) rewrite(ctx context.Context, l Look, change func(d ocispec.Descriptor, data []byte) (bundle.Node, error)) error {
	l.Access = r.Pushes()
	for n := range rewriteAttempts {
		exists, data, found, err := r.Get(ctx, l)
		if err != nil {
			return err
		}
		if n > 0 && !found {
			return r.notKept(l.ID)
		}
		node, err := change(exists, data)
		if err != nil || node.Data == nil {
			return err
		}
		var lost error
		err = r.client.Retry(ctx, r.host, l.Op, r.At(l.ID), func() error {
			var now ocispec.Descriptor
			if now, _, lost = r.Stat(ctx, l); lost != nil || now.Digest != exists.Digest {
				return nil //nolint:nilerr // lost is joined; or somebody else has written it
			}
			_, err := r.smallOnce(ctx, r.putting(l.ID, node), MaxErrorBody)
			return err
		})
		if err = errors.Join(lost, err); err != nil {
			return err
		}
	}
	return fault.Errorf(fault.Conflict, l.Op, r.At(l.ID), "run it again",
		"others write the tag again and again at the same time")
}

func contains(list []ocispec.Descriptor, digest godigest.Digest) bool {
	return slices.ContainsFunc(list, func(d ocispec.Descriptor) bool { return d.Digest == digest })
}

// pages sends q and yields the pages of its answer, or ends with an error. Pages differ only in the query, whatever
// address the registry names. All but the first have to be there.
func (r *Repository) pages(ctx context.Context, l Look, q Request, most int) iter.Seq2[Reply, error] {
	return func(yield func(Reply, error) bool) {
		q.Access = l.access(r)
		for range most {
			a, err := r.Small(ctx, l.Op, l.subject(r), q, bundle.MaxManifestSize)
			if !yield(a, err) || err != nil {
				return
			}
			q.OK = []int{http.StatusOK}
			if q.URL, err = r.nextPage(l, q.URL, a.Header.Values("Link")); err != nil {
				yield(Reply{}, err)
			}
			if q.URL == nil {
				return
			}
		}
		yield(Reply{}, r.corrupt(l, errors.New("the registry names pages without end")))
	}
}

// address matches an address and its parameters in a Link header, relNext the parameter of the next page (RFC 8288).
var (
	address = regexp.MustCompile(`<([^>]*)>([^<]*)`)
	relNext = regexp.MustCompile(`(?i);\s*rel\s*=\s*("([^"]*\s)?next(\s[^"]*)?"|next\s*([;,]|$))`)
)

// nextPage returns the next page that a page's Link headers name, nil if none.
func (r *Repository) nextPage(l Look, at *url.URL, links []string) (*url.URL, error) {
	header := strings.Trim(strings.Join(links, ", "), ", ")
	all := address.FindAllStringSubmatch(header, -1)
	i := slices.IndexFunc(all, func(link []string) bool { return relNext.MatchString(link[2]) })
	switch {
	case len(all) == 0 && header != "": // a shorter list would pass for the whole
		return nil, r.corrupt(l, errors.New("the registry's header Link names no address"))
	case i < 0:
		return nil, nil
	}
	next := *at // Artifactory and Nexus name a wrong path, and registries behind a proxy a wrong host
	_, next.RawQuery, _ = strings.Cut(all[i][1], "?")
	return &next, nil
}

const opAttach = "attach"

// Attach adds signatures and other referrers of an image to the repository, one after the other. The subject must
// exist, and so must every blob whose descriptor has no data.
func (r *Repository) Attach(ctx context.Context, atts ...bundle.Referrer) error {
	p := newPush(&bundle.Graph{Attachments: atts})
	for _, a := range atts {
		if err := r.attach(ctx, p, a); err != nil {
			return err
		}
	}
	return r.confirm(ctx, p)
}

func (r *Repository) attach(ctx context.Context, p *push, a bundle.Referrer) error {
	subject := r.At(a.Subject.String())
	_, found, err := r.Stat(ctx, Look{Op: opAttach, Subject: subject, ID: a.Subject.String(), Access: r.Pushes()})
	if err != nil {
		return err
	}
	if !found {
		return notFound(opAttach, subject, "push the bundle before its signature")
	}
	for _, b := range a.Blobs {
		if err := r.attachBlob(ctx, p, b); err != nil {
			return err
		}
	}
	return r.explainSubject(r.uploadReferrer(ctx, p, a), a, opAttach, "sign without one: --signature-format simple")
}

func (r *Repository) attachBlob(ctx context.Context, p *push, b ocispec.Descriptor) error {
	exists, err := r.has(ctx, b, r.Pushes())
	if err != nil || exists {
		return err
	}
	if int64(len(b.Data)) != b.Size {
		return fault.Errorf(fault.Incomplete, opAttach, r.At(b.Digest.String()), "sign it again",
			"a part of the signature is not at hand")
	}
	err = r.putBlob(ctx, b, bytesOf(b.Data))
	if err == nil {
		p.arrived(b)
	}
	return err
}

// uploadReferrer writes an attachment's manifest so that clients find it: under its tag, or in the list of referrers.
func (r *Repository) uploadReferrer(ctx context.Context, p *push, a bundle.Referrer) error {
	if a.Tag == "" {
		if err := r.putReferrer(ctx, p, a.Node); err != nil {
			return err
		}
		return r.EnsureListed(ctx, opAttach, a.Subject, a.Node)
	}
	// A site's own signature stays if upstream's arrives.
	join := func(_ ocispec.Descriptor, theirs []byte) (bundle.Node, error) { return r.joined(ctx, p, a, theirs) }
	return r.rewrite(ctx, Look{Op: opAttach, ID: a.Tag}, join)
}

// putReferrer writes a referrer's manifest. If the root existed before this push, an earlier push may have written it
// too. In that case putReferrer asks first, and does not write it twice, or after the tag.
func (r *Repository) putReferrer(ctx context.Context, p *push, n bundle.Node) error {
	digest := n.Descriptor.Digest
	if !p.lacks[p.graph.Root.Digest] {
		d, found, err := r.Stat(ctx, Look{Op: opPush, ID: digest.String(), Access: r.Pushes()})
		if err != nil || (found && d.Digest == digest) {
			return err
		}
	}
	return r.putManifest(ctx, p, digest.String(), n)
}

// joined returns a manifest with the layers of theirs and of a, after writing its config. If ours has all of theirs,
// it returns ours; if theirs has all of ours, a node without data. Each layer is a signed statement; the manifest
// itself is not signed.
func (r *Repository) joined(
	ctx context.Context, p *push, a bundle.Referrer, theirs []byte,
) (none bundle.Node, err error) {
	if theirs == nil {
		return a.Node, nil
	}
	if bytes.Equal(theirs, a.Node.Data) {
		return none, nil
	}
	var ours, exists ocispec.Manifest
	err = errors.Join(decode(a.Node.Data, &ours), decode(theirs, &exists), bundle.CheckDescriptor(exists.Config))
	if err != nil || len(ours.Layers) == 0 || len(exists.Layers) == 0 {
		return none, fault.Errorf(fault.Conflict, opAttach, r.At(a.Tag), "delete the tag if it is not needed",
			"another manifest is under the tag, and they cannot be joined")
	}
	missing := lacking(exists.Layers, ours.Layers)
	if len(missing) == 0 {
		// A missing config is written again, since it is not signed.
		if kept, err := r.has(ctx, exists.Config, r.Pushes()); err != nil || kept {
			return none, err
		}
	}
	if len(lacking(ours.Layers, exists.Layers)) == 0 {
		return a.Node, nil
	}
	ours.Layers = slices.Concat(exists.Layers, missing)
	if len(ours.Layers) > trust.MaxSignatures {
		return none, fault.Errorf(fault.Refused, opAttach, r.At(a.Tag), "delete the tag, then push the bundle again",
			"verifiers read at most %d signatures, and %d are under the tag", trust.MaxSignatures, len(exists.Layers))
	}
	config, err := trust.Config(ours.Layers)
	if err != nil {
		return none, err
	}
	ours.Config = bundle.Plain(config)
	return bundle.NewManifest(ours), r.attachBlob(ctx, p, config)
}

// lacking returns the layers of b that a lacks. It compares annotations too: they hold the signature, certificate and
// time stamp of a payload.
func lacking(a, b []ocispec.Descriptor) []ocispec.Descriptor {
	same := func(x, y ocispec.Descriptor) bool {
		return x.Digest == y.Digest && maps.Equal(x.Annotations, y.Annotations)
	}
	var out []ocispec.Descriptor
	for _, l := range b {
		if !slices.ContainsFunc(a, func(x ocispec.Descriptor) bool { return same(x, l) }) {
			out = append(out, l)
		}
	}
	return out
}

func decode(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("it is not JSON of the right form: %w", err)
	}
	return nil
}
