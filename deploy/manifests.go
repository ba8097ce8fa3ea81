// Package deploy holds the install manifests of the operator, for those who carry
// them: each bundle with the operator's image has them beside it.
package deploy

import (
	"embed"
	"path"
)

//go:embed crds/*.yaml namespaces.yaml rbac.yaml rbac-antrea.yaml rbac-classes.yaml networkpolicy.yaml operator.yaml hostnetwork.yaml
var files embed.FS

const (
	// Image is what operator.yaml names in the place of the image's reference.
	Image = "vdo-operator"
	// AnnotationVersion of operator.yaml's Deployment is empty there: who installs a bundle's
	// operator writes its release into it.
	AnnotationVersion = "vdo.vmware.com/operator-version"
	// AntreaRights is the manifest that only clusters need where the operator installs Antrea.
	AntreaRights = "rbac-antrea.yaml"
	// ClassesRights is the manifest that only clusters need where a VDOConfig asks for
	// StorageClasses or VolumeSnapshotClasses.
	ClassesRights = "rbac-classes.yaml"
)

// Manifest is one file.
type Manifest struct {
	Name string // base name
	Data []byte // YAML documents
}

// Manifests returns the install manifests in the order in which they are applied; in the
// opposite one they are deleted.
func Manifests() []Manifest {
	names := []string{"namespaces.yaml", "rbac.yaml", AntreaRights, ClassesRights, "networkpolicy.yaml", "operator.yaml"}
	kinds, err := files.ReadDir("crds")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	var all []Manifest
	for _, k := range kinds {
		all = append(all, read("crds/"+k.Name()))
	}
	for _, name := range names {
		all = append(all, read(name))
	}
	return all
}

func read(name string) Manifest {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return Manifest{Name: path.Base(name), Data: data}
}
