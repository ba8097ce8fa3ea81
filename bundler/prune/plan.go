package prune

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/list"
)

// Repository is a repository to delete bundles from.
type Repository interface {
	list.Repository
	// Delete deletes a manifest and its tags.
	Delete(ctx context.Context, d ocispec.Descriptor, tags []string) error
	// Lacks returns the missing ones of ds.
	Lacks(ctx context.Context, ds []ocispec.Descriptor) ([]ocispec.Descriptor, error)
}

// Plan is what prune deletes and what stays.
type Plan struct {
	Keep      []list.Bundle `json:"keep"`
	Delete    []list.Bundle `json:"delete"`
	Others    []string      `json:"others"`           // tags of other content, which stays with all that it needs
	Manifests int           `json:"manifests"`        // to delete, with those of images
	Attached  int           `json:"attached"`         // their signatures and other attachments
	Bytes     int64         `json:"bytes"`            // no longer needed: the registry's garbage collection frees them
	Broken    []string      `json:"broken,omitempty"` // untagged incomplete roots, by digest, which stay
	Done      bool          `json:"done"`             // all deletions are confirmed; else only planned, or partly done
	// Deleted is the number of deleted manifests and attachments. Remaining are those that the registry still has.
	Deleted   int      `json:"deleted"`
	Remaining []string `json:"remaining,omitempty"`

	reference image.Reference
	open      func(image.Reference) Repository

	places  []location // the repository first
	targets []target
	gone    map[string]int64 // sizes of what the deleted bundles have in all locations
	needed  map[string]int64 // sizes of what stays
}

// location is a repository, with the content of its tags except those of attachments.
type location struct {
	Repository
	tags map[string]ocispec.Descriptor
}

// target is one manifest to delete.
type target struct {
	in   Repository
	d    ocispec.Descriptor
	tags []string
}

// NewPlan decides what to delete: each bundle that keep does not name and that keep.Newest others are shown to be
// newer than. If the registry does not show which is older, all stay. All that kept bundles, other tags and their
// attachments need stays too. If anything is unreadable, NewPlan deletes nothing.
func NewPlan(
	ctx context.Context, reference image.Reference, open func(image.Reference) Repository, keep Keep, o run.Options,
) (*Plan, error) {
	repository := open(reference)
	l, err := list.Read(ctx, repository, o)
	if err != nil {
		return nil, fault.Errorf(fault.ReasonOf(err), "plan to prune", "", fault.HintOf(err),
			"not everything could be read, so nothing is deleted: %w", err)
	}
	p := &Plan{
		Others: l.Others, Broken: l.Broken,
		reference: reference, open: open, places: []location{{repository, l.Tags}},
		gone: map[string]int64{}, needed: map[string]int64{},
	}
	if p.Keep, p.Delete, err = keep.part(l.Bundles); err != nil {
		return nil, err
	}
	if len(p.Delete) == 0 {
		return p, nil
	}
	return p, p.choose(ctx, o)
}

// choose lists what only deleted bundles need. Their roots come first, so that no bundle is incomplete, then other
// manifests with parents before children, attachments, and images in other repositories. Notes come last: without its
// note, a bundle that could not be deleted is not known to be old.
func (p *Plan) choose(ctx context.Context, o run.Options) error {
	repository := p.places[0]
	if err := p.add(ctx, repository, graphsOf(p.Delete), graphsOf(p.Keep), p.Others, o); err != nil {
		return err
	}
	for _, x := range besides(p.Keep, p.Delete) {
		if err := x.plan(ctx, p, o); err != nil {
			return fmt.Errorf("images of %s: %w", x.reference.Repository(), err)
		}
	}
	notes, err := namedBy(ctx, repository, p.isNote, o)
	if err != nil {
		return err
	}
	for _, tag := range slices.Sorted(maps.Keys(notes)) {
		if d := notes[tag]; d.Digest != "" {
			p.targets = append(p.targets, target{repository, d, []string{tag}})
			p.Attached++
		}
	}
	for digest, size := range p.gone {
		if _, stays := p.needed[digest]; !stays {
			p.Bytes += size
		}
	}
	return nil
}

func graphsOf(bundles []list.Bundle) (out []*bundle.Graph) {
	for _, b := range bundles {
		out = append(out, b.Graph)
	}
	return out
}

// isNote reports whether a tag is a note of a push of anything but the kept bundles.
func (p *Plan) isNote(tag string) bool {
	return list.IsReferrerTag(tag) && strings.HasSuffix(tag, string(bundle.NoteSuffix)) &&
		!slices.ContainsFunc(p.Keep, func(b list.Bundle) bool { return tag == bundle.NoteTag(b.Root.Hex()) })
}

// add adds a location's targets: the graphs in goes and their attachments, except what stays or other tags need.
func (p *Plan) add(ctx context.Context, at location, goes, stays []*bundle.Graph, others []string, o run.Options) error {
	gone, needed := newReach(at), newReach(at)
	for _, g := range goes {
		gone.graph(g)
	}
	for _, g := range stays {
		needed.graph(g)
	}
	for _, tag := range others {
		if err := needed.read(ctx, tag, at.tags[tag]); err != nil {
			return err
		}
	}
	if err := errors.Join(gone.attached(ctx, o), needed.attached(ctx, o)); err != nil {
		return err
	}
	manifests := gone.manifestsBut(needed, at.tags)
	attached := slices.DeleteFunc(gone.referrers, func(t target) bool { return needed.manifests[t.d.Digest.String()] })
	p.Manifests += len(manifests)
	p.Attached += len(attached)
	p.targets = slices.Concat(p.targets, manifests, attached)
	maps.Copy(p.gone, gone.blobs)
	maps.Copy(p.needed, needed.blobs)
	return nil
}

// manifestsBut returns the manifests that needed lacks, with their tags: roots first, then parents before children.
func (r *reach) manifestsBut(needed *reach, tags map[string]ocispec.Descriptor) []target {
	named := map[digest.Digest][]string{}
	for tag, d := range tags {
		named[d.Digest] = append(named[d.Digest], tag)
	}
	var first, rest []target
	for _, d := range slices.Backward(r.order) { // order has children before parents
		switch {
		case needed.manifests[d.Digest.String()]:
		case r.roots[d.Digest]:
			first = append(first, target{r.repository, d, named[d.Digest]})
		default:
			rest = append(rest, target{r.repository, d, named[d.Digest]})
		}
	}
	return append(first, rest...)
}

// Keep selects the bundles that prune keeps.
type Keep struct {
	Newest  int      // number of bundles; at least 1
	Tags    []string // patterns of path.Match; a bundle with a matching tag stays
	Digests []string // of roots, complete or at least the first 12 hex digits
}

// part splits bundles, newest first, into kept ones, with the reason, and the others. A name without a match is a
// fault: it may be mistyped.
func (k Keep) part(bundles []list.Bundle) (stay, leave []list.Bundle, err error) {
	stay, leave, used := []list.Bundle{}, []list.Bundle{}, map[string]bool{} // never null in JSON
	for i, b := range bundles {
		newer := 0
		for _, other := range bundles {
			if list.ShownNewer(other, b) && (len(b.Tags) == 0 || len(other.Tags) > 0) { // a tag may have moved back
				newer++
			}
		}
		named, err := k.names(b, used)
		switch {
		case err != nil:
			return nil, nil, err
		case named != "":
			b.Why = named
		case newer < k.Newest && i < k.Newest:
			b.Why = fmt.Sprintf("one of the newest %d", k.Newest)
		case newer < k.Newest:
			b.Why = fmt.Sprintf("nothing shows that %d others are newer", k.Newest)
		default:
			leave = append(leave, b)
			continue
		}
		stay = append(stay, b)
	}
	return stay, leave, k.unused(used)
}

// unused returns a fault if a name matched no bundle.
func (k Keep) unused(used map[string]bool) error {
	for _, name := range slices.Concat(k.Tags, k.Digests) {
		if !used[name] {
			return fault.Errorf(fault.NotFound, "plan to prune", fmt.Sprintf("%q", name),
				"see `vdo-bundle list` for tags and digests, or leave it out", "it names no bundle that is to be kept")
		}
	}
	return nil
}

const leastDigits = 12 // of a digest, as list shows it

// names returns the flag that keeps a bundle, or "".
func (k Keep) names(b list.Bundle, used map[string]bool) (why string, err error) {
	for _, pattern := range k.Tags {
		for _, tag := range append([]string{""}, b.Tags...) { // the empty one makes sure that every pattern is checked
			ok, err := path.Match(pattern, tag)
			if err != nil {
				return "", fault.Errorf(fault.InvalidInput, "read flag --keep-tag", fmt.Sprintf("%q", pattern),
					"write * for any characters, ? for one, [a-z] for one of some", "%w", err)
			}
			if ok && tag != "" {
				used[pattern], why = true, "--keep-tag "+pattern
			}
		}
	}
	for _, digest := range k.Digests {
		hex := strings.TrimPrefix(digest, "sha256:")
		if len(hex) >= leastDigits && strings.HasPrefix(b.Root.Hex(), hex) {
			used[digest], why = true, "--keep-digest "+digest
		}
	}
	return why, nil
}

// reach is everything that some bundles and tags need in a repository.
type reach struct {
	repository Repository
	roots      map[digest.Digest]bool
	manifests  map[string]bool
	order      []ocispec.Descriptor // of manifests, children before parents
	referrers  []target             // their attachments, with tags
	blobs      map[string]int64     // sizes of blobs and manifests
}

func newReach(repository Repository) *reach {
	return &reach{
		repository: repository, roots: map[digest.Digest]bool{},
		manifests: map[string]bool{}, blobs: map[string]int64{},
	}
}

func (r *reach) graph(g *bundle.Graph) {
	r.roots[g.Root.Digest] = true
	r.tree(g.Manifests, g.Blobs)
}

// read adds all that a tag needs.
func (r *reach) read(ctx context.Context, tag string, d ocispec.Descriptor) error {
	s, err := r.repository.Open(tag)
	if err != nil {
		return err
	}
	tree, err := bundle.ReadTree(ctx, s, d)
	if err := errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("tag %s: %w", tag, err)
	}
	r.tree(tree.Nodes, tree.Blobs)
	return nil
}

func (r *reach) tree(nodes []bundle.Node, blobs []ocispec.Descriptor) {
	for _, n := range nodes {
		if digest := n.Descriptor.Digest.String(); !r.manifests[digest] {
			r.manifests[digest] = true
			r.order = append(r.order, n.Descriptor)
			r.blobs[digest] = n.Descriptor.Size
		}
	}
	for _, b := range blobs {
		r.blobs[b.Digest.String()] = b.Size
	}
}

const maxReferrerDepth = 3 // a signature of an attestation of an image

// attached adds the attachments of the manifests, and their attachments.
func (r *reach) attached(ctx context.Context, o run.Options) error {
	tags, err := r.repository.Tags(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, tag := range tags {
		known[tag] = true
	}
	subjects := r.order
	for range maxReferrerDepth {
		found := make([][]target, len(subjects))
		err := run.Each(ctx, o.Limit(), len(subjects), func(i int) error {
			var err error
			found[i], err = r.attachmentsOf(ctx, subjects[i], known)
			return err
		})
		if err != nil {
			return err
		}
		if subjects = r.take(slices.Concat(found...)); len(subjects) == 0 {
			return nil
		}
	}
	return nil
}

// take adds new attachments and returns them.
func (r *reach) take(found []target) (fresh []ocispec.Descriptor) {
	for _, v := range found {
		digest := v.d.Digest.String()
		if !r.manifests[digest] {
			r.manifests[digest] = true
			r.referrers = append(r.referrers, v)
			r.blobs[digest] = v.d.Size
			fresh = append(fresh, v.d)
		} else if i := slices.IndexFunc(r.referrers, func(a target) bool { return a.d.Digest == v.d.Digest }); i >= 0 {
			r.referrers[i].tags = append(r.referrers[i].tags, v.tags...)
		}
	}
	return fresh
}

// attachmentsOf returns the attachments of one manifest, and the list of its referrers if it is under a tag.
func (r *reach) attachmentsOf(ctx context.Context, d ocispec.Descriptor, known map[string]bool) ([]target, error) {
	subject, err := image.ParseDigest(d.Digest.String())
	if err != nil {
		return nil, err
	}
	s, err := r.repository.Open(subject.String())
	if err != nil {
		return nil, err
	}
	defer s.Close() //nolint:errcheck // only read
	attached, err := s.Attachments(ctx, subject)
	if err != nil {
		return nil, err
	}
	var out []target
	for _, a := range attached {
		v := target{in: r.repository, d: a}
		if tag := a.Annotations[ocispec.AnnotationRefName]; tag != "" {
			v.tags = []string{tag}
		}
		out = append(out, v)
	}
	list := image.ReferrersList.TagOf(subject)
	if !known[list] {
		return out, nil
	}
	root, err := namedAt(ctx, r.repository, list)
	if root.Digest != "" {
		out = append(out, target{r.repository, root, []string{list}})
	}
	return out, err
}

type images map[digest.Digest]*bundle.Graph

// beside holds the images of bundles for one repository below their own, where push --layout paths puts them.
type beside struct {
	reference  image.Reference // upstream reference of one of them
	kept, gone images
	tags       map[digest.Digest][]string // that push gives them
}

// besides groups the images of bundles by repository.
func besides(keep, leave []list.Bundle) []*beside {
	of := map[string]*beside{}
	add := func(b list.Bundle, to func(*beside) images) {
		for _, d := range b.Graph.Images() {
			ref, err := image.ParseReference(d.Annotations[bundle.AnnotationReference])
			if err != nil {
				continue // push cannot have stored it
			}
			x := of[ref.Repository()]
			if x == nil {
				x = &beside{reference: ref, kept: images{}, gone: images{}, tags: map[digest.Digest][]string{}}
				of[ref.Repository()] = x
			}
			to(x)[d.Digest] = b.Graph.Below(bundle.Plain(d))
			x.tags[d.Digest] = append(x.tags[d.Digest], ref.Tag(), bundle.DigestTag(d.Digest.Encoded()))
		}
	}
	for _, b := range leave {
		add(b, func(x *beside) images { return x.gone })
	}
	for _, b := range keep {
		add(b, func(x *beside) images { return x.kept })
	}
	var out []*beside
	for _, name := range slices.Sorted(maps.Keys(of)) {
		x := of[name]
		maps.DeleteFunc(x.gone, func(d digest.Digest, _ *bundle.Graph) bool { return x.kept[d] != nil })
		if len(x.gone) > 0 {
			out = append(out, x)
		}
	}
	return out
}

// plan adds the images to delete from the repository: those of no kept bundle and without another's tag. An image
// with such a tag stays, with all its bytes.
func (x *beside) plan(ctx context.Context, p *Plan, o run.Options) error {
	reference, err := x.reference.Below(p.reference)
	if err != nil {
		return nil //nolint:nilerr // push cannot have stored it either
	}
	repository := p.open(reference)
	tags, err := namedBy(ctx, repository, isNoReferrer, o)
	switch fault.ReasonOf(err) {
	case fault.NotFound:
		return nil
	case fault.Forbidden, fault.Unauthorized:
		o.Progress.Warn("did not look for %s below the repository: %v", x.reference.Repository(), err)
		return nil
	}
	if err != nil {
		return err
	}
	var others, stay []string
	for d := range x.kept {
		stay = append(stay, x.tags[d]...) // a later push of an older bundle may have moved them
	}
	for tag, d := range tags {
		if x.kept[d.Digest] == nil && (slices.Contains(stay, tag) || !slices.Contains(x.tags[d.Digest], tag)) {
			delete(x.gone, d.Digest)
			others = append(others, tag)
		}
	}
	gone, err := x.gone.presentIn(ctx, repository)
	kept, keptErr := x.kept.presentIn(ctx, repository)
	if err := errors.Join(err, keptErr); err != nil {
		return err
	}
	at := location{repository, tags}
	p.places = append(p.places, at)
	return p.add(ctx, at, gone, kept, others, o)
}

// presentIn returns the images that a repository has.
func (of images) presentIn(ctx context.Context, repository Repository) (out []*bundle.Graph, err error) {
	var roots []ocispec.Descriptor
	for _, d := range slices.Sorted(maps.Keys(of)) {
		roots = append(roots, of[d].Root)
	}
	lacks, err := repository.Lacks(ctx, roots)
	for _, d := range roots {
		if !slices.ContainsFunc(lacks, func(l ocispec.Descriptor) bool { return l.Digest == d.Digest }) {
			out = append(out, of[d.Digest])
		}
	}
	return out, err
}
