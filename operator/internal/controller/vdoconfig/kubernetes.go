package vdoconfig

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
)

// answersCount is how long all answers must be newer before they count while an API server is silent.
const answersCount = time.Hour

// kubernetes is the version that drivers are chosen for.
type kubernetes struct {
	reported string // such as "v1.33.4"
	version  matrix.Version
	mixed    string   // why the API servers differ in minor version, "" if they do not
	notes    []string // for the status
	unread   error    // why the API servers cannot be asked before a person acts
	// newerSince is the time since which all answers have a newer minor that does not count yet.
	newerSince time.Time
}

// kubernetesFor returns the version that drivers are chosen for: the lowest of the API servers, and never lower than
// the remembered one. While an API server is silent or answers without a version, the minor rises only after all
// answers were newer for [answersCount] since newerSince. It fails if no version is known.
func kubernetesFor(servers []assess.APIServer, remembered string, newerSince, now time.Time) (kubernetes, error) {
	known, silent, answered := versionsOf(servers)
	before, err := matrix.ParseKubernetes(remembered)
	reconstructed := err == nil
	if len(known) == 0 && (!answered || !reconstructed) {
		return kubernetes{}, fault.Errorf(fault.Unreachable, "read", "the version of the API servers", "",
			"none of %d answers with a version: %s", len(servers), few(silent))
	}
	if len(known) == 0 {
		known = []kubernetes{{reported: remembered, version: before}}
	}
	older := func(a, b kubernetes) int { return a.version.Compare(b.version) }
	minors := func(a, b kubernetes) int { return a.version.Minor().Compare(b.version.Minor()) }
	chosen, highest := slices.MinFunc(known, older), slices.MaxFunc(known, older)
	var notes []string
	mixed := ""
	if minors(chosen, highest) != 0 {
		mixed = fmt.Sprintf("the API servers are of Kubernetes %s to %s", chosen.reported, highest.reported)
		notes = append(notes, mixed)
	}
	if was := (kubernetes{reported: remembered, version: before}); reconstructed {
		newer := minors(chosen, was)
		if newer < 0 {
			notes = append(notes, "an API server is of Kubernetes "+chosen.reported)
		}
		if newerSince.IsZero() || newerSince.After(now) {
			newerSince = now
		}
		counts := newerSince.Add(answersCount)
		switch {
		case newer > 0 && len(silent) > 0 && now.Before(counts):
			notes = append(notes, fmt.Sprintf("Kubernetes %s counts from %s on, unless an older one answers before",
				chosen.reported, counts.UTC().Format(time.RFC3339)))
			was.newerSince = newerSince
			chosen = was
		case older(chosen, was) < 0:
			chosen = was
		}
	}
	if len(silent) > 0 {
		notes = append(notes, "the version of some API servers is unknown: "+few(silent))
	}
	if len(notes) > 0 {
		notes = append(notes, "drivers are chosen for Kubernetes "+chosen.reported)
	}
	chosen.notes, chosen.mixed, chosen.unread = notes, mixed, unread(servers)
	return chosen, nil
}

// unread returns why the API servers are unknown until a person grants a right. A silent one may be in an upgrade, and
// answers later.
func unread(servers []assess.APIServer) error {
	for _, s := range servers {
		if s.Address == "" && fault.ReasonOf(s.Err) == fault.Forbidden {
			return s.Err
		}
	}
	return nil
}

// versionsOf returns the answered versions, why others are unknown, and whether any server answered. A proxy may answer
// with something else, which does not stop repairs of drift.
func versionsOf(servers []assess.APIServer) (known []kubernetes, silent []string, answered bool) {
	for _, s := range servers {
		answered = answered || s.Err == nil
		v, err := matrix.ParseKubernetes(s.Version)
		if s.Err == nil && err != nil {
			s.Err = fmt.Errorf("it answers with %.64q, which is no Kubernetes version", s.Version)
		}
		if s.Err != nil {
			silent = append(silent, strings.TrimPrefix(s.Address+": "+fault.Text(s.Err), ": "))
			continue
		}
		known = append(known, kubernetes{reported: s.Version, version: v})
	}
	return known, silent, answered
}

func few(all []string) string { return assess.Few(all, "; ") }
