package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/medium"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// identity says what a journal is about: the bundle's root, the base that layers are
// left to, and the size of parts. What is attached is no part of it: a bundle that is
// signed again as it is pulled again has other signatures, and the same payload.
func identity(g *bundle.Graph, o Options) string {
	id := g.Root.Digest.String()
	if g.Base != nil {
		id += " base=" + g.Base.Root.String()
	}
	if o.VolumeSize > 0 {
		id += fmt.Sprintf(" volume=%d", o.VolumeSize)
	}
	return id
}

// openThere opens the archive that has the writer's name already, and the writer's
// form; nil where there is none.
func (w *FileWriter) openThere() (*File, error) {
	path, parted := w.path, isThere(w.path+parts.Suffix)
	if parted != (w.o.VolumeSize > 0) || (parted && isThere(w.path)) {
		return nil, nil
	}
	if parted {
		path += parts.Suffix
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return nil, nil //nolint:nilerr // nothing that we wrote
	}
	a, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	if v, ok := a.f.(*volumes); ok && (v.list.Volume() != w.o.VolumeSize || v.list.Recovery() != w.o.Recovery || v.list.Changing) {
		return nil, a.Close()
	}
	return a, nil
}

// isThere tells whether the archive is there, whole to the last byte, with all that is
// attached to the graph. Another one is refused, where it is not to be replaced.
// finished says that the journal of an interrupted run speaks of an archive that it
// finished.
func (w *FileWriter) isThere(ctx context.Context, g *bundle.Graph, finished bool) (bool, error) {
	refused := checkTargets(w.path, w.o)
	if refused != nil && fault.ReasonOf(refused) != fault.Conflict {
		return false, refused
	}
	if refused == nil && !finished {
		return false, nil
	}
	a, err := w.openThere()
	if err != nil || a == nil {
		return false, refused
	}
	same, err := a.holds(ctx, g)
	if err := errors.Join(err, a.Close()); err != nil {
		return false, err
	}
	if same {
		return true, nil
	}
	if !w.first.equal(stampOf(w.path)) {
		return false, &fault.Error{Reason: fault.Conflict, Op: "write", Subject: w.path,
			Hint: "run it again, to add to what is there", Err: errors.New("another process has written it meanwhile")}
	}
	return false, refused
}

// holds reads all of an archive, and tells whether it is that of a graph, and nothing
// of it is damaged. More may be attached than the graph has.
func (a *File) holds(ctx context.Context, g *bundle.Graph) (bool, error) {
	f := a.fetcher()
	root, err := f.index.root(ctx)
	if err != nil || root.Digest != g.Root.Digest || !maps.Equal(f.index.base.Annotations(), g.Base.Annotations()) {
		return false, ctx.Err()
	}
	for _, att := range g.Attachments {
		if !slices.ContainsFunc(f.index.entries, func(d ocispec.Descriptor) bool { return sameEntry(d, attached(att)) }) {
			return false, nil
		}
	}
	if a.CheckLayout(ctx) != nil || a.Damage(ctx) != nil {
		return false, ctx.Err()
	}
	for _, d := range g.Order() {
		if discardAll(ctx, f, d) != nil {
			return false, ctx.Err()
		}
	}
	return true, nil
}

// Existing opens what is at the writer's place already and stays: who signs what he writes
// adds to it, so that no signature is lost. What cannot be opened Begin says.
func (w *FileWriter) Existing() medium.Source {
	if w.o.Replace {
		return nil
	}
	a, err := w.openThere()
	if err != nil || a == nil {
		return nil
	}
	return a
}

// Existing opens the folder that is there already and stays, see [FileWriter.Existing].
func (w *DirWriter) Existing() medium.Source {
	if w.o.Replace || !isThere(filepath.Join(w.path, indexName)) {
		return nil
	}
	d, err := OpenDir(w.path)
	if err != nil {
		return nil
	}
	return d
}

// checkWhole reads all of an attachment.
func (x *index) checkWhole(ctx context.Context, subject image.Digest, d ocispec.Descriptor) error {
	a, err := bundle.ReadAttachment(ctx, x.fetch, subject, d)
	if err != nil {
		return err
	}
	for _, b := range a.Blobs {
		if err := discardAll(ctx, x.fetch, b); err != nil {
			return err
		}
	}
	return nil
}

// tagged finds the entry of a tag.
func (x *index) tagged(tag string) (ocispec.Descriptor, bool) {
	i := slices.IndexFunc(x.entries, func(d ocispec.Descriptor) bool { return d.Annotations[ocispec.AnnotationRefName] == tag })
	if tag == "" || i < 0 {
		return ocispec.Descriptor{}, false
	}
	return x.entries[i], true
}

// changed is the fault of who would replace what he has not seen.
func changed(path, tag string) error {
	return &fault.Error{
		Reason: fault.Conflict, Op: "sign", Subject: path, Hint: "run the same command again: it adds to what is there now",
		Err: fmt.Errorf("another process has changed %s in the meantime", tag),
	}
}

// sameTags demands that the tags of attachments name what they named when they were read.
func sameTags(path string, atts []bundle.Attachment, was, is *index) error {
	for _, a := range atts {
		before, had := was.tagged(a.Tag)
		now, has := is.tagged(a.Tag)
		if had != has || before.Digest != now.Digest {
			return changed(path, a.Tag)
		}
	}
	return nil
}

// clearAway makes room where an interrupted run of something else left files.
func (w *FileWriter) clearAway(g *bundle.Graph, before noted) error {
	left, err := w.leftovers()
	if err != nil || len(left) == 0 {
		return err
	}
	if !w.o.Restart {
		return otherPull(w.dir.at(left[0]), g, before)
	}
	return w.removePartial()
}

// otherPull is the fault of what an interrupted run of something else left.
func otherPull(left string, g *bundle.Graph, before noted) error {
	why, hint := "an interrupted pull of another bundle left this file", "finish that pull with its own lock"
	switch {
	case before.about == "":
		why, hint = "it is not an interrupted pull's that can go on: its journal is not there", "remove it"
	case before.about == g.Root.Digest.String() || strings.HasPrefix(before.about, g.Root.Digest.String()+" "):
		why, hint = "an interrupted pull of this bundle left this file, with another --volume-size or --base", "finish that pull with the options that it had"
	}
	return &fault.Error{
		Reason: fault.Conflict, Op: "resume", Subject: left, Err: errors.New(why),
		Hint: hint + ", or drop " + fault.Quote(left) + " and what belongs to it: run the same command with --restart",
	}
}

// leftovers are the names of the archive's partial files, whole or in parts.
func (w *FileWriter) leftovers() ([]string, error) {
	dir, base := filepath.Dir(w.path), w.name()
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, storageFault("read", dir, err)
	}
	var out []string
	for _, e := range list {
		if name := e.Name(); len(name) > len(base) && name[:len(base)] == base && partialName.MatchString(name[len(base):]) {
			out = append(out, name)
		}
	}
	return out, nil
}

func (w *FileWriter) removePartial() error {
	left, err := w.leftovers()
	for _, name := range left {
		err = errors.Join(err, w.dir.remove(name))
	}
	return err
}

// isThere tells whether something has a name; a link counts, wherever it leads.
func isThere(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
