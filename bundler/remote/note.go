package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
)

// The artifact type and the annotations of a note.
const (
	noteType       = "application/vnd.vdo.confirmed.v1"
	noteRepository = "com.vmware.vdo.confirmed.repository"
	noteRoot       = "com.vmware.vdo.confirmed.root"
	notePushed     = "com.vmware.vdo.confirmed.pushed"
)

const maxNote = 64 << 10

// Remember writes, after Commit, the note of the package comment where this push has put a
// tag on the bundle.
func (r *Repository) Remember(ctx context.Context) error {
	p := r.begun()
	if p == nil || p.tagged.IsZero() {
		return nil
	}
	nothing := bundle.Plain(ocispec.DescriptorEmptyJSON)
	data, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		ArtifactType: noteType, Config: nothing, Layers: []ocispec.Descriptor{nothing},
		Annotations: map[string]string{
			noteRepository: r.ref.Repository(), noteRoot: p.graph.Root.Digest.String(),
			notePushed: p.tagged.UTC().Format(time.RFC3339),
		},
	})
	if err != nil {
		return fmt.Errorf("write the note of a push: %w", err)
	}
	if err := r.attachBlob(ctx, ocispec.DescriptorEmptyJSON); err != nil {
		return err
	}
	d := blob(ocispec.MediaTypeImageManifest, data)
	d.Data = nil
	return r.putManifest(ctx, bundle.NoteTag(p.graph.Root.Digest.Encoded()), bundle.Node{Descriptor: d, Data: data})
}

// Pushed returns when a push last put a tag on a bundle of this repository, by the
// registry's clock; zero where no note of this repository says so.
func (r *Repository) Pushed(ctx context.Context, root image.Digest) (pushed time.Time, err error) {
	a, err := r.Small(ctx, "read the note of", r.At(root.String()), Request{
		Method: http.MethodGet, URL: r.Address("manifests", bundle.NoteTag(root.Hex())), Access: r.Pulls(),
		Header: map[string]string{"Accept": ocispec.MediaTypeImageManifest}, OK: []int{200, 404},
	}, maxNote)
	if fault.ReasonOf(err) == fault.Forbidden {
		return pushed, nil // as some registries say that a tag is not there
	}
	var m ocispec.Manifest
	if err != nil || a.Status != http.StatusOK || json.Unmarshal(a.Data, &m) != nil { // what is no note says nothing
		return pushed, err
	}
	is := m.Annotations
	if m.ArtifactType == noteType && is[noteRepository] == r.ref.Repository() && is[noteRoot] == root.String() {
		pushed, _ = time.Parse(time.RFC3339, is[notePushed]) // zero where it says none
	}
	return pushed, nil
}
