package bundler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// Shelf is a repository with several bundles.
type Shelf interface {
	// Tags lists all tags, sorted.
	Tags(ctx context.Context) ([]string, error)
	// At opens what a tag or a digest names.
	At(identifier string) (Source, error)
	// Delete deletes a manifest and the tags that name it.
	Delete(ctx context.Context, d ocispec.Descriptor, tags []string) error
	// Pushed tells when a push last put a tag on a bundle; zero where nothing says so.
	Pushed(ctx context.Context, root image.Digest) (time.Time, error)
	Keeper
}

// Listed is one bundle of a repository, as it says of itself.
type Listed struct {
	Root       image.Digest `json:"root"`
	Tags       []string     `json:"tags"`
	Serial     int64        `json:"serial"`          // of the matrix
	Issued     time.Time    `json:"issued"`          // the matrix
	Expires    time.Time    `json:"expires"`         // the matrix
	Pushed     time.Time    `json:"pushed,omitzero"` // when a push of vdo-bundle last put a tag on it
	Why        string       `json:"why,omitempty"`   // in a plan to prune: why it stays
	Releases   []string     `json:"releases"`
	Images     int          `json:"images"`
	Bytes      int64        `json:"bytes"`
	Signatures []Signature  `json:"signatures"`

	graph *bundle.Graph
}

// Listing is what a repository holds.
type Listing struct {
	Bundles []Listed `json:"bundles"` // newest first
	Others  []string `json:"others"`  // tags of other things
	// Broken are roots without a tag that cannot be read whole, by digest: what is left
	// of a bundle that was pruned or not pushed to its end.
	Broken []string `json:"broken,omitempty"`

	tags map[string]ocispec.Descriptor // all tags but those of attachments
}

// List reads all bundles of a repository. What cannot be read is a fault, beside
// the listing of the rest.
//
// Registries do not list what has no tag. Bundles without one are found by what names
// them: signatures and the notes of pushes.
//
// Newest first means: by the serial of the matrix, then by the day it was issued,
// then by when a push put a tag on it, then by tag, numbers in it taken as numbers; then
// by digest, so that the order is always the same.
func List(ctx context.Context, shelf Shelf, o Options) (*Listing, error) {
	tags, err := shelf.Tags(ctx)
	if err != nil {
		return nil, err
	}
	subjects := taggedSubjects(tags)
	tags = slices.DeleteFunc(tags, isAttachmentTag)
	found := make([]tagged, len(tags))
	err = forEach(ctx, o.limit(), len(tags), func(i int) error {
		var err error
		found[i], err = readTag(ctx, shelf, tags[i])
		return err
	})
	l := &Listing{Bundles: []Listed{}, Others: []string{}, tags: map[string]ocispec.Descriptor{}}
	at := map[image.Digest]int{}
	for i, f := range found {
		switch {
		case f.root.Digest == "":
			continue
		case f.bundle == nil:
			l.Others = append(l.Others, tags[i])
		default:
			n, seen := at[f.bundle.Root]
			if !seen {
				n = len(l.Bundles)
				at[f.bundle.Root] = n
				l.Bundles = append(l.Bundles, *f.bundle)
			}
			l.Bundles[n].Tags = append(l.Bundles[n].Tags, tags[i])
		}
		l.tags[tags[i]] = f.root
	}
	err = errors.Join(err, l.untagged(ctx, shelf, subjects, o))
	if err == nil {
		err = forEach(ctx, o.limit(), len(l.Bundles), func(i int) (err error) {
			l.Bundles[i].Pushed, err = shelf.Pushed(ctx, l.Bundles[i].Root)
			return err
		})
	}
	slices.SortFunc(l.Bundles, newestFirst)
	return l, err
}

// taggedSubjects are the digests that tags of attachments, lists and notes are about.
func taggedSubjects(tags []string) (out []image.Digest) {
	for _, tag := range tags {
		if !isAttachmentTag(tag) {
			continue
		}
		hex, _, _ := strings.Cut(strings.TrimPrefix(tag, "sha256-"), ".")
		if d, err := image.ParseDigest("sha256:" + hex); err == nil && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// untagged adds the bundles among the subjects that no tag names.
func (l *Listing) untagged(ctx context.Context, shelf Shelf, subjects []image.Digest, o Options) error {
	known := map[string]bool{}
	for _, b := range l.Bundles {
		for _, n := range b.graph.Manifests {
			known[n.Descriptor.Digest.String()] = true
		}
	}
	subjects = slices.DeleteFunc(subjects, func(d image.Digest) bool { return known[d.String()] })
	found, broken := make([]*Listed, len(subjects)), make([]bool, len(subjects))
	err := forEach(ctx, o.limit(), len(subjects), func(i int) error {
		t, err := readAt(ctx, shelf, subjects[i].String())
		found[i] = t.bundle
		if fault.ReasonOf(err) == fault.NotFound { // gone, or in part
			broken[i], err = t.root.Digest != "", nil
		}
		return err
	})
	for i, b := range found {
		switch {
		case broken[i]:
			l.Broken = append(l.Broken, subjects[i].String())
		case b != nil:
			l.Bundles = append(l.Bundles, *b)
		}
	}
	return err
}

// isAttachmentTag knows the tags of cosign, of lists of referrers, and of the notes
// that a push leaves.
func isAttachmentTag(tag string) bool {
	rest, ok := strings.CutPrefix(tag, "sha256-")
	if !ok {
		return false
	}
	hex, end, _ := strings.Cut(rest, ".")
	_, err := image.ParseDigest("sha256:" + hex)
	return err == nil && (end == "" || end == "sig" || end == "att" || end == "sbom" || "."+end == bundle.NoteSuffix)
}

// tagged is what a tag names.
type tagged struct {
	root   ocispec.Descriptor
	bundle *Listed // nil: something else
}

func readTag(ctx context.Context, shelf Shelf, tag string) (tagged, error) {
	t, err := readAt(ctx, shelf, tag)
	if err != nil {
		return tagged{}, fmt.Errorf("tag %s: %w", tag, err)
	}
	return t, nil
}

// readAt reads what a tag or digest names. The root is returned with a fault of what is
// below it.
func readAt(ctx context.Context, shelf Shelf, identifier string) (t tagged, err error) {
	s, err := shelf.At(identifier)
	if err != nil {
		return t, err
	}
	defer s.Close() //nolint:errcheck // only read
	b, err := Open(ctx, s)
	if err != nil {
		return t, err
	}
	is, err := bundle.IsRoot(ctx, b, b.root)
	if t.root = b.root; err != nil || !is {
		return t, err
	}
	t.bundle, err = readListed(ctx, b)
	return t, err
}

func readListed(ctx context.Context, b *Bundle) (*Listed, error) {
	d, err := b.describe(ctx)
	if err != nil {
		return nil, err
	}
	l := &Listed{
		Root: d.root, Tags: []string{}, Serial: d.matrix.Serial, Issued: d.matrix.Issued, Expires: d.matrix.Expires,
		Releases: []string{}, Images: len(d.contents.Lock.Images), Bytes: d.graph.Size(), graph: d.graph,
	}
	for _, r := range d.contents.Lock.Releases {
		l.Releases = append(l.Releases, r.ID())
	}
	l.Signatures, err = inspectSignatures(ctx, b, d.root)
	return l, err
}

func newestFirst(a, b Listed) int {
	return cmp.Or(
		compareMatrix(b, a), b.Pushed.Compare(a.Pushed), compareNatural(highest(b.Tags), highest(a.Tags)),
		cmp.Compare(a.Root.String(), b.Root.String()),
	)
}

// compareMatrix compares by what the matrix says.
func compareMatrix(a, b Listed) int {
	return cmp.Or(cmp.Compare(a.Serial, b.Serial), a.Issued.Compare(b.Issued))
}

// shownNewer tells whether what the registry shows says that a is newer than b, and
// nothing says otherwise. A tag's name shows nothing: it may have been moved today, and
// to an older matrix.
func shownNewer(a, b Listed) bool {
	m := compareMatrix(a, b)
	switch {
	case b.Pushed.IsZero():
		return m > 0
	case a.Pushed.IsZero():
		return m > 0 && a.Issued.After(b.Pushed)
	}
	p := a.Pushed.Compare(b.Pushed)
	return m >= 0 && p >= 0 && (m > 0 || p > 0)
}

func highest(tags []string) string {
	if len(tags) == 0 {
		return ""
	}
	return slices.MaxFunc(tags, compareNatural)
}

// compareNatural compares texts with the numbers in them as numbers: v9 before v10.
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		x, restA := cutRun(a)
		y, restB := cutRun(b)
		if c := compareRuns(x, y); c != 0 {
			return c
		}
		a, b = restA, restB
	}
	return cmp.Compare(len(a), len(b))
}

// cutRun cuts a run of digits, or of anything else, off the front.
func cutRun(s string) (run, rest string) {
	digit := isDigit(s[0])
	i := 1
	for i < len(s) && isDigit(s[i]) == digit {
		i++
	}
	return s[:i], s[i:]
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func compareRuns(a, b string) int {
	if isDigit(a[0]) && isDigit(b[0]) {
		x, y := strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
		return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y), cmp.Compare(len(a), len(b)))
	}
	return cmp.Compare(a, b)
}

// PrunePlan says what is deleted from a repository, and what stays.
type PrunePlan struct {
	Keep      []Listed `json:"keep"`
	Delete    []Listed `json:"delete"`
	Others    []string `json:"others"`           // tags of other things, which stay with all that they need
	Manifests int      `json:"manifests"`        // that are deleted, with those of the bundles' images
	Attached  int      `json:"attached"`         // signatures and other things about them
	Bytes     int64    `json:"bytes"`            // that nothing needs any more: the registry's garbage collection frees them
	Broken    []string `json:"broken,omitempty"` // roots without a tag that cannot be read whole, by digest: they are left alone
	Done      bool     `json:"done"`             // all of it was deleted, and the registry says so; else only planned, or in part
	// Deleted is how many manifests, with attachments, the registry had and has no more,
	// and Remaining those that were deleted and are there.
	Deleted   int      `json:"deleted"`
	Remaining []string `json:"remaining,omitempty"`

	victims []victim
	tags    map[string]ocispec.Descriptor
}

// victim is one manifest to delete.
type victim struct {
	d    ocispec.Descriptor
	tags []string
}

// Keep says what a plan to prune does not touch.
type Keep struct {
	Newest  int      // so many bundles; at least 1
	Tags    []string // patterns of path.Match; a bundle stays where one of its tags matches
	Digests []string // of roots, whole or their first 12 hex digits or more
}

// PlanPrune decides what to delete: each bundle than which at least as many as
// keep.Newest are shown to be newer, but what keep names. So where the registry does not
// show which of several is older, all of them stay. Everything that a kept bundle,
// another tag, or what is attached to any of their manifests needs stays, too. What
// cannot be read completely is not pruned at all.
func PlanPrune(ctx context.Context, shelf Shelf, keep Keep, o Options) (*PrunePlan, error) {
	l, err := List(ctx, shelf, o)
	if err != nil {
		return nil, &fault.Error{
			Reason: fault.ReasonOf(err), Op: "plan to prune", Err: fmt.Errorf("not everything could be read, so nothing is deleted: %w", err),
			Hint: fault.HintOf(err),
		}
	}
	p := &PrunePlan{Others: l.Others, Broken: l.Broken, tags: l.tags}
	if p.Keep, p.Delete, err = keep.part(l.Bundles); err != nil {
		return nil, err
	}
	if len(p.Delete) == 0 {
		return p, nil
	}
	needed, err := p.needed(ctx, shelf, o)
	if err != nil {
		return nil, err
	}
	return p, p.choose(ctx, shelf, needed, o)
}

// part parts bundles, newest first, into those that stay, with the reason, and the
// others. A name that names nothing is a fault: it may be mistyped.
func (k Keep) part(bundles []Listed) (stay, leave []Listed, err error) {
	used := map[string]bool{}
	for i, b := range bundles {
		newer := 0
		for _, other := range bundles {
			if shownNewer(other, b) {
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
	for _, name := range slices.Concat(k.Tags, k.Digests) {
		if !used[name] {
			return nil, nil, &fault.Error{
				Reason: fault.NotFound, Op: "plan to prune", Subject: fmt.Sprintf("%q", name), Err: errors.New("it names no bundle that is to be kept"),
				Hint: "see `vdo-bundle list` for tags and digests, or leave it out",
			}
		}
	}
	return stay, leave, nil
}

const leastDigits = 12 // of a digest, as list shows it

// names tells by which of the names a bundle is to be kept, or "".
func (k Keep) names(b Listed, used map[string]bool) (why string, err error) {
	for _, pattern := range k.Tags {
		for _, tag := range append([]string{""}, b.Tags...) { // the empty one so that any pattern is checked
			ok, err := path.Match(pattern, tag)
			if err != nil {
				return "", &fault.Error{
					Reason: fault.InvalidInput, Op: "read flag --keep-tag", Subject: fmt.Sprintf("%q", pattern), Err: err,
					Hint: "write * for any characters, ? for one, [a-z] for one of some",
				}
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

// needed collects everything that stays: manifests, and their blobs' bytes.
func (p *PrunePlan) needed(ctx context.Context, shelf Shelf, o Options) (*reach, error) {
	r := newReach(shelf)
	for _, b := range p.Keep {
		r.graph(b.graph)
	}
	for _, tag := range p.Others {
		s, err := shelf.At(tag)
		if err != nil {
			return nil, err
		}
		tree, err := bundle.ReadTree(ctx, s, p.tags[tag])
		if err := errors.Join(err, s.Close()); err != nil {
			return nil, fmt.Errorf("tag %s: %w", tag, err)
		}
		r.tree(tree.Nodes, tree.Blobs)
	}
	return r, r.attached(ctx, o)
}

// choose lists what only the bundles to delete need: after the notes the roots, so
// that no bundle is there in part, parents before children, then what is about them.
func (p *PrunePlan) choose(ctx context.Context, shelf Shelf, needed *reach, o Options) error {
	doomed := newReach(shelf)
	for _, b := range p.Delete {
		doomed.graph(b.graph)
	}
	if err := doomed.attached(ctx, o); err != nil {
		return err
	}
	roots := map[string][]string{}
	for _, b := range p.Delete {
		roots[b.Root.String()] = b.Tags
	}
	var first, rest []victim
	for i := len(doomed.order) - 1; i >= 0; i-- { // children came before parents
		d := doomed.order[i]
		if needed.manifests[d.Digest.String()] {
			continue
		}
		if tags, ok := roots[d.Digest.String()]; ok {
			first = append(first, victim{d, tags})
			continue
		}
		rest = append(rest, victim{d: d})
	}
	p.Manifests = len(first) + len(rest)
	for _, a := range doomed.about {
		if !needed.manifests[a.d.Digest.String()] {
			rest = append(rest, a)
			p.Attached++
		}
	}
	notes, err := p.notes(ctx, shelf)
	if err != nil {
		return err
	}
	p.Attached += len(notes)
	p.victims = slices.Concat(notes, first, rest)
	for digest, size := range doomed.blobs {
		if _, stays := needed.blobs[digest]; !stays {
			p.Bytes += size
		}
	}
	return nil
}

// notes are what pushes noted of anything but the kept bundles. They go first: no
// later push may believe that what is deleted now is still there.
func (p *PrunePlan) notes(ctx context.Context, shelf Shelf) ([]victim, error) {
	tags, err := shelf.Tags(ctx)
	if err != nil {
		return nil, err
	}
	kept := map[string]bool{}
	for _, b := range p.Keep {
		kept[bundle.NoteTag(b.Root.Hex())] = true
	}
	var out []victim
	for _, tag := range tags {
		if !isAttachmentTag(tag) || !strings.HasSuffix(tag, bundle.NoteSuffix) || kept[tag] {
			continue
		}
		s, err := shelf.At(tag)
		if err != nil {
			return nil, err
		}
		d, err := s.Root(ctx)
		if err := errors.Join(err, s.Close()); err != nil {
			return nil, fmt.Errorf("tag %s: %w", tag, err)
		}
		out = append(out, victim{d, []string{tag}})
	}
	return out, nil
}

// reach is what some bundles and tags reach in a repository.
type reach struct {
	shelf     Shelf
	manifests map[string]bool
	order     []ocispec.Descriptor // of manifests, children before parents
	about     []victim             // attachments of them, with their tags
	blobs     map[string]int64     // sizes, of blobs and manifests
}

func newReach(shelf Shelf) *reach {
	return &reach{shelf: shelf, manifests: map[string]bool{}, blobs: map[string]int64{}}
}

func (r *reach) graph(g *bundle.Graph) { r.tree(g.Manifests, g.Blobs) }

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

const maxAboutDepth = 3 // a signature of an attestation of an image

// attached finds what is about the manifests, and about that.
func (r *reach) attached(ctx context.Context, o Options) error {
	tags, err := r.shelf.Tags(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, tag := range tags {
		known[tag] = true
	}
	subjects := r.order
	for range maxAboutDepth {
		found := make([][]victim, len(subjects))
		err := forEach(ctx, o.limit(), len(subjects), func(i int) error {
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

// take keeps attachments that are new, and returns them.
func (r *reach) take(found []victim) (fresh []ocispec.Descriptor) {
	for _, v := range found {
		digest := v.d.Digest.String()
		if !r.manifests[digest] {
			r.manifests[digest] = true
			r.about = append(r.about, v)
			r.blobs[digest] = v.d.Size
			fresh = append(fresh, v.d)
		} else if i := slices.IndexFunc(r.about, func(a victim) bool { return a.d.Digest == v.d.Digest }); i >= 0 {
			r.about[i].tags = append(r.about[i].tags, v.tags...)
		}
	}
	return fresh
}

// attachmentsOf lists what is about one manifest, with the list of its referrers
// where the repository keeps that under a tag.
func (r *reach) attachmentsOf(ctx context.Context, d ocispec.Descriptor, known map[string]bool) ([]victim, error) {
	subject, err := image.ParseDigest(d.Digest.String())
	if err != nil {
		return nil, err
	}
	s, err := r.shelf.At(subject.String())
	if err != nil {
		return nil, err
	}
	defer s.Close() //nolint:errcheck // only read
	attached, err := s.Attachments(ctx, subject)
	if err != nil {
		return nil, err
	}
	var out []victim
	for _, a := range attached {
		v := victim{d: a}
		if tag := a.Annotations[ocispec.AnnotationRefName]; tag != "" {
			v.tags = []string{tag}
		}
		out = append(out, v)
	}
	list := "sha256-" + subject.Hex()
	if !known[list] {
		return out, nil
	}
	fallback, err := r.shelf.At(list)
	if err != nil {
		return nil, err
	}
	defer fallback.Close() //nolint:errcheck // only read
	root, err := fallback.Root(ctx)
	return append(out, victim{root, []string{list}}), err
}

// Prune carries a plan out, if the repository is still as it was planned for; then it
// asks for all that was deleted once more, since registries answer with success and
// delete nothing, and makes sure that all that should stay is there. The plan says
// afterwards what is true.
func Prune(ctx context.Context, shelf Shelf, p *PrunePlan, o Options) error {
	if err := p.unchanged(ctx, shelf, o); err != nil {
		return err
	}
	o.progress().Phase("delete", len(p.victims), 0)
	for i, v := range p.victims {
		err := ctx.Err()
		if err == nil {
			err = shelf.Delete(ctx, v.d, v.tags)
		}
		o.progress().Done(v.d.Digest.String(), err)
		if err != nil {
			if ctx.Err() == nil { // else there is nobody to ask
				err = errors.Join(err, p.look(ctx, shelf, p.victims[:i], o))
			}
			return fmt.Errorf("%d of %d manifests were deleted, and what is left of the others is for the registry's garbage collection: %w", p.Deleted, len(p.victims), err)
		}
	}
	if err := p.look(ctx, shelf, p.victims, o); err != nil {
		return err
	}
	p.Done = len(p.Remaining) == 0
	return errors.Join(p.remaining(), p.stillThere(ctx, shelf))
}

// look asks for what was deleted, by digest and by tag.
func (p *PrunePlan) look(ctx context.Context, shelf Shelf, deleted []victim, o Options) error {
	if len(deleted) == 0 {
		return nil
	}
	there := make([]bool, len(deleted))
	err := forEach(ctx, o.limit(), len(deleted), func(i int) (err error) {
		for _, id := range append([]string{deleted[i].d.Digest.String()}, deleted[i].tags...) {
			if !there[i] && err == nil {
				there[i], err = names(ctx, shelf, id, deleted[i].d)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	for i, v := range deleted {
		if there[i] {
			p.Remaining = append(p.Remaining, v.d.Digest.String())
		}
	}
	p.Deleted = len(deleted) - len(p.Remaining)
	return nil
}

// names tells whether a tag or digest names a manifest.
func names(ctx context.Context, shelf Shelf, identifier string, d ocispec.Descriptor) (bool, error) {
	s, err := shelf.At(identifier)
	if err != nil {
		return false, err
	}
	defer s.Close() //nolint:errcheck // only read
	root, err := s.Root(ctx)
	if fault.ReasonOf(err) == fault.NotFound {
		return false, nil
	}
	return root.Digest == d.Digest, err
}

func (p *PrunePlan) remaining() error {
	if len(p.Remaining) == 0 {
		return nil
	}
	return &fault.Error{
		Reason: fault.Incomplete, Op: "prune", Err: fmt.Errorf("the registry answered that it deleted %d manifests and still has %d of them: %s is the first", len(p.victims), len(p.Remaining), p.Remaining[0]),
		Hint: "run it again later, should the registry take its time; else prune by the registry's own means",
	}
}

// unchanged refuses to delete when somebody pushed or tagged since the plan.
func (p *PrunePlan) unchanged(ctx context.Context, shelf Shelf, o Options) error {
	tags, err := shelf.Tags(ctx)
	if err != nil {
		return err
	}
	tags = slices.DeleteFunc(tags, isAttachmentTag)
	same := len(tags) == len(p.tags)
	now := make([]ocispec.Descriptor, len(tags))
	err = forEach(ctx, o.limit(), len(tags), func(i int) error {
		s, err := shelf.At(tags[i])
		if err != nil {
			return err
		}
		defer s.Close() //nolint:errcheck // only read
		now[i], err = s.Root(ctx)
		return err
	})
	if err != nil {
		return err
	}
	for i, tag := range tags {
		same = same && p.tags[tag].Digest == now[i].Digest
	}
	if same {
		return nil
	}
	return &fault.Error{Reason: fault.Conflict, Op: "prune", Err: errors.New("somebody changed tags since the plan was made, so nothing was deleted"), Hint: "run it again"}
}

// stillThere asks for every manifest of what was kept.
func (p *PrunePlan) stillThere(ctx context.Context, shelf Shelf) error {
	var want []ocispec.Descriptor
	for _, b := range p.Keep {
		for _, n := range b.graph.Manifests {
			want = append(want, n.Descriptor)
		}
	}
	lacks, err := shelf.Lacks(ctx, want)
	if err != nil || len(lacks) == 0 {
		return err
	}
	return &fault.Error{Reason: fault.Incomplete, Op: "prune", Hint: "push the kept bundles again, and look at the registry's logs",
		Err: fmt.Errorf("%d manifests of kept bundles are gone, which were not deleted by this: %s is the first", len(lacks), lacks[0].Digest)}
}
