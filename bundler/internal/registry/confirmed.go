package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	godigest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
)

const (
	confirmedType = "application/vnd.vdo.confirmed.v1"
	// sampleSize is how much of a confirmed bundle is asked for: blobs and
	// manifests, and as many tags of attachments at most.
	sampleSize = 8
	sampleTags = 2
)

// Annotations of the note.
const (
	confirmedRepository = "com.vmware.vdo.confirmed.repository"
	confirmedRoot       = "com.vmware.vdo.confirmed.root"
	confirmedSet        = "com.vmware.vdo.confirmed.set"
	confirmedPushed     = "com.vmware.vdo.confirmed.pushed"
)

// noteOf makes the note of the package comment, and the tag it goes by: of a set, or of
// none (""), which no push believes.
func (r *Repository) noteOf(g *bundle.Graph, set string, pushed time.Time) (tag string, note bundle.Node, err error) {
	nothing := plainEmpty()
	annotations := map[string]string{confirmedRepository: r.ref.Repository(), confirmedRoot: g.Root.Digest.String(), confirmedSet: set}
	if !pushed.IsZero() {
		annotations[confirmedPushed] = pushed.UTC().Format(time.RFC3339)
	}
	data, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		ArtifactType: confirmedType, Config: nothing, Layers: []ocispec.Descriptor{nothing}, Annotations: annotations,
	})
	if err != nil {
		return "", note, fmt.Errorf("write the note of what arrived: %w", err)
	}
	d := blob(ocispec.MediaTypeImageManifest, data)
	d.Data = nil
	return bundle.NoteTag(g.Root.Digest.Encoded()), bundle.Node{Descriptor: d, Data: data}, nil
}

// noted is what a note says.
type noted struct {
	set    string    // "": there is no note, or one of something else
	pushed time.Time // when a tag was last put on the bundle; zero: it does not say
}

const maxNote = 64 << 10

// readNote reads the note of a bundle in this very repository.
func (r *Repository) readNote(ctx context.Context, op, subject string, root godigest.Digest, right remote.Access) (n noted, err error) {
	a, err := r.Small(ctx, op, subject, remote.Request{
		Method: http.MethodGet, URL: r.Address("manifests", bundle.NoteTag(root.Encoded())), Access: right,
		Header: map[string]string{"Accept": ocispec.MediaTypeImageManifest}, OK: []int{200, 404},
	}, maxNote)
	if fault.ReasonOf(err) == fault.Forbidden {
		return n, nil // as some registries say that a tag is not there
	}
	var m ocispec.Manifest
	if err != nil || a.Status != http.StatusOK || json.Unmarshal(a.Data, &m) != nil { // what is no note says nothing
		return n, err
	}
	if m.ArtifactType != confirmedType || m.Annotations[confirmedRepository] != r.ref.Repository() || m.Annotations[confirmedRoot] != root.String() {
		return n, nil
	}
	n.set = m.Annotations[confirmedSet]
	n.pushed, _ = time.Parse(time.RFC3339, m.Annotations[confirmedPushed]) // zero where it says none
	return n, nil
}

// Pushed tells when a push last put a tag on a bundle of this repository, by the
// registry's clock; zero where nothing says so.
func (r *Repository) Pushed(ctx context.Context, root image.Digest) (time.Time, error) {
	n, err := r.readNote(ctx, "read the note of", r.At(root.String()), godigest.Digest(root.String()), r.Pulls())
	return n.pushed, err
}

func plainEmpty() ocispec.Descriptor {
	d := ocispec.DescriptorEmptyJSON
	d.Data = nil
	return d
}

// setOf is a digest of everything that a graph has, and of the attachments' tags.
func setOf(g *bundle.Graph) string {
	var lines []string
	for _, d := range g.Order() {
		lines = append(lines, fmt.Sprintf("%s %d\n", d.Digest, d.Size))
	}
	for _, a := range g.Attachments {
		lines = append(lines, fmt.Sprintf("%s of %s at %q\n", a.Node.Descriptor.Digest, a.Subject, a.Tag))
	}
	slices.Sort(lines)
	return godigest.FromString(strings.Join(slices.Compact(lines), "")).String()
}

// look is what a push found that asked for a sample only.
type look struct {
	noted     bool // an earlier push has noted that all of the graph is here
	missed    bool // and some of it is not
	asked, of int  // parts of the bundle and of what is attached to its images
}

// confirmed tells whether an earlier push has noted that all of the graph is here,
// and neither the root, nor any part of its signatures, nor any of a random sample is
// missing.
func (r *Repository) confirmed(ctx context.Context, g *bundle.Graph) (l look, err error) {
	if r.client.opts.CheckAll {
		return l, nil
	}
	n, err := r.readNote(ctx, "push to", r.ref.String(), g.Root.Digest, r.Pushes()) // the first that is asked of the registry
	if err != nil || n.set != setOf(g) {
		return l, err
	}
	l.noted = true
	return l, r.sampled(ctx, g, &l)
}

// sampled looks for the root, for all that is attached to it, and for a few other
// things that chance picks.
func (r *Repository) sampled(ctx context.Context, g *bundle.Graph, l *look) error {
	lasting, mutable := split(g)
	tags := slices.DeleteFunc(mutable, func(a bundle.Attachment) bool { return a.Subject.String() == g.Root.Digest.String() })
	rest := slices.DeleteFunc(lasting, func(d ocispec.Descriptor) bool { return d.Digest == g.Root.Digest })
	sample := pick(rest, sampleSize)
	l.asked, l.of = len(sample), len(rest)
	group, groupCtx := r.group(ctx)
	var misses atomic.Int64
	note := func(found bool, err error) error {
		if err == nil && !found {
			misses.Add(1)
		}
		return err
	}
	for _, d := range sample {
		group.Go(func() error { return note(r.has(groupCtx, d, r.Pushes())) })
	}
	group.Go(func() error {
		root := remote.Look{Op: "look for", ID: bundle.DigestTag(g.Root.Digest.Encoded()), Access: r.Pushes()}
		d, found, err := r.Stat(groupCtx, root)
		return note(found && d.Digest == g.Root.Digest, err)
	})
	for _, a := range pick(tags, sampleTags) {
		group.Go(func() error {
			_, found, err := r.Stat(groupCtx, remote.Look{Op: "look for", ID: a.Tag, Access: r.Pushes()})
			return note(found, err)
		})
	}
	for _, a := range g.Attachments {
		if a.Subject.String() == g.Root.Digest.String() {
			group.Go(func() error { return note(r.hasAttachment(groupCtx, a)) })
		}
	}
	err := group.Wait()
	l.missed = err == nil && misses.Load() > 0
	return err
}

// split parts a graph into what stays as it was pushed and attachments under tags:
// what is under a tag may have been joined with what others attached, so that its
// manifest and configuration are others.
func split(g *bundle.Graph) (lasting []ocispec.Descriptor, tagged []bundle.Attachment) {
	joined := map[godigest.Digest]bool{}
	for _, a := range g.Attachments {
		var m ocispec.Manifest
		if a.Tag == "" || decode(a.Node.Data, &m) != nil {
			continue
		}
		tagged = append(tagged, a)
		joined[a.Node.Descriptor.Digest], joined[m.Config.Digest] = true, true
	}
	for _, b := range g.Blobs { // a layer or configuration of an image is none of these, whatever its bytes
		delete(joined, b.Digest)
	}
	return slices.DeleteFunc(g.Order(), func(d ocispec.Descriptor) bool { return joined[d.Digest] }), tagged
}

// hasAttachment tells whether all of an attachment is here, and is found from its
// subject.
func (r *Repository) hasAttachment(ctx context.Context, a bundle.Attachment) (bool, error) {
	var ours ocispec.Manifest
	if err := decode(a.Node.Data, &ours); err != nil {
		return false, err
	}
	if a.Tag == "" {
		found, err := r.has(ctx, a.Node.Descriptor, r.Pushes())
		if err != nil || !found {
			return false, err
		}
		list, err := r.Referrers(ctx, "list signatures of", a.Subject, r.Pulls())
		if err != nil || !contains(list, a.Node.Descriptor.Digest) {
			return false, err
		}
		return r.hasAll(ctx, a.Blobs)
	}
	d, found, err := r.Stat(ctx, remote.Look{Op: "look for", ID: a.Tag, Access: r.Pushes()})
	if err != nil || !found {
		return false, err
	}
	if d.Digest == a.Node.Descriptor.Digest {
		return r.hasAll(ctx, a.Blobs)
	}
	there, _, err := r.underTag(ctx, a.Tag)
	if err != nil || len(lacking(there.Layers, ours.Layers)) > 0 {
		return false, err
	}
	return r.hasAll(ctx, append(there.Layers, there.Config))
}

func (r *Repository) hasAll(ctx context.Context, ds []ocispec.Descriptor) (bool, error) {
	for _, d := range ds {
		if found, err := r.has(ctx, d, r.Pushes()); err != nil || !found {
			return false, err
		}
	}
	return true, nil
}

// pick takes n of a list by chance.
func pick[T any](list []T, n int) []T {
	list = slices.Clone(list)
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] }) //nolint:gosec // no secret
	return list[:min(n, len(list))]
}

// Confirmed tells, after Begin, whether an earlier push has noted that all of the
// bundle was here and could be read, and a sample has found nothing missing since.
func (r *Repository) Confirmed() bool {
	p := r.begun()
	return p != nil && p.known == confirmed
}

// withdraw overwrites a note that has proved wrong, so that the next push does not
// believe it, should this one not come to its end. A registry that keeps tags as they
// are, or a login that may not write, leaves the note: nothing is lost by that but the
// memory.
func (r *Repository) withdraw(ctx context.Context, g *bundle.Graph) error {
	n, err := r.readNote(ctx, opPush, r.At(g.Root.Digest.String()), g.Root.Digest, r.Pushes())
	if err == nil {
		err = r.putNote(ctx, g, "", n.pushed)
	}
	switch fault.ReasonOf(err) {
	case fault.Refused, fault.Forbidden, fault.Unauthorized, fault.Conflict, fault.Incomplete:
		return nil
	}
	return err
}

func (r *Repository) putNote(ctx context.Context, g *bundle.Graph, set string, pushed time.Time) error {
	tag, note, err := r.noteOf(g, set, pushed)
	if err != nil {
		return err
	}
	if err := r.attachBlob(ctx, ocispec.DescriptorEmptyJSON); err != nil {
		return err
	}
	return r.putManifest(ctx, tag, note)
}

// Sampled tells, where Confirmed does, how many parts were asked for by chance, and of
// how many.
func (r *Repository) Sampled() (asked, of int) {
	if p := r.begun(); p != nil {
		return p.look.asked, p.look.of
	}
	return 0, 0
}

// Remember notes, after Commit, that all of the bundle is here, for the next push, and
// when it was given its tag, for who prunes. Who calls it has read back what a cluster
// will read.
func (r *Repository) Remember(ctx context.Context) error {
	p := r.begun()
	if p == nil || len(r.Omitted()) > 0 {
		return nil
	}
	p.mu.Lock()
	tagged := p.tagged
	p.mu.Unlock()
	if p.known == confirmed && tagged.IsZero() {
		return nil
	}
	set := setOf(p.graph)
	n, err := r.readNote(ctx, opPush, r.At(p.graph.Root.Digest.String()), p.graph.Root.Digest, r.Pushes())
	if err != nil || n.set == set && tagged.IsZero() {
		return err
	}
	if tagged.IsZero() {
		tagged = n.pushed
	}
	return r.putNote(ctx, p.graph, set, tagged)
}
