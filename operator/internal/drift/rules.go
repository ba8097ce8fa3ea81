// Package drift says what is done about objects that someone else has changed: which
// fields are left to others, whether what differs is put right, and what to do about
// someone who changes it again each time. It is pure.
//
// # Fields that are left to others
//
// A rule of spec.drift.ignore names fields by JSON pointers. Such a field is left out of
// what is applied once another manager has set it, so that by the rules of server-side
// apply it is that manager's alone. As long as no one else has, what is on the cluster is
// applied again: to leave it out would have the API server remove it. An object that is not
// there yet is made whole.
//
// Only listed fields may be left to others: labels and annotations one by one, and of
// Deployments and DaemonSets how many pods there are, where, with which resources, and how
// they are replaced (see [allowed]). All else says what an object is, what rights it gives or
// what runs with which rights: whoever may edit a VDOConfig may not turn the repair of that
// off.
//
// # Contests
//
// Another manager may set a field again each time that it is repaired: see [Repaired].
package drift

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Rules are what a VDOConfig says of drift. The zero value repairs everything.
type Rules struct{ rules []rule }

type rule struct {
	v1alpha1.DriftIgnore
	paths [][]string
}

// Parse reads a policy; nil is none. What is wrong with a rule is an InvalidInput fault that
// names it, and the others count all the same.
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

// pointer reads a JSON pointer (RFC 6901) that leads to something within an object.
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

// Omits tells whether a rule leaves a field, or something below it, of a driver's objects of
// a kind to others.
func (r Rules) Omits(kind string, d matrix.Driver, field ...string) bool {
	return slices.ContainsFunc(r.rules, func(rule rule) bool {
		return rule.Kind == kind && (rule.Driver == "" || rule.Driver == string(d)) && slices.ContainsFunc(rule.paths, func(path []string) bool {
			return len(path) >= len(field) && slices.Equal(path[:len(field)], field)
		})
	})
}

// of are the paths that the rules name in an object.
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

// Target is an object that shall be applied, and what is there.
type Target struct {
	Object  *unstructured.Unstructured
	Live    *unstructured.Unstructured // nil where it is not there
	Driver  matrix.Driver
	Manager string // our own
	Whole   bool   // its data are replaced, and not applied field by field
}

// Omit returns what is applied of an object: without the fields that are left to others.
// The object given is not changed.
func (r Rules) Omit(t Target) *unstructured.Unstructured {
	paths := r.of(t.Object, t.Driver)
	if len(paths) == 0 || t.Live == nil {
		return t.Object
	}
	out := t.Object.DeepCopy()
	owned := owners(t.Live)
	for _, path := range paths {
		exists, has := find(t.Live.Object, named(out.Object, path))
		value := any(nil)
		if has {
			value = exists
			if !t.Whole {
				value = owned.without(t.Manager, fieldsOf(out.Object, path), exists)
			}
		}
		put(out.Object, path, value)
	}
	return out
}

// step is one token of a path in an object: a key of a map, or an item of a list, known by
// its name.
type step struct {
	key  string
	name string // of a list's item
}

// named resolves a path's indexes by the names that the items have in an object.
func named(o any, path []string) []step {
	var all []step
	for _, token := range path {
		list, isList := o.([]any)
		if !isList {
			m, _ := o.(map[string]any) //nolint:errcheck // what is no map has no such key
			o = m[token]
			all = append(all, step{key: token})
			continue
		}
		item := at(list, token)
		o = item
		name, _ := item["name"].(string) //nolint:errcheck // an item without one is not known
		all = append(all, step{key: token, name: name})
	}
	return all
}

// at is the item of a list that has an index or a name.
func at(list []any, token string) map[string]any {
	i, err := strconv.Atoi(token)
	if err != nil || i < 0 || i >= len(list) {
		return nil
	}
	m, _ := list[i].(map[string]any) //nolint:errcheck // an item that is no map has no fields
	return m
}

func find(o any, path []step) (any, bool) {
	for _, s := range path {
		switch in := o.(type) {
		case map[string]any:
			next, ok := in[s.key]
			if !ok {
				return nil, false
			}
			o = next
		case []any:
			i := slices.IndexFunc(in, func(item any) bool {
				m, ok := item.(map[string]any)
				return ok && s.name != "" && m["name"] == s.name
			})
			if i < 0 {
				return nil, false
			}
			o = in[i]
		default:
			return nil, false
		}
	}
	return o, true
}

// put sets a field, or, for nil, takes it away; what it lies in is made where it is a map.
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
	key := path[len(strings.Split(fields[i], "/"))-2]
	isOwn := func(prefix string) bool { return strings.HasPrefix(key, prefix) }
	if strings.HasSuffix(fields[i], "/*") && slices.ContainsFunc(own, isOwn) {
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
