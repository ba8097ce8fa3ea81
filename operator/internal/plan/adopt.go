package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

const (
	annotationOpenShift = "csi.openshift.io/managed"
	annotationHelm      = "meta.helm.sh/release-name"
	annotationHelmNS    = "meta.helm.sh/release-namespace"
)

// mayAdopt says why an object that is not ours must not be taken over, or nil.
func (in *Input) mayAdopt(live, wanted *unstructured.Unstructured) error {
	without := orDefault(in.WithoutIt, "take the driver out of the VDOConfig")
	subject := IDOf(live).Key.String()
	refuse := func(hint, format string, args ...any) error {
		return &fault.Error{Reason: fault.Conflict, Op: "take over", Subject: subject, Hint: hint, Err: fmt.Errorf(format, args...)}
	}
	annotations, labels := live.GetAnnotations(), live.GetLabels()
	if _, managed := annotations[annotationOpenShift]; managed {
		return refuse("take spec.storageProvider out of the VDOConfig, or have OpenShift remove its own driver first: set managementState: Removed on ClusterCSIDriver "+live.GetName(),
			"OpenShift manages it (annotation %s)", annotationOpenShift)
	}
	for _, t := range tools {
		// The storage driver's Namespace is in the operator's manifests too, which a tool may apply.
		if marks := t.marksOn(live); len(marks) > 0 && live.GetKind() != "Namespace" {
			return refuse(t.hint(marks), "%s manages it (%s)", t.name, strings.Join(marks, ", "))
		}
	}
	if release := annotations[annotationHelm]; release != "" {
		return refuse(helmHint(live.GetKind(), release, orDefault(annotations[annotationHelmNS], live.GetNamespace())), "Helm release %s manages it", release)
	}
	if by := labels[render.LabelManagedBy]; by != "" && by != render.ManagedBy {
		return refuse("remove it with the tool that made it, or "+without, "%s manages it (label %s)", by, render.LabelManagedBy)
	}
	if by := labels["olm.owner"]; by != "" {
		return refuse("remove that operator's subscription first", "operator %s manages it (label olm.owner)", by)
	}
	if owners := live.GetOwnerReferences(); len(owners) > 0 {
		return refuse("remove the owner first, or "+without, "%s %s owns it", owners[0].Kind, owners[0].Name)
	}
	if isMirrorSet(live) && labels[render.LabelDriver] != string(drivers.MirrorSet) {
		return refuse("apply its entries under another name, then delete it; or set spec.openShift.mirrorSet of the VDOConfig to Check and keep it",
			"the operator did not make it, and entries that others need would be lost, for which OpenShift drains its nodes")
	}
	return otherSubjects(live, wanted, refuse)
}

// helmHint says how to part with a Helm release without losing anything: Helm deletes
// the kinds that are in a release's templates, and with a kind go all of its objects.
func helmHint(kind, release, namespace string) string {
	if never[kind] != "" {
		return "leave it to Helm: set policy: disabled for its driver (snapshot-controller has the snapshot kinds) in spec.drivers; do not uninstall the release, which would delete " + kind + " and all that hangs on it"
	}
	return fmt.Sprintf("see that `helm get manifest %[1]s -n %[2]s` names no CustomResourceDefinition, since with one go all objects of its kind; then remove the release with `helm uninstall %[1]s -n %[2]s`: volumes and nodes stay as they are", release, namespace)
}

func orDefault(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// otherSubjects refuses a binding that gives rights to somebody whom applying ours
// would take them from: some of upstream's names look shared, and are.
func otherSubjects(live, wanted *unstructured.Unstructured, refuse func(hint, format string, args ...any) error) error {
	if !isBinding(live.GetKind()) {
		return nil
	}
	mine := subjects(wanted)
	for _, s := range subjects(live) {
		if !slices.Contains(mine, s) {
			return refuse("bind "+s+" by another binding and delete this one", "it gives rights to %s too, which would be lost", s)
		}
	}
	return nil
}

func isMirrorSet(o *unstructured.Unstructured) bool {
	return o.GetKind() == mirrorset.Digests.Kind && o.GroupVersionKind().Group == mirrorset.Digests.Group
}

func isBinding(kind string) bool { return kind == "RoleBinding" || kind == "ClusterRoleBinding" }

func subjects(o *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedSlice(o.Object, "subjects")
	var all []string
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok {
			continue
		}
		kind, _, _ := unstructured.NestedString(m, "kind")
		ns, _, _ := unstructured.NestedString(m, "namespace")
		name, _, _ := unstructured.NestedString(m, "name")
		all = append(all, strings.TrimPrefix(kind+" "+ns+"/"+name, "/"))
	}
	return all
}

// immutable returns the immutable field that differs, or "".
func immutable(live, wanted *unstructured.Unstructured) string {
	switch kind := wanted.GetKind(); {
	case kind == "DaemonSet" || kind == "Deployment":
		if !sameField(live, wanted, "spec", "selector") {
			return "spec.selector"
		}
	case isBinding(kind):
		if !sameField(live, wanted, "roleRef") {
			return "roleRef"
		}
	case kind == "Service":
		if ip, asked, _ := unstructured.NestedString(wanted.Object, "spec", "clusterIP"); asked && ip != "" && !sameField(live, wanted, "spec", "clusterIP") {
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

// deprecated tells whether a workload is of upstream's deprecated manifests: it is where they put
// it, and selects its pods as they do, by that and nothing else.
func deprecated(live *unstructured.Unstructured) bool {
	key := IDOf(live).Key
	labels := drivers.DeprecatedSelector(key.String())
	selector, _, _ := unstructured.NestedMap(live.Object, "spec", "selector")
	want := map[string]any{}
	for k, v := range labels {
		want[k] = v
	}
	return key.Group == "apps" && labels != nil && reflect.DeepEqual(selector, map[string]any{"matchLabels": want})
}

// AdoptsAnew tells whether the step takes a workload over by deleting it and making it again.
func (s Step) AdoptsAnew() bool { return s.Adopts && s.Action == Recreate }

// anew takes a workload of upstream's deprecated manifests over: it goes with its pods, and is made
// again. Not before there is a configuration to make it with: until then it is left as it runs.
func (s Step) anew(o render.Object, live *unstructured.Unstructured, field string) Step {
	const of = "upstream's deprecated manifests installed it: "
	if o.Config == render.ConfigHash {
		s.Action, s.Adopts, s.Object, s.Held = Wait, false, nil, true
		s.Reason = of + "it is deleted and made again once the configuration that is asked for is accepted"
		return s
	}
	s.Action, s.Reason = Recreate, of+field+" has to change and is immutable, so that it is deleted with its pods and made again"
	if s.Deleting {
		s.Reason = of + "it is being deleted, and made again once its finalizers are gone: " + strings.Join(live.GetFinalizers(), ", ")
	}
	return s
}

// Trial is what the API server can be asked about a workload that has to be made anew while the old
// one is there: the new one with the selector of the old and the labels that its pods have for it.
// It is put in the place of the old one whole, since merging would ask about what both have together,
// and not under another name, for which there are no rights. nil where nothing is made anew so, or is
// being deleted already: the API server then says that the selector is immutable, and nothing else.
func Trial(live, wanted *unstructured.Unstructured) *unstructured.Unstructured {
	if live == nil || !live.GetDeletionTimestamp().IsZero() || immutable(live, wanted) != "spec.selector" {
		return nil
	}
	labels := []string{"spec", "template", "metadata", "labels"}
	theirs, _, _ := unstructured.NestedStringMap(live.Object, labels...)
	mine, _, _ := unstructured.NestedStringMap(wanted.Object, labels...)
	selector, _, _ := unstructured.NestedMap(live.Object, "spec", "selector")
	out := wanted.DeepCopy()
	if unstructured.SetNestedMap(out.Object, selector, "spec", "selector") != nil ||
		unstructured.SetNestedStringMap(out.Object, merge(mine, theirs), labels...) != nil {
		return nil // never: it is a workload
	}
	return out
}

func immutableConflict(live *unstructured.Unstructured, field string) error {
	id := IDOf(live)
	in, pods := "", ""
	if id.Namespace != "" {
		in = "-n " + id.Namespace + " "
	}
	if field == "spec.selector" {
		pods = ", pods included,"
	}
	return &fault.Error{
		Reason: fault.Conflict, Op: "take over", Subject: id.Key.String(),
		Hint: fmt.Sprintf("delete it with `kubectl delete %s%s %s`%s and it is installed again as the bundle has it", in, strings.ToLower(id.Kind), id.Name, pods),
		Err:  fmt.Errorf("it was installed from another source: its %s differs and cannot be changed", field),
	}
}

// Other is a workload of a driver that is somebody else's.
type Other struct {
	inventory.ID
	Driver  matrix.Driver
	Version string // by its image tag; "" where that does not tell
	Helm    string // release, or ""
}

// others makes conflicts of foreign workloads of the drivers that are wanted.
func (in *Input) others() []Step {
	var steps []Step
	for _, o := range in.Others {
		if !in.wants(o.Driver) {
			continue
		}
		s := Step{ID: o.ID, Driver: o.Driver, Stage: "others"}
		steps = append(steps, s.conflict(otherConflict(o)))
	}
	return steps
}

func (in *Input) wants(d matrix.Driver) bool {
	return slices.ContainsFunc(in.Stages, func(s render.Stage) bool { return slices.Contains(s.Drivers, d) })
}

func otherConflict(o Other) error {
	hint := "remove it first, or take the driver out of the VDOConfig: two at once work against each other"
	switch {
	case o.Helm != "":
		hint = "take the driver out of the VDOConfig; or " + helmHint(o.Kind, o.Helm, o.Namespace)
		if o.Driver == matrix.SnapshotController {
			hint = "set policy: disabled for driver snapshot-controller in spec.drivers to leave it to Helm; or " + helmHint(o.Kind, o.Helm, o.Namespace)
		}
	case strings.HasPrefix(o.Namespace, "openshift-"):
		hint = "OpenShift manages it: take the driver out of the VDOConfig, or have OpenShift remove its own"
	case o.Driver == matrix.SnapshotController:
		hint = "remove it or install that version; to keep it and care for it yourself, set policy: disabled for driver snapshot-controller in spec.drivers"
	}
	return &fault.Error{
		Reason: fault.Conflict, Op: "install", Subject: string(o.Driver), Hint: hint,
		Err: fmt.Errorf("another installation of it exists: %s%s", o.Key, versionNote(o.Version)),
	}
}

func versionNote(v string) string {
	if v == "" {
		return ""
	}
	return " of version " + v
}
