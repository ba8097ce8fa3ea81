// Package bundle is the format of a driver bundle: its parts, how they name each other, and how to
// read it.
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
// The root's digest is the only thing that a vendor signs and a site trusts. Every other byte is
// reached from it by digest.
//
// Each image's descriptor in the root carries the annotation vdo.vmware.com/reference: the
// reference that the driver manifest uses. Images are sorted by that reference. An image used under
// two references has two descriptors. The root has no time stamp and no annotation that depends on
// time or place: the same lock gives the same root.
//
// Every image is a child of the root in the same repository. So one tag protects everything from
// garbage collection, and REPOSITORY@DIGEST addresses an image.
//
// # The lock
//
// See [Lock]. Tools write it as YAML for people; the bundle carries it as JSON with sorted keys and
// no insignificant space. [Lock.Validate] has its rules. If a bundle keeps one platform of an
// image, the image's source has the digest of the upstream index. The graph does not contain that
// index: see [Image.Index]. If a mirror resolved an image, the reason ends with that mirror: see
// [Image.Resolver].
//
// Besides drivers a bundle may hold the project's own operator, as a release of [Operator]: its
// image and its install manifests, which have no URL. It may also hold services for tenant clusters
// ([IsService]): those that the matrix lists, and the project's own [JumpHost]. A service is one
// image, without manifests.
//
// Lock and root agree in both directions. Every image of the lock is a child of the root with the
// same digest, size and media type. Every manifest file is a layer of the contents manifest. The
// matrix is the lock's.
//
// # Canonical form
//
// The root and the contents manifest are JSON without insignificant space. Their keys are in the
// order of the OCI image specification's structs. They have no other keys, and no annotations
// except those above and org.opencontainers.image.title on the layers of the contents. These layers
// are the matrix, its signature if one exists, and the manifest files sorted by title. A reader
// builds both again from its own understanding and refuses any other bytes. So no two readers see
// different things in one digest.
//
// Upstream indexes and manifests, OCI's or Docker's, are carried byte for byte. Layers that their
// publisher marks as not distributable are carried like all others, since an isolated site cannot
// follow their URLs. Readers skip entries of an upstream index whose media type is neither an index
// nor a manifest; see [Tree].
//
// # Attachments
//
// Referrers are signatures, attestations and SBOMs of the root, of images, of their platforms'
// manifests, and of one another. The root does not name them. Each store keeps them beside it,
// under cosign's tags (sha256-<hex>.sig, .att, .sbom) or as OCI referrers. See [Referrer].
//
// If a bundle keeps one platform of an image, the image's index travels as a referrer of the
// platform's manifest. Its artifact type is [EvidenceType]. The first layer is the index, byte for
// byte. Manifests and blobs of upstream's signatures of the index may follow.
//
// # On disk
//
// An OCI image layout, in a directory or in one tar. Its index.json names the root as "bundle",
// each image by its reference and each referrer by its tag, in org.opencontainers.image.ref.name.
// The package that writes the tar specifies its layout byte for byte, in the order of
// [Graph.Order].
//
// # Deltas
//
// A bundle on disk may be a delta: it omits some layers of its images, which an earlier bundle, its
// base, has. Root and signatures are those of the whole bundle. The index.json of a delta has two
// annotations at its top:
//
//	vdo.vmware.com/base         the digest of the base's root
//	vdo.vmware.com/base.layers  the digests of the omitted layers, sorted, with
//	                            one space between them; at least one
//
// They need no signature: a layer has the digest that the signed root gives it, wherever it comes
// from. Before a push writes a delta, it checks the target repository for every omitted layer. See
// [Base].
//
// # Receipts
//
// A receipt is the inventory of a repository after a push. With it a delta can be built without
// access to the repository. It is JSON, with exactly the keys of [Receipt] in their order. It is not
// signed, for the reason above.
//
// # Bounds
//
// Everything read is bounded ([MaxManifestSize], [MaxNodes], [MaxDepth], [MaxLockSize] and the
// others) and verified by size and sha256 as it streams.
package bundle

import (
	"regexp"
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

// Lock fixes every byte of a bundle: its releases, manifest files and images by digest, and the
// matrix that chose them.
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

// Operator is used in place of a driver for this project's own operator: one release with its image
// and install manifests, which vdo-bundle carries. No matrix lists it.
const Operator matrix.Driver = "vdo-operator"

// Release is one driver release of the bundle.
type Release struct {
	Driver    matrix.Driver  `json:"driver"`
	Version   matrix.Version `json:"version"`
	Manifests []File         `json:"manifests"`
	// Images maps the references that the manifests use, as written, to the references of Lock.Images.
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
	// Source is the actual location of the image if it differs from Reference (a registry that no
	// longer exists, an override of the matrix). Reason says why.
	Source image.Reference `json:"source,omitzero"`
	Reason string          `json:"reason,omitempty"`
	// Digest, MediaType and Size are those of the index or manifest that pods are pinned to.
	Digest    image.Digest `json:"digest"`
	MediaType string       `json:"mediaType"`
	Size      int64        `json:"size"`
	// UsedBy lists the releases whose manifests name the image: "csi@3.5.1".
	UsedBy []string `json:"usedBy"`
}

// Descriptor returns the descriptor of the image's index or manifest.
func (i Image) Descriptor() ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: i.MediaType, Digest: digest.Digest(i.Digest.String()), Size: i.Size}
}

// FetchedFrom returns the reference, with its digest, to fetch the image from.
func (i Image) FetchedFrom() image.Reference {
	if i.Source.IsZero() {
		return i.Reference.Pin(i.Digest)
	}
	return i.Source.Pin(i.Digest)
}

// Clauses at the end of a reason. Earlier versions read them as text.
const (
	oneOfIndex  = "one platform of this index was kept"
	someOfIndex = "some platforms of this index were kept"
	resolvedAt  = "resolved at "
)

// because returns the image with a clause added to its reason.
func (i Image) because(clause string) Image {
	if i.Source.IsZero() {
		i.Source = i.Reference
	}
	i.Reason = strings.TrimPrefix(i.Reason+"; "+clause, "; ")
	return i
}

// OfIndex returns the image as a part of an index: one platform's manifest, or an index of several.
// Its source keeps that index's digest.
func (i Image) OfIndex(index image.Digest) Image {
	clause := oneOfIndex
	if IsIndex(i.MediaType) {
		clause = someOfIndex
	}
	i = i.because(clause)
	i.Source = i.Source.At(index)
	return i
}

// ResolvedAt returns the image as the mirror HOST/PATH resolved it, in place of its source.
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

// Index returns the digest of the index that the image is a part of; false if the lock names none.
func (i Image) Index() (image.Digest, bool) {
	d := i.Source.Digest()
	return d, !d.IsZero() && d != i.Digest
}

// NoteSuffix ends the tag of the note that confirms a complete push. The registry client's package
// comment specifies the note.
const NoteSuffix image.Suffix = ".confirmed"

// NoteTag returns the tag of that note, sha256-HEX.confirmed, for the hex digest of the bundle's root.
func NoteTag(hex string) string { return "sha256-" + hex + string(NoteSuffix) }

// DigestTag returns the tag that a push gives a bundle's root and an image beside it, for the hex digest.
// Registries keep the content when another tag moves on. The tag sha256-HEX would be its list of referrers.
func DigestTag(hex string) string { return "digest-" + hex[:16] }

var digestTag = regexp.MustCompile(`^digest-[0-9a-f]{16}$`)

// IsDigestTag reports whether a tag is the [DigestTag] of any digest.
func IsDigestTag(tag string) bool { return digestTag.MatchString(tag) }
