package vdoconfig_test

import (
	"context"
	"reflect"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// reads are the operator's reads of single objects, of which a reconcile makes a hundred. An object
// that only the operator and the test write is read again only after one of them wrote it. The
// same holds for an object that does not exist, whoever writes it once it does. All other
// objects are read once in each reconcile.
type reads struct {
	client.Reader // the operator's

	mu     sync.Mutex
	on     bool
	epoch  int // of writes
	kept   map[readKey]kept
	passed map[readKey]bool // of kept, those that are read again in the next reconcile
}

func newReads() *reads { return &reads{kept: map[readKey]kept{}, passed: map[readKey]bool{}} }

type readKey struct {
	schema.GroupKind
	client.ObjectKey
	as reflect.Type
}

// kept is an object, or why there is none.
type kept struct {
	object client.Object
	err    error
}

// stillKinds are those that no controller of the cluster writes.
var stillKinds = map[string]bool{
	"ServiceAccount": true, "ConfigMap": true, "Secret": true, "Service": true, "Role": true, "RoleBinding": true, "ClusterRole": true,
	"ClusterRoleBinding": true, "CustomResourceDefinition": true, "CSIDriver": true, "ValidatingWebhookConfiguration": true, "EndpointSlice": true,
	"Namespace": true,
}

// during reads for one reconcile; the function returned ends it. An operator without all its
// rights reads everything.
func (r *reads) during(lacks bool) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.on = !lacks
	if lacks {
		clear(r.kept)
	}
	for k := range r.passed {
		delete(r.kept, k)
	}
	clear(r.passed)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.on = false
	}
}

// Get returns what is kept, or reads.
func (r *reads) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(o, scheme())
	_, bare := o.(*metav1.PartialObjectMetadata)
	if err != nil || bare || len(opts) > 0 {
		return r.Reader.Get(ctx, key, o, opts...)
	}
	read := readKey{gvk.GroupKind(), key, reflect.TypeOf(o)}
	is, ok, epoch := r.recall(read)
	if !ok {
		is = kept{object: o, err: r.Reader.Get(ctx, key, o)}
		r.keep(read, is, epoch)
		return is.err
	}
	if is.err != nil {
		return is.err
	}
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(is.object.DeepCopyObject()).Elem())
	return nil
}

func (r *reads) recall(read readKey) (is kept, ok bool, epoch int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	is, ok = r.kept[read]
	return is, ok && r.on, r.epoch
}

// keep keeps what was read, unless something was written meanwhile.
func (r *reads) keep(read readKey, is kept, epoch int) {
	still := stillKinds[read.Kind]
	switch {
	case apierrors.IsNotFound(is.err):
		is.object, still = nil, true
	case is.err != nil, !is.object.GetDeletionTimestamp().IsZero(), read.Group == v1alpha1.GroupVersion.Group:
		return
	case read.Kind == "CustomResourceDefinition" && !established(is.object):
		return // the API server writes its status
	default:
		is.object, _ = is.object.DeepCopyObject().(client.Object)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.on && r.epoch == epoch {
		r.kept[read] = is
		if !still {
			r.passed[read] = true
		}
	}
}

func established(crd client.Object) bool {
	o, ok := crd.(*unstructured.Unstructured)
	if !ok {
		return false
	}
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(all, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == "Established" && m["status"] == "True"
	})
}

// wrote drops an object, or all that have its kind where it has no name yet.
func (r *reads) wrote(o any, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	object, ok := o.(client.Object)
	if !ok {
		clear(r.kept)
		return
	}
	gvk, err := apiutil.GVKForObject(object, scheme())
	if err != nil || gvk.Kind == "Namespace" {
		clear(r.kept)
		return
	}
	for k := range r.kept {
		if k.Kind == gvk.Kind && (all || object.GetName() == "" || k.ObjectKey == client.ObjectKeyFromObject(object)) {
			delete(r.kept, k)
		}
	}
}

// noting notes all that a client writes.
func (a *access) noting(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			defer a.wrote(o, new(client.CreateOptions).ApplyOptions(opts).DryRun, false)
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			defer a.wrote(o, new(client.UpdateOptions).ApplyOptions(opts).DryRun, false)
			return c.Update(ctx, o, opts...)
		},
		Patch: func(
			ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption,
		) error {
			defer a.wrote(o, new(client.PatchOptions).ApplyOptions(opts).DryRun, false)
			return c.Patch(ctx, o, patch, opts...)
		},
		Apply: func(
			ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption,
		) error {
			defer a.wrote(o, new(client.ApplyOptions).ApplyOptions(opts).DryRun, false)
			return c.Apply(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			defer a.wrote(o, nil, false)
			return c.Delete(ctx, o, opts...)
		},
		DeleteAllOf: func(
			ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption,
		) error {
			defer a.wrote(o, nil, true)
			return c.DeleteAllOf(ctx, o, opts...)
		},
		SubResourceUpdate: func(
			ctx context.Context, c client.Client, name string, o client.Object, opts ...client.SubResourceUpdateOption,
		) error {
			defer a.wrote(o, nil, false)
			return c.SubResource(name).Update(ctx, o, opts...)
		},
	})
}

// wrote notes a write that was no dry run.
func (a *access) wrote(o any, dry []string, all bool) {
	if len(dry) == 0 {
		a.kinds.wrote(o)
		a.reads.wrote(o, all)
	}
}
