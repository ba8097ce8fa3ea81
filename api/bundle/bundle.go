// Package bundle is the format of a driver bundle: what is in it, how its parts
// name each other, and how it is read.
//
// # In a registry
//
// A bundle is one OCI image index, the root, in one repository:
//
//	index  artifactType application/vnd.vdo.bundle.v1
//	├── contents: an image manifest, artifactType application/vnd.vdo.bundle.contents.v1
//	│     config  application/vnd.vdo.lock.v1+json           the lock, as canonical JSON
//	│     layers  application/vnd.vdo.matrix.v1+yaml         the matrix document, byte for byte
//	│             application/vnd.vdo.matrix.signature.v1    its signature (optional)
//	│             application/vnd.vdo.manifest.v1+yaml       one per upstream manifest file,
//	│                                                        titled DRIVER/VERSION/FILE
//	├── image: an upstream index or manifest, digest unchanged
//	└── …
//
// The digest of the root is the one thing that is signed and that a site has to
// trust: every other byte is reached from it by digest.
//
// Each image's descriptor in the root carries the annotation
// vdo.vmware.com/reference: the reference that the driver manifest uses. Images
// are sorted by that reference; one image used under two references has two
// descriptors. The root has no time stamp and no annotation that depends on when
// or where it was made: the same lock gives the same root.
//
// Because every image is a child of the root in the same repository, one tag
// keeps everything alive in garbage collection, and an image is addressed as
// REPOSITORY@DIGEST.
//
// # The lock
//
// See [Lock]. Written by people's tools as YAML, carried in the bundle as JSON
// with sorted keys and no insignificant space.
package bundle

import (
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Media types and artifact types of the format.
const (
	ArtifactType         = "application/vnd.vdo.bundle.v1"
	ContentsArtifactType = "application/vnd.vdo.bundle.contents.v1"
	LockMediaType        = "application/vnd.vdo.lock.v1+json"
	MatrixMediaType      = "application/vnd.vdo.matrix.v1+yaml"
	MatrixSigMediaType   = "application/vnd.vdo.matrix.signature.v1"
	ManifestMediaType    = "application/vnd.vdo.manifest.v1+yaml"

	// AnnotationReference is the reference that a driver's manifest uses for an image.
	AnnotationReference = "vdo.vmware.com/reference"
)

// Lock fixes every byte of a bundle: which releases, which manifest files and
// which images by digest, on whose word.
type Lock struct {
	APIVersion string           `json:"apiVersion"` // vdo.vmware.com/lock/v1
	Kind       string           `json:"kind"`       // BundleLock
	Matrix     MatrixRef        `json:"matrix"`
	Platforms  []image.Platform `json:"platforms"` // ["all"], or the platforms kept
	Releases   []Release        `json:"releases"`  // sorted by driver, version
	Images     []Image          `json:"images"`    // sorted by reference
}

// MatrixRef names the matrix document that the lock was made from.
type MatrixRef struct {
	Serial int64        `json:"serial"`
	Digest image.Digest `json:"digest"`
	Size   int64        `json:"size"` // bytes
}

// Release is one driver release of the bundle.
type Release struct {
	Driver    matrix.Driver  `json:"driver"`
	Version   matrix.Version `json:"version"`
	Manifests []File         `json:"manifests"`
	// Images are the references that the manifests use, as the manifests write
	// them, mapped to the references under which Lock.Images holds them.
	Images map[string]string `json:"images"`
}

// File is one upstream manifest file.
type File struct {
	Name   string       `json:"name"` // base name
	URL    string       `json:"url"`
	Digest image.Digest `json:"digest"`
	Size   int64        `json:"size"` // bytes
}

// Image is one image of the bundle.
type Image struct {
	// Reference is the normalised reference that manifests mean.
	Reference image.Reference `json:"reference"`
	// Source is where the image really is, when that is not Reference (a registry
	// that no longer exists, an override of the matrix), and Reason says why.
	Source image.Reference `json:"source,omitzero"`
	Reason string          `json:"reason,omitempty"`
	// Digest, MediaType and Size are of the index or manifest that pods are pinned to.
	Digest    image.Digest `json:"digest"`
	MediaType string       `json:"mediaType"`
	Size      int64        `json:"size"`
	// UsedBy are the releases whose manifests name the image: "csi@3.5.1".
	UsedBy []string `json:"usedBy"`
}

// Graph is everything that a bundle consists of, known before the first layer
// byte moves: the manifests with their bytes, and the descriptors of all blobs.
type Graph struct {
	Root ocispec.Descriptor
	// Manifests are all indexes and image manifests, children before parents, the
	// root last, each once.
	Manifests []Node
	// Blobs are all configs and layers, each digest once, sorted by digest.
	// Configs and small files that the bundler itself made carry Data.
	Blobs []ocispec.Descriptor
	// Names are the entries of an OCI layout's index.json: the root, and each
	// image under its reference in org.opencontainers.image.ref.name.
	Names []ocispec.Descriptor
	// Attachments are the signatures, attestations and SBOMs that travel with the
	// bundle. They are not reached from the root.
	Attachments []Attachment
}

// Node is one manifest of a Graph.
type Node struct {
	Descriptor ocispec.Descriptor
	Data       []byte
}
