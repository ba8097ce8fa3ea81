package plan

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

const (
	annotationOpenShift = "csi.openshift.io/managed"
	annotationHelm      = "meta.helm.sh/release-name"
	annotationHelmNS    = "meta.helm.sh/release-namespace"
)

func mayAdopt(live, desired *unstructured.Unstructured) error {
	const without = "take the driver out of the VDOConfig"
	subject := IDOf(live).Key.String()
	refuse := func(hint, format string, args ...any) error {
		return &fault.Error{Reason: fault.Conflict, Op: "adopt", Subject: subject, Hint: hint, Err: fmt.Errorf(format, args...)}
	}
	annotations, labels := live.GetAnnotations(), live.GetLabels()
	if _, managed := annotations[annotationOpenShift]; managed {
		return refuse("take spec.storageProvider out of the VDOConfig, or have OpenShift remove its own driver first: set managementState: Removed on ClusterCSIDriver "+live.GetName(),
			"OpenShift manages it (annotation %s)", annotationOpenShift)
	}
	if live.GetKind() == "Namespace" {
		return nil // it is in the operator's manifests too, which a tool may apply
	}
	for _, t := range tools {
		if marks := t.marksOn(live); len(marks) > 0 {
			return refuse(t.hint(marks), "%s manages it (%s)", t.name, strings.Join(marks, ", "))
		}
	}
	if release := annotations[annotationHelm]; release != "" {
		return refuse(helmHint(live.GetKind(), release, cmp.Or(annotations[annotationHelmNS], live.GetNamespace())), "Helm release %s manages it", release)
	}
	if by := labels[render.LabelManagedBy]; by != "" && by != render.ManagedBy {
		return refuse("see that the tool no longer applies it and remove the label, or "+without,
			"%s manages it (label %s)", by, render.LabelManagedBy)
	}
	if by := labels["olm.owner"]; by != "" {
		return refuse("remove that operator's subscription first", "operator %s manages it (label olm.owner)", by)
	}
	if owners := live.GetOwnerReferences(); len(owners) > 0 {
		return refuse("see that the owner no longer needs it and remove the reference, or "+without, "%s %s owns it", owners[0].Kind, owners[0].Name)
	}
	for _, field := range []string{"driver", "parameters", "deletionPolicy"} {
		if slices.Contains(classes, live.GetKind()) && !sameField(live, desired, field) {
			return refuse("give the class of the VDOConfig the same settings, or another name", "its %s differs", field)
		}
	}
	isMirrorSet := IDOf(live).Group == mirrorset.Digests.Group && live.GetKind() == mirrorset.Digests.Kind
	if isMirrorSet && labels[render.LabelDriver] != string(drivers.MirrorSet) {
		return refuse("apply its entries under another name, then delete it; or set spec.openShift.mirrorSet of the VDOConfig to Check and keep it",
			"the operator did not make it, and entries that others need would be lost, for which OpenShift drains its nodes")
	}
	return otherSubjects(live, desired, refuse)
}

// helmHint returns how to leave Helm without a loss. Helm deletes the CRDs in a release's templates, and with a CRD
// all objects of its kind.
func helmHint(kind, release, namespace string) string {
	if never[kind] != "" {
		return "leave it to Helm: set policy: disabled for its driver (snapshot-controller has the snapshot kinds) in spec.drivers; do not uninstall the release, which would delete " + kind + " and all that hangs on it"
	}
	return fmt.Sprintf("see that `helm get manifest %[1]s -n %[2]s` names no CustomResourceDefinition, since with one go all objects of its kind; then remove the release with `helm uninstall %[1]s -n %[2]s`: volumes and nodes stay as they are", release, namespace)
}

// otherSubjects refuses to adopt a binding whose other subjects would lose their permissions. Some of upstream's
// names look shared, and are.
func otherSubjects(live, desired *unstructured.Unstructured, refuse func(hint, format string, args ...any) error) error {
	if !isBinding(live.GetKind()) {
		return nil
	}
	mine := subjects(desired)
	for _, s := range subjects(live) {
		if !slices.Contains(mine, s) {
			return refuse("bind "+s+" by another binding and delete this one", "it gives permissions to %s too, which would be lost", s)
		}
	}
	return nil
}

func isBinding(kind string) bool { return kind == "RoleBinding" || kind == "ClusterRoleBinding" }

func subjects(o *unstructured.Unstructured) []string {
	var binding rbacv1.RoleBinding
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding) //nolint:errcheck // the API server sees to the types
	var all []string
	for _, s := range binding.Subjects {
		all = append(all, strings.TrimPrefix(s.Kind+" "+s.Namespace+"/"+s.Name, "/"))
	}
	return all
}

// immutable returns the immutable field that differs, or "".
func immutable(live, desired *unstructured.Unstructured) string {
	switch kind := desired.GetKind(); {
	case kind == "DaemonSet" || kind == "Deployment":
		if !sameField(live, desired, "spec", "selector") {
			return "spec.selector"
		}
	case isBinding(kind):
		if !sameField(live, desired, "roleRef") {
			return "roleRef"
		}
	case kind == "Service":
		if ip, requested, _ := unstructured.NestedString(desired.Object, "spec", "clusterIP"); requested && ip != "" && !sameField(live, desired, "spec", "clusterIP") {
			return "spec.clusterIP"
		}
	}
	return ""
}

func sameField(a, b *unstructured.Unstructured, path ...string) bool {
	x, _, _ := unstructured.NestedFieldNoCopy(a.Object, path...)
	y, _, _ := unstructured.NestedFieldNoCopy(b.Object, path...)
	return reflect.DeepEqual(x, y)
}

// deprecated reports whether a workload is the cloud provider's of manifests/controller-manager in upstream's
// repository. Only the selector, which is immutable, differs: the name and the lease of the leader are the same.
func deprecated(live *unstructured.Unstructured) bool {
	const name = drivers.CloudControllerManager
	key, want := IDOf(live).Key, map[string]any{"matchLabels": map[string]any{"k8s-app": name}}
	selector, _, _ := unstructured.NestedMap(live.Object, "spec", "selector")
	isPlace := key.Group == "apps" && key.String() == "DaemonSet "+drivers.SystemNamespace+"/"+name
	return isPlace && reflect.DeepEqual(selector, want)
}

// AdoptsByRecreation reports whether the step adopts a workload by recreating it.
func (s Step) AdoptsByRecreation() bool { return s.Adopts && s.Action == Recreate }

// recreates adopts a workload of upstream's deprecated manifests: it is deleted with its pods and recreated. It stays
// unchanged until its configuration exists.
func (s Step) recreates(o render.Object, live *unstructured.Unstructured, field string) Step {
	const of = "upstream's deprecated manifests installed it: "
	if o.Config == render.ConfigHash {
		s.Action, s.Adopts, s.Object = Wait, false, nil
		s.Reason = of + "it is recreated once the requested configuration is accepted"
		return s
	}
	s.Action, s.Reason = Recreate, of+field+" must change and is immutable, so it is recreated with its pods"
	if s.Deleting {
		s.Reason = of + "it is being deleted, and made again once its finalizers are gone: " + strings.Join(live.GetFinalizers(), ", ")
	}
	return s
}

// Trial returns an update for a dry run on the old workload before a recreation. It is the new one with the old
// selector and labels, under the old name, since the operator has no permission for another name. It is nil if no
// recreation is due, or the old one is already being deleted.
func Trial(live, desired *unstructured.Unstructured) *unstructured.Unstructured {
	if live == nil || !live.GetDeletionTimestamp().IsZero() || immutable(live, desired) != "spec.selector" {
		return nil
	}
	labels := []string{"spec", "template", "metadata", "labels"}
	theirs, _, _ := unstructured.NestedStringMap(live.Object, labels...)
	mine, _, _ := unstructured.NestedStringMap(desired.Object, labels...)
	selector, _, _ := unstructured.NestedMap(live.Object, "spec", "selector")
	out := desired.DeepCopy()
	if unstructured.SetNestedMap(out.Object, selector, "spec", "selector") != nil ||
		unstructured.SetNestedStringMap(out.Object, merge(mine, theirs), labels...) != nil {
		return nil // never: it is a workload
	}
	return out
}

func immutableConflict(live *unstructured.Unstructured, field string) error {
	return fault.Errorf(fault.Conflict, "adopt", IDOf(live).Key.String(),
		"delete it, and it is installed again as the bundle has it, pods included",
		"it was installed from another source: its %s differs and cannot be changed", field)
}

func (in *Input) others() []Step {
	var steps []Step
	for _, o := range in.Others {
		if !in.wants(o.Driver) {
			continue
		}
		s := Step{ID: WorkloadID(o), Driver: o.Driver, Stage: "others"}
		steps = append(steps, s.conflict(otherConflict(o)))
	}
	return steps
}

func (in *Input) wants(d matrix.Driver) bool {
	return slices.ContainsFunc(in.Stages, func(s render.Stage) bool { return slices.Contains(s.Drivers, d) })
}

func otherConflict(o assess.Workload) error {
	hint := "remove it first, or leave the driver to it: take it out of the VDOConfig, or, of snapshot-controller, " +
		"set policy: disabled in spec.drivers; two at once work against each other"
	if o.Helm != "" {
		hint = "leave the driver to Helm: take it out of the VDOConfig, or, of snapshot-controller, " +
			"set policy: disabled in spec.drivers; or " + helmHint(o.Kind, o.Helm, o.Namespace)
	}
	what := o.String()
	if o.Version != "" {
		what += " of version " + o.Version
	}
	return fault.Errorf(fault.Conflict, "install", string(o.Driver), hint, "another installation of it exists: %s",
		what)
}

// tool is a GitOps tool: it applies its objects repeatedly, and prunes those that leave its source.
type tool struct {
	name     string
	marks    []string // labels and annotations of its objects
	managers []string // prefixes of its field managers
	keep     string   // how to exempt an object from pruning, in the tool's source
}

// tools are those that Helm's and kubectl's marks do not identify. The label app.kubernetes.io/instance, by which
// Argo CD may track too, proves nothing: charts and people set it.
var tools = []tool{
	{"Argo CD", []string{"argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"}, []string{"argocd"},
		"annotate it with argocd.argoproj.io/sync-options: Prune=false,Delete=false"},
	{"Flux", []string{"kustomize.toolkit.fluxcd.io/name"}, []string{"kustomize-controller"},
		"annotate it with kustomize.toolkit.fluxcd.io/prune: disabled"},
	{"Flux", []string{"helm.toolkit.fluxcd.io/name"}, []string{"helm-controller"},
		"set spec.suspend of its HelmRelease"},
	{"kapp", []string{"kapp.k14s.io/app", "kapp.k14s.io/identity"}, []string{"kapp"},
		"annotate it with kapp.k14s.io/delete-strategy: orphan"},
	{"Fleet, or the manifests folder of K3s and RKE2",
		[]string{"objectset.rio.cattle.io/hash", "objectset.rio.cattle.io/id", "fleet.cattle.io/bundle-id"}, nil,
		"set keepResources: true in fleet.yaml; in the folder put an empty FILE.skip beside the file"},
	{"Fleet", nil, []string{"fleet"}, ""},
}

func (t tool) marksOn(o metav1.Object) []string {
	return slices.DeleteFunc(slices.Clone(t.marks), func(m string) bool {
		_, label := o.GetLabels()[m]
		_, annotation := o.GetAnnotations()[m]
		return !label && !annotation
	})
}

// hint names the steps in a safe order: a tool prunes an object that leaves its source, unless told to keep it.
func (t tool) hint(marks []string) string {
	return fmt.Sprintf("disable pruning in %s first: %s; then take it out of the source of %[1]s, and last remove %[3]s from its metadata",
		t.name, t.keep, strings.Join(marks, ", "))
}

// AppliedBy returns the GitOps tool that applies an object, or "", by labels, annotations or field manager.
func AppliedBy(o metav1.Object) string {
	for _, t := range tools {
		if len(t.marksOn(o)) > 0 || slices.ContainsFunc(o.GetManagedFields(), t.writes) {
			return t.name
		}
	}
	return ""
}

func (t tool) writes(m metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(t.managers, func(prefix string) bool { return strings.HasPrefix(m.Manager, prefix) })
}

// classes are kinds that no driver needs. A fault of such an object stops neither repairs nor upgrades.
var classes = []string{"StorageClass", "VolumeSnapshotClass"}

// alone reports whether a step concerns only its object.
func (s Step) alone() bool { return slices.Contains(classes, s.Kind) }

// Blocked returns the drivers that have a conflict, except about a class.
func (p Plan) Blocked() map[matrix.Driver]error {
	all := map[matrix.Driver]error{}
	for _, s := range p.Steps {
		if s.Err != nil && !s.alone() {
			all[s.Driver] = fault.Join(all[s.Driver], s.Err)
		}
	}
	return all
}

// never are the kinds that are never pruned, since others would lose objects.
var never = map[string]string{
	"Namespace":                "others may have objects in it",
	"CustomResourceDefinition": "all resources of its kind would go with it",
	"PersistentVolume":         "it holds data",
	"StorageClass":             "claims may name it",
	"VolumeSnapshotClass":      "snapshots may name it",
}

// order is the order of removal of kinds: admission first, since it fails closed; then workloads; then their
// configuration; then their permissions.
var order = [][]string{
	{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"},
	{"Deployment", "DaemonSet", "StatefulSet"},
	{"Service", "PodDisruptionBudget", "NetworkPolicy", "ConfigMap", "Secret"},
	{"CSIDriver"},
	{"RoleBinding", "ClusterRoleBinding"},
	{"Role", "ClusterRole"},
	{"ServiceAccount", mirrorset.Digests.Kind}, // nodes pull by the latter while there are pods
}

// wave returns a step's position in order. Unlisted kinds go with the permissions. The network plug-in goes last,
// since an orderly removal of the others needs it. The mirror set goes with it: nodes find its images by the set.
func wave(s Step) int {
	at := slices.IndexFunc(order, func(kinds []string) bool { return slices.Contains(kinds, s.Kind) })
	if at < 0 {
		at = len(order) - 2
	}
	if s.Driver == matrix.CNI || s.Driver == drivers.MirrorSet {
		at += len(order)
	}
	return at
}

// reverse is the order of removal of drivers, the reverse of that of installation.
var reverse = []matrix.Driver{matrix.CSI, matrix.SnapshotController, matrix.CPI, matrix.CNI}

func (in *Input) removals(desired map[inventory.Key]bool) []Step {
	var steps []Step
	for _, e := range in.Inventory.Entries() {
		if !desired[e.Key] {
			steps = append(steps, in.removal(e))
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int {
		drivers := slices.Index(reverse, a.Driver) - slices.Index(reverse, b.Driver)
		return cmp.Or(wave(a)-wave(b), drivers, a.Compare(b.Key))
	})
	keepSources(steps)
	return steps
}

// keepSources keeps what pods that stay need for their images: the login in their namespace, and the mirror set, by
// which nodes find them. The login is recorded with the first driver in the namespace.
func keepSources(steps []Step) {
	for i, s := range steps {
		needs := func(w Step) bool {
			stays := slices.Contains(order[1], w.Kind) && (w.Action == Keep || w.Action == Forget)
			return stays && (s.Driver == drivers.MirrorSet || s.Name == render.PullSecret && s.Namespace == w.Namespace)
		}
		if n := slices.IndexFunc(steps, needs); n >= 0 && s.Action == Prune {
			steps[i].Action, steps[i].Reason = steps[n].Action, "pods that stay need it for their images"
		}
	}
}

func (in *Input) removal(e inventory.Entry) Step {
	s := Step{ID: e.ID, Driver: e.Driver}
	live, desired := in.Live[e.Key], in.wants(e.Driver)
	gated, isGated := in.Gated[e.Driver]
	retention, stays := in.Retained[e.Driver]
	untrusted := in.Untrusted[e.Driver]
	if err := in.Refused[e.Key]; err != nil {
		s.Action, s.Reason = Keep, err.Error()
		return s
	}
	if live != nil && !isGated {
		s.of(live)
	}
	switch {
	case isGated:
		s.Action, s.Reason = Keep, gated // a deleted object is recreated later
	case live == nil:
		s.Action, s.Reason = Gone, "no longer exists"
	case stays && !desired && retention.But[e.Key] == "":
		s.Action, s.Reason = retention.Action, retention.Reason
	case untrusted != "" && desired && !sameBundle(e.Content, in.Content[e.Driver]):
		s.Action, s.Reason = Keep, untrusted
	case never[e.Kind] != "":
		s.Action, s.Reason = Keep, never[e.Kind]
	case e.Kind == "CSIDriver" && desired:
		s.Action, s.Reason = Keep, "volumes are attached through it"
	case !Ours(live, e):
		s.Action, s.Reason = Forget, "another manager has created it again"
	default:
		s.Action, s.Reason = Prune, cmp.Or(retention.But[e.Key], "it is obsolete")
	}
	return s
}

// Retention is why the objects of a driver that is not requested stay.
type Retention struct {
	Action Action // Keep or Forget
	Reason string
	// But has the objects that are removed anyway, and why.
	But map[inventory.Key]string
}

// Removal plans the removal of everything in an inventory, in order. retained says which drivers keep objects.
func Removal(inv inventory.Inventory, live Live, refused map[inventory.Key]error, retained map[matrix.Driver]Retention) Plan {
	in := Input{Inventory: inv, Live: live, Refused: refused, Retained: retained}
	return Plan{Steps: in.removals(nil)}
}

// NextWave returns the prunes to do now: those of the first wave in order that has any. The caller waits for them
// before the next wave.
func NextWave(all []Step) []Step {
	var steps []Step
	for _, s := range all {
		if s.Action == Prune && (len(steps) == 0 || wave(s) == wave(steps[0])) {
			steps = append(steps, s)
		}
	}
	return steps
}
