package archive

import (
	"io"
	"os"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/ondisk"
)

// extent is a stream of a blob that lies at one place of an archive.
type extent struct {
	*io.SectionReader // what is left of it
	in                storage
	at, size          int64 // of the whole blob, in the storage
}

// Close does nothing: the files are the archive's.
func (e *extent) Close() error { return nil }

// OnDisk returns the blob, for who leaves the reading to the kernel.
func (e *extent) OnDisk() *ondisk.Blob {
	return &ondisk.Blob{ReaderAt: io.NewSectionReader(e.in, e.at, e.size), Size: e.size, Span: e.span, State: e.state}
}

// span finds the file and the place of an offset.
func (e *extent) span(offset int64) (f *os.File, at, n int64) {
	at, n = e.at+offset, e.size-offset
	v, ok := e.in.(*volumes)
	if !ok {
		return e.in.(*os.File), at, n //nolint:forcetypeassert // a storage is one or the other
	}
	i, within := at/v.volume, at%v.volume
	return v.files[i], within, min(n, v.volume-within)
}

// state looks at the files that the blob lies in.
func (e *extent) state() (ondisk.State, error) {
	var all strings.Builder
	for offset := int64(0); ; {
		f, _, n := e.span(offset)
		state, err := stateOf(f)
		if err != nil {
			return "", storageFault("read", f.Name(), err)
		}
		all.WriteString(state)
		if offset += n; offset >= e.size {
			return ondisk.State(all.String()), nil
		}
	}
}

// blobFile is a stream of a blob that has a file of its own.
type blobFile struct {
	*os.File
	size int64
}

// OnDisk returns the blob, for who leaves the reading to the kernel.
func (b *blobFile) OnDisk() *ondisk.Blob {
	return &ondisk.Blob{
		ReaderAt: io.NewSectionReader(b.File, 0, b.size), Size: b.size,
		Span: func(offset int64) (*os.File, int64, int64) { return b.File, offset, b.size - offset },
		State: func() (ondisk.State, error) {
			state, err := stateOf(b.File)
			return ondisk.State(state), storageFault("read", b.Name(), err)
		},
	}
}
