package vdoctl

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
)

// applier applies objects by server-side apply. It takes no fields from other managers, unless force is set.
type applier struct {
	client.Client

	force     bool
	downgrade bool // an operator may be older than the running one
}

// edit is a resource before and after a change. A new one has no resource version before.
type edit struct{ before, after client.Object }

// asRead returns an edit of a resource that was read; later changes to the resource are the edit.
func asRead(x client.Object) edit { return edit{before: copyOf(x), after: x} }

func copyOf(x client.Object) client.Object {
	return x.DeepCopyObject().(client.Object) //nolint:forcetypeassert,errcheck // a copy of one
}

// all writes objects in order, and returns what becomes of those without a fault. A dry run goes on after invalid ones
// and conflicts.
func (a *applier) all(ctx context.Context, objects []client.Object, dryRun bool) ([]changedObject, error) {
	out := []changedObject{}
	var errs []error
	for _, x := range objects {
		done, err := a.one(ctx, x, dryRun)
		if err == nil {
			out = append(out, done)
			continue
		}
		errs = append(errs, err)
		if reason := fault.ReasonOf(err); !dryRun || reason != fault.InvalidInput && reason != fault.Conflict {
			break
		}
	}
	return out, fault.Join(errs...)
}

// one applies a manifest. It creates any other object, but does not change an existing one, which is the site's.
func (a *applier) one(ctx context.Context, x client.Object, dryRun bool) (changedObject, error) {
	if u, ok := x.(*unstructured.Unstructured); ok {
		done, err := a.apply(ctx, u, dryRun)
		return done.shown(), err
	}
	out := changedObject{Object: describeObject(x), State: stateCreated, New: true}
	switch err := dry(a.Client, dryRun).Create(ctx, copyOf(x)); {
	case apierrors.IsAlreadyExists(err):
		out.State, out.New = stateKept, false
	case err != nil && (!dryRun || !isGone(err)):
		return out, clusterstate.Fault("create "+out.Object, err)
	}
	return out, nil
}

// apply applies an object; in a dry run the API server only checks it. An object that was read in the cluster keeps
// the version that the user has seen; another current version is a conflict. Of such an object it sends only changed
// fields and those that it applied before. If another manager has set a removed field, that is a conflict.
func (a *applier) apply(ctx context.Context, u *unstructured.Unstructured, dryRun bool) (edit, error) {
	name := describeObject(u)
	before, after := &unstructured.Unstructured{}, u.DeepCopy()
	out := edit{before, after}
	before.SetGroupVersionKind(u.GroupVersionKind())
	if err := a.Get(ctx, client.ObjectKeyFromObject(u), before); err != nil && !isGone(err) {
		return out, clusterstate.Fault("read "+name, err)
	}
	// A CRD may wait for a resource that only the operator ends.
	if kind := u.GroupVersionKind(); before.GetDeletionTimestamp() != nil && kind.Kind != crdKind {
		hint := "wait until it is gone, then run the same command again"
		if kind.Group == v1alpha1.GroupVersion.Group {
			hint += "; `vdoctl status` shows what it waits for. If no operator runs, install it: `vdoctl deploy` without -f"
		}
		return out, fault.Errorf(fault.Conflict, "apply", name, hint, "it is being deleted")
	}
	if err := a.refuseOlder(before, after); err != nil {
		return out, err
	}
	version := before.GetResourceVersion()
	var removed [][]string
	var err error
	if u.GetResourceVersion() != "" {
		if !sameVersion(u, before) {
			return out, changedMeanwhile(name, errors.New("it is another one now"))
		}
		after.SetResourceVersion(version)
		unstructured.RemoveNestedField(after.Object, "metadata", "generation")
		if removed, err = leaveToOthers(after, before); err != nil {
			return out, err
		}
	}
	sent := after.DeepCopy()
	err = a.write(ctx, after, version, a.force, dryRun)
	if all := conflicts(err); len(all) > 0 && !slices.ContainsFunc(all, ofOthers) {
		err = a.write(ctx, after, version, true, dryRun) // fields of another command of this program
	}
	if err == nil {
		err = leftOver(sent, after, removed)
	}
	switch {
	case err == nil:
	case dryRun && isGone(err) && u.GroupVersionKind().Group != admissionv1.GroupName: // of what is created before it
	case fault.ReasonOf(err) == fault.Conflict:
		return out, err
	case len(conflicts(err)) > 0:
		return out, &fault.Error{Reason: fault.Conflict, Op: "apply", Subject: name,
			Err:  errors.New(strings.ReplaceAll(err.Error(), "\n", " ")),
			Hint: "see whether these fields are meant to be as they are; overwrite them with --force-conflicts"}
	case apierrors.IsConflict(err):
		return out, changedMeanwhile(name, err)
	default:
		return out, clusterstate.Fault("apply "+name, err)
	}
	return out, nil
}

// refuseOlder refuses an operator that is older than the running one. Who holds the mirror can offer an earlier
// release again: its signature stays good.
func (a *applier) refuseOlder(before, after client.Object) error {
	from, errFrom := matrix.ParseVersion(before.GetAnnotations()[deploy.AnnotationVersion])
	to, errTo := matrix.ParseVersion(after.GetAnnotations()[deploy.AnnotationVersion])
	if isOlder := errFrom == nil && errTo == nil && to.LessThan(from); isOlder && !a.downgrade {
		return fault.Errorf(fault.Refused, "apply", describeObject(after),
			"name a newer bundle, or add --allow-downgrade", "%s is older than the running %s", to, from)
	}
	return nil
}

// sameVersion reports whether an object is unchanged since it was read. A status write, of the operator for
// example, leaves the generation of a resource that has one.
func sameVersion(read, is *unstructured.Unstructured) bool {
	if read.GetGeneration() > 0 && read.GetGeneration() == is.GetGeneration() {
		return read.GetUID() == is.GetUID()
	}
	return read.GetResourceVersion() == is.GetResourceVersion()
}

// leftOver refuses removed fields, and items of lists, that still exist. Lists that another command of this program has
// edited keep its items, such as the pins of a rollback.
func leftOver(sent, is *unstructured.Unstructured, removed [][]string) error {
	if strings.HasSuffix(sent.GroupVersionKind().Group, "vmware.com") {
		edited, err := managed(is, metav1.ManagedFieldsOperationUpdate)
		if err != nil {
			return err
		}
		lists := longer(sent.Object["spec"], is.Object["spec"], "spec")
		removed = append(removed, slices.DeleteFunc(lists, func(path []string) bool { return owns(edited, path) })...)
	}
	for _, path := range removed {
		if _, has, _ := unstructured.NestedFieldNoCopy(is.Object, path...); has {
			return fault.Errorf(fault.Conflict, "apply", describeObject(is),
				"remove the field where it is set, or with `kubectl edit`",
				"%s would stay: others have set the field", strings.Join(path, "."))
		}
	}
	return nil
}

// longer returns the paths of lists that have more than was sent: the API server merges sets and lists with keys. In a
// trust policy an unsent list counts too.
func longer(sent, is any, path ...string) (all [][]string) {
	switch sent := sent.(type) {
	case map[string]any:
		is, _ := is.(map[string]any)
		isTrust := strings.HasSuffix(strings.ToLower(path[len(path)-1]), "trust")
		for _, key := range slices.Sorted(maps.Keys(is)) {
			at := append(slices.Clone(path), key)
			if list, _ := is[key].([]any); isTrust && len(list) > 0 && sent[key] == nil {
				all = append(all, at)
			}
			all = append(all, longer(sent[key], is[key], at...)...)
		}
	case []any:
		if is, _ := is.([]any); len(is) > len(sent) {
			all = append(all, path)
		}
	}
	return all
}

// writtenHere returns an object as this program writes it: durations in one form, without unknown fields.
func writtenHere(live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	x, err := scheme.New(live.GroupVersionKind())
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, x)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", describeObject(live), err)
	}
	return manifest(x.(client.Object)) //nolint:forcetypeassert,errcheck // all kinds are
}

// managed returns the fields of an object that this program manages by an operation, as managedFields has them.
func managed(u *unstructured.Unstructured, by metav1.ManagedFieldsOperationType) (map[string]any, error) {
	fields := map[string]any{}
	for _, m := range u.GetManagedFields() {
		if m.Manager == fieldManager && m.Operation == by && m.Subresource == "" {
			if err := json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields); err != nil {
				return nil, fmt.Errorf("read the managed fields of %s: %w", describeObject(u), err)
			}
		}
	}
	return fields, nil
}

func owns(fields map[string]any, path []string) bool {
	for _, name := range path {
		next, has := fields["f:"+name].(map[string]any)
		if !has {
			return false
		}
		fields = next
	}
	return true
}

// leaveToOthers removes labels, annotations, and unchanged fields directly below spec and data that this program does
// not manage. It returns the spec fields that the object no longer has.
func leaveToOthers(u, live *unstructured.Unstructured) (removed [][]string, err error) {
	u.SetLabels(nil)
	u.SetAnnotations(nil)
	mine, err := managed(live, metav1.ManagedFieldsOperationApply)
	if err != nil {
		return nil, err
	}
	was, err := writtenHere(live)
	if err != nil {
		return nil, err
	}
	removed = slices.DeleteFunc(plan.Diff(was, u), func(path []string) bool {
		_, has, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
		return has || path[0] != "spec"
	})
	for _, section := range []string{"spec", "data"} {
		node, _ := u.Object[section].(map[string]any)
		has, _ := was.Object[section].(map[string]any)
		maps.DeleteFunc(node, func(k string, v any) bool {
			return !owns(mine, []string{section, k}) && apiequality.Semantic.DeepEqual(v, has[k])
		})
		if len(node) == 0 {
			delete(u.Object, section)
		}
	}
	return removed, nil
}

// write applies an object. It replaces the ConfigMap of trusted keys: otherwise keys that others have set would stay
// trusted.
func (a *applier) write(ctx context.Context, u *unstructured.Unstructured, version string, force, dryRun bool) error {
	c := dry(a.Client, dryRun)
	if u.GetKind() == "ConfigMap" && u.GetName() == v1alpha1.DefaultTrustName && version != "" {
		u.SetResourceVersion(version)
		return c.Update(ctx, u)
	}
	var opts []client.ApplyOption
	if force {
		opts = append(opts, client.ForceOwnership)
	}
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), opts...)
}

func conflicts(err error) []metav1.StatusCause {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(status.Status().Details.Causes), func(c metav1.StatusCause) bool {
		return c.Type != metav1.CauseTypeFieldManagerConflict
	})
}

func ofOthers(c metav1.StatusCause) bool { return !strings.Contains(c.Message, `"`+fieldManager+`"`) }

func changedMeanwhile(name string, err error) error {
	return fault.Errorf(fault.Conflict, "write", name, "run the same command again: it begins with what is there now",
		"it was changed since it was read: %w", err)
}

func manifests(all ...client.Object) (out []*unstructured.Unstructured, err error) {
	for _, x := range all {
		u, errOf := manifest(x)
		out, err = append(out, u), errors.Join(err, errOf)
	}
	return out, err
}

// manifest returns an object as a user writes it: without the API server's fields.
func manifest(x client.Object) (*unstructured.Unstructured, error) {
	x = copyOf(x)
	doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(x)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: doc}
	labels, annotations := u.GetLabels(), u.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	delete(annotations, v1alpha1.AnnotationRequestedAt)
	delete(doc, "status")
	delete(doc, "metadata")
	u.SetNamespace(x.GetNamespace())
	u.SetName(x.GetName())
	u.SetLabels(labels)
	if len(annotations) > 0 {
		u.SetAnnotations(annotations)
	}
	u.SetGroupVersionKind(fullKindOf(x))
	return u, nil
}

// changedObject is a resource that is created or changed, with the fields that differ.
type changedObject struct {
	Object string         `json:"object"` // Kind namespace/name
	State  string         `json:"state"`
	New    bool           `json:"new,omitempty"` // it is created
	Fields []changedField `json:"fields,omitempty"`
}

const stateCreated, stateChanged, stateUnchanged, stateKept = "created", "changed", "unchanged", "kept"

// changedField is the old and new value of a field; a password is (hidden).
type changedField struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

func (f changedField) String() string {
	text := cmp.Or(f.To, "none")
	if f.From != "" {
		text = f.From + " -> " + text
	}
	return f.Field + ": " + text
}

// changes prints the changes of resources.
func (l *lines) changes(all []changedObject) {
	for _, c := range all {
		l.printf("  %-9s  %s", c.State, c.Object)
		for _, f := range c.Fields {
			l.printf("             %s", f)
		}
	}
}

const order = "[order]" // of items with a key

// values adds the single values of a document by field. An item of a list with a key is a field, any other is a value.
func values(to map[string][]string, field string, v any) {
	switch v := v.(type) {
	case nil:
		return
	case map[string]any:
		for k := range v {
			values(to, field+"."+k, v[k])
		}
		if len(v) > 0 {
			return
		}
	case []any:
		for _, item := range v {
			m, _ := item.(map[string]any)
			if key := cmp.Or(m["name"], m["driver"], m["id"]); key != nil {
				values(to, fmt.Sprintf("%s[%v]", field, key), item)
				to[field+order] = append(to[field+order], textOf(key))
			} else {
				to[field+"[]"] = append(to[field+"[]"], textOf(item))
			}
		}
		if len(v) > 0 {
			return
		}
	}
	to[field] = append(to[field], textOf(v))
}

func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(x string) bool { return slices.Contains(others, x) })
}

// shown returns the state and changed fields of the resource, but not those of a CRD. It shortens long values.
func (x edit) shown() changedObject {
	out := changedObject{Object: describeObject(x.after), State: stateChanged, Fields: x.fields()}
	switch {
	case x.before.GetResourceVersion() == "":
		out.State, out.New = stateCreated, true
	case len(out.Fields) == 0:
		out.State = stateUnchanged
	}
	if kindOf(x.after) == crdKind {
		out.Fields = nil
	}
	for i := range out.Fields {
		f := &out.Fields[i]
		differs := f.From != f.To
		f.From, f.To = cut(f.From, maxValue), cut(f.To, maxValue)
		if differs && f.From == f.To {
			f.To = "(differs in what is not shown)"
		}
	}
	return out
}

// fields returns the changed values, sorted by field.
func (x edit) fields() (out []changedField) {
	was, is := valuesOf(x.before), valuesOf(x.after)
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, field := range slices.Sorted(maps.Keys(all)) {
		from, to := was[field], is[field]
		gone, made := without(from, to), without(to, from)
		switch {
		case len(gone)+len(made) > 0 && strings.HasSuffix(field, order):
			continue // the items are shown
		case len(gone)+len(made) == 0 && !slices.Equal(from, to):
			gone, made = []string{strings.Join(from, ", ")}, []string{strings.Join(to, ", ")}
		}
		if len(gone) == 1 && len(made) == 1 {
			out = append(out, shownField(x.after, field, gone[0], made[0]))
			continue
		}
		for _, text := range gone {
			out = append(out, shownField(x.after, field, text, ""))
		}
		for _, text := range made {
			out = append(out, shownField(x.after, field, "", text))
		}
	}
	return out
}

// valuesOf returns the values of an object by field, as a user writes it.
func valuesOf(x client.Object) map[string][]string {
	out := map[string][]string{}
	u, err := manifest(x)
	if err != nil {
		return out // resources of the API always convert
	}
	u.SetName("")
	u.SetNamespace("")
	for section, v := range u.Object {
		fields, isMap := v.(map[string]any)
		for k := range fields {
			values(out, section+"."+k, fields[k])
		}
		if !isMap {
			values(out, section, v)
		}
	}
	return out
}

func textOf(v any) string {
	if text, is := v.(string); is {
		return text
	}
	data, _ := json.Marshal(v) //nolint:errchkjson // what was a document is one
	return string(data)
}

// maxValue is the length at which a shown value is cut: long enough for a thumbprint, not for a certificate.
const maxValue = 100

// shownField shows only the user name of a Secret.
func shownField(x client.Object, field, from, to string) changedField {
	key := strings.TrimPrefix(field, "data.")
	switch {
	case kindOf(x) != "Secret", field == "type", strings.HasPrefix(field, "metadata.labels."):
		return changedField{Field: field, From: from, To: to}
	case key != corev1.BasicAuthUsernameKey:
		return changedField{Field: key, To: "(hidden)"}
	}
	return changedField{Field: key, From: decoded(from), To: decoded(to)}
}

func decoded(value string) string {
	data, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return value
	}
	return string(data)
}

// changed is the output of a command that changes resources.
type changed struct {
	Object  string   `json:"object,omitempty"`
	Changes []string `json:"changes"` // field: value; none if all values are as requested
	DryRun  bool     `json:"dryRun,omitempty"`
	Message string   `json:"message"`
	// AppliedBy is the GitOps tool that applies the object, and may revert the changes.
	AppliedBy string `json:"appliedBy,omitempty"`
}

// changes returns the changed fields in full, so that a user can set them elsewhere, or restore them.
func (x edit) changes() []string {
	out := []string{}
	for _, f := range x.fields() {
		out = append(out, f.String())
	}
	return out
}

func changing(all ...edit) []edit {
	return slices.DeleteFunc(all, func(x edit) bool { return len(x.fields()) == 0 })
}

func (x edit) report(dryRun bool) changed {
	return changed{Object: kindOf(x.after) + " " + x.after.GetName(), Changes: x.changes(),
		DryRun: dryRun, AppliedBy: plan.AppliedBy(x.after)}
}

// edit shows edits, asks for consent, and makes them. It warns if a GitOps tool may revert them: they belong into its
// source.
func (a *app) edit(ctx context.Context, c client.Client, f consentFlags, op, question string, edits []edit) error {
	for _, x := range edits {
		if by := plan.AppliedBy(x.after); by != "" {
			_ = command.Say(a.err, "warning: %s applies %s and may undo this; commit to its source: %s",
				by, kindOf(x.after)+" "+x.after.GetName(), strings.Join(x.changes(), "; "))
		}
	}
	show := func(l *lines) {
		for _, x := range edits {
			for _, line := range x.changes() {
				l.printf("%s: %s", describeObject(x.after), line)
			}
		}
	}
	if err := a.agree(ctx, f, show, question); err != nil {
		return err
	}
	return apply(ctx, c, op, f.dryRun, edits)
}

// apply makes edits. A status that the operator writes meanwhile is no conflict; a change of the spec is one.
func apply(ctx context.Context, c client.Client, op string, dryRun bool, edits []edit) error {
	c = dry(c, dryRun)
	for _, x := range edits {
		is := copyOf(x.before)
		if err := c.Get(ctx, client.ObjectKeyFromObject(is), is); err != nil {
			return clusterstate.Fault(op, err)
		}
		if len(edit{x.before, is}.fields()) > 0 {
			return changedMeanwhile(describeObject(is), errors.New("its spec is another one now"))
		}
		if err := c.Patch(ctx, copyOf(x.after), client.MergeFrom(x.before)); err != nil {
			return clusterstate.Fault(op, err)
		}
	}
	return nil
}

func (r changed) text(l *lines) {
	for _, c := range r.Changes {
		l.printf("%s: %s", r.Object, c)
	}
	if r.DryRun && len(r.Changes) > 0 {
		l.printf("Nothing was changed: --dry-run.")
	} else if r.Message != "" {
		l.printf("%s", r.Message)
	}
}
