package drift

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// kinds are those that are repaired as a whole.
var kinds = map[string]string{
	"Secret":                   "it holds what drivers log in with",
	"CustomResourceDefinition": "all resources of its kind depend on it",
	"Namespace":                "its labels say which pods may run in it",
	"CSIDriver":                "volumes are attached through it",
	"ClusterRole":              "its labels and rules give rights",
	"Role":                     "it gives rights",
	"ClusterRoleBinding":       "it gives rights",
	"RoleBinding":              "it gives rights",
}

// anywhere are the fields of objects of any kind that may be left to others, with what is
// below; * is any one key or index.
var anywhere = []string{"/metadata/labels/*", "/metadata/annotations/*"}

// ofWorkloads are those of Deployments and DaemonSets besides. None says what runs, as whom,
// with what of the node, or where it finds its configuration.
var ofWorkloads = []string{
	"/spec/replicas", "/spec/minReadySeconds", "/spec/revisionHistoryLimit", "/spec/progressDeadlineSeconds",
	"/spec/strategy", "/spec/updateStrategy",
	"/spec/template/metadata/annotations/*",
	"/spec/template/spec/affinity", "/spec/template/spec/nodeSelector", "/spec/template/spec/tolerations",
	"/spec/template/spec/topologySpreadConstraints", "/spec/template/spec/schedulerName",
	"/spec/template/spec/priorityClassName", "/spec/template/spec/priority", "/spec/template/spec/preemptionPolicy",
	"/spec/template/spec/terminationGracePeriodSeconds",
	"/spec/template/spec/containers/*/resources",
}

// own begin the keys of labels and annotations that are always repaired: the operator's,
// and those of pods that took the place of fields of security contexts.
var own = []string{
	"vdo.vmware.com/", "app.kubernetes.io/managed-by",
	"container.apparmor.security.beta.kubernetes.io/", "container.seccomp.security.alpha.kubernetes.io/", "seccomp.security.alpha.kubernetes.io/",
}

// allowed refuses what is not listed.
func allowed(kind string, path []string) error {
	if why := kinds[kind]; why != "" {
		return fmt.Errorf("a %s is always repaired: %s", kind, why)
	}
	fields := anywhere
	if kind == "Deployment" || kind == "DaemonSet" {
		fields = slices.Concat(anywhere, ofWorkloads)
	}
	i := slices.IndexFunc(fields, func(f string) bool { return within(f, path) })
	if i < 0 {
		return fmt.Errorf("it is always repaired; of a %s these may be left to others: %s", kind, strings.Join(fields, ", "))
	}
	if key := path[len(strings.Split(fields[i], "/"))-2]; strings.HasSuffix(fields[i], "/*") && slices.ContainsFunc(own, func(p string) bool { return strings.HasPrefix(key, p) }) {
		return errors.New("it is always repaired: the operator knows its objects by it, or it says with which rights pods run")
	}
	return nil
}

// within tells whether a path leads to a field or to something below it.
func within(field string, path []string) bool {
	tokens := strings.Split(field, "/")[1:]
	if len(path) < len(tokens) {
		return false
	}
	for i, t := range tokens {
		if t != "*" && t != path[i] {
			return false
		}
	}
	return true
}
