// Package deploy holds the install manifests of the operator, for those who carry
// them: each bundle with the operator's image has them beside it.
package deploy

import (
	"embed"
	"path"
	"slices"
	"strings"
)

//go:embed crds/*.yaml driver-namespaces.yaml namespaces.yaml rbac.yaml rbac-antrea.yaml rbac-classes.yaml rbac-mirror-set.yaml rbac-policy.yaml networkpolicy.yaml operator.yaml hostnetwork.yaml
//go:embed sip/crds/*.yaml sip/namespace.yaml sip/rbac.yaml sip/policy.yaml sip/networkpolicy.yaml sip/operator.yaml
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
	// MirrorSetRights is the manifest that only OpenShift clusters need where a VDOConfig has the
	// operator lead the nodes to the mirror.
	MirrorSetRights = "rbac-mirror-set.yaml"
	// RightsPolicy is the manifest that limits what rights the operator's account may give. It needs
	// Kubernetes 1.30.
	RightsPolicy = "rbac-policy.yaml"

	// sipPrefix tells the manifests of the operator for SIPClusters from others in a bundle.
	sipPrefix = "sip-"
)

// sipKinds are the kinds of this project that both operators need.
var sipKinds = []string{"vdo.vmware.com_driverbundles.yaml"}

// Manifest is one file.
type Manifest struct {
	Name string // base name
	Data []byte // YAML documents
}

// DriverNamespaces is what is applied before [Manifests] and stays when they are deleted: volumes
// need what the storage driver keeps in its namespace.
func DriverNamespaces() Manifest { return read("driver-namespaces.yaml") }

// Manifests returns the install manifests in the order in which they are applied; in the
// opposite one they are deleted.
func Manifests() []Manifest {
	names := []string{"namespaces.yaml", "rbac.yaml", AntreaRights, ClassesRights, MirrorSetRights, RightsPolicy, "networkpolicy.yaml", "operator.yaml"}
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

// SIPManifests returns those of the operator for SIPClusters, in the order in which they are
// applied: after the kinds of [Manifests] that [ForSIP] names.
func SIPManifests() []Manifest {
	var all []Manifest
	for _, name := range []string{
		"crds/airship.airshipit.org_hostactions.yaml", "crds/airship.airshipit.org_sipclusters.yaml",
		"crds/dex.coreos.com.yaml", "namespace.yaml", "rbac.yaml", "policy.yaml", "networkpolicy.yaml", "operator.yaml",
	} {
		m := read("sip/" + name)
		m.Name = sipPrefix + m.Name
		all = append(all, m)
	}
	return all
}

// OnlySIP tells whether a manifest of a bundle, by its name, is one of [SIPManifests].
func OnlySIP(name string) bool { return strings.HasPrefix(name, sipPrefix) }

// ForSIP tells whether a manifest of a bundle, by its name, is needed to install the operator
// for SIPClusters.
func ForSIP(name string) bool { return OnlySIP(name) || slices.Contains(sipKinds, name) }

func read(name string) Manifest {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return Manifest{Name: path.Base(name), Data: data}
}
