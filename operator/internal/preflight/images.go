package preflight

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// Images are the images of the releases to install from the bundle, and the nodes for their pods. All of it was
// verified before: the checks send no request to a registry.
type Images struct {
	// Err is why the images are unknown; the other fields are empty then.
	Err       error
	Workloads []render.Workload
	// Platforms are the platforms of each image; a missing one is unknown.
	Platforms map[image.Digest][]image.Platform
	Nodes     []*corev1.Node
	// Mirrors says how nodes map upstream names to the mirror. It is nil if pods name images in the mirror itself, or
	// the cluster is not OpenShift.
	Mirrors *Mirrors
}

// CheckImages runs the checks of the bundle's content, which send no request: each reconcile repeats them.
func CheckImages(i *Images) []Result { return run(&Snapshot{Images: i}, imageChecks()) }

// OfBundle reports whether a check is one of the bundle's content.
func (id ID) OfBundle() bool { return strings.HasPrefix(string(id), "image-") }

// platformOf returns a node's platform from the kubelet's labels; zero if they are missing.
func platformOf(n *corev1.Node) image.Platform {
	p := image.Platform{OS: n.Labels[corev1.LabelOSStable], Architecture: n.Labels[corev1.LabelArchStable]}
	if p.OS == "" || p.Architecture == "" {
		return image.Platform{}
	}
	return p
}

func (i *Images) present() map[image.Platform]bool {
	all := map[image.Platform]bool{}
	for _, n := range i.Nodes {
		all[platformOf(n)] = true
	}
	delete(all, image.Platform{})
	return all
}

const maxImages = 2

// imagePlatforms compares the platforms of images with those of the nodes that their pods may run on. It looks at
// placement only if an image lacks a platform of the cluster.
func imagePlatforms(s *Snapshot) []found {
	i := s.Images
	if i.Err != nil {
		return []found{{what: fmt.Sprintf("it is not known which images would be installed: %v", i.Err), action: Warn,
			remedy: "this ends when the DriverBundle is accepted; else see its conditions"}}
	}
	var out []found
	present := i.present()
	for n := range i.Workloads {
		w := &i.Workloads[n]
		about := map[image.Platform]found{}
		for p := range present {
			if images := i.lacking(w, p); len(images) > 0 {
				about[p] = found{action: BlockInstall, drivers: gatedDrivers(w.Driver), remedy: away(w),
					what: fmt.Sprintf("%s: %s %s would run on nodes of %s, which these images are not for: %s",
						w.Release, w.Kind, w.Name, p, fault.Few(images, maxImages))}
			}
		}
		if len(about) > 0 {
			out = append(out, i.reached(w, about)...)
		}
	}
	return out
}

// lacking returns a workload's images that are known not to support a platform.
func (i *Images) lacking(w *render.Workload, p image.Platform) []string {
	var all []string
	for _, im := range w.Images {
		has, known := i.Platforms[im.Digest]
		if known && !slices.ContainsFunc(has, func(o image.Platform) bool { return o.OS == p.OS && o.Architecture == p.Architecture }) {
			all = append(all, im.Upstream)
		}
	}
	return all
}

// reached returns findings for each node that a workload's pods may run on, but whose platform its images lack. A
// Deployment's pods may run on another node, so it is gated only if no node fits.
func (i *Images) reached(w *render.Workload, about map[image.Platform]found) []found {
	var out []found
	fits, reaches := false, w.Reach()
	for _, node := range i.Nodes {
		f, lacks := about[platformOf(node)]
		switch {
		case !reaches(node):
		case lacks:
			f.object = node.Name
			out = append(out, f)
		default:
			fits = true
		}
	}
	for n := range out {
		if w.Kind != "DaemonSet" && fits {
			out[n].action = Warn
		}
	}
	return out
}

// gatedDrivers returns the drivers that are gated with one: the storage driver does not start without the
// snapshot-controller's release.
func gatedDrivers(d matrix.Driver) []matrix.Driver {
	if d == matrix.SnapshotController {
		return []matrix.Driver{d, matrix.CSI}
	}
	return []matrix.Driver{d}
}

// away returns the remedy for a workload whose images lack a platform: a bundle with it, or keeping its pods away.
func away(w *render.Workload) string {
	return fmt.Sprintf("make a bundle of these platforms, `vdo-bundle lock --platform=all`, where upstream has them; or keep its pods "+
		"away by a nodeSelector in spec.drivers[%s].workloads[%s], or by spec.excludedNodes where they are not on vSphere", w.Driver, w.Name)
}
