package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationRetry requests another attempt at a failed revision, once for each new value. The value
// is the revision's name in status.revisions; after a space any text may follow, such as the time.
const AnnotationRetry = "reconcile.vdo.vmware.com/retry"

// FinalizerDrivers keeps a VDOConfig until its drivers are removed.
const FinalizerDrivers = "vdo.vmware.com/drivers"

// UpgradePolicy says when installed drivers may change to another revision (another bundle or other
// releases), and what happens if it fails. It does not block a first installation, repairs and rollbacks.
type UpgradePolicy struct {
	// Windows are the times at which an upgrade may start; a started upgrade continues to its end.
	// Default: any time.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Windows []UpgradeWindow `json:"windows,omitempty"`
	// Approval lets one upgrade proceed under spec.upgrade: Manual.
	// +optional
	Approval *UpgradeApproval `json:"approval,omitempty"`
	// HealthDeadline is how long an upgrade may run without progress until it is healthy; then it
	// has failed. It excludes time without a running operator, with another known fault, or in
	// which OpenShift's nodes load the operator's mirror set. Default: 15m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,3}([.][0-9]{1,9})?h)?([0-9]{1,5}([.][0-9]{1,9})?m)?([0-9]{1,7}([.][0-9]{1,9})?s)?$') && size(self) > 1 && duration(self) >= duration('1m') && duration(self) <= duration('24h')`,message="write a duration of 1m to 24h, such as 15m or 1h30m"
	HealthDeadline metav1.Duration `json:"healthDeadline,omitzero"`
	// IgnoreInterlocks are the preconditions that an upgrade does not wait for. Nodes: no node is
	// being upgraded or drained; ignore it if your nodes permanently differ in minor version.
	// VCenters: no version has just changed. APIServers: all have the same minor version.
	// MachineConfigPools of OpenShift: all nodes have the operator's mirror configuration.
	// +optional
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=Nodes;VCenters;APIServers;MachineConfigPools
	// +listType=set
	IgnoreInterlocks []string `json:"ignoreInterlocks,omitempty"`
	// Rollback says what happens after a failed upgrade. Automatic restores the last healthy
	// revision, unless the matrix forbids it. Never leaves the failed one. Default: Automatic.
	// +optional
	// +kubebuilder:validation:Enum=Automatic;Never
	Rollback RollbackMode `json:"rollback,omitempty"`
	// Canary updates the storage driver's pods on the canary nodes first. The others follow once
	// those were healthy for the soak time. If they are not healthy, the upgrade has failed; the
	// other nodes still have the revision to restore. It applies to upgrades started after it was
	// set; without it the other nodes follow. It does not apply when the operator adopts a storage
	// driver, which has no revision to restore: its pods are replaced as its manifest says.
	// +optional
	Canary *Canary `json:"canary,omitempty"`
	// RevisionHistoryLimit is how many healthy revisions of each group are kept besides the current
	// one, with copies of their bundles. Default: 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
	// AllowDowngrade lists the releases, such as csi@3.5.1, that may replace a newer installed one.
	// A rollback needs no entry.
	// +optional
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=160
	// +kubebuilder:validation:items:XValidation:rule=`self.matches(r'^(cpi|csi|cni|snapshot-controller)@[0-9]+[.][0-9]+[.][0-9]+([-+][0-9A-Za-z.+-]+)?$')`,message="write DRIVER@VERSION, such as csi@3.5.1"
	// +listType=set
	AllowDowngrade []string `json:"allowDowngrade,omitempty"`
}

// UpgradeWindow is a recurring time at which upgrades may start.
type UpgradeWindow struct {
	// Schedule is when it opens, in cron's five fields: minute, hour, day of month, month, day of
	// week. "0 2 * * 6" is Saturday at two. It opens on either day if both days are restricted.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[0-9*,/-]+ [0-9*,/-]+ [0-9*?,/-]+ [0-9A-Za-z*,/-]+ [0-9A-Za-z*?,/-]+$')`,message="write cron's five fields: minute hour day-of-month month day-of-week, such as 0 2 * * 6"
	Schedule string `json:"schedule"`
	// Duration is how long it stays open.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,3}([.][0-9]{1,9})?h)?([0-9]{1,5}([.][0-9]{1,9})?m)?([0-9]{1,7}([.][0-9]{1,9})?s)?$') && size(self) > 1 && duration(self) >= duration('1m') && duration(self) <= duration('168h')`,message="write a duration of 1m to 168h, such as 4h"
	Duration metav1.Duration `json:"duration"`
	// TimeZone of the schedule, by its name in the IANA database, such as Europe/Berlin. Default: UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$') && self != 'Local'`,message="write a name of the IANA database, such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`
}

// UpgradeApproval approves one upgrade.
type UpgradeApproval struct {
	// Revision is the name of the revision in status.candidate.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Revision string `json:"revision"`
	// By is the name of the user who approves. The ValidatingAdmissionPolicy vdo-upgrade-approval
	// requires the name of the user who writes it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'\p{Cc}')`,message="a user's name is one line"
	By string `json:"by"`
}

// RollbackMode is Automatic or Never.
type RollbackMode string

// RollbackNever leaves a failed revision current.
const RollbackNever RollbackMode = "Never"

// Canary says on which nodes the storage driver's pods are updated first.
type Canary struct {
	// NodeSelector selects the canary nodes. The upgrade waits until it selects at least one node
	// and all of them run a pod of the driver.
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",message="choose some nodes: an empty selector would choose all"
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`
	// Soak is how long they have to be healthy before the others follow. It excludes time in which
	// the operator does not run. Default: 5m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^([0-9]{1,3}([.][0-9]{1,9})?h)?([0-9]{1,5}([.][0-9]{1,9})?m)?([0-9]{1,7}([.][0-9]{1,9})?s)?$') && size(self) > 1 && duration(self) <= duration('168h')`,message="write a duration of at most 168h, such as 10m"
	Soak metav1.Duration `json:"soak,omitzero"`
}

// RolloutStatus is the progress of an upgrade on the canary nodes.
type RolloutStatus struct {
	Revision string `json:"revision"`
	// Nodes is how many canary nodes have healthy new pods: "1/2".
	Nodes string `json:"nodes"`
	// Message says what it waits for.
	Message string `json:"message"`
	// HealthySince is when all of them were first healthy.
	// +optional
	HealthySince *metav1.Time `json:"healthySince,omitempty"`
	// Others are other nodes with new pods, by name, the first of OtherNodes: Kubernetes creates a
	// missing pod from the newest template.
	// +optional
	// +listType=map
	// +listMapKey=name
	Others []CanaryNode `json:"others,omitempty"`
	// OtherNodes is how many other nodes have new pods.
	// +optional
	OtherNodes int `json:"otherNodes,omitempty"`
}

// CanaryNode is a node with a new pod that is not a canary node.
type CanaryNode struct {
	Name string `json:"name"`
	// Reason is Joined for a node that joined meanwhile, or PodReplaced for one whose pod was
	// deleted, but not by the operator.
	Reason string `json:"reason"`
}

// Reasons why a node that is not a canary node has a new pod.
const (
	CanaryJoined      = "Joined"
	CanaryPodReplaced = "PodReplaced"
)

// RevisionStatus is one revision in the history.
type RevisionStatus struct {
	Name string `json:"name"`
	// Group of drivers that change together: cni, cpi, or csi with the snapshot-controller.
	// +optional
	Group string `json:"group,omitempty"`
	// Current is set if the group is installed from it.
	// +optional
	Current bool `json:"current,omitempty"`
	// Bundle is REPOSITORY@DIGEST.
	Bundle   string `json:"bundle"`
	Releases string `json:"releases"` // "snapshot-controller@8.2.0, csi@3.5.1"
	// Outcome is Progressing, Healthy, Failed, RolledBack or Superseded.
	Outcome string `json:"outcome"`
	// +optional
	Reason string `json:"reason,omitempty"`
	// ImageNames is how pods name its images.
	// +optional
	ImageNames ImageNames `json:"imageNames,omitempty"`
	// MadeAt is when it first started, and Since when it got the outcome.
	MadeAt metav1.Time `json:"madeAt"`
	Since  metav1.Time `json:"since"`
	// ApprovedBy is the approver, and ApprovedAt when the operator saw the approval.
	// +optional
	ApprovedBy string `json:"approvedBy,omitempty"`
	// +optional
	ApprovedAt *metav1.Time `json:"approvedAt,omitempty"`
}

// CandidateStatus is the revision that an upgrade would make current.
type CandidateStatus struct {
	Name     string `json:"name"`
	Releases string `json:"releases"`
	// Reason why it is not current yet: NotApproved, WindowClosed, Interlocked, Blocked, DowngradeRefused or Failed.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// NotBefore is when it may start, if known.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// Gates say why groups of drivers do not change to it now, one for each. Other groups change.
	// +optional
	// +listType=map
	// +listMapKey=driver
	Gates []CandidateGate `json:"gates,omitempty"`
}

// CandidateGate is why a group of drivers does not change now.
type CandidateGate struct {
	// Driver that names the group: cni, cpi, or csi with the snapshot-controller.
	Driver string `json:"driver"`
	// Reason is NotApproved, WindowClosed, Interlocked, Blocked, DowngradeRefused or Failed.
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// NotBefore is when it may change, if known.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
}
