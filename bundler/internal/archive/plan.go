package archive

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
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
	at, there, err := w.earlier(layout)
	if err != nil {
		return nil, err
	}
	if err := checkSpace(w.path, layout.size+recoverySize(layout, w.o)-there); err != nil {
		return nil, err
	}
	var out []ocispec.Descriptor
	for _, e := range layout.entries[2:] {
		p := at[e.d.Digest.Encoded()]
		if whole := p.state == nil && p.offset == e.size && e.size > 0; e.data == nil && !whole {
			out = append(out, e.d)
		}
	}
	return out, nil
}

// earlier reads what an interrupted run has left: how far each blob is, and how
// many bytes of the file have a place on the disk.
func (w *FileWriter) earlier(layout *Layout) (at map[string]progress, there int64, err error) {
	first := w.partial()
	if w.o.VolumeSize > 0 {
		if _, err := parts.New(filepath.Base(w.path), layout.size, w.o.VolumeSize, w.o.Recovery); err != nil {
			return nil, 0, err
		}
		first = w.partPath(0)
	}
	data, err := os.Open(first)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, storageFault("read", w.partial(), err)
	}
	defer data.Close() //nolint:errcheck // only read
	f, err := os.Open(w.journalPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, storageFault("read", w.journalPath(), err)
	}
	about := ""
	if err == nil {
		defer f.Close() //nolint:errcheck // only read
		about, at, _ = readJournal(f)
	}
	switch {
	case about == identity(layout, w.o):
		return at, w.takenBy(data), nil
	case w.o.Restart:
		return nil, w.takenBy(data), nil // its space is given back
	}
	return nil, 0, w.otherBundle()
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
	var out []ocispec.Descriptor
	var need int64
	for _, d := range g.Order() {
		if w.whole(d) {
			continue
		}
		need += padded(d.Size)
		if info, err := os.Lstat(w.partPath(d)); err == nil {
			need -= info.Size()
		}
		if d.Data == nil {
			out = append(out, d)
		}
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

// writable tries to make a file in a folder.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".vdo-bundle-*")
	if err != nil {
		return storageFault("write into", dir, err)
	}
	return storageFault("write into", dir, errors.Join(f.Close(), os.Remove(f.Name())))
}
