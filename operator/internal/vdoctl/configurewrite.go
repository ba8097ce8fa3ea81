package vdoctl

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// changedObject is a resource that is made or changed, with the fields that differ.
type changedObject struct {
	Object string         `json:"object"` // Kind namespace/name
	New    bool           `json:"new,omitempty"`
	Fields []changedField `json:"fields"`
}

// changedField is what a field was and is; a password is (hidden).
type changedField struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

func (c changedObject) text(l *lines, a *app) {
	was := "changed"
	if c.New {
		was = "new"
	}
	l.printf("%s (%s)", a.paint(bold, c.Object), was)
	for _, f := range c.Fields {
		switch {
		case f.From == "":
			l.printf("  %s: %s", f.Field, f.To)
		case f.To == "":
			l.printf("  %s: %s -> none", f.Field, f.From)
		default:
			l.printf("  %s: %s -> %s", f.Field, f.From, f.To)
		}
	}
}

// changes are the objects that differ from what is there, once the API server has looked at them:
// a field that nobody writes has its default there, which is no change.
func (d *draft) changes() []changedObject {
	out := []changedObject{}
	for _, x := range d.objects() {
		old, there := d.before[describeObject(x)]
		c := changedObject{Object: describeObject(x), New: !there}
		if s, ok := x.(*corev1.Secret); ok {
			c.Fields = changedSecret(old, s)
		} else {
			if as, ok := d.after[c.Object]; ok {
				x = as
			}
			c.Fields = changedFields(old, x)
		}
		if len(c.Fields) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// changedSecret shows of a Secret the user name, and of all else that it differs.
func changedSecret(old client.Object, s *corev1.Secret) (out []changedField) {
	was := map[string][]byte{}
	if there, ok := old.(*corev1.Secret); ok {
		was = there.Data
	}
	const user = corev1.BasicAuthUsernameKey
	if now, has := s.Data[user]; has && !bytes.Equal(was[user], now) {
		out = append(out, changedField{user, string(was[user]), string(now)})
	}
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		if key != user && !bytes.Equal(was[key], s.Data[key]) {
			out = append(out, changedField{key, "", "(hidden)"})
		}
	}
	return out
}

// changedFields are the fields in which an object differs from what it was, if it was.
func changedFields(old, x client.Object) (out []changedField) {
	was, is := map[string]leaf{}, map[string]leaf{}
	if old != nil {
		flatten("", specOf(old), was)
	}
	flatten("", specOf(x), is)
	for _, path := range union(was, is) {
		from, to := was[path], is[path]
		if from == to {
			continue
		}
		if from.shown == to.shown { // they differ in what is not shown
			from.shown, to.shown = digestOf([]byte(from.whole)), digestOf([]byte(to.whole))
		}
		out = append(out, changedField{path, from.shown, to.shown})
	}
	return out
}

func union(a, b map[string]leaf) []string {
	var out []string
	for _, m := range []map[string]leaf{a, b} {
		for k := range m {
			if !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
	}
	slices.Sort(out)
	return out
}

// specOf is what of an object a person writes, with digests of what is no text.
func specOf(x client.Object) any {
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(x)
	if err != nil {
		return nil
	}
	if spec, ok := u["spec"]; ok {
		return map[string]any{"spec": spec}
	}
	shown := map[string]any{}
	if m, ok := x.(*corev1.ConfigMap); ok {
		for key, value := range m.BinaryData {
			shown[key] = digestOf(value)
		}
	}
	return map[string]any{"data": u["data"], "binaryData": shown}
}

// maxValue is what is shown of a value: a thumbprint, not a certificate.
const maxValue = 100

// leaf is a value of a document.
type leaf struct{ whole, shown string }

// flatten notes each leaf of a document by its path.
func flatten(path string, node any, into map[string]leaf) {
	switch node := node.(type) {
	case map[string]any:
		for k, v := range node {
			flatten(strings.TrimPrefix(path+"."+k, "."), v, into)
		}
	case []any:
		data, _ := json.Marshal(node) //nolint:errchkjson // what was a document is one
		into[path] = leaf{string(data), string(data)}
	case nil:
	default:
		whole := fmt.Sprint(node)
		into[path] = leaf{whole, cut(whole, maxValue)}
	}
}

// digestOf stands for a value that is not shown.
func digestOf(value []byte) string {
	return fmt.Sprintf("%d bytes, sha256:%x", len(value), sha256.Sum256(value))
}

// apply writes what is new or differs; with check the API server only checks it, and all that it
// refuses is told at once.
func (d *draft) apply(ctx context.Context, c client.Client, check bool) error {
	var errs []error
	for _, x := range d.objects() {
		err := d.applyOne(ctx, c, x.DeepCopyObject().(client.Object), check) //nolint:forcetypeassert // a copy of one
		if errs = append(errs, err); err != nil && (!check || fault.ReasonOf(err) != fault.InvalidInput) {
			break
		}
	}
	return fault.Join(errs...)
}

// applyOne changes an object from what it was when it was first read, so that what somebody
// else has changed since is not undone.
func (d *draft) applyOne(ctx context.Context, c client.Client, x client.Object, check bool) error {
	name := describeObject(x)
	if err := d.readLate(ctx, c, x); err != nil {
		return clusterFault("write "+name, err)
	}
	first, ok := d.before[name]
	if !ok {
		return d.create(ctx, c, x, check)
	}
	merged := first.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy of one
	copyAsked(x, merged)
	patch := client.MergeFromWithOptions(first.DeepCopyObject().(client.Object), client.MergeFromWithOptimisticLock{}) //nolint:forcetypeassert // a copy of one
	err := c.Patch(ctx, merged, patch, append(dryRunPatch(check), client.FieldOwner(fieldManager))...)
	switch {
	case apierrors.IsConflict(err) || isGone(err):
		return changedMeanwhile(name, err)
	case err != nil:
		return clusterFault("write "+name, err)
	}
	d.after[name] = merged
	return nil
}

// create makes a resource anew. What an export of another cluster says of it is not taken: an owner
// that is not there has it deleted, and a finalizer keeps it where nobody takes that off.
func (d *draft) create(ctx context.Context, c client.Client, x client.Object, check bool) error {
	meta := x.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta) //nolint:forcetypeassert,errcheck // all are typed
	*meta = metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, Labels: meta.Labels, Annotations: meta.Annotations}
	opts := []client.CreateOption{client.FieldOwner(fieldManager)}
	if check {
		opts = append(opts, client.DryRunAll)
	}
	err := c.Create(ctx, x, opts...)
	switch {
	case apierrors.IsAlreadyExists(err):
		return changedMeanwhile(describeObject(x), err)
	case err != nil:
		return clusterFault("write "+describeObject(x), err)
	}
	return nil
}

// readLate reads a Secret or ConfigMap whose name an answer gave, and which therefore was not
// read at the beginning: once, before anything is shown.
func (d *draft) readLate(ctx context.Context, c client.Client, x client.Object) error {
	name := describeObject(x)
	if kind := kindOf(x); d.read[name] || kind != "Secret" && kind != "ConfigMap" {
		return nil
	}
	there := x.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy of one
	err := c.Get(ctx, client.ObjectKeyFromObject(x), there)
	if err == nil {
		d.before[name] = there
	}
	if client.IgnoreNotFound(err) == nil {
		d.read[name] = true
		return nil
	}
	return err
}

func changedMeanwhile(name string, err error) error {
	return &fault.Error{Reason: fault.Conflict, Op: "write", Subject: name, Err: fmt.Errorf("somebody has changed it since it was read: %w", err),
		Hint: "run the same command again: it begins with what is there now"}
}

// copyAsked puts what was asked for into the object as it was read. Of Secrets and ConfigMaps
// these are single keys, but for the one with the keys that are trusted: one that the file does not
// have, or a policy in the place of keys, would count on.
func copyAsked(from, into client.Object) {
	switch from := from.(type) {
	case *corev1.Secret:
		into.(*corev1.Secret).Data = merged(into.(*corev1.Secret).Data, from.Data) //nolint:forcetypeassert // both are
	case *corev1.ConfigMap:
		old := into.(*corev1.ConfigMap) //nolint:forcetypeassert,errcheck // both are
		if from.Name == v1alpha1.DefaultTrustName {
			old.Data, old.BinaryData = nil, nil
		}
		for key := range from.BinaryData { // a key is in one of them
			delete(old.Data, key)
		}
		for key := range from.Data {
			delete(old.BinaryData, key)
		}
		old.Data, old.BinaryData = merged(old.Data, from.Data), merged(old.BinaryData, from.BinaryData)
	case *v1alpha1.DriverBundle:
		into.(*v1alpha1.DriverBundle).Spec = from.Spec //nolint:forcetypeassert // both are
	case *v1alpha1.VsphereCloudConfig:
		into.(*v1alpha1.VsphereCloudConfig).Spec = from.Spec //nolint:forcetypeassert // both are
	case *v1alpha1.VDOConfig:
		into.(*v1alpha1.VDOConfig).Spec = from.Spec //nolint:forcetypeassert // both are
	}
}

func merged[V any](old, asked map[string]V) map[string]V {
	out := maps.Clone(old)
	if out == nil {
		return asked
	}
	maps.Copy(out, asked)
	return out
}
