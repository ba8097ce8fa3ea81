package userfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Kind is a kind of file that a command writes: an older one of it is what a new one
// may replace.
type Kind struct {
	Name   string         // with its article, for messages: "a lock"
	Begins *regexp.Regexp // matches the first 4 KiB of such files, and of no others
}

const headSize = 4 << 10

// Free makes sure that what a command writes may take a name. It is free where nothing
// is there, or nothing that is kept: an empty file, a pipe, a device. A file that is one
// of the inputs, by whatever name or link, or of another kind than what is written, is
// not replaced: it may be the only copy of a key, of a bundle, of anything.
func Free(flag, name string, kind Kind, inputs ...string) error {
	taken := func(why, hint string) error {
		return &fault.Error{Reason: fault.Conflict, Op: "write", Subject: name, Err: errors.New(why), Hint: hint}
	}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil //nolint:nilerr // it is made, or writing says why not
	case info.IsDir():
		return &fault.Error{
			Reason: fault.InvalidInput, Op: "write", Subject: name, Err: errors.New("it is a folder"),
			Hint: "name a file in it with " + flag,
		}
	}
	for _, input := range inputs {
		if in, err := os.Stat(input); err == nil && os.SameFile(in, info) {
			return taken("this command reads it", "choose another name with "+flag)
		}
	}
	if !info.Mode().IsRegular() || info.Size() == 0 || begins(name, kind) {
		return nil
	}
	return taken(fmt.Sprintf("it is there already, and is not %s", kind.Name),
		fmt.Sprintf("choose another name with %s, or remove the file if nobody needs it", flag))
}

// begins tells whether a file begins as those of a kind do. What cannot be read is not
// known, so it is not.
func begins(name string, kind Kind) bool {
	f, err := Open(name)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // only read
	head := make([]byte, headSize)
	n, err := io.ReadFull(f, head)
	return (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) && kind.Begins.Match(head[:n])
}
