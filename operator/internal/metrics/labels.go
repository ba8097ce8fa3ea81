package metrics

import (
	"regexp"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
)

// other is the label of what does not look like what it should be.
const other = "other"

var (
	reasonForm  = regexp.MustCompile(`^[A-Z][A-Za-z]{0,39}$`)
	versionForm = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}$`)
	digestForm  = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// drivers are the values of the label driver.
var drivers = []string{string(matrix.CNI), string(matrix.CPI), string(matrix.CSI), string(matrix.SnapshotController)}

func driver(s string) string {
	if slices.Contains(drivers, s) {
		return s
	}
	return other
}

// checks are the values of the label check.
var checks = preflight.IDs()

func check(s string) string {
	if slices.Contains(checks, preflight.ID(s)) {
		return s
	}
	return other
}

func reason(s string) string  { return formed(reasonForm, s) }
func version(s string) string { return formed(versionForm, s) }
func digest(s string) string  { return formed(digestForm, s) }

// formed returns s where it has the form, or is absent.
func formed(form *regexp.Regexp, s string) string {
	if s == "" || form.MatchString(s) {
		return s
	}
	return other
}
