package render

import (
	"fmt"
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

// customize changes a release's objects as the spec asks: the settings of spec.drivers
// first, then spec.patches in their order. It is done to upstream's objects, before
// anything else is, so that what rendering does to them is done to the changed ones and
// cannot be patched away. Each step is held to the driver's ceiling.
func (r *renderer) customize(s *source) error {
	policy := r.in.Spec.PolicyOf(string(s.driver))
	errs := []error{s.settings(policy)}
	for i, p := range r.in.Spec.Patches {
		if p.Target.Driver == string(s.driver) {
			errs = append(errs, s.patch(patchField(i), p))
		}
	}
	// The ceiling of manifests knows no proxy, so that none comes from a bundle or a patch.
	return fault.Join(append(errs, setProxy(s, policy.Proxy))...)
}

func patchField(i int) string { return fmt.Sprintf("spec.patches[%d]", i) }

// settings applies what spec.drivers says of a driver's pods.
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

// selectNodes adds to a node selector. What the manifest selects by stays: a CSI node
// plugin for Linux on Windows nodes would fall over there.
func selectNodes(field string, spec map[string]any, more map[string]string) error {
	for k, v := range more {
		have := child(spec, "nodeSelector")
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

// child is the map under a key for changing, made where there is none.
func child(m map[string]any, key string) map[string]any {
	have, ok := m[key].(map[string]any)
	if !ok {
		have = map[string]any{}
		m[key] = have
	}
	return have
}

// setArg gives a flag its value, in the place of the one that is there.
func setArg(c map[string]any, arg string) {
	if i := flagIndex(c, arg); i >= 0 {
		list(c["args"])[i] = arg
		return
	}
	c["args"] = append(list(c["args"]), any(arg))
}

// flagIndex is where a container's arguments have the flag of an argument, or -1.
func flagIndex(c map[string]any, arg string) int {
	return slices.IndexFunc(list(c["args"]), func(have any) bool { return flagName(have) == flagName(arg) })
}

// flagName is the name of an argument's flag: both of Go's forms, -v and --v, are one.
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

// logMore turns up every level that the manifests set, and tells whether there was one.
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

// inCluster is what is never reached through a proxy: the API server, whose address the
// kubelet gives to every container in this variable, and the cluster's services.
var inCluster = []string{"$(KUBERNETES_SERVICE_HOST)", "localhost", "127.0.0.1", "::1", ".svc", ".cluster.local"}

// setProxy lets the containers that ask vCenters do so through a proxy. Sidecars talk to
// the API server alone.
func setProxy(s *source, p *v1alpha1.Proxy) error {
	if p == nil {
		return nil
	}
	field := fmt.Sprintf("spec.drivers[%s].proxy", s.driver)
	found := false
	for _, o := range s.objects {
		for _, name := range drivers.VCenterClients(RefOf(o).String()) {
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
	c["env"] = append(list(c["env"]), any(map[string]any{"name": name, "value": value}))
}

// replace takes a changed object in the place of the one that it was made from, where it may be.
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
