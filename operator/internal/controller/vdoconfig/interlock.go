package vdoconfig

import (
	"maps"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// interlock is what an upgrade waits for because it changes just now, "" where nothing does.
func (s *site) interlock() string {
	var all []string
	if s.kubernetes.mixed != "" {
		all = append(all, s.kubernetes.mixed+": drivers are upgraded once all of them are of one version")
	}
	for _, d := range slices.Sorted(maps.Keys(s.observed.Unread)) {
		all = append(all, "what runs of "+string(d)+" cannot be read: "+fault.Text(s.observed.Unread[d]))
	}
	return sentences(all...)
}

// sentences joins those that are not empty.
func sentences(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return s == "" }), "; ")
}
