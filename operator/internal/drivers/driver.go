// Package drivers has the facts of each driver as data: the names that upstream's manifests
// give to its objects, where its workloads are, and the most that its manifests may ever
// hold ([Ceiling]). What installs, observes and judges drivers reads them here; a name or
// a place that a new release changes is changed here.
//
// It decides nothing, and knows no release: what one release needs exactly is in the
// matrix.
package drivers

import (
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Namespaces that drivers are installed in. The network plug-in and the
// snapshot-controller are in the cloud provider's.
const (
	SystemNamespace = "kube-system"
	CSINamespace    = "vmware-system-csi"
)

// ControlPlaneLabels are those that installers have given to nodes of the control plane: kubeadm today,
// RKE, and kubeadm before Kubernetes 1.24.
var ControlPlaneLabels = []string{
	"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/controlplane", "node-role.kubernetes.io/master",
}

// IsControlPlane reports whether a node with these labels is of the control plane.
func IsControlPlane(labels map[string]string) bool {
	return slices.ContainsFunc(ControlPlaneLabels, func(l string) bool {
		_, ok := labels[l]
		return ok
	})
}

// Names of the drivers' own objects.
const (
	CloudControllerManager = "vsphere-cloud-controller-manager" // DaemonSet
	Controller             = "vsphere-csi-controller"           // Deployment
	Node                   = "vsphere-csi-node"                 // DaemonSet, ServiceAccount
	NodeWindows            = "vsphere-csi-node-windows"         // DaemonSet
	Webhook                = "vsphere-csi-webhook"              // Deployment
	WebhookService         = "vsphere-webhook-svc"
	WebhookConfiguration   = "validation.csi.vsphere.vmware.com"
	WebhookSecret          = "vsphere-webhook-certs" //nolint:gosec // a name, not a credential

	// CSIDriver is the name that the storage driver registers under.
	CSIDriver     = "csi.vsphere.vmware.com"
	FeatureStates = "internal-feature-states.csi.vsphere.vmware.com"
	ConfigSecret  = "vsphere-config-secret" //nolint:gosec // a name, not a credential

	CloudConfigMap = "vsphere-cloud-config"
	CloudConfigKey = "vsphere.conf"
	CloudSecret    = "vsphere-cloud-secret" //nolint:gosec // a name, not a credential
)

// MirrorSet is what of the installation is no driver's: the object by which OpenShift's nodes
// find the images of all. It is recorded, planned and labelled as a driver's objects are.
const MirrorSet matrix.Driver = "mirror-set"

// Place is where a workload of a driver is. A workload is of a driver because it is
// at such a place, and for no other reason: names, labels and images are anybody's
// to choose, in any namespace.
type Place struct {
	Kind, Namespace, Name string
	Driver                matrix.Driver
	// Foreign is set where another installer puts a driver: never is it ours, and
	// beside it ours must not be installed.
	Foreign bool
}

// String returns "Kind namespace/name".
func (p Place) String() string { return p.Kind + " " + p.Namespace + "/" + p.Name }

// Places are where upstream's manifests install the drivers, and so we do; and
// where other installers do. All are in namespaces that belong to the cluster's
// administrator. Another installation elsewhere is seen by its cluster-wide objects
// (CSIDriver, ClusterRoleBinding), which only an administrator can make.
func Places() []Place { return slices.Clone(places) }

const openshiftCSI, openshiftCPI = "openshift-cluster-csi-drivers", "openshift-cloud-controller-manager"

var places = []Place{
	{"DaemonSet", SystemNamespace, CloudControllerManager, matrix.CPI, false},
	{"Deployment", SystemNamespace, "snapshot-controller", matrix.SnapshotController, false},
	{"Deployment", CSINamespace, Controller, matrix.CSI, false},
	{"DaemonSet", CSINamespace, Node, matrix.CSI, false},
	{"DaemonSet", CSINamespace, NodeWindows, matrix.CSI, false},
	{"Deployment", CSINamespace, Webhook, matrix.CSI, false},
	{"DaemonSet", SystemNamespace, "antrea-agent", matrix.CNI, false},
	{"Deployment", SystemNamespace, "antrea-controller", matrix.CNI, false},

	// upstream's Helm chart; Rancher's; OpenShift's
	{"DaemonSet", SystemNamespace, "vsphere-cpi", matrix.CPI, true},
	{"DaemonSet", SystemNamespace, "rancher-vsphere-cpi-cloud-controller-manager", matrix.CPI, true},
	{"Deployment", openshiftCPI, CloudControllerManager, matrix.CPI, true},
	// upstream's manifests before 2.3, and Rancher's chart; OpenShift's
	{"Deployment", SystemNamespace, Controller, matrix.CSI, true},
	{"DaemonSet", SystemNamespace, Node, matrix.CSI, true},
	{"Deployment", openshiftCSI, "vmware-vsphere-csi-driver-controller", matrix.CSI, true},
	{"DaemonSet", openshiftCSI, "vmware-vsphere-csi-driver-node", matrix.CSI, true},
	// RKE2's chart; OpenShift's
	{"Deployment", SystemNamespace, "rke2-snapshot-controller", matrix.SnapshotController, true},
	{"Deployment", "openshift-cluster-storage-operator", "csi-snapshot-controller", matrix.SnapshotController, true},
}

// DeprecatedSelector returns the labels by which a workload, "Kind namespace/name", selects its pods
// where upstream's deprecated manifests installed it, nil where there are none for it: a selector
// cannot be changed. The cloud provider's are in manifests/controller-manager of its repository.
// Nothing but the selector tells: the name is the same, and so is the lease of its leader.
func DeprecatedSelector(workload string) map[string]string {
	if workload == "DaemonSet "+SystemNamespace+"/"+CloudControllerManager {
		return map[string]string{"k8s-app": CloudControllerManager}
	}
	return nil
}

// VCenterClients returns the containers of a workload, "Kind namespace/name", that ask
// vCenters.
func VCenterClients(workload string) []string { return slices.Clone(vcenterClients[workload]) }

var vcenterClients = map[string][]string{
	"DaemonSet " + SystemNamespace + "/" + CloudControllerManager: {CloudControllerManager},
	"Deployment " + CSINamespace + "/" + Controller:               {Controller, "vsphere-syncer"},
}

// Excluded reports whether a node's labels have one of spec.excludedNodes: it is not on vSphere.
func Excluded(labels, excluded map[string]string) bool {
	for key, value := range excluded {
		if is, exists := labels[key]; exists && is == value {
			return true
		}
	}
	return false
}
