package archive

import (
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Nothing is wrong with a disk where this machine may open no more files.
func TestTooManyOpenFilesAreNoFaultOfTheDisk(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE} {
		err := storageFault("open", "a.tar", &fs.PathError{Op: "open", Path: "a.tar", Err: errno})
		require.Equal(t, fault.Storage, fault.ReasonOf(err))
		require.Contains(t, fault.HintOf(err), "ulimit -n")
		require.NotContains(t, fault.HintOf(err), "disk")
	}
}
