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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// reach returns the cluster; nil where a file is written that begins with another one, or where there
// is no kubeconfig. One that exists and cannot be used is an error: the file would lack what the
// cluster has.
func (o *configureOptions) reach(d *draft) (client.Client, error) {
	if o.write != "" && d.file != nil {
		return nil, nil
	}
	c, err := o.cluster.client()
	if o.write != "" && o.cluster.isNone(err) {
		return nil, command.Say(o.err, "There is no kubeconfig: nothing is taken of a cluster.")
	}
	return c, o.orWithout(err)
}

// isNone reports whether no kubeconfig exists and nothing else reaches a cluster, or KUBECONFIG names an
// empty file, such as /dev/null.
func (f *clusterFlags) isNone(unreached error) bool {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	read, err := rules.Load()
	if f.isNamed() || err != nil || !clientcmdapi.IsConfigEmpty(read) {
		return false
	}
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		return unreached != nil
	}
	return !slices.ContainsFunc(rules.GetLoadingPrecedence(), func(name string) bool {
		_, err := os.Stat(name)
		return err != nil // misspelled
	})
}

// orWithout adds to the hint of a fault about the cluster that a file needs none.
func (o *configureOptions) orWithout(err error) error {
	var f *fault.Error
	if o.write == "" || !errors.As(err, &f) {
		return err
	}
	without := "write the file without a cluster: KUBECONFIG=/dev/null"
	f.Hint = strings.TrimPrefix(f.Hint+"; or "+without, "; or ")
	return err
}

// begin reads what the cluster has where the file has none. It returns the cluster; nil for one that does
// not have the operator's resources.
func (o *configureOptions) begin(ctx context.Context, c client.Client, d *draft) (client.Client, error) {
	if c != nil {
		err := d.readCluster(ctx, c)
		switch {
		case o.write != "" && errors.Is(err, errNoKinds):
			c = nil
			err = command.Say(o.err, "The cluster does not have the operator's resources: the file begins with none.")
		case err == nil && o.write != "":
			target, _ := o.cluster.target() // the client was made from it
			err = command.Say(o.err, "The file begins with the resources of %s.", target)
		}
		if err != nil {
			return nil, o.orWithout(err)
		}
	}
	if c != nil {
		d.readers = append(d.readers, c)
	}
	d.makeMissing()
	if !o.given("vcenter") && len(d.vcenters) > 0 {
		o.vcenter, o.kept["vcenter"] = d.vcenters[0].Name, true
	}
	return c, nil
}

// knows reports whether the Secret's password may be tried at a vCenter: only at those that the cluster
// has it for.
func (d *draft) knows(server string) bool {
	same := func(at string) bool { return strings.EqualFold(at, strings.TrimSpace(server)) }
	return len(d.passwordAt) == 0 || slices.ContainsFunc(d.passwordAt, same)
}

// users returns the addresses of the cluster's vCenters that a Secret is for.
func (d *draft) users(secret string) (at []string) {
	for _, x := range d.before {
		if v, ok := x.(*v1alpha1.VsphereCloudConfig); ok && v.Spec.Credentials == secret {
			at = append(at, strings.TrimSpace(v.Spec.VcIP))
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}

// writeFile writes the resources as YAML, in the place of another file with consent only.
func (o *configureOptions) writeFile(ctx context.Context, d *draft) error {
	out, err := d.manifests(ctx, o.there)
	if err != nil {
		return o.orWithout(err)
	}
	if o.write == "-" {
		_, err := o.out.Write(out)
		return err
	}
	if o.there != nil && !bytes.Equal(o.there, out) {
		if err := o.consent(ctx, o.consentFlags, "Replace the file "+o.write+"?"); err != nil {
			return err
		}
	}
	now, err := o.replaces()
	if err == nil && ((now == nil) != (o.there == nil) || !bytes.Equal(now, o.there)) {
		err = changedMeanwhile(o.write, errors.New("it was made, changed or removed while configure ran"))
	}
	if err != nil {
		return err
	}
	return writeWhole(o.write, out)
}

// manifests returns the resources as YAML, and with them what else is in the file that they replace.
func (d *draft) manifests(ctx context.Context, was []byte) ([]byte, error) {
	own, err := d.written(ctx)
	if err != nil {
		return nil, err
	}
	kept, err := itemsOf(was)
	if err != nil {
		return nil, err
	}
	var docs []any
	done := map[string]bool{}
	for _, x := range own {
		doc, err := manifest(x)
		if err != nil {
			return nil, err
		}
		docs, done[describeObject(x)] = append(docs, doc), true
	}
	for _, u := range kept {
		named := u.DeepCopy()
		named.SetNamespace(cmp.Or(u.GetNamespace(), d.namespace))
		if !done[describeObject(named)] {
			docs = append(docs, u.Object)
		}
	}
	var out bytes.Buffer
	for _, doc := range docs {
		data, err := yaml.Marshal(doc)
		if err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(&out, "---\n%s", data) // a buffer takes all
	}
	return out.Bytes(), nil
}

// written returns the resources that configure writes into a file, sorted. A file that begins with the
// cluster has the CAs of all vCenters: a tool that applies it may delete what it lacks.
func (d *draft) written(ctx context.Context) ([]client.Object, error) {
	var out []client.Object
	add := func(x client.Object) {
		same := func(y client.Object) bool { return describeObject(x) == describeObject(y) }
		if kindOf(x) != "Secret" && !slices.ContainsFunc(out, same) {
			out = append(out, x)
		}
	}
	for _, x := range d.objects() {
		add(x)
	}
	for i := range d.vcenters {
		v := &d.vcenters[i]
		add(v)
		if d.file != nil || v.Spec.CA == nil || v.Spec.CA.ConfigMap == "" {
			continue
		}
		ca := []client.Object{&corev1.ConfigMap{ObjectMeta: d.meta(v.Spec.CA.ConfigMap)}}
		for _, from := range d.readers {
			found, err := present(ctx, from, ca)
			if err != nil {
				return nil, err
			}
			for _, x := range found {
				add(bare(x))
			}
		}
	}
	kinds := []string{"ConfigMap", "DriverBundle", "VsphereCloudConfig", "VDOConfig"}
	slices.SortFunc(out, func(a, b client.Object) int {
		kind := cmp.Compare(slices.Index(kinds, kindOf(a)), slices.Index(kinds, kindOf(b)))
		return cmp.Or(kind, strings.Compare(a.GetName(), b.GetName()))
	})
	return out, nil
}

// manifest returns a resource as a person writes it: without what the API server adds.
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

// itemsOf returns the resources of a file, those of lists too.
func itemsOf(data []byte) (out []*unstructured.Unstructured, err error) {
	all, err := readManifest(data)
	for _, x := range all {
		u, ok := x.(*unstructured.Unstructured)
		if ok && !u.IsList() {
			out = append(out, u)
		} else if ok {
			err = errors.Join(err, u.EachListItem(func(item runtime.Object) error {
				if u, ok := item.(*unstructured.Unstructured); ok {
					out = append(out, u)
				}
				return nil
			}))
		}
	}
	return out, err
}

// replaces returns the file that --write would replace; nil where none exists. It refuses a name that
// nothing can be written to, and a file that is no site's configuration, such as a key or a bundle.
func (o *configureOptions) replaces() ([]byte, error) {
	if o.write == "" || o.write == "-" {
		return nil, nil
	}
	refused := func(err error) error {
		return &fault.Error{Reason: fault.Refused, Op: "write", Subject: o.write, Err: err,
			Hint: "name another file, or - for standard output"}
	}
	switch info, err := os.Stat(o.write); {
	case err == nil && !info.Mode().IsRegular():
		return nil, refused(errors.New("it is no regular file"))
	case err != nil:
		if _, gone := os.Stat(filepath.Dir(o.write)); gone != nil {
			return nil, notWritten(o.write, err)
		}
		return nil, nil //nolint:nilerr // it is new
	}
	there, err := o.read("--write", o.write)
	if err == nil && len(bytes.TrimSpace(there)) > 0 {
		_, err = parseSite(o.write, there, o.cluster.namespace)
	}
	if err != nil {
		return nil, refused(fmt.Errorf("what is there is not replaced: %w", err))
	}
	return there, nil
}

// writeWhole writes a file beside its name, and names it once it is whole. A link stays one.
func writeWhole(name string, data []byte) error {
	to, err := filepath.EvalSymlinks(name)
	if err != nil {
		to = name // it is not there
	}
	mode := os.FileMode(0o644)
	if info, err := os.Stat(to); err == nil {
		mode = info.Mode().Perm() // what is kept of it may be secret
	}
	f, err := os.CreateTemp(filepath.Dir(to), ".vdoctl-*")
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
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
	f := &fault.Error{
		Reason: fault.Storage, Op: "write", Subject: name, Err: err,
		Hint: "name a file in a folder that can be written to and has space",
	}
	var of *fs.PathError
	if errors.As(err, &of) {
		f.Err = of.Err
	}
	if errors.Is(err, fs.ErrNotExist) {
		f.Err = fmt.Errorf("there is no folder %s", filepath.Dir(name))
	}
	return f
}

// sayWritten says where the file is and what has to be there besides, once it is written.
func (o *configureOptions) sayWritten(d *draft, operator bool) error {
	l := &lines{w: o.err}
	if o.write != "-" {
		l.printf("Written: %s", o.write)
	}
	if !operator {
		l.printf("If the operator is not installed yet, run `vdoctl deploy` before `kubectl apply`.")
	}
	l.printf("The account goes to the Secret %s in namespace %s. Its type is %s, its keys username and password.",
		d.vcenter.Spec.Credentials, d.namespace, corev1.SecretTypeBasicAuth)
	return l.err
}
