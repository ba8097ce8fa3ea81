package assess

import (
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// sign is a fragment of a driver's log that identifies the cause.
type sign struct {
	fragment string
	reason   fault.Reason
	remedy   string
}

const (
	checkAccount   = "correct user and password in the credentials Secret of the VsphereCloudConfig"
	checkName      = "use as vcIp of the VsphereCloudConfig a name that is in the vCenter's certificate, or have that reissued"
	checkRights    = "give the account the privilege on the object: the driver's documents list them by role"
	checkAddress   = "the address that the message names has to be reachable from the node: its DNS, TCP 443, NetworkPolicies"
	tooOld         = "this vCenter is too old for the driver"
	findDatacenter = "correct spec.datacenters of the VsphereCloudConfig, with the folders it is in: folder/name; the account has to be able to read it"
	inDatacenters  = "the node's VM is in no datacenter listed, or the account cannot read it: correct spec.datacenters of the VsphereCloudConfig, grant ReadOnly"
)

// signs are the known ones of all releases of both drivers, except faults of configurations that rendering never
// writes. The first match counts, so specific signs come before general ones.
var signs = []sign{
	{"Cannot complete login", fault.Unauthorized, checkAccount},
	{"InvalidLogin", fault.Unauthorized, checkAccount},
	{"Cluster ID is present in vSphere Config Secret", fault.Conflict, "take spec.storageProvider.clusterID out: the driver has made an id of its own"},
	{"no matches for kind \"CSINodeTopology\"", fault.Incomplete, "the controller makes that kind when it runs: see to vsphere-csi-controller first, the node plugins recover by themselves"},
	{"timed out while waiting for topology labels", fault.Incomplete, "see `kubectl get csinodetopologies -o yaml`: status.errorMessage; check the tags on the host's chain and the account's permissions to read them"},
	{"found conflicting topology labels", fault.Conflict, "nodes carry beta and GA labels of zones: keep one family of them"},
	{"virtual machine wasn't found", fault.NotFound, inDatacenters},
	{"Failed to find the datacenter", fault.NotFound, findDatacenter},
	{"failed to match Prefix", fault.Incompatible, "this node is not a VMware VM, or its firmware data is hidden: run the driver on vSphere VMs only"},
	{"could not find the requested resource (get volumesnapshot", fault.Incomplete, "install the snapshot kinds: enable driver snapshot-controller in spec.drivers, or install them yourself"},
	{"not attached to node", fault.Incompatible, "set disk.EnableUUID=TRUE on the node's VM while it is off"},
	{"is forbidden: User", fault.Forbidden, "its permissions are older than its image: the next reconcile applies those of its release; keep other tools from changing the ClusterRoles"},
	{"NoPermission", fault.Forbidden, checkRights},
	{"Permission to perform this operation was denied", fault.Forbidden, checkRights},
	{"is not valid for any names", fault.CertificateInvalid, checkName},
	{"cannot validate certificate for", fault.CertificateInvalid, checkName},
	{"thumbprint does not match", fault.CertificateInvalid, "the vCenter's certificate was replaced: write the thumbprint of the new one into the VsphereCloudConfig"},
	{"x509:", fault.CertificateInvalid, "set ca or thumbprint in the VsphereCloudConfig: the pod does not know the node's CAs"},
	{"failed to connect to vCenter using CA file", fault.CertificateInvalid, "the CA of the VsphereCloudConfig has to be the one that the vCenter's certificate is from, as PEM"},
	{"checkAPI failed for vcenter API version", fault.Incompatible, tooOld},
	{"vSAN file service is not supported in one or more vCenter", fault.Incompatible, tooOld},
	{"dial tcp", fault.Unreachable, checkAddress},
	{"no such host", fault.Unreachable, checkAddress},
	{"datacenter '", fault.NotFound, findDatacenter}, // "datacenter 'x' not found"; the cause may come before
}

// signOf returns the first sign in a text, or nil.
func signOf(text string) *sign {
	for i := range signs {
		if strings.Contains(text, signs[i].fragment) {
			return &signs[i]
		}
	}
	return nil
}
