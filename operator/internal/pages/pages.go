// Package pages reads lists from the API server page by page, so that no request or variable has thousands of objects:
//
//	var list corev1.NodeList
//	err := pages.Each(ctx, reader, &list, func() {
//		for i := range list.Items { … }
//	})
//
// Callers may keep items of a page: the next page is not decoded over them. Errors are the reader's, unwrapped.
package pages

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Size is the largest number of objects a page, unless the caller sets another limit.
const Size = 500

// PerNode is the page limit for large objects that exist once a node. A decoded node with its images has 60 KiB, of
// which callers keep a line.
const PerNode = 100

// Each reads a list page by page, and calls each after every page with the list filled. Options select by namespace or
// label. [client.Limit] sets the size of a page.
func Each(ctx context.Context, c client.Reader, list client.ObjectList, each func(), opts ...client.ListOption) error {
	return Until(ctx, c, list, func() bool { each(); return false }, opts...)
}

// Until is [Each] that ends after the first page for which done returns true.
func Until(
	ctx context.Context, c client.Reader, list client.ObjectList, done func() bool, opts ...client.ListOption,
) error {
	opts = append([]client.ListOption{client.Limit(Size)}, opts...)
	for token := ""; ; {
		if err := c.List(ctx, list, append(opts[:len(opts):len(opts)], client.Continue(token))...); err != nil {
			return err
		}
		if done() {
			return nil
		}
		if token = list.GetContinue(); token == "" {
			return nil
		}
		list.SetContinue("") // a decoder keeps fields that the last page does not name
		if err := meta.SetList(list, []runtime.Object{}); err != nil {
			return err
		}
	}
}
