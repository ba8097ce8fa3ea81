package bundle

import (
	"cmp"
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/strictyaml"
)

// ParseLock reads a lock, YAML or JSON; name is the file's name, for errors. It is
// strict: unknown, missing and repeated keys, wrong types, anchors, a second
// document and everything that [Lock.Validate] reports are faults, each naming
// file, line and key, all of them together.
func ParseLock(name string, data []byte) (*Lock, error) {
	root, err := parseYAML(name, data)
	if err != nil {
		return nil, err
	}
	if err := checkKind(name, root); err != nil {
		return nil, err
	}
	lock := &Lock{}
	tree := strictyaml.Read(root, lock)
	if c := (&checker{problems: tree.Problems}); len(c.problems) > 0 {
		return nil, c.join(name, tree.Line)
	}
	if err := lock.faults(name, tree.Line); err != nil {
		return nil, err
	}
	return lock, nil
}

// checkKind refuses a document that says that it is another one: what else is wrong
// with it as a lock is of no interest then.
func checkKind(name string, root *yaml.Node) error {
	if root.Kind != yaml.MappingNode {
		return nil // it is told with its line
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if k, v := root.Content[i], root.Content[i+1]; k.Value == "kind" && v.ShortTag() == "!!str" && v.Value != LockKind {
			return fault.Errorf(fault.InvalidInput, "parse lock", fmt.Sprintf("%s:%d", name, k.Line),
				"give the lock that `vdo-bundle lock` wrote", "kind: %.100q is not %s", v.Value, LockKind)
		}
	}
	return nil
}

func parseYAML(name string, data []byte) (*yaml.Node, error) {
	root, err := strictyaml.Parse(data, MaxLockSize)
	if wrong, ok := errors.AsType[*strictyaml.Error](err); ok {
		return nil, fault.Errorf(fault.InvalidInput, "parse lock", name,
			cmp.Or(wrong.Hint, "give the lock that `vdo-bundle lock` wrote"), "%w", wrong)
	}
	return root, err
}
