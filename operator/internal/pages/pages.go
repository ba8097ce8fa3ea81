// Package pages reads lists from the API server page by page, so that no request or variable has thousands of objects:
//
//	err := pages.Each(ctx, reader, &corev1.NodeList{}, func(n *corev1.Node) { … })
//
// Callers may keep objects: the next page is not decoded over them. Errors are the reader's, unwrapped.
package pages

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Size is the largest number of objects a page, unless the caller sets another limit.
const Size = 500

// PerNode is the page limit for large objects that exist once a node. A decoded node with its images has 60 KiB, of
// which callers keep a line.
const PerNode = 100

// Empty returns an empty list of a kind's objects, for [Each].
func Empty(kind schema.GroupVersionKind) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}

// Each reads an empty list page by page, and calls do with each object. Options select by namespace or label.
// [client.Limit] sets the size of a page.
func Each[T client.Object](
	ctx context.Context, c client.Reader, list client.ObjectList, do func(T), opts ...client.ListOption,
) error {
	return Until(ctx, c, list, func(o T) bool { do(o); return false }, opts...)
}

// Until is [Each] that ends after the first page with an object for which done returns true.
func Until[T client.Object](
	ctx context.Context, c client.Reader, list client.ObjectList, done func(T) bool, opts ...client.ListOption,
) error {
	opts = append([]client.ListOption{client.Limit(Size)}, opts...)
	for token := ""; ; {
		if err := c.List(ctx, list, append(opts[:len(opts):len(opts)], client.Continue(token))...); err != nil {
			return err
		}
		ended := false
		_ = meta.EachListItem(list, func(o runtime.Object) error { //nolint:errcheck // there is none
			ended = done(o.(T)) || ended //nolint:forcetypeassert // of the list
			return nil
		})
		if token = list.GetContinue(); token == "" || ended {
			return nil
		}
		list.SetContinue("") // a decoder keeps fields that the last page does not name
		if err := meta.SetList(list, []runtime.Object{}); err != nil {
			return err
		}
	}
}
