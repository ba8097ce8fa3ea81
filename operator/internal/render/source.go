package render

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/lru"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix/needs"
)

// source is a parsed release of the bundle.
type source struct {
	release *bundle.Release
	driver  matrix.Driver
	version matrix.Version
	objects []*unstructured.Unstructured // in the order of the manifests
	images  map[string]string            // as written → reference in the lock
	digests map[string]image.Digest      // reference in the lock → digest
}

func load(lock *bundle.Lock, manifests map[string][]byte, id matrix.ReleaseID) (*source, error) {
	release, err := releaseOf(lock, id)
	if err != nil {
		return nil, err
	}
	s := &source{release: release, driver: id.Driver, version: id.Version, images: maps.Clone(release.Images), digests: map[string]image.Digest{}}
	for _, i := range lock.Images {
		s.digests[i.Reference.String()] = i.Digest
	}
	var errs []error
	for _, file := range release.Manifests {
		key := release.Path(file)
		data, ok := manifests[key]
		if !ok {
			errs = append(errs, fault.Errorf(fault.Incomplete, "read manifest", key, "push the bundle again",
				"the lock names it and the bundle does not hold it"))
			continue
		}
		objects, err := decodeAgain(key, data)
		s.objects, errs = append(s.objects, objects...), append(errs, err)
	}
	errs = append(errs, s.twice()...)
	if err := fault.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

func releaseOf(lock *bundle.Lock, id matrix.ReleaseID) (*bundle.Release, error) {
	if lock != nil {
		for i, r := range lock.Releases {
			if r.Driver == id.Driver && r.Version.String() == id.Version.String() {
				return &lock.Releases[i], nil
			}
		}
	}
	return nil, fault.Errorf(fault.NotFound, "find release", id.String(), "use a bundle that holds it",
		"the bundle does not hold it")
}

// twice reports objects that occur twice in the manifests, since their order would decide.
func (s *source) twice() []error {
	seen, errs := map[Ref]bool{}, []error(nil)
	for _, o := range s.objects {
		ref := RefOf(o)
		if seen[ref] {
			errs = append(errs, fault.Errorf(fault.Conflict, "read manifests", s.name(),
				"make the bundle again from upstream's manifests", "%s is in them twice", ref))
		}
		seen[ref] = true
	}
	return errs
}

// name returns DRIVER@VERSION, such as csi@3.5.1.
func (s *source) name() string { return string(s.driver) + "@" + s.version.String() }

// digest returns the signed digest of an image by its name in the manifests.
func (s *source) digest(written string) (image.Digest, error) {
	d := s.digests[s.images[written]]
	if d.IsZero() {
		return d, fault.Errorf(fault.Untrusted, "pin image", fmt.Sprintf("%q of %s", written, s.name()),
			"make the bundle again: its lock does not hold this image", "the signed lock does not hold it")
	}
	return d, nil
}

// since reports whether the release is v or newer. A pre-release of v has v's features.
func (s *source) since(v string) bool {
	have, err := semver.StrictNewVersion(s.version.String())
	return err == nil && !have.LessThan(semver.MustParse(v+"-0"))
}

func (s *source) find(kind, name string) *unstructured.Unstructured {
	i := slices.IndexFunc(s.objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == kind && o.GetName() == name
	})
	if i < 0 {
		return nil
	}
	return s.objects[i]
}

// maxObjects bounds a manifest file. The largest known, Antrea's, has 47 objects.
const maxObjects = 500

// decode reads a manifest of several YAML documents. It skips documents that are empty or hold only comments.
func decode(name string, data []byte) ([]*unstructured.Unstructured, error) {
	bad := func(err error) error {
		return fault.Errorf(fault.Corrupt, "read manifest", name, "make the bundle again from upstream's manifests", "%w", err)
	}
	if len(data) > matrix.MaxManifestSize {
		return nil, bad(fmt.Errorf("%d bytes: more than %d", len(data), matrix.MaxManifestSize))
	}
	docs, err := needs.Documents(data)
	if err != nil {
		return nil, bad(err)
	}
	if len(docs) > maxObjects {
		return nil, bad(fmt.Errorf("more than %d objects", maxObjects))
	}
	var objects []*unstructured.Unstructured
	for n, doc := range docs {
		object, err := decodeOne(doc)
		if err != nil {
			return nil, bad(fmt.Errorf("object %d: %w", n+1, err))
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func decodeOne(doc []byte) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(doc); err != nil {
		return nil, err
	}
	if object.IsList() {
		return nil, errors.New("a List: its items must be documents of their own")
	}
	if object.GetAPIVersion() == "" || object.GetName() == "" {
		return nil, errors.New("an object without apiVersion or metadata.name")
	}
	return object, nil
}

// recent caches decoded manifests by their sums, because every reconcile renders the same ones. A set of releases has
// up to fourteen files (eight of the snapshot-controller), ten times as large in memory. While an upgrade waits, the
// present and the desired set are read in turn, so one file above the limit would evict all.
var recent = lru.New(32)

// decodeAgain is decode with a cache, since the result depends only on the bytes. The caller may change the objects.
func decodeAgain(name string, data []byte) ([]*unstructured.Unstructured, error) {
	sum := sha256.Sum256(data)
	if known, ok := recent.Get(sum); ok {
		return copies(known.([]*unstructured.Unstructured)), nil //nolint:forcetypeassert // nothing else is kept
	}
	objects, err := decode(name, data)
	if err != nil {
		return nil, err // names the file, and is rare
	}
	recent.Add(sum, copies(objects))
	return objects, nil
}

func copies(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, len(objects))
	for i, o := range objects {
		out[i] = o.DeepCopy()
	}
	return out
}

// carried is the operator's own matrix. It applies to bundles older than the lists of releases' needs.
var carried = sync.OnceValues(func() (*matrix.Document, error) { return matrix.Parse(matrix.DefaultName, matrix.Default()) })

// Listed returns why a release of a bundle may not be installed again: no matrix lists the needs of its files. It
// reads no manifests. doc is the bundle's matrix; the operator's own one is the fallback.
func Listed(lock *bundle.Lock, id matrix.ReleaseID, doc *matrix.Document) error {
	release, err := releaseOf(lock, id)
	if err != nil {
		return err
	}
	_, err = listOf(release, id, doc)
	return err
}

// listOf returns the lines of each object that a release needs, or why no list exists. A list is valid only for the
// manifests with its sha256 sums.
func listOf(release *bundle.Release, id matrix.ReleaseID, doc *matrix.Document) (map[string][]string, error) {
	own, err := carried()
	if err != nil {
		return nil, err
	}
	for _, d := range []*matrix.Document{doc, own} {
		if d == nil {
			continue
		}
		if list, listed := d.NeedsOf(id); listed {
			return list, bound(release, id, d)
		}
	}
	return nil, errors.New(matrix.WhyUnlisted)
}

// bound returns an error if a release's manifests are not those that a document lists.
func bound(release *bundle.Release, id matrix.ReleaseID, doc *matrix.Document) error {
	listed, ok := doc.Release(id)
	if !ok {
		return errors.New("the matrix does not list it")
	}
	for _, f := range release.Manifests {
		same := func(m matrix.Manifest) bool { return m.Name == f.Name && m.SHA256 == f.Digest.Hex() }
		if !slices.ContainsFunc(listed.Manifests, same) {
			return fmt.Errorf("%s of %s is not the manifest whose needs the matrix lists", f.Name, f.Digest)
		}
	}
	return nil
}

// compare reports the differences between an object and its list, in both directions. Listed objects may be missing:
// the list covers whole files, and parts of a release may be omitted.
func (f *finding) compare(list map[string][]string) {
	described, err := needs.Of(f.object.Object)
	if err != nil {
		f.add("cannot be described: %w", err)
		return
	}
	listed, ok := list[described[0].Name]
	if !ok {
		f.add("is not listed in the matrix")
		return
	}
	for _, line := range described[0].Lines {
		f.when(!slices.Contains(listed, line), "has what the matrix does not list: %s", line)
	}
	for _, line := range listed {
		f.when(!slices.Contains(described[0].Lines, line), "lacks what the matrix lists: %s", line)
	}
}
