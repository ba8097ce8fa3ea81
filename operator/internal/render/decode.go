package render

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix/needs"
)

// maxObjects bounds a manifest file. The largest known, Antrea's, has 47 objects.
const maxObjects = 500

// decode reads a manifest of several YAML documents. It skips documents that are empty or hold only comments.
func decode(name string, data []byte) ([]*unstructured.Unstructured, error) {
	bad := func(err error) error {
		return fault.Errorf(fault.Corrupt, "read manifest", name, "make the bundle again from upstream's manifests", "%w", err)
	}
	if len(data) > matrix.MaxManifestSize {
		return nil, bad(fmt.Errorf("%d bytes: more than %d", len(data), matrix.MaxManifestSize))
	}
	docs, err := needs.Documents(data)
	if err != nil {
		return nil, bad(err)
	}
	if len(docs) > maxObjects {
		return nil, bad(fmt.Errorf("more than %d objects", maxObjects))
	}
	var objects []*unstructured.Unstructured
	for n, doc := range docs {
		object, err := decodeOne(doc)
		if err != nil {
			return nil, bad(fmt.Errorf("object %d: %w", n+1, err))
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func decodeOne(doc []byte) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(doc); err != nil {
		return nil, err
	}
	if object.IsList() {
		return nil, errors.New("a List: its items must be documents of their own")
	}
	if object.GetAPIVersion() == "" || object.GetName() == "" {
		return nil, errors.New("an object without apiVersion or metadata.name")
	}
	return object, nil
}
