// Package ondisk describes a blob that lies in files of this machine, so that who sends
// it can have the kernel do so, and can hash it beside the sending or not at all.
//
// A stream that is read from a disk is a [Stream] too. Who wraps one passes the value
// on, as a copy with what it adds:
//
//	disk := ondisk.Of(stream) // nil: it comes from elsewhere
//
// # States
//
// A [State] stands for what the files were at one moment: their device and inode, size,
// and the times of their last change. Bytes that had their digest in a state have it as
// long as the state is the same; once it is another, they have to be hashed again. Two
// things can change bytes and leave the state: a write within the same tick of the file
// system's clock as the state (some milliseconds), and what goes past the file system,
// to the device, or to pages that are mapped and were dirty before. What is built on
// states therefore has a second guard: a registry hashes all that it is sent.
package ondisk

import (
	"io"
	"os"
)

// State is what the files of a blob were at one moment. Empty: no state.
type State string

// Blob is a blob in one or several files. Offsets are of the blob's bytes.
type Blob struct {
	io.ReaderAt // of the Size bytes
	Size        int64
	// Span returns the file that has the byte at an offset, where in the file that is,
	// and how many bytes of the blob follow there, this one included.
	Span func(offset int64) (f *os.File, at, n int64)
	// State looks at the files.
	State func() (State, error)
	// Verified is the state in which the bytes were read and had their digest; empty
	// where nobody has read them.
	Verified State
	// Moved hears up to which offset bytes were sent that nobody has read from the
	// stream; nil: nobody hears it.
	Moved func(offset int64)
}

// Stream is a stream of a blob's bytes that come from files.
type Stream interface {
	// OnDisk returns the whole blob; nil where it is not in files after all.
	OnDisk() *Blob
}

// Of returns the blob of a stream; nil of one that comes from elsewhere.
func Of(r io.Reader) *Blob {
	if s, ok := r.(Stream); ok {
		return s.OnDisk()
	}
	return nil
}
