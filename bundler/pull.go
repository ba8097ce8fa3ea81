package bundler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// PullInput is what a bundle is pulled from, and to.
type PullInput struct {
	Matrix    Matrix
	Lock      *bundle.Lock
	Files     catalog.Files // nil: fetched
	Manifests Manifests
	Registry  Registry
	// SourceOf says where a reference is fetched from, to know its host.
	SourceOf func(image.Reference) image.Reference
	Signer   *trust.Signer // nil: not signed
	Target   Target
	// Upstream, where it is given, says whose signatures the images need; nothing is
	// written before all of them are verified.
	Upstream *UpstreamPolicy
	Carry    Carry // what of upstream's signatures travels; "": none
	// Provenance, where it is given, is attached as a statement signed by Signer.
	Provenance *Builder
	// Reference is the target's, where the target is a registry, and Mirror opens it
	// to look at what arrived.
	Reference image.Reference
	Mirror    Registry
	// Base has layers that are left out; nil: nothing is.
	Base *Base
}

// Pulled is a bundle that was written.
type Pulled struct {
	Root    ocispec.Descriptor
	Images  int
	Bytes   int64           // of the whole bundle
	Moved   int64           // of what had to be written now
	Missing int             // items that had to be written now
	Left    *bundle.LeftOut // of a delta
	Receipt *bundle.Receipt // of a push
	// Verified are the images whose own signatures were checked, where a policy asked
	// for that; Attached is how many signatures and the like of images went along.
	Verified []VerifiedImage
	Attached int
	// Plan is what would have to be written, in a dry run; nothing was.
	Plan []Planned
}

// Planned is one item of a dry run.
type Planned struct {
	Name      string `json:"name"` // what it is part of
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

// Pull writes the bundle that a lock describes.
func Pull(ctx context.Context, in PullInput, o Options) (*Pulled, error) {
	if err := fault.Join(in.Matrix.fits(in.Lock.Matrix), agree(in.Lock, in.Matrix.Document)); err != nil {
		return nil, err
	}
	files, err := lockedFiles(ctx, in, o)
	if err != nil {
		return nil, err
	}
	trees, err := readTrees(ctx, in, o)
	if err != nil {
		return nil, err
	}
	contents := bundle.Contents{Lock: in.Lock, Matrix: in.Matrix.Data, MatrixSignature: in.Matrix.Signature, Manifests: files}
	g, err := bundle.Assemble(contents, trees)
	if err != nil {
		return nil, err
	}
	beside, err := readUpstream(ctx, in, trees, o)
	if err != nil {
		return nil, err
	}
	g.Attachments = append(g.Attachments, beside.attachments...)
	if err := presign(ctx, g, in.Signer, in.Target, in.Reference); err != nil {
		return nil, err
	}
	if err := in.attest(ctx, g, beside, o.now()); err != nil {
		return nil, err
	}
	if err := leave(g, in.Base, o.progress()); err != nil {
		return nil, err
	}
	pulled, err := deliver(ctx, "pull", g, in.Target, nil, originsOf(g, in, trees, beside), o)
	if err != nil {
		return pulled, err
	}
	pulled.Verified, pulled.Attached = beside.verified, len(beside.attachments)
	if in.Mirror == nil || o.DryRun {
		return pulled, nil
	}
	return pulled, arrived(ctx, in.Target, in.Mirror, in.Reference, g.Root, in.Lock, o)
}

// deliver moves a graph into a target and commits it; or tells what it would move.
// Where look is given, it sees what is missing before the first byte moves, and says
// what is to be moved besides.
func deliver(ctx context.Context, what string, g *bundle.Graph, target Target, look func(missing []ocispec.Descriptor) (more []ocispec.Descriptor, err error), origins func(ocispec.Descriptor) []origin, o Options) (*Pulled, error) {
	begin := target.Begin
	if o.DryRun {
		begin = planOf(target)
	}
	missing, err := begin(ctx, g)
	if err == nil && look != nil {
		var more []ocispec.Descriptor
		more, err = look(missing)
		missing = append(more, missing...)
	}
	if err == nil && len(missing) > 0 {
		err = Preflight(ctx, target)
	}
	if err != nil {
		return nil, err
	}
	done := &Pulled{
		Root: g.Root, Images: len(g.Images()), Bytes: g.HeldSize(),
		Moved: bundle.SizeOf(missing), Missing: len(missing), Left: g.LeftOut(),
	}
	if o.DryRun {
		done.Plan = planned(g, missing)
		return done, nil
	}
	if streamer, ok := target.(Streamer); ok {
		err = stream(ctx, what, g, missing, streamer, origins, o)
	} else {
		err = move(ctx, what, g, missing, target, origins, o)
	}
	if err != nil {
		return nil, err
	}
	err = target.Commit(ctx)
	if omitter, ok := target.(Omitter); ok && err == nil {
		for _, line := range omitter.Omitted() {
			o.progress().Say("left out: " + line)
		}
	}
	return done, err
}

// planOf is how a target plans; one that cannot is a defect.
func planOf(target Target) func(context.Context, *bundle.Graph) ([]ocispec.Descriptor, error) {
	if p, ok := target.(Planner); ok {
		return p.Plan
	}
	return func(context.Context, *bundle.Graph) ([]ocispec.Descriptor, error) {
		return nil, fmt.Errorf("a %T cannot tell what it would write", target)
	}
}

// planned describes what is missing, largest first.
func planned(g *bundle.Graph, missing []ocispec.Descriptor) []Planned {
	names := g.Owners()
	out := make([]Planned, 0, len(missing))
	for _, d := range missing {
		out = append(out, Planned{Name: names.Name(d), MediaType: d.MediaType, Digest: d.Digest.String(), Size: d.Size})
	}
	slices.SortStableFunc(out, func(a, b Planned) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Digest, b.Digest))
	})
	return out
}

// agree checks that a lock holds what its matrix lists.
func agree(lock *bundle.Lock, doc *matrix.Document) error {
	listed := map[string]matrix.Release{}
	for _, r := range doc.Releases {
		listed[r.ReleaseID.String()] = r
	}
	var problems []error
	for _, r := range lock.Releases {
		if r.Driver == bundle.Operator {
			continue
		}
		id := matrix.ReleaseID{Driver: r.Driver, Version: r.Version}.String()
		release, ok := listed[id]
		if !ok {
			problems = append(problems, disagrees(id, "the matrix does not list it"))
			continue
		}
		problems = append(problems, agreeFiles(id, r, release))
	}
	return fault.Join(problems...)
}

func agreeFiles(id string, locked bundle.Release, listed matrix.Release) error {
	same := slices.EqualFunc(sortedFiles(locked.Manifests), sortedManifests(listed.Manifests), func(f bundle.File, m matrix.Manifest) bool {
		return f.Name == m.Name && f.Size == m.Size && f.Digest.Hex() == m.SHA256
	})
	if !same {
		return disagrees(id, "its manifest files are not those of the matrix")
	}
	return nil
}

func sortedFiles(files []bundle.File) []bundle.File {
	return slices.SortedFunc(slices.Values(files), func(a, b bundle.File) int { return compare(a.Name, b.Name) })
}

func sortedManifests(files []matrix.Manifest) []matrix.Manifest {
	return slices.SortedFunc(slices.Values(files), func(a, b matrix.Manifest) int { return compare(a.Name, b.Name) })
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func disagrees(id, why string) error {
	return &fault.Error{
		Reason: fault.Corrupt, Op: "check lock", Subject: id, Err: fmt.Errorf("%s", why),
		Hint: "make a new lock with `vdo-bundle lock`",
	}
}

// lockedFiles returns the manifest files of a lock.
func lockedFiles(ctx context.Context, in PullInput, o Options) (catalog.Files, error) {
	if in.Files != nil {
		return in.Files, nil
	}
	var want []wanted
	for _, r := range in.Lock.Releases {
		for _, f := range r.Manifests {
			want = append(want, wanted{r.Path(f), matrix.Manifest{Name: f.Name, URL: f.URL, Size: f.Size, SHA256: f.Digest.Hex()}})
		}
	}
	return fetchFiles(ctx, want, in.Manifests, o)
}

// readTrees reads the indexes and manifests of all images.
func readTrees(ctx context.Context, in PullInput, o Options) ([]bundle.Tree, error) {
	o.progress().Phase("image manifests", len(in.Lock.Images), 0)
	trees := make([]bundle.Tree, len(in.Lock.Images))
	err := forEach(ctx, o.small(), len(trees), func(n int) error {
		i := in.Lock.Images[n]
		tree, err := bundle.ReadTree(ctx, in.Registry(i.FetchedFrom()), i.Descriptor())
		o.progress().Done(i.Reference.String(), err)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.Reference, err)
		}
		if tree.IsEmpty() {
			return &fault.Error{
				Reason: fault.Incomplete, Op: "image", Subject: i.Reference.String(), Err: errors.New("its index names no image manifest: nothing of it could run"),
				Hint: "ask who publishes it, or name a mirror that has it whole with --source-map",
			}
		}
		for _, d := range tree.Ignored {
			o.progress().Say(fmt.Sprintf("left out: %s of %s, of the unknown media type %.100q", d.Digest, i.Reference, d.MediaType))
		}
		tree.Reference = i.Reference
		trees[n] = tree
		return nil
	})
	return trees, err
}

// originsOf says where each part of a graph is fetched from: what is at hand, else
// every image that has it.
func originsOf(g *bundle.Graph, in PullInput, trees []bundle.Tree, beside upstreams) func(ocispec.Descriptor) []origin {
	known := atHandOf(g)
	upstreams := map[string][]origin{}
	for n, tree := range trees {
		where := in.Lock.Images[n].FetchedFrom()
		o := origin{host: in.SourceOf(where).Host(), from: in.Registry(where)}
		for _, d := range tree.Blobs {
			upstreams[d.Digest.String()] = append(upstreams[d.Digest.String()], o)
		}
	}
	for digest, i := range beside.from {
		where := i.FetchedFrom()
		upstreams[digest] = append(upstreams[digest], origin{host: in.SourceOf(where).Host(), from: in.Registry(where)})
	}
	return func(d ocispec.Descriptor) []origin {
		if data, ok := known[d.Digest.String()]; ok {
			return []origin{{from: data}}
		}
		if found := upstreams[d.Digest.String()]; len(found) > 0 {
			return foreign(d, found[:min(len(found), 3)]) // one that works is enough
		}
		return []origin{{from: nowhere{}}}
	}
}
