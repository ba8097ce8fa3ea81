package render

import (
	"fmt"
	"maps"
	"slices"

	"github.com/Masterminds/semver/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
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
