package render

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// limits holds a changed object against the manifest's. Settings and patches may change
// how pods run, and not
//
//   - what the object is: its names, what it selects by, the labels that it is selected by
//   - what its pods may do: security contexts, the node's network, processes and folders,
//     Secrets, accounts. To take something away is fine
//   - whose programs run: every image is one of the bundle's, and nothing is mounted over
//     what is in it
//   - where drivers look for their configuration, and who they take for the API server
//
// What may be changed of pods is listed ([podFields], [containerFields], [tunable],
// [mountPrefix]); what is not is the manifest's.
//
// After all the object is below the driver's ceiling like any manifest's.
type limits struct {
	source  *source
	field   string // of the spec
	was, is *unstructured.Unstructured
	found   []error
}

const limitHint = "leave that out of it: settings and patches change how pods run, and not what they may do"

func (l *limits) refuse(format string, args ...any) {
	l.found = append(l.found, &fault.Error{
		Reason: fault.Refused, Op: "change drivers", Subject: l.field, Hint: limitHint, Err: fmt.Errorf(format, args...),
	})
}

func (l *limits) check() error {
	if l.identity(); len(l.found) > 0 {
		return fault.Join(l.found...) // of another object nothing else can be told
	}
	if podSpec(l.was) != nil {
		l.pods()
	}
	l.networkConfig()
	f := &finding{op: "change drivers", subject: l.field, hint: limitHint}
	l.source.lintObject(drivers.CeilingOf(l.source.driver), l.is, f)
	unsigned := func(err error) bool { return fault.ReasonOf(err) == fault.Untrusted } // said with a better hint by image
	return fault.Join(append(l.found, slices.DeleteFunc(f.all, unsigned)...)...)
}

func (l *limits) identity() {
	if RefOf(l.was) != RefOf(l.is) {
		l.refuse("it makes another object of it, %s", RefOf(l.is))
		return
	}
	if podSpec(l.was) != nil && podSpec(l.is) == nil {
		l.refuse("it leaves no pods")
		return
	}
	selector := []string{"spec", "selector"}
	before, _, _ := unstructured.NestedFieldNoCopy(l.was.Object, selector...)
	after, _, _ := unstructured.NestedFieldNoCopy(l.is.Object, selector...)
	if !reflect.DeepEqual(before, after) {
		l.refuse("it changes the selector")
	}
	for _, at := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
		before, _, _ := unstructured.NestedStringMap(l.was.Object, at...)
		after, _, err := unstructured.NestedStringMap(l.is.Object, at...)
		for k, v := range before {
			if err != nil || after[k] != v {
				l.refuse("it changes the label %s, which the manifest has", k)
			}
		}
	}
}

// profiles are annotations of pods that took the place of fields of security contexts.
var profiles = []string{"container.apparmor.security.beta.kubernetes.io/", "container.seccomp.security.alpha.kubernetes.io/", "seccomp.security.alpha.kubernetes.io/"}

func (l *limits) annotations() {
	at := []string{"spec", "template", "metadata", "annotations"}
	before, _, _ := unstructured.NestedStringMap(l.was.Object, at...)
	after, _, _ := unstructured.NestedStringMap(l.is.Object, at...)
	for k, v := range after {
		if slices.ContainsFunc(profiles, func(p string) bool { return strings.HasPrefix(k, p) }) && before[k] != v {
			l.refuse("it sets the annotation %s", k)
		}
	}
}

// pods compares pod templates.
func (l *limits) pods() {
	l.annotations()
	was, is := podSpec(l.was), podSpec(l.is)
	for _, k := range []string{"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} {
		if is[k] == true && was[k] != true {
			l.refuse("it sets %s", k)
		}
	}
	l.fields("", podFields, was, is)
	if is["automountServiceAccountToken"] == true && was["automountServiceAccountToken"] == false {
		l.refuse("it sets automountServiceAccountToken")
	}
	l.tightens("the pods' securityContext", was["securityContext"], is["securityContext"])
	guarded := l.volumes(was, is)
	for _, field := range []string{"initContainers", "containers"} {
		l.containers(named(was[field]), named(is[field]), guarded)
	}
}

// named are the items of a list by their names.
func named(list any) map[string]map[string]any {
	out := map[string]map[string]any{}
	items, _ := list.([]any)
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out[fmt.Sprint(m["name"])] = m
		}
	}
	return out
}

func (l *limits) containers(was, is map[string]map[string]any, guarded map[string]bool) {
	for name := range was {
		if is[name] == nil {
			l.refuse("it takes container %s away", name)
		}
	}
	for name, c := range is {
		before := was[name]
		l.tightens("the securityContext of container "+name, before["securityContext"], c["securityContext"])
		l.image(name, c)
		l.mounts(name, before, c, guarded)
		if before == nil { // an image's own program, or one that the ceiling knows
			before = map[string]any{"name": c["name"], "command": c["command"]}
		}
		l.fields(" of container "+name, containerFields, before, c)
		l.flags(name, before, c)
		l.variables(name, before, c)
		for _, p := range list(c["ports"]) {
			port, _ := p.(map[string]any)
			if host, ok := port["hostPort"]; ok && podSpec(l.is)["hostNetwork"] != true && !slices.ContainsFunc(list(before["ports"]), func(b any) bool { return reflect.DeepEqual(b, p) }) {
				l.refuse("it gives container %s the node's port %v", name, host)
			}
		}
	}
}

func list(v any) []any {
	items, _ := v.([]any)
	return items
}

// image refuses what the bundle does not hold, by its name.
func (l *limits) image(name string, c map[string]any) {
	written, _ := c["image"].(string)
	if _, err := l.source.digest(written); err == nil {
		return
	}
	l.found = append(l.found, &fault.Error{
		Reason: fault.Untrusted, Op: "change drivers", Subject: l.field,
		Hint: "name an image of the bundle, as `vdo-bundle inspect` lists them; others do not come from the mirror, and nobody has signed them",
		Err:  fmt.Errorf("container %s has image %q, which the bundle does not hold", name, written),
	})
}

// adoptImages lets an object name images of the bundle that the release's own manifests do
// not, by the reference that the lock has of them, and returns those.
func (s *source) adoptImages(o *unstructured.Unstructured) []string {
	var adopted []string
	for _, c := range containers(podSpec(o)) {
		written, _ := c["image"].(string)
		if _, known := s.images[written]; !known && !s.digests[written].IsZero() {
			s.images[written] = written
			adopted = append(adopted, written)
		}
	}
	return adopted
}

// ownFlags say where drivers find their configuration and each other, and whom they take
// for the API server: settings of the VDOConfig, or nobody's to change.
var ownFlags = []string{
	"kubeconfig", "master", "config", "client-ca-file", "requestheader-client-ca-file", "authorization-always-allow-paths", "authentication-kubeconfig", "authorization-kubeconfig", "cloud-config", "cloud-provider",
	"csi-address", "fss-name", "fss-namespace", "kubelet-registration-path", "operation-mode",
	"supervisor-fss-name", "supervisor-fss-namespace", "enable-profile-server",
}

func (l *limits) flags(name string, was, is map[string]any) {
	for _, f := range ownFlags {
		if before, after := valuesOf(was, f), valuesOf(is, f); !slices.Equal(before, after) {
			l.refuse("it changes --%s of container %s", f, name)
		}
	}
}

// valuesOf are the arguments of a flag.
func valuesOf(c map[string]any, flag string) []string {
	var all []string
	for _, a := range argsOf(c) {
		if flagName(a) == flag {
			all = append(all, fmt.Sprint(a))
		}
	}
	return all
}

// tightens lets a security context allow less, and never more.
func (l *limits) tightens(what string, was, is any) {
	before, _ := was.(map[string]any)
	after, _ := is.(map[string]any)
	for k, v := range after {
		if !reflect.DeepEqual(before[k], v) && !tighter(k, before[k], v) {
			l.refuse("it changes %s of %s", k, what)
		}
	}
	for k, v := range before {
		if _, still := after[k]; !still && !slices.Contains(loose, fmt.Sprint(k, "=", v)) {
			l.refuse("it takes %s out of %s", k, what)
		}
	}
}

// loose are settings that may go: what they allow is not allowed without them.
var loose = []string{"privileged=true"}

func tighter(key string, was, is any) bool {
	switch key {
	case "runAsNonRoot", "readOnlyRootFilesystem":
		return is == true
	case "privileged", "allowPrivilegeEscalation":
		return is == false
	case "runAsUser", "runAsGroup":
		n, ok := is.(int64)
		return ok && n > 0
	case "seccompProfile", "appArmorProfile":
		profile, _ := is.(map[string]any)
		return was == nil && profile["type"] == string(corev1.SeccompProfileTypeRuntimeDefault)
	case "capabilities":
		before, _ := was.(map[string]any)
		after, _ := is.(map[string]any)
		return subset(list(after["add"]), list(before["add"])) && subset(list(before["drop"]), list(after["drop"]))
	}
	return false
}

func subset(part, whole []any) bool {
	return !slices.ContainsFunc(part, func(v any) bool { return !slices.Contains(whole, v) })
}
