// Package catalog decides what goes into a bundle. It is pure: it reads manifests
// and a matrix, and returns values; fetching is done by its callers.
//
//	selection, err := catalog.Select(doc, catalog.Request{Kubernetes: minors})
//	…fetch selection.Files()…
//	plan, err := catalog.Read(selection.Releases, files)
//	…resolve plan.Images to digests…
//
// [Select] turns what the user asked for into releases of the matrix. [Read] takes
// from the manifests of those releases every image that a pod template names.
//
// # How a reference is treated
//
// A reference of a manifest goes through three steps, each recorded in the lock:
//
//  1. the matrix's override for this release, where the manifest names a floating
//     or lagging tag: the lock maps the reference as it is written to the
//     override's reference, and holds the image under that name;
//  2. normalisation, as container runtimes do it ([image.ParseReference]);
//  3. [image.Relocate], for registries that no longer exist: the lock keeps the
//     image's name and says in source where it is and in reason why.
//
// Two tags of one name are two images.
package catalog
