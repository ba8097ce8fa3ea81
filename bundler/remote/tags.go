package remote

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const (
	maxTags     = 20000 // of a repository
	maxTagPages = 1000
	tagsAtATime = 1000
)

// Tags returns all tags, sorted (OCI distribution specification 1.1, "Listing Tags").
func (r *Repository) Tags(ctx context.Context) ([]string, error) {
	look := Look{Op: "list tags of", Subject: r.ref.Repository()}
	x := list{look: look, from: r.Address("tags", "list"), pages: maxTagPages}
	x.from.RawQuery = "n=" + strconv.Itoa(tagsAtATime)
	var out []string
	err := r.list(ctx, x, func(a Reply) error {
		var page struct{ Tags []string }
		if err := decode(a.Data, &page); err != nil {
			return r.corrupt(look, err)
		}
		for _, tag := range page.Tags {
			if _, err := r.ref.WithTag(tag); err != nil {
				return r.corrupt(look, fmt.Errorf("%q is not a tag", Clean(r.host.scrub(tag), 100)))
			}
		}
		if out = append(out, page.Tags...); len(out) > maxTags {
			return r.corrupt(look, fmt.Errorf("there are more than %d", maxTags))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Delete deletes a manifest and tags that still name it: some registries keep them. A missing manifest is no fault.
func (r *Repository) Delete(ctx context.Context, d ocispec.Descriptor, tags []string) error {
	if err := r.remove(ctx, d.Digest.String()); err != nil {
		return err
	}
	for _, tag := range tags {
		exists, found, err := r.Stat(ctx, Look{Op: opDelete, ID: tag})
		if err != nil {
			return err
		}
		if !found || exists.Digest != d.Digest {
			continue
		}
		if err := r.remove(ctx, tag); err != nil {
			return err
		}
	}
	return nil
}

const opDelete = "delete"

// remove deletes a manifest or a tag. Package oras deletes manifests only, and accepts only the status 202.
func (r *Repository) remove(ctx context.Context, id string) error {
	a, err := r.Small(ctx, opDelete, r.At(id), Request{
		Method: http.MethodDelete, URL: r.Address("manifests", id), Access: Access{Path: r.ref.Path(), Actions: "pull,delete"},
		OK: []int{200, 202, 204, 400, 404, 405, 501},
	}, MaxErrorBody)
	if err != nil {
		return err
	}
	if a.Status != http.StatusBadRequest && a.Status != http.StatusMethodNotAllowed && a.Status != http.StatusNotImplemented {
		return nil
	}
	return fault.Errorf(fault.Refused, opDelete, r.At(id),
		"have deletion allowed (distribution: REGISTRY_STORAGE_DELETE_ENABLED=true), or prune by the registry's own means",
		"the registry does not allow deletion: %d %s %s", a.Status, http.StatusText(a.Status),
		Clean(r.host.scrub(string(a.Data)), 200))
}
