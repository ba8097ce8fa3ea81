package userfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const headSize = 4 << 10

// Free makes sure that what a command writes may take a name. It is free where nothing
// is there, or nothing that is kept: an empty file, a pipe, a device. A file that is one
// of the inputs, by whatever name or link, is not replaced, and neither is one of which
// replaces says so, which is shown the first 4 KiB.
func Free(flag, name string, replaces func(head []byte) bool, inputs ...string) error {
	taken := func(why, hint string) error {
		return &fault.Error{Reason: fault.Conflict, Op: "write", Subject: name, Err: errors.New(why), Hint: hint}
	}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil //nolint:nilerr // it is made, or writing says why not
	case info.IsDir():
		return fault.Errorf(fault.InvalidInput, "write", name, "name a file in it with "+flag, "it is a folder")
	}
	for _, input := range inputs {
		if in, err := os.Stat(input); err == nil && os.SameFile(in, info) {
			return taken("this command reads it", "choose another name with "+flag)
		}
	}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return nil
	}
	head, err := headOf(name)
	if err == nil && replaces(head) {
		return nil
	}
	return taken("it is there already, and this command does not write such files",
		fmt.Sprintf("choose another name with %s, or remove the file if nobody needs it", flag))
}

// IsText reports whether a file begins as texts that are written again and again, such as locks and pages:
// it is no key, no list of a bundle's parts, and has none of the bytes that keys, parts and archives have.
func IsText(head []byte) bool {
	binary := func(c byte) bool { return c < ' ' && c != '\n' && c != '\r' && c != '\t' }
	return !slices.ContainsFunc(head, binary) && !bytes.Contains(head, []byte("-----BEGIN ")) &&
		!IsParts(head)
}

// IsParts reports whether a file begins as a list of a bundle's parts, see package parts.
func IsParts(head []byte) bool { return bytes.HasPrefix(head, []byte("# vdo-bundle parts ")) }

func headOf(name string) ([]byte, error) {
	f, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return io.ReadAll(io.LimitReader(f, headSize))
}
