package vcenter

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// errNoDatacenter says that an account sees none.
var errNoDatacenter = errors.New("the account sees no datacenter")

// judge says what is wrong with the datacenters found.
func (t Target) judge(r *Report) error {
	if len(r.Missing) > 0 {
		return missingFault(t.Address(), r.Missing, r.Datacenters)
	}
	if len(r.Datacenters) == 0 {
		return &fault.Error{
			Reason: fault.Forbidden, Op: "list the datacenters of", Subject: t.Address(), Err: errNoDatacenter,
			Hint: "give " + t.Username + " the role ReadOnly on the vCenter's root, or on its datacenters"}
	}
	return nil
}

// missing returns those wanted that are not among the paths. A path may be written
// with or without its leading slash.
func missing(wanted, paths []string) []string {
	var out []string
	for _, w := range wanted {
		if !slices.Contains(paths, "/"+strings.Trim(w, "/")) && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// missingFault names all that is missing at once, and where a name is right but
// its folder was left out, the path to write.
func missingFault(address string, missing, paths []string) error {
	hint := "correct spec.datacenters, or give the account the role ReadOnly on the datacenter and its folders"
	quoted := make([]string, len(missing))
	for i, name := range missing {
		quoted[i] = strconv.Quote(name)
	}
	if better := suggest(missing, paths); len(better) > 0 {
		hint = "a datacenter in a folder is named with it: write " + strings.Join(better, ", ") + " in spec.datacenters"
	}
	found := errNoDatacenter.Error()
	if len(paths) > 0 {
		found = "the account sees " + strings.Join(paths, ", ")
	}
	return fault.Errorf(fault.NotFound, "find datacenters in", address, hint, "%s not there or not readable; %s",
		strings.Join(quoted, ", "), found)
}

// suggest returns the paths whose last element is a missing name.
func suggest(missing, paths []string) []string {
	var out []string
	for _, m := range missing {
		for _, p := range paths {
			if base := p[strings.LastIndex(p, "/")+1:]; base == m[strings.LastIndex(m, "/")+1:] {
				out = append(out, strings.TrimPrefix(p, "/"))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
