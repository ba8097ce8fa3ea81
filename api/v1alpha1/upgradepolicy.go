package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationRetry names a revision that failed and shall be tried again, as
// status.revisions lists it: once each time that the value changes. After the name and a
// space may be any text, such as the time.
const AnnotationRetry = "reconcile.vdo.vmware.com/retry"

// FinalizerDrivers keeps a VDOConfig until what it installed is removed.
const FinalizerDrivers = "vdo.vmware.com/drivers"

// UpgradePolicy says when drivers that run are changed to another revision, which is
// another bundle or other releases, and what becomes of one that fails. A first
// installation, repairs and rollbacks are not held back by it.
type UpgradePolicy struct {
	// Windows are the times at which an upgrade may begin; one that was begun is carried to its end.
	// None: at any time.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Windows []UpgradeWindow `json:"windows,omitempty"`
	// Approval lets one upgrade proceed under spec.upgrade: Manual.
	// +optional
	Approval *UpgradeApproval `json:"approval,omitempty"`
	// HealthDeadline is how long an upgrade may go without progress before all of it is
	// healthy; then it has failed. Time in which the operator does not run, in which
	// something else is known to be at fault, or in which OpenShift's nodes take up the
	// operator's mirror set, does not count. Default: 15m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,3}([.][0-9]{1,9})?h)?([0-9]{1,5}([.][0-9]{1,9})?m)?([0-9]{1,7}([.][0-9]{1,9})?s)?$') && size(self) > 1 && duration(self) >= duration('1m') && duration(self) <= duration('24h')`,message="write a duration of 1m to 24h, such as 15m or 1h30m"
	HealthDeadline metav1.Duration `json:"healthDeadline,omitzero"`
	// IgnoreInterlocks are what an upgrade does not wait for: Nodes, that are being upgraded or
	// emptied, for clusters whose nodes stay of different minor versions; VCenters, whose
	// version has just changed; APIServers, that are of different minor versions;
	// MachineConfigPools of OpenShift, that have not taken up yet where the operator leads
	// them for images.
	// +optional
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=Nodes;VCenters;APIServers;MachineConfigPools
	// +listType=set
	IgnoreInterlocks []string `json:"ignoreInterlocks,omitempty"`
	// Rollback says what becomes of an upgrade that failed: Automatic puts the last
	// healthy revision back, unless the matrix forbids it; Never leaves it as it is.
	// Default: Automatic.
	// +optional
	// +kubebuilder:validation:Enum=Automatic;Never
	Rollback RollbackMode `json:"rollback,omitempty"`
	// Canary has the storage driver's pods on chosen nodes updated first. The others follow
	// once those were healthy for a while; where they are not, the upgrade has failed, and
	// what is put back is there on the other nodes still. It counts for upgrades that are
	// begun after it was set; taking it away lets the other nodes follow. It does not count
	// where the operator adopts a storage driver: there is no revision
	// of it to put back, and its pods are replaced as its manifest says.
	// +optional
	Canary *Canary `json:"canary,omitempty"`
	// RevisionHistoryLimit is how many healthy revisions of each group are retained beside the
	// current one, with copies of their bundles. Default: 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
	// AllowDowngrade are the releases, such as csi@3.5.1, that may take the place of a
	// newer one that runs. A rollback needs no approval.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=160
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^(cpi|csi|cni|snapshot-controller)@[0-9]+[.][0-9]+[.][0-9]+([-+][0-9A-Za-z.+-]+)?$')`,message="write DRIVER@VERSION, such as csi@3.5.1"
	// +listType=set
	AllowDowngrade []string `json:"allowDowngrade,omitempty"`
}

// UpgradeWindow is a time at which upgrades may begin, again and again.
type UpgradeWindow struct {
	// Schedule is when it opens, in cron's five fields: minute, hour, day of month, month,
	// day of week. "0 2 * * 6" is Saturday at two.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[0-9*,/-]+ [0-9*,/-]+ [0-9*?,/-]+ [0-9A-Za-z*,/-]+ [0-9A-Za-z*?,/-]+$')`,message="write cron's five fields: minute hour day-of-month month day-of-week, such as 0 2 * * 6"
	Schedule string `json:"schedule"`
	// Duration is how long it stays open.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,3}([.][0-9]{1,9})?h)?([0-9]{1,5}([.][0-9]{1,9})?m)?([0-9]{1,7}([.][0-9]{1,9})?s)?$') && size(self) > 1 && duration(self) >= duration('1m') && duration(self) <= duration('168h')`,message="write a duration of 1m to 168h, such as 4h"
	Duration metav1.Duration `json:"duration"`
	// TimeZone of the schedule, by its name in the IANA database, such as Europe/Berlin.
	// Default: UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$') && self != 'Local'`,message="write a name of the IANA database, such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`
}

// UpgradeApproval approves one upgrade.
type UpgradeApproval struct {
	// Revision is the name of the revision, as status.candidate has it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Revision string `json:"revision"`
	// By is the name of the user who approves. With the ValidatingAdmissionPolicy
	// vdo-upgrade-approval it has to be that of the user who writes it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'\p{Cc}')`,message="a user's name is one line"
	By string `json:"by"`
}

// RollbackMode is Automatic or Never.
type RollbackMode string

// The rollback modes.
const (
	RollbackAutomatic RollbackMode = "Automatic"
	RollbackNever     RollbackMode = "Never"
)

// Canary says on which nodes the storage driver's pods are updated first.
type Canary struct {
	// NodeSelector chooses them. All of them have to run a pod of the driver already; until
	// that is so, and while it chooses none, the upgrade waits.
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="choose some nodes: an empty selector would choose all"
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`
	// Soak is how long they have to be healthy before the others follow. Time in which the
	// operator does not run does not count. Default: 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,3}([.][0-9]{1,9})?h)?([0-9]{1,5}([.][0-9]{1,9})?m)?([0-9]{1,7}([.][0-9]{1,9})?s)?$') && size(self) > 1 && duration(self) <= duration('168h')`,message="write a duration of at most 168h, such as 10m"
	Soak metav1.Duration `json:"soak,omitzero"`
}

// CanaryStatus is how an upgrade fares on the nodes that have it first.
type CanaryStatus struct {
	Revision string `json:"revision"`
	// Nodes are how many of the chosen ones have the new pods, and are well: "1/2".
	Nodes string `json:"nodes"`
	// Message is what is waited for.
	Message string `json:"message"`
	// HealthySince is when all of them were first seen well.
	// +optional
	HealthySince *metav1.Time `json:"healthySince,omitempty"`
	// Others are nodes that are not chosen and have the new pods already, by name, the first
	// of OtherNodes: Kubernetes makes a pod that is missing from the newest template.
	// +optional
	// +listType=map
	// +listMapKey=name
	Others []CanaryNode `json:"others,omitempty"`
	// OtherNodes is how many nodes that are not chosen have the new pods already.
	// +optional
	OtherNodes int `json:"otherNodes,omitempty"`
}

// CanaryNode is a node that has the new pods though it is not chosen.
type CanaryNode struct {
	Name string `json:"name"`
	// Reason is Joined of a node that came meanwhile, or PodReplaced of one whose pod was
	// deleted, and not by the operator.
	Reason string `json:"reason"`
}

// Why a node has the new pods though it is not chosen.
const (
	CanaryJoined      = "Joined"
	CanaryPodReplaced = "PodReplaced"
)

// RevisionStatus is one revision that is remembered.
type RevisionStatus struct {
	Name string `json:"name"`
	// Group of drivers that change together: cni, cpi, or csi with the snapshot-controller.
	// +optional
	Group string `json:"group,omitempty"`
	// Current is set of the one that the group is installed from.
	// +optional
	Current bool `json:"current,omitempty"`
	// Bundle is REPOSITORY@DIGEST.
	Bundle   string `json:"bundle"`
	Releases string `json:"releases"` // "snapshot-controller@8.2.0, csi@3.5.1"
	// Outcome is Progressing, Healthy, Failed, RolledBack or Superseded.
	Outcome string `json:"outcome"`
	// +optional
	Reason string `json:"reason,omitempty"`
	// ImageNames is how pods were last told to name its images.
	// +optional
	ImageNames ImageNames `json:"imageNames,omitempty"`
	// MadeAt is when it was first begun, and Since when the outcome came about.
	MadeAt metav1.Time `json:"madeAt"`
	Since  metav1.Time `json:"since"`
	// ApprovedBy is who approved it, and ApprovedAt when the operator saw that.
	// +optional
	ApprovedBy string `json:"approvedBy,omitempty"`
	// +optional
	ApprovedAt *metav1.Time `json:"approvedAt,omitempty"`
}

// CandidateStatus is the revision that an upgrade would make current.
type CandidateStatus struct {
	Name     string `json:"name"`
	Releases string `json:"releases"`
	// Reason is why it is not current yet: NotApproved, WindowClosed, Interlocked,
	// DowngradeRefused or Failed.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// NotBefore is when it may begin, where that is known.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// Gates are why groups of drivers do not change to it now, one for each of them. The others do.
	// +optional
	// +listType=map
	// +listMapKey=driver
	Gates []CandidateGate `json:"gates,omitempty"`
}

// CandidateGate is why a group of drivers does not change now.
type CandidateGate struct {
	// Driver that the group is named by: cni, cpi, or csi with the snapshot-controller.
	Driver string `json:"driver"`
	// Reason is NotApproved, WindowClosed, Interlocked, DowngradeRefused or Failed.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// NotBefore is when it may change, where that is known.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
}
