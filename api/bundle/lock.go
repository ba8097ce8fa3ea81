package bundle

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/strictyaml"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Values of apiVersion and kind in a lock.
const (
	LockAPIVersion = "vdo.vmware.com/lock/v1"
	LockKind       = "BundleLock"
)

// Bounds of a lock; larger ones are refused.
const (
	MaxLockSize   = 4 << 20 // bytes of a lock document
	MaxMatrixSize = 4 << 20 // bytes of a matrix document
	MaxReleases   = 256
	MaxLockImages = 1024
	maxFilesOfOne = 64 // manifest files of one release
	maxPlatforms  = 32
)

// ID returns the release as UsedBy names it: "csi@3.5.1".
func (r Release) ID() string { return string(r.Driver) + "@" + r.Version.String() }

// Path returns the key of a manifest file in [Contents].Manifests, and its title in the contents
// manifest: DRIVER/VERSION/FILE.
func (r Release) Path(f File) string {
	return string(r.Driver) + "/" + r.Version.String() + "/" + f.Name
}

// YAML returns the lock as people read it: block style, keys in the order of the types. Parsing it
// returns the same lock.
func (l *Lock) YAML() ([]byte, error) {
	data, err := encodeJSON(l.normal())
	var doc yaml.Node
	if err = errors.Join(err, yaml.Unmarshal(data, &doc)); err != nil {
		return nil, fmt.Errorf("write lock: %w", err)
	}
	blockStyle(&doc)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(&doc), enc.Close()); err != nil {
		return nil, fmt.Errorf("write lock: %w", err)
	}
	return out.Bytes(), nil
}

// blockStyle drops JSON's flow style, except of empty collections.
func blockStyle(n *yaml.Node) {
	if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	for _, c := range n.Content {
		blockStyle(c)
	}
}

// JSON returns the canonical form that a bundle carries: keys sorted, no insignificant space, only
// the escapes that JSON requires.
func (l *Lock) JSON() ([]byte, error) {
	data, err := encodeJSON(l.normal())
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var tree any
	if err = errors.Join(err, dec.Decode(&tree)); err != nil {
		return nil, fmt.Errorf("write lock: %w", err)
	}
	return encodeJSON(tree)
}

// encodeJSON is json.Marshal without the escapes for HTML.
func encodeJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// normal returns a valid lock with empty collections instead of nil ones.
func (l *Lock) normal() *Lock {
	n := *l
	n.Images, n.Releases = append([]Image{}, l.Images...), slices.Clone(l.Releases)
	for i, r := range n.Releases {
		n.Releases[i].Manifests = append([]File{}, r.Manifests...)
	}
	return &n
}

// Sort puts releases, images and their users in the order of a lock. Manifest files keep their
// order: it is the order of applying them.
func (l *Lock) Sort() {
	slices.SortFunc(l.Releases, compareReleases)
	slices.SortFunc(l.Images, compareImages)
	for i := range l.Images {
		slices.Sort(l.Images[i].UsedBy)
	}
}

func compareReleases(a, b Release) int {
	// text orders versions that differ in build metadata only, so that the order is total
	return cmp.Or(cmp.Compare(a.Driver, b.Driver), a.Version.Compare(b.Version),
		strings.Compare(a.Version.String(), b.Version.String()))
}

func compareImages(a, b Image) int {
	return strings.Compare(a.Reference.String(), b.Reference.String())
}

// Validate returns every problem of the lock with its key, or nil.
func (l *Lock) Validate() error {
	c := &strictyaml.Check{}
	l.check(c)
	return c.Err(lockFormat, "lock")
}

func (l *Lock) check(c *strictyaml.Check) {
	c.Require(l.Matrix.Serial > 0, "matrix.serial", "%d is not a positive number", l.Matrix.Serial)
	c.Require(!l.Matrix.Digest.IsZero(), "matrix.digest", "there is no digest")
	checkSize(c, "matrix.size", l.Matrix.Size, MaxMatrixSize)
	c.Require(len(l.Platforms) > 0 && len(l.Platforms) <= maxPlatforms, "platforms",
		"there are %d: name platforms, or all", len(l.Platforms))
	c.Require(len(l.Platforms) < 2 || !slices.Contains(l.Platforms, image.Platform{}), "platforms", "all stands alone")
	l.checkReleases(c)
	l.checkImages(c)
	l.checkUse(c)
}

var lockFormat = strictyaml.Format{
	Op: "parse lock", APIVersion: LockAPIVersion, Kind: LockKind, Limit: MaxLockSize,
	Hint: "write the lock again with `vdo-bundle lock`",
}

func checkSize(c *strictyaml.Check, key string, size, limit int64) {
	c.Require(size > 0 && size <= limit, key, "%d is not between 1 and %d bytes", size, limit)
}

func (l *Lock) checkReleases(c *strictyaml.Check) {
	c.Require(len(l.Releases) > 0, "releases", "there is none")
	c.Require(len(l.Releases) <= MaxReleases, "releases", "there are %d, more than %d", len(l.Releases), MaxReleases)
	for i, r := range l.Releases {
		key := fmt.Sprintf("releases[%d]", i)
		c.Require(r.Driver.Valid() || r.Driver == Operator || IsService(r.Driver), key+".driver",
			"%q is none of cni, cpi, csi, snapshot-controller, dex, haproxy, %s, %s", r.Driver, JumpHost, Operator)
		c.Require(r.Version.String() != "", key+".version", "there is none")
		if i > 0 {
			checkOrder(c, key, compareReleases(l.Releases[i-1], r), r.ID())
		}
		if IsService(r.Driver) {
			c.Require(len(r.Manifests) == 0, key+".manifests", "%s is a service, which has none", r.Driver)
			c.Require(len(r.Images) == 1, key+".images", "%s is a service, which has one, not %d", r.Driver,
				len(r.Images))
		} else {
			checkFiles(c, key, r)
		}
		for _, from := range slices.Sorted(maps.Keys(r.Images)) {
			_, err := image.ParseReference(from)
			c.Require(err == nil, key+".images", "%q is not an image reference", from)
		}
	}
}

func checkOrder(c *strictyaml.Check, key string, order int, what string) {
	c.Require(order != 0, key, "%s is there twice", what)
	c.Require(order <= 0, key, "%s is not in sorted order", what)
}

func checkFiles(c *strictyaml.Check, key string, r Release) {
	files := r.Manifests
	c.Require(len(files) > 0, key+".manifests", "there is none")
	c.Require(len(files) <= maxFilesOfOne, key+".manifests", "there are %d, more than %d", len(files), maxFilesOfOne)
	seen := map[string]bool{}
	for i, f := range files {
		key := fmt.Sprintf("%s.manifests[%d]", key, i)
		bad := f.Name == "" || f.Name == "." || f.Name == ".." || f.Name != path.Base(f.Name) || strings.ContainsAny(f.Name, `\:`)
		c.Require(!bad, key+".name", "%q is not a base name of a file", f.Name)
		c.Require(!seen[f.Name], key+".name", "%q is there twice", f.Name)
		seen[f.Name] = true
		if r.Driver == Operator {
			c.Require(f.URL == "", key+".url", "the operator's manifests have none: vdo-bundle carries them")
		} else {
			checkURL(c, key+".url", f.URL)
		}
		c.Require(!f.Digest.IsZero(), key+".digest", "there is no digest")
		checkSize(c, key+".size", f.Size, matrix.MaxManifestSize)
	}
}

func checkURL(c *strictyaml.Check, key, s string) {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" {
		c.Add(key, "it is not an http or https URL")
		return
	}
	c.Require(u.User == nil, key, "it carries credentials; a lock holds no secrets")
}

func (l *Lock) checkImages(c *strictyaml.Check) {
	c.Require(len(l.Images) <= MaxLockImages, "images", "there are %d, more than %d", len(l.Images), MaxLockImages)
	all := len(l.Platforms) == 1 && l.Platforms[0] == image.Platform{}
	for i, im := range l.Images {
		key := fmt.Sprintf("images[%d]", i)
		if i > 0 {
			checkOrder(c, key, compareImages(l.Images[i-1], im), im.Reference.String())
		}
		c.Require(!im.Reference.IsZero(), key+".reference", "there is none")
		c.Require(!im.Digest.IsZero(), key+".digest", "there is no digest")
		own := im.Reference.Digest()
		c.Require(!all || own.IsZero() || own == im.Digest, key+".digest", "%s is not the digest of the reference %s",
			im.Digest, im.Reference)
		c.Require(IsIndex(im.MediaType) || isManifest(im.MediaType), key+".mediaType",
			"%q is neither an image index nor an image manifest", im.MediaType)
		checkSize(c, key+".size", im.Size, MaxManifestSize)
		c.Require(im.Source.IsZero() == (im.Reason == ""), key+".source", "source and reason go together")
	}
}

// checkUse compares the two directions: the images of each release, and the users of each image.
func (l *Lock) checkUse(c *strictyaml.Check) {
	users := map[string][]string{} // image reference → release IDs, in order
	for i, r := range l.Releases {
		for _, from := range slices.Sorted(maps.Keys(r.Images)) {
			to := r.Images[from]
			_, ok := l.Image(to)
			c.Require(ok, fmt.Sprintf("releases[%d].images", i), "%s is mapped to %q, which is not among the images", from, to)
			if !slices.Contains(users[to], r.ID()) {
				users[to] = append(users[to], r.ID())
			}
		}
	}
	for i, im := range l.Images {
		want := users[im.Reference.String()]
		slices.Sort(want)
		key := fmt.Sprintf("images[%d].usedBy", i)
		c.Require(len(im.UsedBy) > 0, key, "no release uses %s", im.Reference)
		c.Require(slices.Equal(want, im.UsedBy), key, "says %q, but the releases that name %s are %q", im.UsedBy,
			im.Reference, want)
	}
}

// Image returns the image with a normalised reference.
func (l *Lock) Image(reference string) (Image, bool) {
	i, ok := slices.BinarySearchFunc(l.Images, reference, func(im Image, ref string) int {
		return strings.Compare(im.Reference.String(), ref)
	})
	if !ok {
		return Image{}, false
	}
	return l.Images[i], true
}

// ParseLock reads a lock, YAML or JSON; name is the file's name, for errors. It refuses unknown,
// missing and repeated keys, wrong types, aliases, a second document and all that [Lock.Validate]
// reports. It returns all faults together, each with file, line and key.
func ParseLock(name string, data []byte) (*Lock, error) {
	lock := &Lock{}
	if err := lockFormat.Load(name, data, lock, lock.check); err != nil {
		return nil, err
	}
	return lock, nil
}

// JumpHost is used in place of a driver for this project's own jump host of tenant clusters. No matrix lists it.
const JumpHost matrix.Driver = "vdo-jumphost"

// IsService reports whether a driver is a service: one image, without manifests.
func IsService(d matrix.Driver) bool {
	return d == JumpHost || slices.Contains(matrix.Services(), d)
}

// Service returns the image and the version to run for a service. The matrix chooses among the
// lock's releases ([matrix.Document.ChooseService]); of the jump host it is the newest.
func (l *Lock) Service(service matrix.Driver, doc *matrix.Document) (Image, matrix.Version, error) {
	available := matrix.Available{}
	var newest matrix.Version
	for _, r := range l.Releases {
		if r.Driver == service {
			available[r.ID()], newest = true, r.Version // sorted by version
		}
	}
	if len(available) == 0 {
		return Image{}, matrix.Version{}, noService(service, errors.New("the bundle holds no release of it"))
	}
	if service != JumpHost {
		chosen, err := doc.ChooseService(service, available)
		if err != nil {
			return Image{}, matrix.Version{}, noService(service, fmt.Errorf("of the bundle's releases: %w", err))
		}
		newest = chosen.Version
	}
	for _, i := range l.Images {
		if slices.Contains(i.UsedBy, Release{Driver: service, Version: newest}.ID()) {
			return i, newest, nil
		}
	}
	return Image{}, matrix.Version{}, noService(service, errors.New("the bundle holds no image of it"))
}

func noService(service matrix.Driver, why error) error {
	return fault.Errorf(fault.NotFound, "find service", string(service),
		"make the bundle with `vdo-bundle lock --services sip`, sign it and push it", "%w", why)
}
