package operator

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/controller/driverbundle"
)

const maxFloorFile = 1 << 20 // bytes of the policy, and of each file that it names

// readFloor reads the policy of --trust-floor, and the files that it names, whose
// relative paths are beside it. "" is no floor. Faults are of fault.InvalidInput: an
// operator that was to have a floor does not start without it. The id identifies what was
// read.
func readFloor(name string) (p *trust.Policy, id string, err error) {
	if name == "" {
		return nil, "", nil
	}
	return driverbundle.ReadFloor(name, readFloorFile)
}

func readFloorFile(name string) ([]byte, error) {
	data, err := readBounded(name)
	if err != nil {
		return nil, &fault.Error{
			Reason: fault.InvalidInput, Op: "read --trust-floor", Subject: name, Err: err,
			Hint: "mount the policy and the files that it names into the pod, in one folder, and name the policy's path",
		}
	}
	return data, nil
}

func readBounded(name string) ([]byte, error) {
	info, err := os.Stat(name) // before it is opened: a pipe would wait for a writer
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, errors.New("it is not there")
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it is only read
	data, err := io.ReadAll(io.LimitReader(f, maxFloorFile+1))
	if err == nil && len(data) > maxFloorFile {
		err = fmt.Errorf("longer than %d bytes", maxFloorFile)
	}
	return data, err
}
