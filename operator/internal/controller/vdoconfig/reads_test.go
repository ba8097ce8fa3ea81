package vdoconfig_test

import (
	"context"
	"reflect"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// reads answers the operator's reads of single objects during one reconcile: from one list of each
// kind and namespace, which costs as much as two of the hundred reads. A write of the operator
// has its kind listed again, a write of the test has all of them. Each object is read by the
// operator itself the first time, so a right that the operator lacks still shows.
type reads struct {
	client.Reader // the operator's
	admin         client.Reader

	mu     sync.Mutex
	on     bool
	listed map[listedKind]*list
}

// readBefore are the objects that the operator has read itself.
var readBefore = map[readObject]bool{}

type listedKind struct {
	schema.GroupVersionKind
	namespace string
}

type readObject struct {
	schema.GroupVersionKind
	client.ObjectKey
}

// list is read once.
type list struct {
	once sync.Once
	of   map[string]*unstructured.Unstructured
	err  error
}

// listable are the kinds that the drivers have several objects of.
var listable = map[string]bool{
	"DaemonSet": true, "Deployment": true, "ServiceAccount": true, "ConfigMap": true, "Secret": true, "Service": true,
	"Role": true, "RoleBinding": true, "ClusterRole": true, "ClusterRoleBinding": true,
}

// begin starts a reconcile; the function returned ends it.
func (r *reads) begin() (end func()) {
	r.forget()
	r.set(true)
	return func() { r.set(false) }
}

func (r *reads) set(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on = on
}

// forget drops all lists.
func (r *reads) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed = map[listedKind]*list{}
}

// wrote drops the lists of an object's kind.
func (r *reads) wrote(o any) {
	object, ok := o.(interface{ GetObjectKind() schema.ObjectKind })
	if !ok || object.GetObjectKind().GroupVersionKind().Kind == "" {
		r.forget()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for k := range r.listed {
		if k.Kind == object.GetObjectKind().GroupVersionKind().Kind {
			delete(r.listed, k)
		}
	}
}

// Get answers from a list where that is cheaper.
func (r *reads) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	l, gvk := r.list(key, o)
	if l == nil || len(opts) > 0 {
		return r.Reader.Get(ctx, key, o, opts...)
	}
	l.once.Do(func() { l.of, l.err = r.all(ctx, gvk, key.Namespace) })
	if l.err != nil {
		return r.Reader.Get(ctx, key, o, opts...)
	}
	is := l.of[key.Name]
	switch {
	case is == nil && key.Namespace == "":
		return r.Reader.Get(ctx, key, o, opts...) // it may lack our label
	case is == nil:
		return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
	}
	if into, ok := o.(*unstructured.Unstructured); ok {
		into.Object = runtime.DeepCopyJSON(is.Object)
		return nil
	}
	reflect.ValueOf(o).Elem().SetZero()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(is.Object, o); err != nil {
		return err
	}
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as a typed client does
	return nil
}

// list returns the list that has an object, or nil where it is read by itself.
func (r *reads) list(key client.ObjectKey, o client.Object) (*list, schema.GroupVersionKind) {
	gvk, err := apiutil.GVKForObject(o, scheme())
	_, bare := o.(*metav1.PartialObjectMetadata)
	if err != nil || bare || !listable[gvk.Kind] || gvk.Group == v1alpha1.GroupVersion.Group {
		return nil, gvk
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	read := readObject{gvk, key}
	if !r.on || !readBefore[read] {
		readBefore[read] = true
		return nil, gvk
	}
	k := listedKind{gvk, key.Namespace}
	if r.listed[k] == nil {
		r.listed[k] = &list{}
	}
	return r.listed[k], gvk
}

func (r *reads) all(ctx context.Context, gvk schema.GroupVersionKind, namespace string) (map[string]*unstructured.Unstructured, error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	opts := []client.ListOption{client.InNamespace(namespace)}
	if namespace == "" { // where there are many that are not ours
		opts = append(opts, client.MatchingLabels{"app.kubernetes.io/managed-by": "vdo-operator"})
	}
	if err := r.admin.List(ctx, all, opts...); err != nil {
		return nil, err
	}
	of := map[string]*unstructured.Unstructured{}
	for i := range all.Items {
		of[all.Items[i].GetName()] = &all.Items[i]
	}
	return of, nil
}
