package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
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
	data, err := readFloorFile(name)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	_, _ = sum.Write(data)
	p, err = trust.ParsePolicy(name, data, func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(name), path)
		}
		file, err := readFloorFile(path)
		_, _ = sum.Write(file)
		return file, err
	})
	if err != nil {
		return nil, "", &fault.Error{Reason: fault.InvalidInput, Op: "read --trust-floor", Err: err, Hint: fault.HintOf(err)}
	}
	return p, hex.EncodeToString(sum.Sum(nil)), nil
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
