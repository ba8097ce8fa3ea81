package render

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// checkChanged holds an object that settings or a patch changed: it is the manifest's object still,
// with all of its containers and what it selects and is selected by; every image is one of the
// bundle's; and it is below the driver's ceiling like any manifest's. It is held to nothing else:
// who writes VDOConfigs administers the operator.
func (s *source) checkChanged(field string, was, is *unstructured.Unstructured) error {
	f := s.finding(is, field)
	f.op = "change drivers"
	f.hint = "leave that out of it: settings and patches change how the driver's objects run, and not what they are"
	if f.same(was); len(f.all) > 0 {
		return fault.Join(f.all...) // of another object nothing else can be told
	}
	f.lint()
	return fault.Join(f.all...)
}

// same holds a changed object to what the manifest's is.
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

// adoptImages lets an object name images of the bundle that the release's own manifests do
// not, by the reference that the lock has of them.
func (s *source) adoptImages(o *unstructured.Unstructured) {
	for _, c := range containers(podSpec(o)) {
		written, _ := c["image"].(string)
		if _, known := s.images[written]; !known && !s.digests[written].IsZero() {
			s.images[written] = written
		}
	}
}
