package matrixcmd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// minors reads values such as 1.33 and 1.30-1.33.
func minors(values []string) ([]matrix.Minor, error) {
	var out []matrix.Minor
	for _, value := range values {
		some, err := matrix.ParseMinors(value)
		if err != nil {
			return nil, bad("--k8s", value, err)
		}
		out = append(out, some...)
	}
	slices.SortFunc(out, matrix.Minor.Compare)
	return slices.Compact(out), nil
}

// vCenters reads values such as 8.0.3, 7.0U3, east=8.0.3 and 6.7.0+14367737, where
// the part after the plus is the build.
func vCenters(values []string) ([]matrix.VCenter, error) {
	var out []matrix.VCenter
	var problems []error
	for i, value := range values {
		v, err := vCenter(value)
		if err != nil {
			problems = append(problems, bad("--vsphere", value, err))
			continue
		}
		if v.Name == "" && len(values) > 1 {
			v.Name = strconv.Itoa(i + 1)
		}
		out = append(out, v)
	}
	return out, fault.Join(problems...)
}

func vCenter(value string) (v matrix.VCenter, err error) {
	name, rest, named := strings.Cut(value, "=")
	if named {
		v.Name = name
	} else {
		rest = value
	}
	version, build, built := strings.Cut(rest, "+")
	if built {
		if v.Build, err = strconv.ParseUint(build, 10, 53); err != nil {
			return v, fmt.Errorf("the build %q is not a number", build)
		}
	}
	v.Version, err = matrix.ParseVSphere(version)
	return v, err
}

// releases reads values such as csi@3.5.1, one for a driver.
func releases(flag string, values []string) (map[matrix.Driver]matrix.Version, error) {
	out := map[matrix.Driver]matrix.Version{}
	var problems []error
	for _, value := range values {
		id, err := matrix.ParseReleaseID(value)
		if err == nil && !out[id.Driver].IsZero() {
			err = fmt.Errorf("%s is given twice", id.Driver)
		}
		if err != nil {
			problems = append(problems, bad(flag, value, err))
			continue
		}
		out[id.Driver] = id.Version
	}
	return out, fault.Join(problems...)
}

// rules reads values such as csi=lts.
func rules(values []string) (map[matrix.Driver]matrix.Rule, error) {
	out := map[matrix.Driver]matrix.Rule{}
	var problems []error
	for _, value := range values {
		driver, rule, err := parseRule(value)
		if err == nil && out[driver] != "" {
			err = fmt.Errorf("%s is given twice", driver)
		}
		if err != nil {
			problems = append(problems, bad("--select", value, err))
			continue
		}
		out[driver] = rule
	}
	return out, fault.Join(problems...)
}

func parseRule(value string) (matrix.Driver, matrix.Rule, error) {
	name, word, found := strings.Cut(value, "=")
	if !found {
		return "", "", fmt.Errorf("write it as DRIVER=RULE, such as csi=lts")
	}
	driver, err := matrix.ParseDriver(name)
	if err != nil {
		return "", "", err
	}
	switch rule := matrix.Rule(word); rule {
	case matrix.Latest, matrix.PreferLT, matrix.Disabled:
		return driver, rule, nil
	}
	return "", "", fmt.Errorf("%q is not one of latest, lts, disabled", word)
}
