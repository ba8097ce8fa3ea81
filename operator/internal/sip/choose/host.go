package choose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
)

// BareMetalHost is Metal3's, reduced to the fields that this operator reads. They are the same in v1alpha1 and v1beta1.
// So a cache stays small, and only patches may write it.
type BareMetalHost struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Online      bool                   `json:"online"`
		ConsumerRef corev1.ObjectReference `json:"consumerRef"`
		Image       struct {
			URL string `json:"url"`
		} `json:"image"`
		CustomDeploy struct {
			Method string `json:"method"`
		} `json:"customDeploy"`
		NetworkData                    corev1.SecretReference `json:"networkData"`
		PreprovisioningNetworkDataName string                 `json:"preprovisioningNetworkDataName"`
		MetaData                       corev1.SecretReference `json:"metaData"`
		AutomatedCleaningMode          string                 `json:"automatedCleaningMode"`
	} `json:"spec"`
	Status struct {
		Provisioning struct {
			State string `json:"state"`
		} `json:"provisioning"`
		OperationalStatus string `json:"operationalStatus"`
		ErrorType         string `json:"errorType"`
		PoweredOn         bool   `json:"poweredOn"`
		Hardware          struct {
			NICs []NIC `json:"nics"`
		} `json:"hardware"`
	} `json:"status"`
}

// NIC is a network interface that Metal3 found.
type NIC struct {
	Name string `json:"name"`
	IP   string `json:"ip"`
}

// DeepCopyObject implements [runtime.Object].
func (b *BareMetalHost) DeepCopyObject() runtime.Object {
	out := *b
	out.ObjectMeta = *b.ObjectMeta.DeepCopy()
	out.Status.Hardware.NICs = slices.Clone(b.Status.Hardware.NICs)
	return &out
}

// BareMetalHostList is a list of BareMetalHost.
type BareMetalHostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []BareMetalHost `json:"items"`
}

// DeepCopyObject implements [runtime.Object].
func (l *BareMetalHostList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*BareMetalHost)) //nolint:forcetypeassert,errcheck // it is one
	}
	return &out
}

// AddToScheme returns a function that registers BareMetalHosts of a version of metal3.io with a scheme. A scheme has
// one version.
func AddToScheme(version string) func(*runtime.Scheme) error {
	return func(s *runtime.Scheme) error {
		group := schema.GroupVersion{Group: "metal3.io", Version: version}
		s.AddKnownTypes(group, &BareMetalHost{}, &BareMetalHostList{})
		metav1.AddToGroupVersion(s, group)
		return nil
	}
}

// Annotations that make Metal3 leave a host alone.
const (
	AnnotationPaused   = "baremetalhost.metal3.io/paused"
	annotationDetached = "baremetalhost.metal3.io/detached"
	// AnnotationUnhealthy is Cluster API's, annotationUnhealthyOld that of its earlier versions.
	AnnotationUnhealthy    = "capm3.metal3.io/unhealthy"
	annotationUnhealthyOld = "capi.metal3.io/unhealthy"
)

// labelNodeReuse is Cluster API's. It names the only owner of machines that may use a host again.
const labelNodeReuse = "infrastructure.cluster.x-k8s.io/node-reuse"

// Host is a BareMetalHost and its relation to the SIPCluster that chooses.
type Host struct {
	*BareMetalHost
	// Permitted is whether the host's owner lets the SIPCluster hold it.
	Permitted bool
	// Recovering is whether it failed a short time ago, so that it is not replaced yet.
	Recovering bool
}

// Key returns the host's name.
func (b *BareMetalHost) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: b.Namespace, Name: b.Name}
}

// Claim returns the claim of the SIPCluster that holds the host; "" for none.
func (b *BareMetalHost) Claim() string { return b.Annotations[airship.AnnotationClaim] }

// Consumer returns KIND NAMESPACE/NAME of the object that uses the host; "" for none.
func (b *BareMetalHost) Consumer() string {
	c := b.Spec.ConsumerRef
	if c == (corev1.ObjectReference{}) {
		return ""
	}
	return fmt.Sprintf("%s %s/%s", c.Kind, c.Namespace, c.Name)
}

// Ignored reports whether Metal3 leaves the host alone.
func (b *BareMetalHost) Ignored() bool { return b.has(AnnotationPaused, annotationDetached) }

func (b *BareMetalHost) has(annotations ...string) bool {
	return slices.ContainsFunc(annotations, func(a string) bool { _, found := b.Annotations[a]; return found })
}

func (h *Host) compare(other *Host) int {
	return cmp.Or(cmp.Compare(h.Namespace, other.Namespace), cmp.Compare(h.Name, other.Name))
}

// Cluster is the SIPCluster that chooses.
type Cluster struct {
	types.NamespacedName
	UID types.UID
	// Deleting is whether it is being deleted: then it also adopts hosts that are not permitted, to release them.
	Deleting bool
	// ReleaseInUse lets hosts in use leave.
	ReleaseInUse bool
}

// Claim returns the value of the annotation with which the cluster claims a host for a role.
func (c Cluster) Claim(role airship.Role) string {
	return fmt.Sprintf("%s %s %s", role, c.NamespacedName, c.UID)
}

// Holds reports whether the cluster holds a host. A claim must have its UID: another cluster may have had its name. One
// without a UID, of an administrator or an earlier version, gives the host to the cluster of that name.
func (c Cluster) Holds(h *Host) bool {
	by, _ := h.Holder()
	adopts := h.Adopts() && (c.Deleting || h.Permitted)
	return by == c.NamespacedName && (h.claimUID() == string(c.UID) || adopts)
}

// Adopts reports whether the host's claim has no UID, so that the SIPCluster of that name is to adopt it.
func (b *BareMetalHost) Adopts() bool { return b.Claim() != "" && b.claimUID() == "" }

// claimUID returns the UID of the SIPCluster in the claim; "" for none.
func (b *BareMetalHost) claimUID() string {
	if fields := strings.Fields(b.Claim()); len(fields) == 3 {
		return fields[2]
	}
	return ""
}

// Holder returns the name of the SIPCluster that the host is for, and the role; neither for a free host. The claim
// decides; without one the labels do, as for hosts that the original SIP operator labelled. A host with an unreadable
// claim counts as another cluster's.
func (b *BareMetalHost) Holder() (types.NamespacedName, airship.Role) {
	if claim := b.Claim(); claim != "" {
		role, name, _ := strings.Cut(claim, " ")
		name, _, _ = strings.Cut(name, " ")
		namespace, name, ok := strings.Cut(name, "/")
		if r := airship.Role(role); !ok || r != airship.RoleControlPlane && r != airship.RoleWorker {
			return types.NamespacedName{Name: "?"}, ""
		}
		return types.NamespacedName{Namespace: namespace, Name: name}, airship.Role(role)
	}
	return HolderByLabels(b.Labels)
}

// HolderByLabels returns the SIPCluster and the role that labels name; neither for none.
func HolderByLabels(labels map[string]string) (types.NamespacedName, airship.Role) {
	by := types.NamespacedName{Namespace: labels[airship.LabelClusterNamespace], Name: labels[airship.LabelClusterName]}
	return by, airship.Role(labels[airship.LabelNodeType])
}

// Labelled reports whether the host has all labels of a cluster's role.
func (b *BareMetalHost) Labelled(cluster types.NamespacedName, role airship.Role) bool {
	by, as := HolderByLabels(b.Labels)
	return by == cluster && as == role
}

// InUse returns what uses the host, or "". Earlier versions of Metal3 call the state available ready.
func (b *BareMetalHost) InUse() string {
	switch consumer, state := b.Consumer(), b.Status.Provisioning.State; {
	case consumer != "":
		return consumer + " uses it"
	case b.Labels[labelNodeReuse] != "":
		return "Cluster API reserves it for " + b.Labels[labelNodeReuse]
	case b.Spec.Image.URL+b.Spec.CustomDeploy.Method != "":
		return "it has spec.image or spec.customDeploy"
	case b.DeletionTimestamp.IsZero() && state != "available" && state != "ready":
		return fmt.Sprintf("its provisioning state is %q", state)
	}
	return ""
}

// Provisioned reports whether the host runs an image.
func (b *BareMetalHost) Provisioned() bool {
	return slices.Contains([]string{"provisioned", "externally provisioned"}, b.Status.Provisioning.State)
}

// Failed returns why a host cannot serve, or "".
func (b *BareMetalHost) Failed() string {
	switch {
	case !b.DeletionTimestamp.IsZero():
		return "it is being deleted"
	case b.has(annotationDetached):
		return "it is detached"
	case b.has(AnnotationUnhealthy, annotationUnhealthyOld):
		return "Cluster API marks it unhealthy"
	case b.Status.OperationalStatus == "error":
		return cmp.Or(b.Status.ErrorType, "operational status error")
	}
	return ""
}

// MayRecover reports whether the host failed only by an operational error.
func (b *BareMetalHost) MayRecover() bool {
	return b.Status.OperationalStatus == "error" && b.DeletionTimestamp.IsZero() &&
		!b.has(annotationDetached, AnnotationUnhealthy, annotationUnhealthyOld)
}

// String returns the kind and the name.
func (b *BareMetalHost) String() string { return "BareMetalHost " + b.Key().String() }
