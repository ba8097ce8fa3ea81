package matrixfile

import (
	"fmt"
	"maps"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Agree checks that a lock holds what its matrix lists.
func Agree(lock *bundle.Lock, doc *matrix.Document) error {
	var problems []error
	for _, r := range lock.Releases {
		if r.Driver == bundle.Operator || r.Driver == bundle.JumpHost {
			continue
		}
		if bundle.IsService(r.Driver) {
			problems = append(problems, agreeService(r, doc))
			continue
		}
		release, ok := doc.Release(matrix.ReleaseID{Driver: r.Driver, Version: r.Version})
		if !ok {
			problems = append(problems, disagrees(r.ID(), "the matrix does not list it"))
			continue
		}
		problems = append(problems, agreeFiles(r.ID(), r, release))
	}
	return fault.Join(problems...)
}

// AgreeImages checks that a lock holds every image that the manifest files of its releases name.
// Images of the operator may have any name.
func AgreeImages(lock *bundle.Lock, doc *matrix.Document, files catalog.Files) error {
	var problems []error
	for _, r := range lock.Releases {
		listed, _ := doc.Release(matrix.ReleaseID{Driver: r.Driver, Version: r.Version})
		rules := listed.Images
		if r.Driver == bundle.Operator {
			for from, to := range r.Images {
				rules = append(rules, matrix.ImageOverride{From: from, To: to})
			}
		}
		problems = append(problems, catalog.Agree(r, rules, files))
	}
	return fault.Join(problems...)
}

// agreeService holds the one image of a service against the matrix's.
func agreeService(r bundle.Release, doc *matrix.Document) error {
	listed, ok := doc.Service(matrix.ReleaseID{Driver: r.Driver, Version: r.Version})
	switch {
	case !ok:
		return disagrees(r.ID(), "the matrix does not list it")
	case r.Images[listed.Image] == "":
		return disagrees(r.ID(), "its image is not that of the matrix")
	}
	ref, err := image.ParseReference(listed.Image)
	if err != nil || ref.String() != r.Images[listed.Image] {
		return disagrees(r.ID(), "its image is not that of the matrix")
	}
	return nil
}

func agreeFiles(id string, locked bundle.Release, listed matrix.Release) error {
	is, want := map[string]string{}, map[string]string{}
	for _, f := range locked.Manifests {
		is[f.Name] = fmt.Sprint(f.Size, " ", f.Digest.Hex())
	}
	for _, m := range listed.Manifests {
		want[m.Name] = fmt.Sprint(m.Size, " ", m.SHA256)
	}
	if !maps.Equal(is, want) {
		return disagrees(id, "its manifest files are not those of the matrix")
	}
	return nil
}

func disagrees(id, why string) error {
	return fault.Errorf(fault.Corrupt, "check lock", id, "make a new lock with `vdo-bundle lock`", "%s", why)
}
