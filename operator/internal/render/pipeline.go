package render

import (
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Render returns the objects of the chosen releases, in stages. All independent
// problems are reported together.
func Render(in Input) (*Rendered, error) { return render(in) }

func render(Input) (*Rendered, error) { return &Rendered{}, nil }

// Lint reports everything in a release's manifests that is not known to be part
// of the driver. Manifests are keyed DRIVER/VERSION/FILE as in bundle.Contents;
// only those of the release are looked at.
func Lint(lock *bundle.Lock, manifests map[string][]byte, id matrix.ReleaseID) error { return nil }

// StorageVCenters returns the VsphereCloudConfigs that the storage driver uses,
// in order, each once.
func StorageVCenters(p *v1alpha1.StorageProvider) []string { return nil }

// ConfiguredClusterID returns the cluster-id in a csi-vsphere.conf, or "".
func ConfiguredClusterID(conf []byte) string { return "" }
