package metrics

import (
	"regexp"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

var versionForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}$`)

// drivers are the values of the label driver.
var drivers = []string{string(matrix.CNI), string(matrix.CPI), string(matrix.CSI), string(matrix.SnapshotController)}

// version returns what a vCenter or an API server calls its version, or "other" where it does not
// look like one.
func version(s string) string {
	if s == "" || versionForm.MatchString(s) {
		return s
	}
	return "other"
}
