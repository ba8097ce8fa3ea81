package driverbundle

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

// ReadFloor reads the operator's own policy and the files that it names, whose relative paths
// are beside it. The id identifies what was read, in whatever way read gets at it. Faults are
// of fault.InvalidInput, but for those of read.
func ReadFloor(name string, read func(path string) ([]byte, error)) (p *trust.Policy, id string, err error) {
	data, err := read(name)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	_, _ = sum.Write(data)
	p, err = trust.ParsePolicy(name, data, func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(name), path)
		}
		file, err := read(path)
		_, _ = sum.Write(file)
		return file, err
	})
	if err != nil {
		return nil, "", &fault.Error{Reason: fault.InvalidInput, Op: "read --trust-floor", Err: err, Hint: fault.HintOf(err)}
	}
	return p, hex.EncodeToString(sum.Sum(nil)), nil
}
