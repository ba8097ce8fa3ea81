package image

import (
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Below returns the location of an image in a mirror that keeps upstream's paths: the mirror's
// repository, the upstream host, then the upstream path. Tag and digest stay. A host's port becomes
// _PORT, since paths have no colons.
//
//	registry.k8s.io/csi-vsphere/driver:v3.5.1 below registry.site/vdo/drivers is
//	registry.site/vdo/drivers/registry.k8s.io/csi-vsphere/driver:v3.5.1
func (r Reference) Below(mirror Reference) (Reference, error) {
	out := Reference{host: mirror.host, path: mirror.path + "/" + HostPath(r.host) + "/" + r.path, tag: r.tag, digest: r.digest}
	if !pathForm.MatchString(out.path) || len(out.String()) > maxReference {
		return Reference{}, fault.Errorf(fault.InvalidInput, "mirror image", r.String(),
			"name a mirror with a shorter path, or an image whose host is a DNS name", "%.200q is not a repository path", out.path)
	}
	return out, nil
}

// HostPath returns a registry's host as one path component.
func HostPath(host string) string {
	return strings.ReplaceAll(strings.ToLower(host), ":", "_")
}
