package vdoctl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// writeFile writes the resources as YAML, the Secrets apart. In the place of another file it does
// with consent alone, and not where something of that one would be lost.
func (o *configureOptions) writeFile(ctx context.Context, d *draft) error {
	out, err := d.manifests(ctx)
	if err != nil {
		return err
	}
	if o.write == "-" {
		_, err := o.out.Write(out)
		return err
	}
	if o.there != nil && !bytes.Equal(o.there, out) {
		if err := o.keeps(d, o.there, out); err != nil {
			return err
		}
		if !o.yes && !o.interactive() {
			return &fault.Error{Reason: fault.Refused, Op: "write", Subject: o.write, Err: errors.New("it is there, and says something else"), Hint: "say --yes to replace it, or name another file"}
		}
		if err := o.consent(ctx, o.consentFlags, "The file "+o.write+" is there, and says something else. Replace it?"); err != nil {
			return err
		}
	}
	now, err := o.replaces()
	if err != nil {
		return err
	}
	if (now == nil) != (o.there == nil) || !bytes.Equal(now, o.there) {
		return changedMeanwhile(o.write, errNotTheSame)
	}
	return writeWhole(o.write, out)
}

var errNotTheSame = errors.New("it was made, changed or removed while configure ran")

// manifests are the resources that go into a file, as YAML.
func (d *draft) manifests(ctx context.Context) ([]byte, error) {
	all, err := d.written(ctx)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, x := range all {
		doc, err := manifest(x)
		if err != nil {
			return nil, err
		}
		data, err := yaml.Marshal(doc)
		if err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(&out, "---\n%s", data) // a buffer takes all
	}
	return out.Bytes(), nil
}

// written are the resources that go into a file, in an order that does not change with the answers.
// All vCenters are among them, since the VDOConfig names them, and the CAs that configure made for
// those of the cluster: who applies the file may delete what is not in it. The CA of a vCenter of a
// file may be in a file of its own.
func (d *draft) written(ctx context.Context) ([]client.Object, error) {
	out := slices.DeleteFunc(d.objects(), func(x client.Object) bool { return kindOf(x) == "Secret" })
	has := func(x client.Object) bool {
		return slices.ContainsFunc(out, func(y client.Object) bool { return describeObject(x) == describeObject(y) })
	}
	ofFile := d.file != nil && len(d.file.vcenters) > 0
	for i := range d.vcenters {
		v := &d.vcenters[i]
		if !has(v) {
			out = append(out, v)
		}
		ca := &corev1.ConfigMap{ObjectMeta: d.meta(v.Name + "-ca")}
		if ofFile || v.Spec.CA == nil || v.Spec.CA.ConfigMap != ca.Name || has(ca) {
			continue
		}
		there, err := d.find(ctx, ca)
		if err != nil {
			return nil, err
		}
		if there {
			ca.ObjectMeta = d.meta(ca.Name)
			out = append(out, ca)
		}
	}
	kinds := []string{"ConfigMap", "DriverBundle", "VsphereCloudConfig", "VDOConfig"}
	slices.SortFunc(out, func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(slices.Index(kinds, kindOf(a)), slices.Index(kinds, kindOf(b))), strings.Compare(a.GetName(), b.GetName()))
	})
	return out, nil
}

// find reads a Secret or ConfigMap of the file or else of the cluster, and says whether there is one.
func (d *draft) find(ctx context.Context, x client.Object) (bool, error) {
	for _, from := range d.readers {
		err := from.Get(ctx, client.ObjectKeyFromObject(x), x)
		if err == nil {
			return true, nil
		}
		if client.IgnoreNotFound(err) == nil {
			continue
		}
		if err = d.denied(clusterFault("read "+describeObject(x), err)); err != nil {
			return false, err
		}
	}
	return false, nil
}

// manifest is a resource as a person writes it: without what the API server adds.
func manifest(x client.Object) (map[string]any, error) {
	doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(x)
	if err != nil {
		return nil, err
	}
	delete(doc, "status")
	doc["apiVersion"], doc["kind"] = v1alpha1.GroupVersion.String(), kindOf(x)
	if kindOf(x) == "ConfigMap" {
		doc["apiVersion"] = "v1"
	}
	meta := map[string]any{"name": x.GetName(), "namespace": x.GetNamespace()}
	if labels := x.GetLabels(); len(labels) > 0 {
		meta["labels"] = labels
	}
	if annotations := x.GetAnnotations(); len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	doc["metadata"] = meta
	return doc, nil
}

// replaces is the file that --write would replace; nil where there is none. One that cannot be read,
// or is no site's configuration, such as a key or a bundle, is replaced with nobody's consent.
func (o *configureOptions) replaces() ([]byte, error) {
	if o.write == "" || o.write == "-" {
		return nil, nil
	}
	if err := replaceable(o.write); err != nil {
		return nil, &fault.Error{Reason: fault.Refused, Op: "write", Subject: o.write, Err: err, Hint: "name another file, or - for standard output"}
	}
	there, err := o.read("--write", o.write)
	switch {
	case fault.ReasonOf(err) == fault.NotFound:
		return nil, nil
	case err == nil && len(bytes.TrimSpace(there)) > 0:
		_, err = parseSite(o.write, there, o.cluster.namespace)
	}
	if err != nil {
		return nil, &fault.Error{Reason: fault.Refused, Op: "write", Subject: o.write, Err: fmt.Errorf("what is there is not replaced: %w", err),
			Hint: "name another file, or move this one away"}
	}
	return there, nil
}

// replaceable refuses what no file takes the place of: a folder, a device, a link to nothing.
func replaceable(name string) error {
	info, err := os.Stat(name)
	to, notLink := os.Readlink(name)
	switch {
	case err == nil && info.IsDir():
		return errors.New("it is a folder")
	case err == nil && !info.Mode().IsRegular():
		return errors.New("it is a device or a pipe, not a file")
	case errors.Is(err, fs.ErrNotExist) && notLink == nil:
		return fmt.Errorf("it is a link to %s, which is not there", to)
	}
	return nil
}

// writeWhole writes a file beside its name, and names it once it is whole. A link stays one.
func writeWhole(name string, data []byte) error {
	to, err := filepath.EvalSymlinks(name)
	if err != nil {
		to = name // it is not there
	}
	f, err := os.CreateTemp(filepath.Dir(to), ".vdoctl-*")
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
		if err == nil {
			err = os.Rename(f.Name(), to)
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}
	if err != nil {
		return notWritten(name, err)
	}
	return nil
}

// notWritten is why a file is not, without the name of the file beside it that was tried.
func notWritten(name string, err error) error {
	f := &fault.Error{Reason: fault.Storage, Op: "write", Subject: name, Err: err, Hint: "name a file in a folder that can be written to and has space"}
	var of *fs.PathError
	if errors.As(err, &of) {
		f.Err = of.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		f.Err = fmt.Errorf("there is no folder %s", filepath.Dir(name))
	}
	return f
}
