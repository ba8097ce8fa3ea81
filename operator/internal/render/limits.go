package render

import (
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// checkChanged holds an object that settings or a patch changed: it is the manifest's object still,
// with all of its containers and what it selects and is selected by; every image is one of the
// bundle's; and it is below the driver's ceiling like any manifest's. It is held to nothing else:
// who writes VDOConfigs administers the operator.
func (s *source) checkChanged(field string, was, is *unstructured.Unstructured) error {
	f := &finding{op: "change drivers", subject: field,
		hint: "leave that out of it: settings and patches change how the driver's objects run, and not what they are"}
	if sameObject(was, is, f); len(f.all) > 0 {
		return fault.Join(f.all...) // of another object nothing else can be told
	}
	s.lintObject(drivers.CeilingOf(s.driver), is, f)
	unsigned := func(err error) bool { return fault.ReasonOf(err) == fault.Untrusted } // said with a better hint below
	f.all = slices.DeleteFunc(f.all, unsigned)
	for _, c := range containers(podSpec(is)) {
		written, _ := c["image"].(string)
		if _, err := s.digest(written); err != nil {
			f.all = append(f.all, &fault.Error{
				Reason: fault.Untrusted, Op: f.op, Subject: field,
				Hint: "name an image of the bundle, as `vdo-bundle inspect` lists them; " +
					"others do not come from the mirror, and nobody has signed them",
				Err: fmt.Errorf("container %s has image %q, which the bundle does not hold", c["name"], written),
			})
		}
	}
	return fault.Join(f.all...)
}

func sameObject(was, is *unstructured.Unstructured, f *finding) {
	if RefOf(was) != RefOf(is) {
		f.add("it makes another object of it, %s", RefOf(is))
		return
	}
	for _, c := range containers(podSpec(was)) {
		if name, _ := c["name"].(string); container(is, name) == nil {
			f.add("it takes container %s away", name)
		}
	}
	before, _, _ := unstructured.NestedFieldNoCopy(was.Object, "spec", "selector")
	after, _, _ := unstructured.NestedFieldNoCopy(is.Object, "spec", "selector")
	if !reflect.DeepEqual(before, after) {
		f.add("it changes the selector")
	}
	for _, at := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
		before, _, _ := unstructured.NestedStringMap(was.Object, at...)
		after, _, err := unstructured.NestedStringMap(is.Object, at...)
		for k, v := range before {
			if err != nil || after[k] != v {
				f.add("it changes the label %s, which the manifest has", k)
			}
		}
	}
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
