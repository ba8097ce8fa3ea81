package vdoctl

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// keeps refuses to replace a file by one that lacks something of it. What else the site applies
// from it would be deleted, unseen, where the file says what there is.
func (o *configureOptions) keeps(there, out []byte) error {
	lost, err := lostOf(there, out, o.cluster.namespace)
	if err == nil && len(lost) > 0 {
		err = fmt.Errorf("what configure does not write would be lost: %s", strings.Join(lost, ", "))
	}
	if err != nil {
		return &fault.Error{Reason: fault.Refused, Op: "write", Subject: o.write, Err: err,
			Hint: "put that into a file of its own; or write to another file, or with --write - to standard output, and bring both together"}
	}
	return nil
}

// lostOf are the resources of a file that another one lacks, and those of which it lacks parts,
// which are named. What specs say is changed by answers, and no part of this.
func lostOf(there, out []byte, namespace string) (lost []string, err error) {
	old, err := itemsOf(there)
	if err != nil {
		return nil, err
	}
	made, err := itemsOf(out)
	if err != nil {
		return nil, err
	}
	id := func(u *unstructured.Unstructured) string {
		return strings.Join([]string{u.GetAPIVersion(), u.GetKind(), cmp.Or(u.GetNamespace(), namespace), u.GetName()}, " ")
	}
	now := map[string]*unstructured.Unstructured{}
	for _, u := range made {
		now[id(u)] = u
	}
	for _, u := range old {
		name := describeObject(u)
		if is, ok := now[id(u)]; !ok {
			lost = append(lost, name)
		} else if parts := lostParts(u.Object, is.Object); len(parts) > 0 {
			lost = append(lost, strings.Join(parts, " and ")+" of "+name)
		}
	}
	return lost, nil
}

// itemsOf are the resources of a file, those of lists too.
func itemsOf(data []byte) (out []*unstructured.Unstructured, err error) {
	all, err := readManifest(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))) // as parseSite reads them
	if err != nil {
		return nil, err
	}
	for _, x := range all {
		u := x.(*unstructured.Unstructured) //nolint:forcetypeassert,errcheck // they are
		if !u.IsList() {
			out = append(out, u)
			continue
		}
		err = u.EachListItem(func(item runtime.Object) error {
			out = append(out, item.(*unstructured.Unstructured)) //nolint:forcetypeassert // they are
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// notLost are the fields that another file may lack: specs are what is asked for, and the rest is
// what the API server says.
var notLost = []string{"spec", "status", "metadata.namespace", "metadata.creationTimestamp", "metadata.generation", "metadata.managedFields",
	"metadata.resourceVersion", "metadata.selfLink", "metadata.uid"}

// lostParts are the fields and keys of a resource that another one lacks.
func lostParts(old, now map[string]any) (lost []string) {
	for _, path := range notLost {
		unstructured.RemoveNestedField(old, strings.Split(path, ".")...)
	}
	was, is := map[string]leaf{}, map[string]leaf{}
	flatten("", old, was)
	flatten("", now, is)
	for _, path := range slices.Sorted(maps.Keys(was)) {
		asked := strings.HasPrefix(path, "data.") || strings.HasPrefix(path, "binaryData.") // a CA may be another one
		if value, kept := is[path]; !kept || !asked && value != was[path] {
			lost = append(lost, path)
		}
	}
	return lost
}
