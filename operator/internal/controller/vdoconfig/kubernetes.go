package vdoconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
)

// kubernetes is the version that drivers are chosen for.
type kubernetes struct {
	reported string // such as "v1.33.4"
	version  matrix.Version
	notes    []string // what is worth knowing of it
}

// chosenFor returns the version that drivers are chosen for: the lowest of the API
// servers in use, since all of them have to suit the drivers, and never one before that
// they were chosen for already, which is remembered. While an API server cannot be asked
// the version does not change, lest it be chosen higher than that one has; where nothing
// is remembered yet, the lowest of those that answer is all that is known.
func chosenFor(servers []assess.APIServer, remembered string) (kubernetes, error) {
	var known []kubernetes
	var silent []string
	for _, s := range servers {
		if s.Err != nil {
			silent = append(silent, silence(s))
			continue
		}
		v, err := matrix.ParseKubernetes(s.Version)
		if err != nil {
			return kubernetes{}, err
		}
		known = append(known, kubernetes{reported: s.Version, version: v})
	}
	if len(known) == 0 {
		return kubernetes{}, &fault.Error{Reason: fault.Unreachable, Op: "read", Subject: "the version of the API servers", Err: fmt.Errorf("none of %d answers", len(servers))}
	}
	older := func(a, b kubernetes) int { return a.version.Compare(b.version) }
	chosen, highest := slices.MinFunc(known, older), slices.MaxFunc(known, older)
	var notes []string
	if older(chosen, highest) != 0 {
		notes = append(notes, fmt.Sprintf("the API servers are of Kubernetes %s to %s", chosen.reported, highest.reported))
	}
	if before, err := matrix.ParseKubernetes(remembered); remembered != "" && err == nil {
		if chosen.version.LessThan(before) {
			notes = append(notes, fmt.Sprintf("an API server is of Kubernetes %s, which is older than %s that drivers were chosen for", chosen.reported, remembered))
		}
		if len(silent) > 0 || chosen.version.LessThan(before) {
			chosen = kubernetes{reported: remembered, version: before}
		}
	}
	if len(silent) > 0 {
		notes = append(notes, "not every API server can be asked for its version: "+few(silent))
	}
	if len(notes) > 0 {
		notes = append(notes, "drivers are chosen for Kubernetes "+chosen.reported)
	}
	chosen.notes = notes
	return chosen, nil
}

func silence(s assess.APIServer) string {
	if s.Address == "" {
		return fault.Text(s.Err)
	}
	return s.Address + ": " + fault.Text(s.Err)
}

// few joins the first few and counts the rest.
func few(all []string) string {
	const most = 3
	if len(all) <= most {
		return strings.Join(all, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(all[:most], "; "), len(all)-most)
}
