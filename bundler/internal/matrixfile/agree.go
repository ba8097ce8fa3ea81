package matrixfile

import (
	"cmp"
	"errors"
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/catalog"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Agree checks that a lock holds what its matrix lists.
func Agree(lock *bundle.Lock, doc *matrix.Document) error {
	listed := map[string]matrix.Release{}
	for _, r := range doc.Releases {
		listed[r.ReleaseID.String()] = r
	}
	var problems []error
	for _, r := range lock.Releases {
		if r.Driver == bundle.Operator || r.Driver == bundle.JumpHost {
			continue
		}
		if bundle.IsService(r.Driver) {
			problems = append(problems, agreeService(r, doc))
			continue
		}
		id := matrix.ReleaseID{Driver: r.Driver, Version: r.Version}.String()
		release, ok := listed[id]
		if !ok {
			problems = append(problems, disagrees(id, "the matrix does not list it"))
			continue
		}
		problems = append(problems, agreeFiles(id, r, release))
	}
	return fault.Join(problems...)
}

// AgreeImages checks that a lock holds every image that the manifest files of its releases name.
// Images of the operator may have any name.
func AgreeImages(lock *bundle.Lock, doc *matrix.Document, files catalog.Files) error {
	rules := map[string][]matrix.ImageOverride{}
	for _, r := range doc.Releases {
		rules[r.ReleaseID.String()] = r.Images
	}
	var problems []error
	for _, r := range lock.Releases {
		if r.Driver == bundle.Operator {
			for from, to := range r.Images {
				rules[r.ID()] = append(rules[r.ID()], matrix.ImageOverride{From: from, To: to})
			}
		}
		problems = append(problems, catalog.Agree(r, rules[r.ID()], files))
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
	same := slices.EqualFunc(sortedFiles(locked.Manifests), sortedManifests(listed.Manifests), func(f bundle.File, m matrix.Manifest) bool {
		return f.Name == m.Name && f.Size == m.Size && f.Digest.Hex() == m.SHA256
	})
	if !same {
		return disagrees(id, "its manifest files are not those of the matrix")
	}
	return nil
}

func sortedFiles(files []bundle.File) []bundle.File {
	return slices.SortedFunc(slices.Values(files), func(a, b bundle.File) int { return cmp.Compare(a.Name, b.Name) })
}

func sortedManifests(files []matrix.Manifest) []matrix.Manifest {
	return slices.SortedFunc(slices.Values(files), func(a, b matrix.Manifest) int { return cmp.Compare(a.Name, b.Name) })
}

func disagrees(id, why string) error {
	return &fault.Error{
		Reason: fault.Corrupt, Op: "check lock", Subject: id, Err: errors.New(why),
		Hint: "make a new lock with `vdo-bundle lock`",
	}
}
