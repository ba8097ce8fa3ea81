package vdoctl

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// keeps refuses to replace a file by one that lacks something of it. What else the site applies
// from it would be deleted, unseen, where the file says what there is.
func (o *configureOptions) keeps(d *draft, there, out []byte) error {
	lost, goes, err := d.lostOf(there, out)
	if err == nil && len(lost) > 0 {
		err = fmt.Errorf("what configure does not write would be lost: %s", strings.Join(lost, ", "))
	}
	if err != nil {
		return &fault.Error{Reason: fault.Refused, Op: "write", Subject: o.write, Err: err,
			Hint: "put that into a file of its own; or write to another file, or with --write - to standard output, and bring both together"}
	}
	for _, name := range goes {
		if err := command.Say(o.err, "%s goes out of the file: its vCenter is checked by it no more.", name); err != nil {
			return err
		}
	}
	return nil
}

// lostOf are the resources of a file that another one lacks, and those of which it lacks parts,
// which are named; and those that go with their use. What specs say is changed by answers, and no part
// of this.
func (d *draft) lostOf(there, out []byte) (lost, goes []string, err error) {
	old, err := itemsOf(there)
	if err != nil {
		return nil, nil, err
	}
	made, err := itemsOf(out)
	if err != nil {
		return nil, nil, err
	}
	was, now := d.byID(old), d.byID(made)
	for _, u := range old {
		name := describeObject(u)
		if is, ok := now[d.id(u)]; !ok {
			if d.dropsCA(u, was, now) {
				goes = append(goes, name)
			} else {
				lost = append(lost, name)
			}
		} else if parts := lostParts(u.DeepCopy().Object, is.Object); len(parts) > 0 {
			lost = append(lost, strings.Join(parts, " and ")+" of "+name)
		}
	}
	return lost, goes, nil
}

// dropsCA tells whether a ConfigMap is the authority that configure made for a vCenter, which is
// checked by it no more. One that something else names, or that has more than configure writes, such
// as labels or another key, is somebody's.
func (d *draft) dropsCA(u *unstructured.Unstructured, was, now map[string]*unstructured.Unstructured) bool {
	name, ok := strings.CutSuffix(u.GetName(), "-ca")
	of := &unstructured.Unstructured{}
	of.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("VsphereCloudConfig"))
	of.SetNamespace(u.GetNamespace())
	of.SetName(name)
	before, after := was[d.id(of)], now[d.id(of)]
	if !ok || u.GetKind() != "ConfigMap" || before == nil || after == nil {
		return false
	}
	named, _, _ := unstructured.NestedString(before.Object, "spec", "ca", "configMap")
	own := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": map[string]any{"name": u.GetName()}, "data": map[string]any{v1alpha1.DefaultCAKey: ""}}
	names := func(r v1alpha1.KeyReference) bool { return r.ConfigMap == u.GetName() }
	mine := u.DeepCopy()
	unstructured.RemoveNestedField(mine.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation) // kubectl's
	return named == u.GetName() && len(lostParts(mine.Object, own)) == 0 && !slices.ContainsFunc(d.references(), names)
}

// id tells resources of files apart, with the namespace that they get.
func (d *draft) id(u *unstructured.Unstructured) string {
	return strings.Join([]string{u.GetAPIVersion(), u.GetKind(), cmp.Or(u.GetNamespace(), d.namespace), u.GetName()}, " ")
}

func (d *draft) byID(all []*unstructured.Unstructured) map[string]*unstructured.Unstructured {
	out := map[string]*unstructured.Unstructured{}
	for _, u := range all {
		out[d.id(u)] = u
	}
	return out
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
// what the API server and the operator say.
var notLost = []string{"spec", "status", "metadata.namespace", "metadata.creationTimestamp", "metadata.deletionGracePeriodSeconds", "metadata.deletionTimestamp",
	"metadata.generation", "metadata.managedFields", "metadata.ownerReferences", "metadata.resourceVersion", "metadata.selfLink", "metadata.uid"}

// lostParts are the fields and keys of a resource that another one lacks.
func lostParts(old, now map[string]any) (lost []string) {
	for _, path := range notLost {
		unstructured.RemoveNestedField(old, strings.Split(path, ".")...)
	}
	if held, _, _ := unstructured.NestedStringSlice(old, "metadata", "finalizers"); slices.Equal(held, []string{v1alpha1.FinalizerDrivers}) {
		unstructured.RemoveNestedField(old, "metadata", "finalizers") // the operator puts it on again
	}
	was, is := map[string]leaf{}, map[string]leaf{}
	flatten("", old, was)
	flatten("", now, is)
	for _, path := range slices.Sorted(maps.Keys(was)) {
		key, binary := strings.CutPrefix(path, "binaryData.")
		asked := strings.HasPrefix(path, "data.") || binary // a CA may be another one
		value, kept := is[path]
		if binary && !kept {
			_, kept = is["data."+key] // it is written as text
		}
		if !kept || !asked && value != was[path] {
			lost = append(lost, path)
		}
	}
	return lost
}
