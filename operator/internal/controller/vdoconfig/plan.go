package vdoconfig

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drift"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// planned is what a plan is made from beside the site: what was rendered, and what the
// API server has of it and would make of it.
type planned struct {
	rendering
	live    plan.Live
	refused map[inventory.Key]error
	dry     map[inventory.Key]plan.Outcome
	content map[matrix.Driver]string
}

// dryRun reads what the plan is about, and has the API server try what was rendered.
func (p *pass) dryRun(ctx context.Context, r rendering) (planned, error) {
	in := planned{rendering: r, content: content(r.decision)}
	in.content[drivers.MirrorSet] = contentOfMirrorSet(r.mirrored)
	var err error
	if in.live, in.refused, err = p.Cluster.Read(ctx, ids(r.Rendered, p.inventory, p.site.leftovers(r))); err != nil {
		return in, err
	}
	p.site.notePasswords(in.live)
	if p.site.login.kept {
		p.site.login.keep(r.Rendered, in.live)
	}
	keepConfiguration(r.Rendered, in.live)
	p.site.keepHashes(r.Rendered, in.live)
	allowForAway(r.Rendered, p.site.observed)
	rules, _ := drift.Parse(p.config.Spec.Drift) //nolint:errcheck // what is wrong with it is reported where it is applied
	leaveFields(r.Rendered, in.live, rules)
	in.dry, err = p.Cluster.DryRun(ctx, p.toTry(r), in.live)
	return in, err
}

// plan compares what shall be with what is: pure.
func (s *site) plan(in planned) plan.Plan {
	others, _ := s.others(in.decision)
	return plan.Make(plan.Input{
		Key: s.hash, Content: in.content, Untrusted: s.untrusted(in.decision, in.untrusted),
		Stages: in.Stages, Live: in.live, Refused: in.refused, DryRun: in.dry, Inventory: s.inventory,
		Unwatched: s.config.Spec.Drift != nil && s.config.Spec.Drift.Mode == v1alpha1.DriftOff,
		Held:      in.decision.held, Leaving: s.leaving(),
		Leftovers: s.leftovers(in.rendering), Others: others,
	})
}

// ids names everything that the plan is about, each once.
func ids(rendered *render.Rendered, inv inventory.Inventory, leftovers []plan.Leftover) []inventory.ID {
	all := map[inventory.Key]inventory.ID{}
	for _, l := range leftovers {
		all[l.Key] = l.ID
	}
	for _, e := range inv.Entries() {
		all[e.Key] = e.ID
	}
	for _, o := range rendered.Objects() {
		id := plan.IDOf(o.Unstructured)
		all[id.Key] = id
	}
	return slices.SortedFunc(maps.Values(all), func(a, b inventory.ID) int { return a.Compare(b.Key) })
}

// keepConfiguration takes the configuration that is on the cluster where it is to be kept, and leaves out what is not
// there: a wrong password neither replaces what works nor is given to drivers that would lock the account with it.
func keepConfiguration(rendered *render.Rendered, live plan.Live) {
	eachRendered(rendered, func(o render.Object) (render.Object, bool) {
		was := live[plan.IDOf(o.Unstructured).Key]
		if was != nil {
			keepPart(o, was)
		}
		return o, was != nil || o.Config != render.ConfigData
	})
}

// eachRendered puts what is returned in the place of each object, or leaves it out.
func eachRendered(rendered *render.Rendered, change func(render.Object) (is render.Object, stays bool)) {
	for i := range rendered.Stages {
		var all []render.Object
		for _, o := range rendered.Stages[i].Objects {
			if is, stays := change(o); stays {
				all = append(all, is)
			}
		}
		rendered.Stages[i].Objects = all
	}
}

// keepPart takes an object's part in a configuration from the one on the cluster.
func keepPart(o render.Object, was *unstructured.Unstructured) {
	switch o.Config {
	case render.ConfigData:
		for _, field := range []string{"data", "binaryData"} {
			delete(o.Object, field)
			if v, ok := was.Object[field]; ok {
				o.Object[field] = v
			}
		}
	case render.ConfigHash:
		if hash, ok, _ := unstructured.NestedString(was.Object, configHash...); ok {
			_ = unstructured.SetNestedField(o.Object, hash, configHash...) //nolint:errcheck // rendering has set it before
		} else {
			unstructured.RemoveNestedField(o.Object, configHash...)
		}
	}
}

var configHash = []string{"spec", "template", "metadata", "annotations", render.AnnotationConfigHash}

// keepHashes leaves the hashes in workloads as they are while they are of the same configuration,
// though the key is another one: else all pods would roll.
func (s *site) keepHashes(rendered *render.Rendered, live plan.Live) {
	s.hashes = s.inventory.Memory().Hashes
	if s.newHash {
		s.hashes = map[string]string{}
	}
	differ := map[matrix.Driver]bool{}
	for _, o := range rendered.Objects() {
		was := live[plan.IDOf(o.Unstructured).Key]
		data := o.GetKind() == "ConfigMap" || o.GetKind() == "Secret"
		if was == nil || (data && !reflect.DeepEqual(o.Object["data"], was.Object["data"])) {
			differ[o.Driver] = true
		}
	}
	for _, o := range rendered.Objects() {
		hash, found, _ := unstructured.NestedString(o.Object, configHash...)
		if !found {
			continue
		}
		if s.newHash && !differ[o.Driver] {
			s.hashes[hash], _, _ = unstructured.NestedString(live[plan.IDOf(o.Unstructured).Key].Object, configHash...)
		}
		if kept := s.hashes[hash]; kept != "" {
			_ = unstructured.SetNestedField(o.Object, kept, configHash...) //nolint:errcheck // it was there
		}
	}
}

// allowForAway has a DaemonSet that is being rolled out go on though nodes are not ready: their pods use up what its
// manifest lets be unavailable, so that much more may be. Pods do not restart for it.
func allowForAway(rendered *render.Rendered, o *assess.Observed) {
	away := map[inventory.Key]assess.Workload{}
	for _, w := range o.All() {
		if w.Kind == "DaemonSet" && !w.Foreign && o.AwayFrom(w) > 0 {
			away[inventory.Key{Group: "apps", Kind: w.Kind, Namespace: w.Namespace, Name: w.Name}] = w
		}
	}
	eachRendered(rendered, func(r render.Object) (render.Object, bool) {
		if w, is := away[plan.IDOf(r.Unstructured).Key]; is {
			r.Unstructured = withUnavailable(r.Unstructured, w.Desired, o.AwayFrom(w))
		}
		return r, true
	})
}

// withUnavailable is a DaemonSet of so many pods of which more may be replaced at once than its
// manifest says. One that replaces none by itself stays as it is.
func withUnavailable(o *unstructured.Unstructured, pods int32, more int) *unstructured.Unstructured {
	var ds appsv1.DaemonSet
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &ds)
	strategy := ds.Spec.UpdateStrategy
	if err != nil || strategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return o
	}
	one, rolling := intstr.FromInt32(1), cmp.Or(strategy.RollingUpdate, &appsv1.RollingUpdateDaemonSet{})
	field, is := "maxUnavailable", cmp.Or(rolling.MaxUnavailable, &one)
	if surge := rolling.MaxSurge; surge != nil && surge.String() != "0" && surge.String() != "0%" {
		field, is = "maxSurge", surge
	}
	o = o.DeepCopy()
	if n, err := intstr.GetScaledValueFromIntOrPercent(is, int(pods), true); err == nil {
		path := []string{"spec", "updateStrategy", "rollingUpdate", field}
		_ = unstructured.SetNestedField(o.Object, int64(n+more), path...) //nolint:errcheck // they are maps: it was read
	}
	return o
}

// leaving says what becomes of drivers that are installed and not asked for any more.
func (s *site) leaving() map[matrix.Driver]plan.Leave {
	all := leave(s.config.Spec.OnDelete, s.unasked(), s.retained, plan.Keep)
	all[drivers.MirrorSet] = plan.Leave{Action: plan.Keep,
		Reason: "OpenShift drains its nodes when it goes: it goes with the VDOConfig, after the drivers"}
	return all
}

// withoutOperator are objects that do harm once the operator does not see to them any more.
var withoutOperator = map[inventory.Key]string{
	webhookRegistration.Key: "without the operator its certificate expires, and the API server then refuses all changes of StorageClasses and claims",
}

// leave says which drivers stay: under Orphan those given, but for what cannot be without the operator; those that are
// needed; and the network plug-in, unless spec.onDelete asks for the removal of everything: without it no pod of the
// cluster has a network, the operator's own among them.
func leave(
	on v1alpha1.DeleteMode, orphans []matrix.Driver, needed map[matrix.Driver]string, how plan.Action,
) map[matrix.Driver]plan.Leave {
	all := map[matrix.Driver]plan.Leave{}
	if on != v1alpha1.DeleteRemove {
		all[matrix.CNI] = plan.Leave{Action: plan.Forget,
			Reason: "all pods of the cluster need the network: spec.onDelete Remove removes it, after the rest"}
	}
	for d, why := range needed {
		all[d] = plan.Leave{Action: how, Reason: why}
	}
	for _, d := range orphans {
		if on == v1alpha1.DeleteOrphan {
			all[d] = plan.Leave{Action: plan.Forget, Reason: "spec.onDelete is Orphan", But: withoutOperator}
		}
	}
	return all
}

// howMany is a number of volumes as far as they are counted.
func howMany(n int) string {
	if n >= cluster.MaxVolumes {
		return fmt.Sprintf("%d or more", n)
	}
	return strconv.Itoa(n)
}

// volumesInUse says why the storage driver stays, nil where nothing uses it.
func (r *Reconciler) volumesInUse(ctx context.Context) (why, err error) {
	volumes, attachments, err := r.Cluster.Volumes(ctx)
	if err != nil || volumes+attachments == 0 {
		return nil, err
	}
	return fault.Errorf(fault.Refused, "remove", "csi",
		"delete the claims and volumes first; or set spec.onDelete to Remove, which leaves them without a driver, or to Orphan, which leaves the drivers installed",
		"%s PersistentVolumes and %s VolumeAttachments use %s", howMany(volumes), howMany(attachments),
		drivers.CSIDriver), nil
}

// leftovers are objects of earlier installations that may go once all is healthy.
func (s *site) leftovers(r rendering) []plan.Leftover {
	var all []plan.Leftover
	if csi, err := matrix.ParseVersion(r.decision.version(matrix.CSI)); err == nil && !csi.LessThan(withoutSnapshotWebhook) {
		for _, id := range snapshotWebhook {
			all = append(all, plan.Leftover{ID: id, Driver: matrix.CSI, Only: inKubeSystem, Reason: "the snapshot validation webhook is gone since CSI 3.4, and would refuse snapshots without its pods"})
		}
	}
	if s.observed != nil && slices.ContainsFunc(s.observed.DaemonSets, isWindows) {
		all = append(all, plan.Leftover{
			ID: windowsNode, Driver: matrix.CSI, Only: runsNowhere,
			Reason: "it is of an earlier installation, and no node runs Windows: it is installed with the first one",
		})
	}
	proven, unproven := s.proven(&r.spec)
	if r.decision.version(matrix.CPI) != "" && len(unproven) == 0 {
		all = append(all, plan.Leftover{
			ID: core("Secret", render.CPINamespace, drivers.CloudOldSecret), Driver: matrix.CPI,
			Reason: "the earlier operator's copy of the credentials is not read any more",
			Only:   func(live *unstructured.Unstructured) bool { return copyOfCredentials(live, proven) },
		})
	}
	return all
}

// windowsNode is in upstream's manifests whatever the nodes are, and rendered for Windows nodes.
var windowsNode = inventory.ID{Key: inventory.Key{Group: "apps", Kind: "DaemonSet", Namespace: drivers.CSINamespace, Name: drivers.NodeWindows}, Version: "v1"}

func isWindows(ds appsv1.DaemonSet) bool {
	return ds.Namespace == windowsNode.Namespace && ds.Name == windowsNode.Name
}

// runsNowhere tells whether a DaemonSet has no pods and wants none.
func runsNowhere(live *unstructured.Unstructured) bool {
	status, _, _ := unstructured.NestedMap(live.Object, "status")
	seen, _, _ := unstructured.NestedInt64(status, "observedGeneration")
	pods := int64(0)
	for _, field := range []string{"desiredNumberScheduled", "currentNumberScheduled", "numberMisscheduled"} {
		n, _, _ := unstructured.NestedInt64(status, field)
		pods += n
	}
	return seen == live.GetGeneration() && pods == 0
}

// withoutSnapshotWebhook is the first CSI release whose installation removes it.
var withoutSnapshotWebhook = mustVersion("3.4.0")

func mustVersion(s string) matrix.Version {
	v, err := matrix.ParseVersion(s)
	if err != nil {
		panic(err)
	}
	return v
}

var snapshotWebhook = []inventory.ID{
	rights("ClusterRoleBinding", "snapshot-webhook-role"),
	core("ServiceAccount", "kube-system", "snapshot-webhook"),
	core("Service", "kube-system", "snapshot-validation-service"),
	core("Secret", "kube-system", "snapshot-webhook-certs"),
	{Key: inventory.Key{Group: "apps", Kind: "Deployment", Namespace: "kube-system", Name: "snapshot-validation-deployment"}, Version: "v1"},
	{Key: inventory.Key{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration", Name: "validation-webhook.snapshot.storage.k8s.io"}, Version: "v1"},
}

// inKubeSystem tells whether an object is there or, of the whole cluster, is for what is there alone: a site may run
// upstream's webhook for itself elsewhere.
func inKubeSystem(live *unstructured.Unstructured) bool {
	type place struct {
		Namespace string `json:"namespace"`
	}
	var of struct {
		Subjects []place `json:"subjects"`
		Webhooks []struct {
			ClientConfig struct {
				Service place `json:"service"`
			} `json:"clientConfig"`
		} `json:"webhooks"`
	}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &of)
	namespaces := []string{live.GetNamespace()}
	for _, s := range of.Subjects {
		namespaces = append(namespaces, s.Namespace)
	}
	for _, w := range of.Webhooks {
		namespaces = append(namespaces, w.ClientConfig.Service.Namespace)
	}
	namespaces = slices.DeleteFunc(namespaces, func(n string) bool { return n == "" })
	elsewhere := func(n string) bool { return n != metav1.NamespaceSystem }
	return err == nil && len(namespaces) > 0 && !slices.ContainsFunc(namespaces, elsewhere)
}

func core(kind, namespace, name string) inventory.ID {
	return inventory.ID{Key: inventory.Key{Kind: kind, Namespace: namespace, Name: name}, Version: "v1"}
}

func rights(kind, name string) inventory.ID {
	return inventory.ID{Key: inventory.Key{Group: "rbac.authorization.k8s.io", Kind: kind, Name: name}, Version: "v1"}
}

// copyOfCredentials tells whether a Secret has nothing but what we have too: the
// accounts of these vCenters, with the same values.
func copyOfCredentials(live *unstructured.Unstructured, vcenters map[string]render.VCenter) bool {
	data, _, _ := unstructured.NestedStringMap(live.Object, "data")
	for key, encoded := range data {
		value, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || !knows(vcenters, key, value) {
			return false
		}
	}
	return true
}

func knows(vcenters map[string]render.VCenter, key string, value []byte) bool {
	for _, vc := range vcenters {
		for suffix, ours := range map[string]string{".username": vc.Credentials.Username, ".password": vc.Credentials.Password} {
			if strings.EqualFold(key, vc.Server+suffix) && bytes.Equal(bytes.TrimRight(value, "\r\n"), bytes.TrimRight([]byte(ours), "\r\n")) {
				return true
			}
		}
	}
	return false
}
