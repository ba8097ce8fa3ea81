package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	godigest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/retry"
)

// keptAttempts is how often a registry is asked for what it has accepted: some show it
// a moment later.
const keptAttempts = 3

// kept asks for every blob that was sent, or mounted, since it was last called. An
// answer of success proves nothing: there are registries and proxies that give it and
// keep nothing, and nobody looks at a blob before a node pulls it.
func (r *Repository) kept(ctx context.Context, p *push) error {
	p.mu.Lock()
	sent := slices.Collect(maps.Values(p.sent))
	clear(p.sent)
	p.mu.Unlock()
	return r.wantKept(ctx, sent)
}

// wantKept is a fault where the repository does not have all of some blobs.
func (r *Repository) wantKept(ctx context.Context, sent []ocispec.Descriptor) error {
	lacks, err := r.Lacks(ctx, sent)
	for n := 1; err == nil && len(lacks) > 0 && n < keptAttempts; n++ {
		if err = r.client.opts.Sleep(ctx, retry.Backoff(r.client.opts.Backoff, n)); err == nil {
			lacks, err = r.Lacks(ctx, lacks)
		}
	}
	if ctx.Err() != nil {
		return r.client.Explain(ctx, r.host, opCheck, r.ref.String(), err)
	}
	if err != nil || len(lacks) == 0 {
		return err
	}
	names := make([]string, len(lacks))
	for i, d := range lacks {
		names[i] = d.Digest.String()
	}
	slices.Sort(names)
	return &fault.Error{
		Reason: fault.Incomplete, Op: opCheck, Subject: r.ref.String(), Hint: "look at the logs and the storage of " + r.host.name + ", and push again: what is there is not sent twice",
		Err: fmt.Errorf("the registry accepted %d blobs and does not have %d of them: %s", len(sent), len(lacks), strings.Join(names[:min(3, len(names))], ", ")),
	}
}

// Commit asks the registry for the blobs that were sent, each with its size; writes the
// manifests that are missing, children before parents, then the attachments, then the
// tag; and then asks for all of them, since what a cluster pulls later is
// REPOSITORY@DIGEST of each, and for the lists that name attachments.
func (r *Repository) Commit(ctx context.Context) error {
	p := r.begun()
	if p == nil {
		return &fault.Error{Reason: fault.Internal, Op: opPush, Subject: r.ref.String(), Err: errors.New("commit before begin")}
	}
	if err := p.complete(r.ref.String()); err != nil {
		return err
	}
	if err := r.kept(ctx, p); err != nil {
		return err
	}
	if err := r.putTwins(ctx, p.graph); err != nil {
		return err
	}
	for _, level := range levels(p.graph.Manifests) {
		if err := r.putManifests(ctx, p, level); err != nil {
			return err
		}
	}
	if err := r.putAttachments(ctx, p); err != nil {
		return err
	}
	root := p.graph.Manifests[len(p.graph.Manifests)-1]
	if err := r.tag(ctx, p, root); err != nil {
		return err
	}
	if err := r.kept(ctx, p); err != nil { // what joining attachments with those of others took
		return err
	}
	if err := r.check(ctx, p); err != nil {
		return err
	}
	return r.stillListed(ctx, p)
}

// putTwins sends the blobs whose bytes are those of a manifest, which are one thing in a
// graph, and two in a registry.
func (r *Repository) putTwins(ctx context.Context, g *bundle.Graph) error {
	manifests := map[godigest.Digest][]byte{}
	for _, n := range g.All() {
		manifests[n.Descriptor.Digest] = n.Data
	}
	twins := g.Held()
	for _, a := range g.Attachments {
		twins = slices.Concat(twins, a.Blobs)
	}
	isNone := func(d ocispec.Descriptor) bool { return manifests[d.Digest] == nil }
	twins = slices.DeleteFunc(slices.Clone(twins), isNone)
	lacks, err := r.Lacks(ctx, twins)
	if err != nil {
		return err
	}
	for _, d := range lacks {
		if err := r.putBlob(ctx, d, bytesOf(manifests[d.Digest])); err != nil {
			return err
		}
	}
	return r.wantKept(ctx, lacks)
}

// stillListed looks once more, after everything else, at the lists of referrers that
// clients keep: another push may have replaced one that it had read before this one wrote.
func (r *Repository) stillListed(ctx context.Context, p *push) error {
	group, ctx := r.group(ctx)
	for subject, nodes := range p.listed {
		group.Go(func() error { // one after the other: they are in one list
			for _, n := range nodes {
				if _, err := r.EnsureListed(ctx, opPush, subject, n); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// putAttachments writes all that the registry takes, and tells of all that it does
// not take: some refuse every manifest with a subject. What is about one subject is
// written one after the other, since it may share a tag; subjects side by side.
func (r *Repository) putAttachments(ctx context.Context, p *push) error {
	about := map[image.Digest][]bundle.Attachment{}
	for _, a := range p.graph.Attachments {
		about[a.Subject] = append(about[a.Subject], a)
	}
	problems := make([]error, len(p.graph.Attachments))
	var group errgroup.Group
	group.SetLimit(r.host.small.Most())
	next := 0
	for _, subject := range slices.SortedFunc(maps.Keys(about), func(a, b image.Digest) int { return strings.Compare(a.String(), b.String()) }) {
		attachments := about[subject]
		slots := problems[next : next+len(attachments)]
		next += len(attachments)
		group.Go(func() error {
			for i, a := range attachments {
				slots[i] = r.putOrOmit(ctx, p, a)
			}
			return nil
		})
	}
	_ = group.Wait() // problems has them all
	return fault.Join(problems...)
}

// putOrOmit writes an attachment, or says that the registry takes none such.
func (r *Repository) putOrOmit(ctx context.Context, p *push, a bundle.Attachment) error {
	digest := a.Node.Descriptor.Digest.String()
	err := r.putAttachment(ctx, a)
	if fault.ReasonOf(err) != fault.Refused || a.Tag != "" {
		return err
	}
	if r.client.opts.OmitRefused {
		p.omit(digest, fmt.Sprintf("%s of %s: the registry does not take it: %v", digest, a.Subject, err))
		return nil
	}
	return &fault.Error{
		Reason: fault.Refused, Op: opPush, Subject: r.At(digest),
		Err:  fmt.Errorf("it is about %s, and the registry takes no manifest with a subject: %w", a.Subject, err),
		Hint: "use a registry that knows the OCI distribution specification 1.1, or push without what is refused: --omit-refused",
	}
}

// omit takes note that the registry does not take an attachment.
func (p *push) omit(digest, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.omitted[digest] = why
}

// Omitted tells, after Commit, what the registry did not take.
func (r *Repository) Omitted() []string {
	p := r.begun()
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Values(p.omitted))
}

// complete refuses to write manifests whose blobs were not put.
func (p *push) complete(subject string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lacks []string
	for digest, d := range p.lacks {
		if !bundle.IsManifest(d.MediaType) {
			lacks = append(lacks, digest)
		}
	}
	if len(lacks) == 0 && len(p.graph.Manifests) > 0 {
		return nil
	}
	slices.Sort(lacks)
	return &fault.Error{
		Reason: fault.Incomplete, Op: opPush, Subject: subject, Hint: "run it again: what is there is not sent twice",
		Err: fmt.Errorf("%d blobs were not sent: %s", len(lacks), strings.Join(lacks[:min(3, len(lacks))], ", ")),
	}
}

func (p *push) lacking(digest string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.lacks[digest]
	return ok
}

// levels groups manifests so that each one's children are in groups before its own.
func levels(nodes []bundle.Node) [][]bundle.Node {
	var out [][]bundle.Node
	depth := map[string]int{}
	for _, n := range nodes { // children before parents
		var index struct{ Manifests []struct{ Digest string } }
		_ = json.Unmarshal(n.Data, &index) // the graph is parsed; an image has no manifests
		level := 0
		for _, child := range index.Manifests {
			level = max(level, depth[child.Digest]+1)
		}
		depth[n.Descriptor.Digest.String()] = level
		for len(out) <= level {
			out = append(out, nil)
		}
		out[level] = append(out[level], n)
	}
	return out
}

func (r *Repository) putManifests(ctx context.Context, p *push, nodes []bundle.Node) error {
	group, ctx := r.group(ctx)
	for _, n := range nodes {
		digest := n.Descriptor.Digest.String()
		if !p.lacking(digest) {
			continue
		}
		id := digest
		if n.Descriptor.Digest == p.graph.Root.Digest {
			id = bundle.DigestTag(n.Descriptor.Digest.Encoded())
		}
		group.Go(func() error { return r.putManifest(ctx, id, n) })
	}
	return group.Wait()
}

// putManifest writes a manifest under its digest or under a tag.
func (r *Repository) putManifest(ctx context.Context, id string, n bundle.Node) error {
	header, err := r.PutManifest(ctx, opPush, id, n)
	if err != nil {
		return err
	}
	if p := r.begun(); p != nil && id == r.ref.Identifier() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tagged = clock(header)
	}
	return nil
}

// clock is when a registry answered, by its own clock where it says so.
func clock(h http.Header) time.Time {
	if t, err := http.ParseTime(h.Get("Date")); err == nil {
		return t
	}
	return time.Now()
}

// tag gives the root its tags, unless it has them.
func (r *Repository) tag(ctx context.Context, p *push, root bundle.Node) error {
	for _, tag := range r.tags(root.Descriptor) {
		if tag != r.ref.Tag() && p.lacking(root.Descriptor.Digest.String()) {
			continue // the root was written under it
		}
		d, found, err := r.Stat(ctx, Look{Op: opPush, ID: tag, Access: r.Pushes()})
		if err == nil && (!found || d.Digest != root.Descriptor.Digest) {
			err = r.putManifest(ctx, tag, root)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tags returns the tags of a root: one by its digest, and that of the reference.
func (r *Repository) tags(root ocispec.Descriptor) []string {
	tags := []string{bundle.DigestTag(root.Digest.Encoded())}
	if tag := r.ref.Tag(); tag != "" && tag != tags[0] {
		tags = append(tags, tag)
	}
	return tags
}

// check asks for everything as a cluster will.
func (r *Repository) check(ctx context.Context, p *push) error {
	g := p.graph
	want := map[string]ocispec.Descriptor{}
	for _, n := range g.Manifests {
		want[n.Descriptor.Digest.String()] = n.Descriptor
	}
	for _, tag := range r.tags(g.Root) {
		want[tag] = g.Root
	}
	for _, a := range g.Attachments {
		digest := a.Node.Descriptor.Digest.String()
		if p.omitted[digest] != "" {
			continue
		}
		if a.Tag != "" {
			want[a.Tag] = ocispec.Descriptor{} // another push may have added to it
		} else {
			want[digest] = a.Node.Descriptor
		}
	}
	group, ctx := r.group(ctx)
	for id, d := range want {
		group.Go(func() error { return r.resolves(ctx, id, d) })
	}
	return group.Wait()
}

// resolves is a fault where a tag or digest is not there, or is not what was pushed
// (where that is given).
func (r *Repository) resolves(ctx context.Context, id string, want ocispec.Descriptor) error {
	d, found, err := r.Stat(ctx, Look{Op: opCheck, ID: id})
	switch {
	case err != nil:
		return err
	case !found:
		return &fault.Error{
			Reason: fault.Incomplete, Op: opCheck, Subject: r.At(id), Hint: "push it again, and look at the registry's logs",
			Err: errors.New("it was pushed, and the registry does not have it"),
		}
	case want.Digest != "" && d.Digest != want.Digest:
		return &fault.Error{
			Reason: fault.Conflict, Op: opCheck, Subject: r.At(id), Hint: "see who else pushes to this tag, and push again",
			Err: fmt.Errorf("it was pushed as %s and is %s", want.Digest, d.Digest),
		}
	case want.Size > 0 && d.Size != want.Size:
		return &fault.Error{
			Reason: fault.Incomplete, Op: opCheck, Subject: r.At(id), Hint: "push it again, and look at the registry's logs",
			Err: fmt.Errorf("it was pushed with %d bytes and has %d", want.Size, d.Size),
		}
	}
	return nil
}
