// Package drift decides about objects that another manager has changed. It decides which fields are left to others,
// whether a difference is repaired, and what follows if it comes back each time. It is pure.
//
// # Fields that are left to others
//
// A rule of spec.drift.ignore names fields by JSON pointers. Once another manager has set such a field, the operator
// omits it from what it applies. By the rules of server-side apply the other manager alone owns it then. Before, the
// operator applies the live value again: omitting it would have the API server remove it. A missing object is created
// whole.
//
// Only listed fields may be left to others (see [allowed]): single labels and annotations. Deployments and
// DaemonSets add the number, placement, resources and replacement of pods. All other fields define an object, the
// permissions it gives, or what runs with which permissions. An editor of a VDOConfig must not turn their repair off.
package drift

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// Rules are the drift rules of a VDOConfig. The zero value repairs everything.
type Rules struct{ rules []rule }

type rule struct {
	v1alpha1.DriftIgnore
	paths [][]string
}

// Parse parses a policy; nil is none. An invalid rule is an InvalidInput fault that names it; the other rules count.
func Parse(p *v1alpha1.DriftPolicy) (Rules, error) {
	if p == nil {
		return Rules{}, nil
	}
	var out Rules
	var errs []error
	for i, from := range p.Ignore {
		r := rule{DriftIgnore: from}
		for _, text := range from.Paths {
			path, err := pointer(text)
			if err == nil {
				err = allowed(from.Kind, path)
			}
			if err != nil {
				errs = append(errs, fault.Errorf(fault.InvalidInput, "read",
					fmt.Sprintf("spec.drift.ignore[%d], path %s", i, text),
					"name a single field that another tool sets, such as /spec/replicas", "%w", err))
				continue
			}
			r.paths = append(r.paths, path)
		}
		out.rules = append(out.rules, r)
	}
	return out, fault.Join(errs...)
}

// pointer parses a JSON pointer (RFC 6901) to a field within an object.
func pointer(text string) ([]string, error) {
	rest, ok := strings.CutPrefix(text, "/")
	if !ok || rest == "" {
		return nil, errors.New("it is no JSON pointer: it begins with a slash and names a field")
	}
	tokens := strings.Split(rest, "/")
	for i, t := range tokens {
		if bad := strings.NewReplacer("~0", "", "~1", "").Replace(t); t == "" || strings.Contains(bad, "~") {
			return nil, fmt.Errorf("its part %q is none: a slash within a key is ~1, a tilde ~0", t)
		}
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(t)
	}
	return tokens, nil
}

// Omits reports whether a rule leaves a field, or a field below it, to others in a driver's objects of a kind.
func (r Rules) Omits(kind string, d matrix.Driver, field ...string) bool {
	return slices.ContainsFunc(r.rules, func(rule rule) bool {
		return rule.Kind == kind && (rule.Driver == "" || rule.Driver == string(d)) && slices.ContainsFunc(rule.paths, func(path []string) bool {
			return len(path) >= len(field) && slices.Equal(path[:len(field)], field)
		})
	})
}

// of returns the paths that the rules name in an object.
func (r Rules) of(o *unstructured.Unstructured, d matrix.Driver) [][]string {
	var all [][]string
	for _, rule := range r.rules {
		if rule.Kind != o.GetKind() || (rule.Driver != "" && rule.Driver != string(d)) ||
			(rule.Namespace != "" && rule.Namespace != o.GetNamespace()) || (rule.Name != "" && rule.Name != o.GetName()) {
			continue
		}
		all = append(all, rule.paths...)
	}
	return all
}

// Omit returns the object to apply, without the fields that are left to managers other than ours. The live object is
// nil if missing. Omit does not change its input.
func (r Rules) Omit(o render.Object, live *unstructured.Unstructured, ours string) *unstructured.Unstructured {
	paths := r.of(o.Unstructured, o.Driver)
	if len(paths) == 0 || live == nil {
		return o.Unstructured
	}
	out := o.DeepCopy()
	owned := owners(live)
	for _, path := range paths {
		value, fields := follow(out.Object, live.Object, path)
		if value != nil && o.Apply != render.Replace { // a replaced object is not applied field by field
			value = owned.without(ours, fields, value)
		}
		put(out.Object, path, value)
	}
	return out
}

// follow returns the live value at a path in the desired object, nil if missing, and the path in the notation of
// managedFields. A list's item has the index of the desired list, and its name identifies the live one.
func follow(desired, live any, path []string) (value any, fields []string) {
	for _, token := range path {
		list, isList := desired.([]any)
		if !isList {
			d, _ := desired.(map[string]any) //nolint:errcheck // what is no map has no such key
			l, _ := live.(map[string]any)    //nolint:errcheck // likewise
			desired, live, fields = d[token], l[token], append(fields, "f:"+token)
			continue
		}
		item := at(list, token)
		name, _ := item["name"].(string)                        //nolint:errcheck // an item without one is not known
		key, _ := json.Marshal(map[string]string{"name": name}) //nolint:errcheck,errchkjson // it is made of texts
		others, _ := live.([]any)                               //nolint:errcheck // what is no list has no items
		i := slices.IndexFunc(others, func(o any) bool {
			m, ok := o.(map[string]any)
			return ok && m["name"] == name
		})
		if desired, live, fields = item, nil, append(fields, "k:"+string(key)); i >= 0 {
			live = others[i]
		}
	}
	return live, fields
}

func at(list []any, token string) map[string]any {
	i, err := strconv.Atoi(token)
	if err != nil || i < 0 || i >= len(list) {
		return nil
	}
	m, _ := list[i].(map[string]any) //nolint:errcheck // an item that is no map has no fields
	return m
}

// put sets a field, or deletes it for nil, and creates missing maps above it.
func put(o any, path []string, value any) {
	for i, token := range path {
		last := i == len(path)-1
		switch in := o.(type) {
		case map[string]any:
			switch {
			case last && value == nil:
				delete(in, token)
			case last:
				in[token] = value
			case in[token] == nil && value != nil:
				in[token] = map[string]any{}
			}
			o = in[token]
		case []any:
			o = any(at(in, token))
		default:
			return
		}
	}
}

var kinds = map[string]string{
	"Secret":                   "it holds what drivers log in with",
	"CustomResourceDefinition": "all resources of its kind depend on it",
	"Namespace":                "its labels say which pods may run in it",
	"CSIDriver":                "volumes are attached through it",
	"ClusterRole":              "its labels and rules give permissions",
	"Role":                     "it gives permissions",
	"ClusterRoleBinding":       "it gives permissions",
	"RoleBinding":              "it gives permissions",
}

// anywhere are the fields of all kinds that may be left to others, with all fields below; * is any one key or index.
var anywhere = []string{"/metadata/labels/*", "/metadata/annotations/*"}

// ofWorkloads are more such fields of Deployments and DaemonSets. None decides what runs, as which user, with which
// access to the node, or with which configuration.
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

// own are prefixes of labels and annotations that are always repaired: the operator's, and those that mean the same
// as fields of security contexts.
var own = []string{
	"vdo.vmware.com/", "app.kubernetes.io/managed-by",
	"container.apparmor.security.beta.kubernetes.io/", "container.seccomp.security.alpha.kubernetes.io/", "seccomp.security.alpha.kubernetes.io/",
}

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
	depth := len(strings.Split(fields[i], "/")) - 1
	isIndex := func(token string) bool { _, err := strconv.Atoi(token); return err == nil }
	ofContainer := strings.HasSuffix(fields[i], "/resources")
	if ofContainer && !isIndex(path[depth-2]) || slices.Contains(path, "*") {
		return errors.New("it names no field: name a container by its index, such as containers/0, and one label or annotation")
	}
	isMap := ofContainer || strings.HasSuffix(fields[i], "/nodeSelector")
	if !isMap && slices.ContainsFunc(path[depth:], isIndex) {
		return fmt.Errorf("it is in a list whose items have no names: name all of %s", fields[i])
	}
	key := path[depth-1]
	isOwn := func(prefix string) bool { return strings.HasPrefix(key, prefix) }
	if strings.HasSuffix(fields[i], "/*") && slices.ContainsFunc(own, isOwn) {
		return errors.New("it is always repaired: the operator knows its objects by it, or it says with which permissions pods run")
	}
	return nil
}

// Runs reports whether a workload's fields decide what its pods run: fields of their template that are always repaired.
func Runs(kind string, fields [][]string) bool {
	return slices.ContainsFunc(fields, func(path []string) bool {
		return within("/spec/template", path) && allowed(kind, path) != nil
	})
}

// within reports whether a path is a field or below it.
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
