// Package pages reads lists from the API server page by page, so that thousands of objects
// are neither asked for nor held at once:
//
//	var list corev1.NodeList
//	err := pages.Each(ctx, reader, &list, func() {
//		for i := range list.Items { … }
//	})
//
// What was kept of a page stays as it was: the next one is not decoded over it. Errors are
// the reader's, as they are.
package pages

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Size is how many objects a page has at most, where nothing else is requested.
const Size = 500

// PerNode is the limit for what there is one of for each node, and large: a node with its images
// is 60 KiB when it is decoded, of which a line is kept.
const PerNode = 100

// Each reads a list page by page, and calls each after every one with the list filled; opts
// limit it to a namespace, or to what has a label, and with [client.Limit] the size of a page.
func Each(ctx context.Context, c client.Reader, list client.ObjectList, each func(), opts ...client.ListOption) error {
	return Until(ctx, c, list, func() bool { each(); return false }, opts...)
}

// Until is [Each] that ends after the page of which done returns true.
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
		list.SetContinue("") // a decoder leaves what the last page does not name
		if err := meta.SetList(list, []runtime.Object{}); err != nil {
			return err
		}
	}
}
