// Package drivers has the facts of each driver as data. They are the names of objects in upstream's manifests, the
// locations of its workloads, and the limits of its manifests ([Ceiling]). Other packages read them here to install,
// observe and judge drivers. If a new release changes a name or a location, change it here.
//
// It decides nothing, and knows no release: the exact needs of one release are in the matrix.
package drivers

import (
	"slices"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// Namespaces of the drivers. The network plug-in and the snapshot-controller are in the cloud provider's.
const (
	SystemNamespace = "kube-system"
	CSINamespace    = "vmware-system-csi"
)

// ControlPlaneLabels are the labels of control plane nodes: of kubeadm today, of RKE, and of kubeadm before
// Kubernetes 1.24.
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

// IsEtcd reports whether a node with these labels runs etcd. RKE2, k3s and RKE can run it apart from the control plane.
func IsEtcd(labels map[string]string) bool {
	_, ok := labels["node-role.kubernetes.io/etcd"]
	return ok
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

// MirrorSet stands for the object of no driver by which OpenShift's nodes find the images of all. It is recorded,
// planned and labelled like a driver's objects.
const MirrorSet matrix.Driver = "mirror-set"

// Place is the location of a driver's workload. Only the location makes a workload the driver's: any user can choose
// names, labels and images, in any namespace.
type Place struct {
	Kind, Namespace, Name string
	Driver                matrix.Driver
	// Foreign is whether another installer puts a driver here: it is never ours, and ours must not be installed
	// beside it.
	Foreign bool
}

// String returns "Kind namespace/name".
func (p Place) String() string { return p.Kind + " " + p.Namespace + "/" + p.Name }

const openshiftCSI, openshiftCPI = "openshift-cluster-csi-drivers", "openshift-cloud-controller-manager"

// Places are the locations of drivers that upstream's manifests, the operator and other installers use. All are
// in namespaces of the cluster's administrator. Installations elsewhere show in their cluster-wide objects
// (CSIDriver, ClusterRoleBinding), which only an administrator can create.
var Places = []Place{
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

// VCenterClients are the containers, by workload ("Kind namespace/name"), that connect to vCenters.
var VCenterClients = map[string][]string{
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
