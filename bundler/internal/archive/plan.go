package archive

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/atomicfile"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/parts"
)

// Plan tells what Begin would return, without writing anything, and refuses what
// Begin would refuse. What an interrupted run has noted as whole is believed.
func (w *FileWriter) Plan(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	layout, err := NewLayout(g)
	if err != nil {
		return nil, err
	}
	if whole, err := w.isThere(ctx, g, false); err != nil || whole {
		return nil, err
	}
	at, there, err := w.earlier(g, layout)
	if err != nil {
		return nil, err
	}
	if err := checkSpace(w.path, layout.size+recoverySize(layout, w.o)-there); err != nil {
		return nil, err
	}
	var out []ocispec.Descriptor
	for _, e := range layout.entries[2:] {
		if e.data == nil && !at[e.d.Digest.Encoded()].whole(e) {
			out = append(out, e.d)
		}
	}
	return out, nil
}

// earlier reads what an interrupted run has left: how far each blob is, and how
// many bytes of the file have a place on the disk.
func (w *FileWriter) earlier(g *bundle.Graph, layout *Layout) (at map[string]progress, there int64, err error) {
	first := w.partial()
	if w.o.VolumeSize > 0 {
		if _, err := parts.New(filepath.Base(w.path), layout.size, w.o.VolumeSize, w.o.Recovery); err != nil {
			return nil, 0, err
		}
		first = w.partPath(0)
	}
	data, err := openRegular(first)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, storageFault("read", w.partial(), err)
	}
	defer data.Close() //nolint:errcheck // only read
	f, err := openRegular(w.journalPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, storageFault("read", w.journalPath(), err)
	}
	before := noted{}
	if err == nil {
		defer f.Close() //nolint:errcheck // only read
		before = readJournal(f)
	}
	switch {
	case before.about == identity(g, w.o):
		return before.at, w.takenBy(data), nil
	case w.o.Restart:
		return nil, w.takenBy(data), nil // its space is given back
	}
	return nil, 0, otherPull(first, g, before)
}

// Preflight makes sure that files can be written where the archive will be.
func (w *FileWriter) Preflight(context.Context) error { return writable(filepath.Dir(w.path)) }

// Plan tells what Begin would return, without writing anything, and refuses what
// Begin would refuse.
func (w *DirWriter) Plan(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := w.checkFolder(g); err != nil {
		return nil, err
	}
	root, err := atomicfile.OpenRoot(w.path)
	if err == nil {
		defer root.Close() //nolint:errcheck // only read
	}
	out, need, err := (&DirWriter{path: w.path, o: w.o}).missing(ctx, g, root)
	if err != nil {
		return nil, err
	}
	return out, checkSpace(w.existing(), need)
}

// existing is a path in the innermost folder of the writer's path that is there.
func (w *DirWriter) existing() string {
	path := filepath.Join(w.path, indexName)
	for {
		dir := filepath.Dir(path)
		if _, err := os.Stat(dir); err == nil || dir == path {
			return path
		}
		path = dir
	}
}

// Preflight makes sure that files can be written where the folder is, or will be.
func (w *DirWriter) Preflight(context.Context) error { return writable(filepath.Dir(w.existing())) }

// Plan tells what Begin returns.
func (s *StreamWriter) Plan(ctx context.Context, g *bundle.Graph) ([]ocispec.Descriptor, error) {
	return NewStreamWriter(s.w).Begin(ctx, g)
}

// writable asks whether files can be made in a folder.
func writable(dir string) error { return storageFault("write into", dir, mayWrite(dir)) }
