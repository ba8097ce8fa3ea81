package userfile

import (
	"errors"
	"fmt"
	"os"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Free returns an error unless a command may write a file under a name. It may if
// nothing exists there, or an empty file, a pipe or a device; with force also over
// another file, but never over one of the inputs, by whatever name or link.
func Free(flag, name string, force bool, inputs ...string) error {
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
			Hint: "name a file in it" + with("", flag),
		}
	}
	for _, input := range inputs {
		if in, err := os.Stat(input); err == nil && os.SameFile(in, info) {
			return taken("this command reads it", "choose another name with "+flag)
		}
	}
	if force || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil
	}
	hint := "replace it with --force"
	if flag != "" {
		hint = fmt.Sprintf("choose another name with %s, or %s", flag, hint)
	}
	return taken("the file exists", hint)
}
