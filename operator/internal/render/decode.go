package render

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	yamlnode "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Limits of a manifest file. The largest known, Antrea's, has 240 kB, 47 objects
// and some 9000 YAML nodes in its largest document.
const (
	maxFileBytes = 8 << 20
	maxObjects   = 500
	maxDepth     = 64
	maxNodes     = 200_000 // with aliases expanded
)

// decode reads a manifest of several YAML documents. Documents that are empty or
// hold comments only are skipped.
func decode(name string, data []byte) ([]*unstructured.Unstructured, error) {
	bad := func(err error) error {
		return &fault.Error{
			Reason: fault.Corrupt, Op: "read manifest", Subject: name, Err: err,
			Hint: "make the bundle again from upstream's manifests",
		}
	}
	if len(data) > maxFileBytes {
		return nil, bad(fmt.Errorf("%d bytes: more than %d", len(data), maxFileBytes))
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

// decodeOne reads one document; nil where it is empty. Its shape is bounded
// before anything is expanded, and keys given twice are refused: which of them
// counts differs between readers.
func decodeOne(doc []byte) (*unstructured.Unstructured, error) {
	var root yamlnode.Node
	if err := yamlnode.Unmarshal(doc, &root); err != nil {
		return nil, err
	}
	if root.IsZero() || (len(root.Content) == 1 && root.Content[0].Tag == "!!null") {
		return nil, nil
	}
	if _, err := expandedSize(&root, 0, map[*yamlnode.Node]int{}); err != nil {
		return nil, err
	}
	asJSON, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
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

// expandedSize counts the nodes below n as if every alias were written out.
func expandedSize(n *yamlnode.Node, depth int, known map[*yamlnode.Node]int) (int, error) {
	if depth > maxDepth {
		return 0, fmt.Errorf("line %d: nested deeper than %d", n.Line, maxDepth)
	}
	if size, ok := known[n]; ok {
		return size, nil
	}
	size := 1
	children := n.Content
	if n.Kind == yamlnode.AliasNode {
		children = []*yamlnode.Node{n.Alias}
	}
	for _, child := range children {
		below, err := expandedSize(child, depth+1, known)
		if err != nil {
			return 0, err
		}
		if size += below; size > maxNodes {
			return 0, fmt.Errorf("line %d: more than %d values", n.Line, maxNodes)
		}
	}
	known[n] = size
	return size, nil
}
