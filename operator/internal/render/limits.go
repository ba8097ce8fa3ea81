package render

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// checkChanged returns an error if a change goes too far. The object must keep its identity, containers, labels and
// selector, use the bundle's images, and stay below the driver's ceiling. Authors of VDOConfigs administer the
// operator, so nothing else is checked.
func (s *source) checkChanged(field string, was, is *unstructured.Unstructured) error {
	f := s.finding(is, field)
	f.op = "change drivers"
	f.hint = "leave that out of it: settings and patches change how the driver's objects run, and not what they are"
	if f.same(was); len(f.all) > 0 {
		return fault.Join(f.all...) // the lint of another object would mean nothing
	}
	f.lint()
	return fault.Join(f.all...)
}

// same adds findings for changes of the object's identity.
func (f *finding) same(was *unstructured.Unstructured) {
	is := f.object
	if RefOf(was) != RefOf(is) {
		f.add("it makes another object of it, %s", RefOf(is))
		return
	}
	for _, c := range containers(podSpec(was)) {
		name, _ := c["name"].(string)
		f.when(container(is, name) == nil, "it takes container %s away", name)
	}
	before, _, _ := unstructured.NestedFieldNoCopy(was.Object, "spec", "selector")
	after, _, _ := unstructured.NestedFieldNoCopy(is.Object, "spec", "selector")
	f.when(!reflect.DeepEqual(before, after), "it changes the selector")
	for _, at := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
		before, _, _ := unstructured.NestedStringMap(was.Object, at...)
		after, _, err := unstructured.NestedStringMap(is.Object, at...)
		for k, v := range before {
			f.when(err != nil || after[k] != v, "it changes the label %s, which the manifest has", k)
		}
	}
}

// adoptImages lets an object name images of the bundle that the release's own manifests do not, by their reference
// in the lock.
func (s *source) adoptImages(o *unstructured.Unstructured) {
	for _, c := range containers(podSpec(o)) {
		written, _ := c["image"].(string)
		if _, known := s.images[written]; !known && !s.digests[written].IsZero() {
			s.images[written] = written
		}
	}
}
