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
//	│             application/vnd.vdo.manifest.v1+yaml       one per manifest file,
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
// with sorted keys and no insignificant space. [Lock.Validate] has its rules. Of an image of
// which one platform was kept, the source has the digest of the upstream index, which is no
// part of the graph: see [Image.Index]. Where a mirror resolved an image, the reason ends with
// that mirror: see [Image.Resolver].
//
// Besides drivers there may be the project's own operator, as a release of [Operator]: its
// image, and the manifests that install it, which have no URL. And there may be services that
// stand before tenant clusters ([IsService]): those that the matrix lists as such, and the
// project's own [JumpHost]. A service is one image, without manifests.
//
// Lock and root agree: every image of the lock is a child of the root with the same digest,
// size and media type, and the other way round; so are manifest files and the layers of the
// contents manifest; the matrix is the lock's.
//
// # Canonical form
//
// The root and the contents manifest are JSON with the keys in the order of the
// OCI image specification's structs, no insignificant space, no other key and no
// other annotation than those above (org.opencontainers.image.title on the layers
// of the contents). The layers of the contents are the matrix, its signature where
// there is one, and the manifest files sorted by title. A reader builds both again
// from what it understood and refuses any other bytes, so that no two readers see
// different things in one digest.
//
// Upstream indexes and manifests, OCI's or Docker's, are carried byte for byte. Layers that
// their maker calls not distributable are carried like all others, since a site without a
// network could not follow their URLs. What an upstream index names with a
// media type that is no index's and no manifest's is passed over; see [Tree].
//
// # Attachments
//
// Signatures, attestations and SBOMs of the root, of images, of the manifests of their
// platforms, and of one another are not reached from the root; each medium keeps them
// beside it, under cosign's tags (sha256-<hex>.sig, .att, .sbom) or as referrers. See
// [Referrer].
//
// The index of an image of which one platform was kept travels as such a referrer of the
// platform's manifest, of the artifact type [EvidenceType]: its first layer is the index,
// byte for byte. Manifests and blobs of upstream's signatures of the index may follow it.
//
// # On disk
//
// An OCI image layout, in a folder or in one tar. Its index.json names the root as
// "bundle", each image by its reference and each attachment by its tag, in
// org.opencontainers.image.ref.name; the layout of the tar, byte for byte, is
// specified by the package that writes it, in the order of [Graph.Order].
//
// # Deltas
//
// A medium on disk may be a delta: it holds everything but some layers of its images, which
// an earlier bundle, its base, has. Root and signatures are those of the whole bundle. The
// index.json of a delta has two annotations at its top:
//
//	vdo.vmware.com/base         the digest of the base's root
//	vdo.vmware.com/base.layers  the digests of the layers left out, sorted, with
//	                            one space between them; at least one
//
// They are signed by no one and need not be: a layer has the digest that the signed root
// gives it, wherever it comes from. Whoever writes a delta into a registry asks for every
// listed layer in the target repository first. See [Base].
//
// # Receipts
//
// A receipt says what a repository holds after a push, so that a delta can be made where the
// repository cannot be reached. It is JSON, with the keys in this order and no other, and the
// blobs sorted by digest, each once; not signed, for the reason above. See [Receipt].
//
//	{
//	  "apiVersion": "vdo.vmware.com/receipt/v1",
//	  "kind": "PushReceipt",
//	  "repository": "registry.site:5000/vdo/drivers",
//	  "root": "sha256:…",
//	  "blobs": [{"digest": "sha256:…", "size": 123}, …]
//	}
//
// # Bounds
//
// All that is read is bounded ([MaxManifestSize], [MaxNodes], [MaxDepth],
// [MaxLockSize] and the others) and verified by size and sha256 as it streams.
package bundle

import (
	"strings"

	"github.com/opencontainers/go-digest"
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

// Operator stands in the place of a driver for this project's own operator: one
// release with its image and its install manifests, which vdo-bundle carries. No
// matrix lists it.
const Operator matrix.Driver = "vdo-operator"

// Release is one driver release of the bundle.
type Release struct {
	Driver    matrix.Driver  `json:"driver"`
	Version   matrix.Version `json:"version"`
	Manifests []File         `json:"manifests"`
	// Images are the references that the manifests use, as the manifests write
	// them, mapped to the references under which Lock.Images holds them.
	Images map[string]string `json:"images"`
}

// File is one manifest file.
type File struct {
	Name   string       `json:"name"`          // base name
	URL    string       `json:"url,omitempty"` // empty for the operator's
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

// Descriptor names the image's index or manifest.
func (i Image) Descriptor() ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: i.MediaType, Digest: digest.Digest(i.Digest.String()), Size: i.Size}
}

// FetchedFrom returns the reference, with its digest, that the image is fetched from.
func (i Image) FetchedFrom() image.Reference {
	if i.Source.IsZero() {
		return i.Reference.Pin(i.Digest)
	}
	return i.Source.Pin(i.Digest)
}

// Clauses at the end of a reason: earlier versions read them as text.
const (
	oneOfIndex  = "one platform of this index was kept"
	someOfIndex = "some platforms of this index were kept"
	resolvedAt  = "resolved at "
)

// because adds a clause to the reason.
func (i Image) because(clause string) Image {
	if i.Source.IsZero() {
		i.Source = i.Reference
	}
	i.Reason = strings.TrimPrefix(i.Reason+"; "+clause, "; ")
	return i
}

// OfIndex returns the image as what was kept of an index: one platform's manifest, or an
// index of several. Its source keeps that index's digest.
func (i Image) OfIndex(index image.Digest) Image {
	clause := oneOfIndex
	if IsIndex(i.MediaType) {
		clause = someOfIndex
	}
	i = i.because(clause)
	i.Source = i.Source.At(index)
	return i
}

// ResolvedAt returns the image as a mirror, HOST/PATH, resolved it in the place of its source.
func (i Image) ResolvedAt(repository string) Image { return i.because(resolvedAt + repository) }

// Resolver returns the mirror that resolved the image; "" for its source.
func (i Image) Resolver() string {
	_, at, _ := strings.Cut("; "+i.Reason, "; "+resolvedAt)
	return at
}

// Why returns the reason without these clauses.
func (i Image) Why() string {
	why, _, _ := strings.Cut("; "+i.Reason, "; "+resolvedAt)
	why = strings.TrimSuffix(strings.TrimSuffix(why, "; "+oneOfIndex), "; "+someOfIndex)
	return strings.TrimPrefix(why, "; ")
}

// Index returns the digest of the index that the image was kept of; false where the
// lock names none.
func (i Image) Index() (image.Digest, bool) {
	d := i.Source.Digest()
	return d, !d.IsZero() && d != i.Digest
}

// NoteSuffix ends the tag under which a push leaves the note that all of a bundle has
// arrived; what the note holds is in the registry client's package comment.
const NoteSuffix image.Suffix = ".confirmed"

// NoteTag returns the tag of that note, sha256-HEX.confirmed, for the hex digest of
// the bundle's root.
func NoteTag(hex string) string { return "sha256-" + hex + string(NoteSuffix) }

// DigestTag returns the tag that a push gives a bundle's root, and an image beside it, for
// the hex digest: when another tag moves on, registries keep what still has this one.
// sha256-HEX would be the list of its referrers.
func DigestTag(hex string) string { return "digest-" + hex[:16] }
