package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

const (
	opPush  = "push"
	opCheck = "check"
)

// push is the state of a push: of a bundle between Begin and Close, or of referrers to an existing manifest.
type push struct {
	graph *bundle.Graph
	lacks map[godigest.Digest]bool // what was not in the registry at first

	mu   sync.Mutex
	sent map[godigest.Digest]ocispec.Descriptor // accepted by the registry, not confirmed yet
	// tagged is when this push tagged or wrote the root; zero if the root had its tag.
	tagged time.Time
	// omitted are the attachments that the registry refuses. The notices tell the user about them and about the note.
	omitted map[godigest.Digest]bool
	notices []string
}

func newPush(g *bundle.Graph) *push {
	return &push{
		graph: g, lacks: map[godigest.Digest]bool{}, sent: map[godigest.Digest]ocispec.Descriptor{},
		omitted: map[godigest.Digest]bool{},
	}
}

// Begin asks the registry for every blob and manifest of the graph, or for a sample (see "Existing content" in the
// package comment). It returns the missing ones, in the graph's order. It writes nothing.
func (r *Repository) Begin(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	if want := r.ref.Digest(); !want.IsZero() && want.String() != g.Root.Digest.String() {
		return nil, fault.Errorf(fault.Conflict, opPush, r.ref.String(),
			"name a tag, or the digest of the bundle: "+g.Root.Digest.String(), "the bundle is %s", g.Root.Digest)
	}
	_, _, ofReferrer := image.ParseAttachedTag(r.ref.Tag())
	if ofReferrer || bundle.IsDigestTag(r.ref.Tag()) && r.ref.Tag() != bundle.DigestTag(g.Root.Digest.Encoded()) {
		return nil, fault.Errorf(fault.InvalidInput, opPush, r.ref.String(), "choose another tag",
			"tags of this form belong to what a digest names")
	}
	// The first request names the reference in its errors.
	_, found, err := r.Stat(ctx, Look{
		Op: "push to", Subject: r.ref.String(), ID: g.Root.Digest.String(), Access: r.Pushes(),
	})
	if err != nil {
		return nil, err
	}
	order, presume := g.Order(), false
	if !found {
		if presume, err = r.seemsEmpty(ctx, order); err != nil {
			return nil, err
		}
	}
	assumed := func(d ocispec.Descriptor) bool { return presume && costsARoundTrip(d) }
	lacks, err := r.lacks(ctx, slices.DeleteFunc(slices.Clone(order), assumed), r.Pushes())
	if err != nil {
		return nil, err
	}
	p := newPush(g)
	for _, d := range lacks {
		p.lacks[d.Digest] = true
	}
	missing := slices.DeleteFunc(order, func(d ocispec.Descriptor) bool { return !assumed(d) && !p.lacks[d.Digest] })
	for _, d := range missing {
		p.lacks[d.Digest] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.push = p
	return missing, nil
}

// costsARoundTrip reports whether sending d costs no more than asking for it.
func costsARoundTrip(d ocispec.Descriptor) bool {
	return bundle.IsManifest(d.MediaType) || d.Size <= SmallBlob
}

// emptySample is how many small blobs Begin asks for before it assumes that the others are missing too. It does so
// from emptyLeast small blobs on.
const (
	emptySample = 32
	emptyLeast  = 4 * emptySample
)

// seemsEmpty reports whether there are many small blobs and the registry lacks all of a random sample.
func (r *Repository) seemsEmpty(ctx context.Context, ds []ocispec.Descriptor) (bool, error) {
	small := slices.DeleteFunc(slices.Clone(ds), func(d ocispec.Descriptor) bool {
		return bundle.IsManifest(d.MediaType) || d.Size > SmallBlob
	})
	if len(small) < emptyLeast {
		return false, nil
	}
	rand.Shuffle(len(small), func(i, j int) { small[i], small[j] = small[j], small[i] }) //nolint:gosec // no secret
	absent, err := r.lacks(ctx, small[:emptySample], r.Pushes())
	return len(absent) == emptySample, err
}

// Put writes a blob. It calls open with an offset, again if the upload restarts. It verifies size and digest before
// it sends the last byte. It skips manifests, which Commit writes from the graph.
func (r *Repository) Put(
	ctx context.Context, d ocispec.Descriptor, open func(offset int64) (io.ReadCloser, error),
) error {
	if err := bundle.CheckDescriptor(d); err != nil {
		return err
	}
	if bundle.IsManifest(d.MediaType) {
		return nil
	}
	err := r.putBlob(ctx, d, open)
	if err == nil {
		r.begun().arrived(d)
	}
	return err
}

// arrived records that the registry has accepted a blob; a nil push records nothing.
func (p *push) arrived(d ocispec.Descriptor) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent[d.Digest] = d
}

func (r *Repository) begun() *push {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.push
}

// Close forgets what Begin found. Blobs stay in the registry, so that the next push does not send them again.
func (r *Repository) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.push = nil
	return nil
}

// Commit asks the registry for every sent blob and its size. It writes missing manifests, children before parents,
// then attachments, then the tag and the note. It reads all of them, since clusters pull REPOSITORY@DIGEST.
func (r *Repository) Commit(ctx context.Context) error {
	p := r.begun()
	if p == nil {
		return fault.Errorf(fault.Internal, opPush, r.ref.String(), "", "commit before begin")
	}
	for _, step := range []func(context.Context, *push) error{
		r.kept, r.putTwins, r.putManifests, r.putAttachments, r.tag, r.confirm,
	} {
		if err := step(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// Notices returns, after Commit, messages about what the registry refused.
func (r *Repository) Notices() []string {
	p := r.begun()
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(slices.Values(p.notices))
}

// keptAttempts limits the checks for an accepted blob: some registries show it a moment later.
const keptAttempts = 3

// kept asks for every blob that was sent or mounted since its last call. Some registries and proxies report success
// and keep nothing, and the first to notice would be a node.
func (r *Repository) kept(ctx context.Context, p *push) error {
	p.mu.Lock()
	sent := slices.Collect(maps.Values(p.sent))
	clear(p.sent)
	p.mu.Unlock()
	lacks, err := r.lacks(ctx, sent, r.Pushes())
	for n := 1; err == nil && len(lacks) > 0 && n < keptAttempts; n++ {
		if err = r.client.opts.Sleep(ctx, backoff(n)); err == nil {
			lacks, err = r.lacks(ctx, lacks, r.Pushes())
		}
	}
	if ctx.Err() != nil {
		return r.client.Explain(ctx, r.host, opCheck, r.ref.String(), err)
	}
	if err != nil || len(lacks) == 0 {
		return err
	}
	return fault.Errorf(fault.Incomplete, opCheck, r.ref.String(),
		"look at the logs and the storage of "+r.host.name+", and push again: a push sends only missing parts",
		"the registry accepted %d blobs and does not have %d of them: %s", len(sent), len(lacks), lacks[0].Digest)
}

// putTwins sends blobs with the bytes of a manifest: one node in a graph, two objects in a registry.
func (r *Repository) putTwins(ctx context.Context, p *push) error {
	g := p.graph
	manifests := map[godigest.Digest][]byte{}
	for _, n := range g.All() {
		manifests[n.Descriptor.Digest] = n.Data
	}
	twins := g.Held()
	for _, a := range g.Attachments {
		twins = slices.Concat(twins, a.Blobs)
	}
	isNone := func(d ocispec.Descriptor) bool { return manifests[d.Digest] == nil }
	lacks, err := r.lacks(ctx, slices.DeleteFunc(slices.Clone(twins), isNone), r.Pushes())
	if err != nil || len(lacks) == 0 {
		return err
	}
	for _, d := range lacks {
		if err := r.putBlob(ctx, d, bytesOf(manifests[d.Digest])); err != nil {
			return err
		}
		p.arrived(d)
	}
	return r.kept(ctx, p)
}

// putManifests writes the missing manifests, children before parents.
func (r *Repository) putManifests(ctx context.Context, p *push) error {
	for _, level := range levels(p.graph.Manifests) {
		group, ctx := r.group(ctx)
		for _, n := range level {
			if !p.lacks[n.Descriptor.Digest] {
				continue
			}
			id := n.Descriptor.Digest.String()
			if n.Descriptor.Digest == p.graph.Root.Digest {
				id = bundle.DigestTag(n.Descriptor.Digest.Encoded())
			}
			group.Go(func() error { return r.putManifest(ctx, p, id, n) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// levels groups manifests so that children are in earlier groups than their parents.
func levels(nodes []bundle.Node) [][]bundle.Node {
	var out [][]bundle.Node
	depth := map[godigest.Digest]int{} // from 1
	for _, n := range nodes {          // children before parents
		level := 0
		for _, child := range n.Children() {
			level = max(level, depth[child.Digest])
		}
		depth[n.Descriptor.Digest] = level + 1
		for len(out) <= level {
			out = append(out, nil)
		}
		out[level] = append(out[level], n)
	}
	return out
}

func (r *Repository) putManifest(ctx context.Context, p *push, id string, n bundle.Node) error {
	header, err := r.PutManifest(ctx, opPush, id, n)
	if err == nil && id == r.ref.Identifier() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.tagged, err = http.ParseTime(header.Get("Date")); err != nil {
			p.tagged = time.Now() // the registry does not tell its time
		}
		return nil
	}
	return err
}

// putAttachments writes all attachments that the registry takes, and reports all others: some registries refuse every
// manifest with a subject. It writes those of one subject in sequence, as they may share a tag, and subjects in
// parallel.
func (r *Repository) putAttachments(ctx context.Context, p *push) error {
	all, ofSubject := p.graph.Attachments, map[image.Digest][]int{}
	for n, a := range all {
		ofSubject[a.Subject] = append(ofSubject[a.Subject], n)
	}
	problems := make([]error, len(all))
	var group errgroup.Group
	group.SetLimit(r.host.small.Most())
	for _, attachments := range ofSubject {
		group.Go(func() error {
			for _, n := range attachments {
				problems[n] = r.putOrOmit(ctx, p, all[n])
			}
			return nil
		})
	}
	_ = group.Wait() // problems has all errors
	return fault.Join(problems...)
}

// putOrOmit writes an attachment, or reports that the registry takes no such manifest.
func (r *Repository) putOrOmit(ctx context.Context, p *push, a bundle.Referrer) error {
	digest := a.Node.Descriptor.Digest
	err := r.uploadReferrer(ctx, p, a)
	if r.client.opts.OmitRefused && isOfSubject(err, a) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.omitted[digest] = true
		p.notices = append(p.notices,
			fmt.Sprintf("left out: %s of %s: the registry does not take it: %v", digest, a.Subject, err))
		return nil
	}
	return r.explainSubject(err, a, opPush, "push without what is refused: --omit-refused")
}

// isOfSubject reports whether a registry refused an attachment for its subject.
func isOfSubject(err error, a bundle.Referrer) bool {
	return a.Tag == "" && fault.ReasonOf(err) == fault.Refused
}

// explainSubject explains such a refusal, with another way to go on. A manifest that is too large is refused for that.
func (r *Repository) explainSubject(err error, a bundle.Referrer, op, or string) error {
	var answered *AnswerError
	if !isOfSubject(err, a) || errors.As(err, &answered) && answered.Status == http.StatusRequestEntityTooLarge {
		return err
	}
	return fault.Errorf(fault.Refused, op, r.At(a.Node.Descriptor.Digest.String()),
		"use a registry that knows the OCI distribution specification 1.1, or "+or,
		"it is about %s, and the registry takes no manifest with a subject: %w", a.Subject, err)
}

// tag gives the root its missing tags. The note says so before and after, since a push may end between the two.
func (r *Repository) tag(ctx context.Context, p *push) error {
	root := p.graph.Manifests[len(p.graph.Manifests)-1]
	for _, tag := range r.tags(root.Descriptor) {
		if tag != r.ref.Tag() && p.lacks[root.Descriptor.Digest] {
			continue // putManifests wrote the root under it
		}
		d, found, err := r.Stat(ctx, Look{Op: opPush, ID: tag, Access: r.Pushes()})
		if err == nil && (!found || d.Digest != root.Descriptor.Digest) {
			if tag == r.ref.Tag() {
				r.remember(ctx, p, noteBegun, time.Now())
			}
			err = r.putManifest(ctx, p, tag, root)
		}
		if err != nil {
			return err
		}
	}
	if !p.tagged.IsZero() {
		r.remember(ctx, p, notePushed, p.tagged)
	}
	return nil
}

// tags returns the tags of a root: one for its digest, and that of the reference.
func (r *Repository) tags(root ocispec.Descriptor) []string {
	tags := []string{bundle.DigestTag(root.Digest.Encoded())}
	if tag := r.ref.Tag(); tag != "" && tag != tags[0] {
		tags = append(tags, tag)
	}
	return tags
}

// confirm checks the blobs of attachments, and reads every manifest as a cluster will.
func (r *Repository) confirm(ctx context.Context, p *push) error {
	if err := r.kept(ctx, p); err != nil {
		return err
	}
	g, want := p.graph, map[string]ocispec.Descriptor{}
	for _, n := range g.Manifests {
		want[n.Descriptor.Digest.String()] = n.Descriptor
	}
	if len(g.Manifests) > 0 { // else only referrers were added
		for _, tag := range r.tags(g.Root) {
			want[tag] = g.Root
		}
	}
	for _, a := range g.Attachments {
		if d := a.Node.Descriptor; a.Tag == "" && !p.omitted[d.Digest] {
			want[d.Digest.String()] = d
		}
	}
	group, within := r.group(ctx)
	for id, d := range want {
		group.Go(func() error { return r.resolves(within, id, d) })
	}
	return group.Wait()
}

// resolves returns a fault if a tag or digest is missing or is not the pushed one.
func (r *Repository) resolves(ctx context.Context, id string, want ocispec.Descriptor) error {
	f := r.notKept(id)
	d, _, found, err := r.Get(ctx, Look{Op: opCheck, ID: id})
	switch {
	case err != nil:
		return err
	case !found:
	case d.Digest != want.Digest:
		f.Reason, f.Hint = fault.Conflict, "see who else pushes to this tag, and push again"
		f.Err = fmt.Errorf("it was pushed as %s and is %s", want.Digest, d.Digest)
	default:
		return nil
	}
	return f
}

func (r *Repository) notKept(id string) *fault.Error {
	return fault.Errorf(fault.Incomplete, opCheck, r.At(id), "push it again, and look at the registry's logs",
		"it was pushed, and the registry does not have it")
}

// noteType is the artifact type of a note, followed by its annotations.
const (
	noteType       = "application/vnd.vdo.confirmed.v1"
	noteRepository = "com.vmware.vdo.confirmed.repository"
	noteRoot       = "com.vmware.vdo.confirmed.root"
	noteTag        = "com.vmware.vdo.confirmed.tag"
	notePushed     = "com.vmware.vdo.confirmed.pushed"
	noteBegun      = "com.vmware.vdo.confirmed.begun"
)

// remember writes the note of a bundle (see the package comment). A refused note is a notice only, since the bundle
// itself is complete; a registry with immutable tags refuses the second one.
func (r *Repository) remember(ctx context.Context, p *push, what string, at time.Time) {
	var root ocispec.Index
	_ = json.Unmarshal(p.graph.Manifests[len(p.graph.Manifests)-1].Data, &root) // an image gets no note
	if root.ArtifactType != bundle.ArtifactType {
		return
	}
	nothing := bundle.Plain(ocispec.DescriptorEmptyJSON)
	note := bundle.NewManifest(ocispec.Manifest{
		ArtifactType: noteType, Config: nothing, Layers: []ocispec.Descriptor{nothing},
		Annotations: map[string]string{
			noteRepository: r.ref.Repository(), noteRoot: p.graph.Root.Digest.String(), noteTag: r.ref.Tag(),
			what: at.UTC().Format(time.RFC3339),
		},
	})
	err := r.attachBlob(ctx, nil, ocispec.DescriptorEmptyJSON) // not of the push, which is complete without
	if err == nil {
		_, err = r.PutManifest(ctx, opPush, bundle.NoteTag(p.graph.Root.Digest.Encoded()), note)
	}
	if err != nil && ctx.Err() == nil && what == noteBegun {
		p.notices = append(p.notices, fmt.Sprintf(
			"`vdo-bundle list` will not show when this was pushed: the registry did not take the note: %v", err))
	}
}

// Pushed returns when a push last tagged a bundle, by the registry's clock, or when one began to and perhaps did not.
// The bundle has these tags now. Both times are zero if this repository has no note.
func (r *Repository) Pushed(
	ctx context.Context, root image.Digest, tags []string,
) (pushed, begun time.Time, err error) {
	note := Look{Op: "read the note of", Subject: r.At(root.String()), ID: bundle.NoteTag(root.Hex())}
	_, data, _, err := r.Get(ctx, note)
	if reason := fault.ReasonOf(err); reason == fault.Forbidden || reason == fault.Corrupt {
		err = nil // some registries answer so for a missing tag; a malformed note counts as none
	}
	var m ocispec.Manifest
	if err != nil || json.Unmarshal(data, &m) != nil {
		return pushed, begun, err
	}
	is := m.Annotations
	if m.ArtifactType == noteType && is[noteRepository] == r.ref.Repository() && is[noteRoot] == root.String() {
		pushed, _ = time.Parse(time.RFC3339, is[notePushed]) // zero if malformed
		begun, _ = time.Parse(time.RFC3339, is[noteBegun])
		if pushed.IsZero() && slices.Contains(tags, is[noteTag]) {
			pushed = begun
		}
	}
	return pushed, begun, nil
}
