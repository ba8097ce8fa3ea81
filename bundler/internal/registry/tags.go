package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

const (
	maxTags     = 20000 // of a repository
	maxTagPages = 1000
	tagsAtATime = "1000"
)

// Tags lists the tags of the repository, sorted (OCI distribution specification
// 1.1, "Listing Tags").
func (r *Repository) Tags(ctx context.Context) ([]string, error) {
	const op = "list tags of"
	name := r.ref.Repository()
	u := r.address("tags", "list")
	u.RawQuery = "n=" + tagsAtATime
	var out []string
	for range maxTagPages {
		answer, err := r.small(ctx, op, name, call{method: http.MethodGet, url: u, access: r.pulls(), ok: []int{200}}, bundle.MaxManifestSize)
		if err != nil {
			return nil, err
		}
		var page struct {
			Tags []string `json:"tags"`
		}
		if err := decode(answer.data, &page); err != nil {
			return nil, corrupt(op, name, err)
		}
		for _, tag := range page.Tags {
			if _, err := r.ref.WithTag(tag); err != nil {
				return nil, corrupt(op, name, fmt.Errorf("%q is no tag", clean(tag, 100)))
			}
		}
		if out = append(out, page.Tags...); len(out) > maxTags {
			return nil, corrupt(op, name, fmt.Errorf("there are more than %d", maxTags))
		}
		next := nextPage(answer.header.Get("Link"))
		if next == "" {
			slices.Sort(out)
			return slices.Compact(out), nil
		}
		v, err := u.Parse(next)
		if err != nil || v.Host != u.Host || v.Path != u.Path {
			return nil, corrupt(op, name, errors.New("the registry names a next page elsewhere"))
		}
		v.Scheme, u = u.Scheme, v
	}
	return nil, corrupt(op, name, errors.New("the registry names pages without end"))
}

// Delete deletes a manifest, and the tags that still name it afterwards: some
// registries drop them with the manifest, others keep them. A manifest that is not
// there is no fault.
func (r *Repository) Delete(ctx context.Context, d ocispec.Descriptor, tags []string) error {
	if err := r.remove(ctx, d.Digest.String()); err != nil {
		return err
	}
	for _, tag := range tags {
		there, found, err := r.stat(ctx, "delete", r.at(tag), tag, r.pulls())
		if err != nil {
			return err
		}
		if !found || there.Digest != d.Digest {
			continue
		}
		if err := r.remove(ctx, tag); err != nil {
			return err
		}
	}
	return nil
}

func (r *Repository) remove(ctx context.Context, id string) error {
	a, err := r.small(ctx, "delete", r.at(id), call{
		method: http.MethodDelete, url: r.address("manifests", id), access: access{path: r.ref.Path(), actions: "pull,delete"},
		ok: []int{200, 202, 204, 400, 404, 405, 501},
	}, maxErrorBody)
	if err != nil {
		return err
	}
	if a.status != http.StatusBadRequest && a.status != http.StatusMethodNotAllowed && a.status != http.StatusNotImplemented {
		return nil
	}
	return &fault.Error{
		Reason: fault.Refused, Op: "delete", Subject: r.at(id),
		Hint: "have deletion allowed (distribution: REGISTRY_STORAGE_DELETE_ENABLED=true), or prune by the registry's own means",
		Err:  fmt.Errorf("the registry does not allow deletion: %d %s %s", a.status, http.StatusText(a.status), strings.TrimSpace(clean(string(a.data), 200))),
	}
}
