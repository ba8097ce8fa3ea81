// Package deploy has the install manifests of the operator. Each bundle with the operator's image
// contains them.
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
	// Image is the placeholder in operator.yaml for the image's reference.
	Image = "vdo-operator"
	// AnnotationVersion of operator.yaml's Deployment is empty there: the installer of a bundle's
	// operator writes its release into it.
	AnnotationVersion = "vdo.vmware.com/operator-version"
	// AntreaRights is the manifest for clusters on which the operator installs Antrea.
	AntreaRights = "rbac-antrea.yaml"
	// ClassesRights is the manifest for clusters with StorageClasses or VolumeSnapshotClasses in a VDOConfig.
	ClassesRights = "rbac-classes.yaml"
	// MirrorSetRights is the manifest for OpenShift clusters with a VDOConfig that redirects the
	// nodes to the mirror.
	MirrorSetRights = "rbac-mirror-set.yaml"
	// RightsPolicy is the manifest that limits the permissions that the operator's account may
	// grant. It needs Kubernetes 1.30.
	RightsPolicy = "rbac-policy.yaml"

	// sipPrefix marks the manifests of the operator for SIPClusters in a bundle.
	sipPrefix = "sip-"
)

// sipKinds are the CRDs of this project that both operators need.
var sipKinds = []string{"vdo.vmware.com_driverbundles.yaml"}

// Manifest is one file.
type Manifest struct {
	Name string // base name
	Data []byte // YAML documents
}

// DriverNamespaces returns the manifest to apply before [Manifests]. It stays when they are
// deleted: volumes need the storage driver's objects in its namespace.
func DriverNamespaces() Manifest { return read("driver-namespaces.yaml") }

// Manifests returns the install manifests in the order of applying them. Delete them in reverse order.
func Manifests() []Manifest {
	names := []string{"namespaces.yaml", "rbac.yaml", AntreaRights, ClassesRights, MirrorSetRights, RightsPolicy, "networkpolicy.yaml", "operator.yaml"}
	kinds, err := files.ReadDir("crds")
	if err != nil {
		panic(err) // the directory is part of the program
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

// SIPManifests returns the manifests of the operator for SIPClusters, in the order of applying
// them: after the CRDs of [Manifests] that [ForSIP] names.
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

// OnlySIP reports whether the name of a bundle's manifest is one of [SIPManifests].
func OnlySIP(name string) bool { return strings.HasPrefix(name, sipPrefix) }

// ForSIP reports whether the operator for SIPClusters needs a bundle's manifest, by its name.
func ForSIP(name string) bool { return OnlySIP(name) || slices.Contains(sipKinds, name) }

func read(name string) Manifest {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return Manifest{Name: path.Base(name), Data: data}
}
