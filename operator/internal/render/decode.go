package render

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
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
	var objects []*unstructured.Unstructured
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, bad(fmt.Errorf("document %d: %w", n, err))
		}
		object, err := decodeOne(doc)
		if err != nil {
			return nil, bad(fmt.Errorf("document %d: %w", n, err))
		}
		if object == nil {
			continue
		}
		if objects = append(objects, object); len(objects) > maxObjects {
			return nil, bad(fmt.Errorf("more than %d objects", maxObjects))
		}
	}
}

// decodeOne reads one document; nil if it is empty. It refuses duplicate keys, because readers differ in which one
// counts.
func decodeOne(doc []byte) (*unstructured.Unstructured, error) {
	asJSON, err := yaml.YAMLToJSONStrict(doc)
	if err != nil || string(asJSON) == "null" {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(asJSON); err != nil {
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
