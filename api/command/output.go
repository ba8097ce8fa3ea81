package command

import (
	"errors"
	"io/fs"
	"os"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Output is standard output. That it takes no more is a fault, and is not forgotten
// where a printer does not look.
type Output struct {
	f      *os.File
	failed error
}

// Stdout is the program's.
func Stdout() *Output { return &Output{f: os.Stdout} }

// Write writes all of p.
func (o *Output) Write(p []byte) (int, error) {
	n, err := o.f.Write(p)
	if err != nil {
		if path, ok := errors.AsType[*fs.PathError](err); ok {
			err = path.Err
		}
		o.failed = fault.Errorf(fault.Storage, "write", "standard output",
			"free space where it leads, or lead it elsewhere, and run the same command again", "%w", err)
		return n, o.failed
	}
	return n, nil
}

// Failed is the fault of the last write that failed, if any did.
func (o *Output) Failed() error { return o.failed }

// Fd is that of the file.
func (o *Output) Fd() uintptr { return o.f.Fd() }
