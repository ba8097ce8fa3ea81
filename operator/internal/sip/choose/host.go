package choose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
)

// Host is a BareMetalHost as far as it matters here.
type Host struct {
	Namespace, Name string
	Labels          map[string]string
	Claim           string // the annotation airship.AnnotationClaim
	Adopt           bool   // the annotation airship.AnnotationAdopt is "true"
	// Permitted is whether its owner lets the SIPCluster that chooses hold it.
	Permitted   bool
	Consumer    string // KIND NAMESPACE/NAME of spec.consumerRef; "" for none
	Deployed    bool   // spec.image or spec.customDeploy is set
	State       string // status.provisioning.state
	Operational string // status.operationalStatus
	ErrorType   string // status.errorType
	Paused      bool
	Detached    bool
	Deleting    bool
	Unhealthy   bool // Cluster API's annotation says so
	Uncleaned   bool // its disks are not wiped when it is released
	// Recovering is whether it failed a short time ago, so that it is not replaced yet.
	Recovering bool
	// Problem is what else is wrong with it, such as network data that cannot be read. It
	// refuses a free host, and is told of one that is held.
	Problem string
	// Reason of the problem.
	ProblemReason Reason
}

// Key returns the host's name.
func (h Host) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: h.Namespace, Name: h.Name}
}

func (h Host) compare(other Host) int {
	return cmp.Or(cmp.Compare(h.Namespace, other.Namespace), cmp.Compare(h.Name, other.Name))
}

// Cluster is the SIPCluster that chooses.
type Cluster struct {
	types.NamespacedName
	UID types.UID
	// Deleting is whether it is being deleted: it adopts what it then releases.
	Deleting bool
	// ReleaseInUse lets hosts in use leave.
	ReleaseInUse bool
	// Listed are the hosts that its status lists: it had them under an earlier version.
	Listed map[types.NamespacedName]bool
}

// Claim is the value of the annotation with which the cluster claims a host for a role.
func (c Cluster) Claim(role airship.Role) string {
	return fmt.Sprintf("%s %s %s", role, c.NamespacedName, c.UID)
}

// Holds returns whether the cluster holds a host. The claim has its UID: one of the same name is
// another one. Else the annotation to adopt lets it have what claim or labels give its name.
func (c Cluster) Holds(h Host) bool {
	by, _ := h.Holder()
	return by == c.NamespacedName && (h.claimUID() == string(c.UID) || h.Adopt && (h.Permitted || c.Deleting) ||
		c.Imports(h))
}

// Imports returns whether a host has a claim of an earlier version, without a UID, which was
// made for this cluster and no earlier one of its name.
func (c Cluster) Imports(h Host) bool {
	by, _ := h.Holder()
	return by == c.NamespacedName && h.Claim != "" && h.claimUID() == "" && c.Listed[h.Key()]
}

// claimUID is that of the SIPCluster in the claim; "" for none.
func (h Host) claimUID() string {
	if fields := strings.Fields(h.Claim); len(fields) == 3 {
		return fields[2]
	}
	return ""
}

// Holder returns the name of the SIPCluster that the host is for, and the role; neither for a
// free one. The claim decides; the labels do where there is no claim, as of a host that the
// original labelled. A host of which nobody can say whose it is belongs to somebody else.
func (h Host) Holder() (types.NamespacedName, airship.Role) {
	if h.Claim != "" {
		role, name, _ := strings.Cut(h.Claim, " ")
		name, _, _ = strings.Cut(name, " ")
		namespace, name, ok := strings.Cut(name, "/")
		if !ok {
			return types.NamespacedName{Name: "?"}, ""
		}
		return types.NamespacedName{Namespace: namespace, Name: name}, airship.Role(role)
	}
	by := types.NamespacedName{Namespace: h.Labels[airship.LabelClusterNamespace], Name: h.Labels[airship.LabelClusterName]}
	if by == (types.NamespacedName{}) {
		return by, ""
	}
	return by, airship.Role(h.Labels[airship.LabelNodeType])
}

// Labelled tells whether the host has all labels of a cluster's role.
func (h Host) Labelled(cluster types.NamespacedName, role airship.Role) bool {
	return h.Labels[airship.LabelClusterNamespace] == cluster.Namespace &&
		h.Labels[airship.LabelClusterName] == cluster.Name && h.Labels[airship.LabelNodeType] == string(role)
}

// InUse says what uses the host, or "".
func (h Host) InUse() string {
	switch {
	case h.Consumer != "":
		return h.Consumer + " uses it"
	case h.Deployed:
		return "it has spec.image or spec.customDeploy"
	case !h.Deleting && !h.available():
		return fmt.Sprintf("its provisioning state is %q", h.State)
	}
	return ""
}

// available reports whether nothing is provisioned; earlier versions of Metal3 call it ready.
func (h Host) available() bool { return h.State == "available" || h.State == "ready" }

// Failed says why a host cannot serve, or "".
func (h Host) Failed() string {
	switch {
	case h.Deleting:
		return "it is being deleted"
	case h.Detached:
		return "it is detached"
	case h.Unhealthy:
		return "Cluster API marks it unhealthy"
	case h.Operational == "error" && h.ErrorType != "":
		return h.ErrorType
	case h.Operational == "error":
		return "operational status error"
	}
	return ""
}

// String names the host.
func (h Host) String() string { return fmt.Sprintf("BareMetalHost %s/%s", h.Namespace, h.Name) }

// Sorted puts hosts into their order.
func Sorted(hosts []Host) []Host {
	slices.SortFunc(hosts, Host.compare)
	return hosts
}
