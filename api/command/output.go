package command

import (
	"errors"
	"io/fs"
	"os"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Output is standard output. It remembers a failed write, which is a fault, for printers that ignore it.
type Output struct {
	f      *os.File
	failed error
}

// Stdout returns the program's standard output.
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

// Failed returns the fault of the last failed write, or nil.
func (o *Output) Failed() error { return o.failed }

// Fd returns the file's descriptor.
func (o *Output) Fd() uintptr { return o.f.Fd() }
