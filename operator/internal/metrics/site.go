package metrics

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
)

// Metrics of every resource. A condition has one series, with its status and reason.
var (
	condition      = desc("vdo_condition", "A condition of a resource, with its status and reason; always 1.", "kind", "name", "type", "status", "reason")
	conditionSince = desc("vdo_condition_transition_timestamp_seconds", "When the status of a condition last changed.", "kind", "name", "type")
	behind         = desc("vdo_generations_behind", "Changes of a resource's spec that its status does not speak of yet.", "kind", "name")
	suspended      = desc("vdo_suspended", "Whether a resource is suspended, or a VDOConfig a dry run.", "kind", "name")
	interval       = desc("vdo_interval_seconds", "The time between two reconciles, from the resource's spec.", "kind", "name")
)

// Metrics of DriverBundles.
var (
	bundleInfo     = desc("vdo_bundle_info", "The digest of the accepted bundle; always 1.", "name", "digest")
	bundleAccepted = desc("vdo_bundle_accepted_timestamp_seconds", "When the accepted bundle was accepted.", "name")
	bundleSerial   = desc("vdo_bundle_matrix_serial", "The serial of the accepted bundle's matrix.", "name")
	bundleExpires  = desc("vdo_bundle_matrix_expires_timestamp_seconds", "When the accepted bundle's matrix expires; absent if spec.acceptOlder names the bundle.", "name")
)

// Metrics of VDOConfigs.
var (
	kubernetesInfo  = desc("vdo_kubernetes_info", "The Kubernetes version that drivers are chosen for; always 1.", "name", "version")
	driverInfo      = desc("vdo_driver_info", "The version of a driver that is rolled out, and the one that is chosen; always 1.", "name", "driver", "version", "wanted")
	driverReady     = desc("vdo_driver_ready", "Whether a driver is healthy, or most of its pods are while they are replaced; absent while a dry run only tries it.", "name", "driver")
	driverRolling   = desc("vdo_driver_rollout_pending", "Whether the chosen version of a driver is not rolled out yet, other than during the soak of canary nodes.", "name", "driver")
	driverWithdrawn = desc("vdo_driver_withdrawn", "Whether the matrix has withdrawn the version of a driver that runs.", "name", "driver")
	nodes           = desc("vdo_nodes", "Nodes, by whether the drivers are healthy there: ready or not_ready; absent while a dry run only tries one.", "name", "state")
	nodeFindings    = desc("vdo_node_findings", "Findings about nodes in the status, which lists 20 at most.", "name", "driver", "reason")
	drifted         = desc("vdo_drifted_objects", "Objects in the status that another manager has changed and that are not repaired (it lists 50 at most): left (spec.drift.mode is Warn) or contested (another manager changes them each time).", "name", "state")
)

// Metrics of VsphereCloudConfigs.
var (
	vcenterInfo      = desc("vdo_vcenter_info", "The version and build of a vCenter; always 1.", "name", "version", "build")
	vcenterReachable = desc("vdo_vcenter_reachable", "Whether a vCenter answered when it was last asked; absent where it was not.", "name")
	vcenterChecked   = desc("vdo_vcenter_checked_timestamp_seconds", "When a vCenter was last asked.", "name")
	vcenterDuration  = desc("vdo_vcenter_check_duration_seconds", "How long a vCenter took when this replica last asked it; absent while it does not answer or is suspended.", "name")
)

type site struct {
	bundles  v1alpha1.DriverBundleList
	configs  v1alpha1.VDOConfigList
	vcenters v1alpha1.VsphereCloudConfigList
}

func read(ctx context.Context, c client.Reader, namespace string) (s site, err error) {
	for _, list := range []client.ObjectList{&s.bundles, &s.configs, &s.vcenters} {
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s *site) collect(to chan<- prometheus.Metric) {
	for i := range s.bundles.Items {
		bundle(to, &s.bundles.Items[i])
	}
	for i := range s.configs.Items {
		config(to, &s.configs.Items[i])
	}
	for i := range s.vcenters.Items {
		vcenter(to, &s.vcenters.Items[i])
	}
}

type resource struct {
	kind      string
	meta      metav1.ObjectMeta
	observed  int64
	suspended bool
	interval  metav1.Duration
	conds     []metav1.Condition
}

func (r resource) collect(to chan<- prometheus.Metric) {
	for _, c := range r.conds {
		gauge(to, condition, 1, r.kind, r.meta.Name, c.Type, string(c.Status), c.Reason)
		gauge(to, conditionSince, seconds(c.LastTransitionTime), r.kind, r.meta.Name, c.Type)
	}
	gauge(to, behind, float64(r.meta.Generation-r.observed), r.kind, r.meta.Name)
	gauge(to, suspended, number(r.suspended), r.kind, r.meta.Name)
	gauge(to, interval, r.interval.Seconds(), r.kind, r.meta.Name)
}

func bundle(to chan<- prometheus.Metric, b *v1alpha1.DriverBundle) {
	st, name := &b.Status, b.Name
	resource{"DriverBundle", b.ObjectMeta, st.ObservedGeneration, b.Spec.Suspend, b.Spec.Interval, st.Conditions}.collect(to)
	if st.Digest == "" {
		return
	}
	gauge(to, bundleInfo, 1, name, st.Digest)
	if st.AcceptedAt != nil {
		gauge(to, bundleAccepted, seconds(*st.AcceptedAt), name)
	}
	if m := st.Matrix; m != nil {
		gauge(to, bundleSerial, float64(m.Serial), name)
		if b.Spec.AcceptOlder != st.Digest {
			gauge(to, bundleExpires, seconds(m.Expires), name)
		}
	}
}

func config(to chan<- prometheus.Metric, c *v1alpha1.VDOConfig) {
	st, name := &c.Status, c.Name
	resource{"VDOConfig", c.ObjectMeta, st.ObservedGeneration, c.Spec.Suspend || c.Spec.DryRun, c.Spec.Interval, st.Conditions}.collect(to)
	if st.Kubernetes != "" {
		gauge(to, kubernetesInfo, 1, name, version(st.Kubernetes))
	}
	tried := false // a driver by a dry run, which does not install it
	for i := range st.Drivers {
		of, d := &st.Drivers[i], st.Drivers[i].Driver
		soaks := revision.GroupOf(matrix.Driver(d)) == matrix.CSI && st.Rollout != nil && st.Rollout.HealthySince != nil
		gauge(to, driverInfo, 1, name, d, version(of.Version), version(of.Wanted))
		if c.Spec.DryRun && of.Version == "" {
			tried = true
			continue
		}
		gauge(to, driverReady, number(of.Ready), name, d)
		gauge(to, driverRolling, number(of.Wanted != "" && of.Wanted != of.Version && !soaks), name, d)
		gauge(to, driverWithdrawn, number(of.Withdrawn != ""), name, d)
	}
	if ready, all, ok := counted(st.NodesReady); ok && !tried {
		gauge(to, nodes, float64(ready), name, "ready")
		gauge(to, nodes, float64(all-ready), name, "not_ready")
	}
	amiss := map[[2]string]int{}
	for _, n := range st.Nodes {
		amiss[[2]string{n.Driver, n.Reason}]++
	}
	for of, n := range amiss {
		gauge(to, nodeFindings, float64(n), name, of[0], of[1])
	}
	contested := 0
	for _, d := range st.Drift {
		if d.Until != nil {
			contested++
		}
	}
	gauge(to, drifted, float64(contested), name, "contested")
	gauge(to, drifted, float64(len(st.Drift)-contested), name, "left")
}

// counted parses "READY/ALL".
func counted(s string) (ready, all int, ok bool) {
	n, _ := fmt.Sscanf(s, "%d/%d", &ready, &all) //nolint:errcheck // n says it
	return ready, all, n == 2
}

func vcenter(to chan<- prometheus.Metric, v *v1alpha1.VsphereCloudConfig) {
	st, name := &v.Status, v.Name
	resource{"VsphereCloudConfig", v.ObjectMeta, st.ObservedGeneration, v.Spec.Suspend, v.Spec.Interval, st.Conditions}.collect(to)
	if st.Version != "" {
		gauge(to, vcenterInfo, 1, name, version(st.Version), version(st.Build))
	}
	if st.CheckedAt != nil {
		gauge(to, vcenterChecked, seconds(*st.CheckedAt), name)
	}
	if yes, known := reachable(st.Conditions); known {
		gauge(to, vcenterReachable, number(yes), name)
	}
}

// reachable reports whether the vCenter answered, if the outcome of the check shows it. A vCenter that refuses the
// password did answer; a missing Secret shows nothing.
func reachable(conds []metav1.Condition) (yes, known bool) {
	ready := meta.FindStatusCondition(conds, v1alpha1.ConditionReady)
	if ready == nil {
		return false, false
	}
	reason := ready.Reason
	if now := meta.FindStatusCondition(conds, v1alpha1.ConditionReconciling); now != nil {
		reason = now.Reason // in the grace period of a fault, Ready keeps its earlier reason
	}
	switch fault.Reason(reason) {
	case fault.Unreachable:
		return false, true
	case fault.Throttled: // the operator spaces its logins, too
		return false, false
	case fault.CertificateInvalid, fault.Unauthorized, fault.AccountLocked, fault.Forbidden, fault.Incompatible:
		return true, true
	default:
		return true, ready.Status == metav1.ConditionTrue
	}
}

// seconds returns Unix time in seconds, rounded to milliseconds.
func seconds(t metav1.Time) float64 { return float64(t.UnixMilli()) / 1000 }
