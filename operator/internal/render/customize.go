package render

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// customize applies the settings of spec.drivers, then spec.patches in order, each within the driver's ceiling. It
// runs before all other changes, so that a patch cannot remove those.
func (r *renderer) customize(s *source) error {
	policy := r.in.Spec.PolicyOf(string(s.driver))
	errs := []error{s.settings(policy)}
	for i, p := range r.in.Spec.Patches {
		if p.Target.Driver == string(s.driver) {
			errs = append(errs, s.patch(fmt.Sprintf("spec.patches[%d]", i), p))
		}
	}
	// The ceiling for manifests allows no proxy, so that none comes from a bundle or a patch.
	return fault.Join(append(errs, setProxy(s, policy.Proxy))...)
}

func (s *source) settings(policy v1alpha1.DriverPolicy) error {
	field := fmt.Sprintf("spec.drivers[%s]", s.driver)
	var errs []error
	if policy.LogLevel == v1alpha1.LogDebug && !logMore(s) {
		errs = append(errs, badSpec(field+".logLevel", "leave it out", "%s has no log level that its manifests set", s.name()))
	}
	for _, w := range policy.Workloads {
		errs = append(errs, s.workload(fmt.Sprintf("%s.workloads[%s]", field, w.Name), w))
	}
	return fault.Join(errs...)
}

func (s *source) workload(field string, w v1alpha1.Workload) error {
	i, names := -1, []string(nil)
	for n, o := range s.objects {
		if podSpec(o) == nil {
			continue
		}
		if names = append(names, o.GetName()); o.GetName() == w.Name {
			i = n
		}
	}
	if i < 0 {
		return badSpec(field, "name one of these: "+strings.Join(names, ", "),
			"%s has no Deployment or DaemonSet %q", s.name(), w.Name)
	}
	changed := s.objects[i].DeepCopy()
	spec := podSpec(changed)
	errs := []error{selectNodes(field, spec, w.NodeSelector)}
	for _, t := range w.Tolerations {
		asMap, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&t)
		if err != nil {
			return err // a Toleration always converts
		}
		spec["tolerations"] = append(list(spec["tolerations"]), any(asMap))
	}
	if w.PriorityClassName != "" {
		spec["priorityClassName"] = w.PriorityClassName
		delete(spec, "priority")
	}
	for _, c := range w.Containers {
		errs = append(errs, customizeContainer(fmt.Sprintf("%s.containers[%s]", field, c.Name), changed, c))
	}
	if err := fault.Join(errs...); err != nil {
		return err
	}
	return s.replace(i, changed, field)
}

// selectNodes adds labels to a node selector. It refuses other values for the manifest's labels: a CSI node plugin
// for Linux would crash on Windows nodes.
func selectNodes(field string, spec map[string]any, more map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(more)) {
		have, v := child(spec, "nodeSelector"), more[k]
		if was, is := have[k]; is && was != v {
			return badSpec(field+".nodeSelector", "leave the label out, or use spec.patches", "the manifest selects nodes by %s=%v", k, was)
		}
		have[k] = v
	}
	return nil
}

func customizeContainer(field string, o *unstructured.Unstructured, given v1alpha1.Container) error {
	c := container(o, given.Name)
	if c == nil {
		var names []string
		for _, c := range containers(podSpec(o)) {
			names = append(names, fmt.Sprint(c["name"]))
		}
		return badSpec(field, "name one of these: "+strings.Join(names, ", "), "%s has no container %q", RefOf(o), given.Name)
	}
	if r := given.Resources; r != nil {
		have := child(c, "resources")
		for kind, given := range map[string]corev1.ResourceList{"requests": r.Requests, "limits": r.Limits} {
			for name, quantity := range given {
				child(have, kind)[string(name)] = quantity.String()
			}
		}
	}
	for _, a := range given.Args {
		setArg(c, a)
	}
	return nil
}

// child returns the map under a key for changing, and creates it if missing.
func child(m map[string]any, key string) map[string]any {
	have, ok := m[key].(map[string]any)
	if !ok {
		have = map[string]any{}
		m[key] = have
	}
	return have
}

// setArg sets a flag's value, in its existing place if it has one.
func setArg(c map[string]any, arg string) {
	if i := flagIndex(c, arg); i >= 0 {
		list(c["args"])[i] = arg
		return
	}
	c["args"] = append(list(c["args"]), any(arg))
}

// flagIndex returns the index of an argument's flag in a container's arguments, or -1.
func flagIndex(c map[string]any, arg string) int {
	return slices.IndexFunc(list(c["args"]), func(have any) bool { return flagName(have) == flagName(arg) })
}

// flagName returns the name of an argument's flag: both of Go's forms, -v and --v, are one.
func flagName(arg any) string {
	text, _ := arg.(string)
	name, _, _ := strings.Cut(text, "=")
	return strings.TrimLeft(name, "-")
}

const (
	logVariable = "LOGGER_LEVEL" // of the storage driver's own programs
	logDebug    = "DEVELOPMENT"
	logVerbose  = "--v=6" // of everything else
)

// logMore raises every level that the manifests set, and reports whether it found one.
func logMore(s *source) bool {
	found := false
	for _, o := range s.objects {
		for _, c := range containers(podSpec(o)) {
			if flagIndex(c, logVerbose) >= 0 {
				setArg(c, logVerbose)
				found = true
			}
			for _, e := range items(c["env"]) {
				if e["name"] == logVariable {
					e["value"], found = logDebug, true
				}
			}
		}
	}
	return found
}

// inCluster are the hosts that bypass a proxy. One is the API server, whose address the kubelet sets in this
// variable of every container; the rest are the cluster's services.
var inCluster = []string{"$(KUBERNETES_SERVICE_HOST)", "localhost", "127.0.0.1", "::1", ".svc", ".cluster.local"}

// setProxy sets the proxy in containers that call vCenters. Sidecars call the API server only.
func setProxy(s *source, p *v1alpha1.Proxy) error {
	if p == nil {
		return nil
	}
	field := fmt.Sprintf("spec.drivers[%s].proxy", s.driver)
	found := false
	for _, o := range s.objects {
		for _, name := range drivers.VCenterClients[RefOf(o).String()] {
			c := container(o, name)
			if c == nil {
				continue
			}
			found = true
			setVariable(c, "HTTPS_PROXY", p.HTTPS)
			setVariable(c, "HTTP_PROXY", p.HTTP)
			setVariable(c, "NO_PROXY", strings.Join(slices.Concat(inCluster, p.NoProxy), ","))
		}
	}
	if !found {
		return badSpec(field, "leave it out", "%s asks no vCenter", s.name())
	}
	return nil
}

func setVariable(c map[string]any, name, value string) {
	if value == "" {
		return
	}
	others := slices.DeleteFunc(list(c["env"]), func(e any) bool { // a patch may have set it
		m, ok := e.(map[string]any)
		return ok && m["name"] == name
	})
	c["env"] = append(others, any(map[string]any{"name": name, "value": value}))
}

// replace puts a changed object into the place of its original, if checkChanged allows it.
func (s *source) replace(i int, changed *unstructured.Unstructured, field string) error {
	was := s.objects[i]
	if reflect.DeepEqual(was.Object, changed.Object) {
		return nil
	}
	s.adoptImages(changed)
	if err := s.checkChanged(field, was, changed); err != nil {
		return err
	}
	s.objects[i] = changed
	return nil
}
