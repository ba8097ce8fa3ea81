// Package cluster reads and writes objects on the API server of the drivers' cluster: dry runs,
// server-side apply, replacement, and deletion under preconditions. It decides nothing and waits for
// nothing.
//
// # Ownership
//
// Every write uses the field manager [FieldManager]. Apply is forced: it owns every rendered field,
// whoever changed it, and never touches other fields. Package plan decides whether an object may be
// applied at all. Before an object of an earlier installation is adopted, its tools' fields become
// ours. Otherwise fields that a newer release dropped would stay.
//
// A delete names the UID and the resource version of the decision, so that an object that was changed
// or recreated meanwhile stays. It propagates in the foreground: the object is gone only when its pods
// are. Objects that package plan adopts by recreation propagate in the background.
//
// # Limits of the View
//
// A [View] watches, and keeps only the fields that are judged. It is as old as its last event: a moment,
// or up to a minute if a connection is silent. Between two watches, and if a watch is forbidden or fails,
// the operator asks the API server as without a View.
//
// From the View alone, the operator writes only what the next event would correct: the number of replicas,
// and the next stage after a rollout. Before it removes objects or calls a revision healthy, it lists
// ([Cluster.ObserveListed]). It reads installed objects, inventories and trust policies without the View.
package cluster

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/tracing"
)

const (
	// FieldManager is the field manager of all writes.
	FieldManager = "vdo-operator"

	parallel = 8 // concurrent requests
)

// Versioner returns the API server's version: a discovery client.
type Versioner interface {
	ServerVersion() (*version.Info, error)
}

// Cluster is the API server of a cluster. Client and Reader are required; drivers also need Versions and Ask.
type Cluster struct {
	// Client reads unstructured objects from the API server itself, not from a cache. A manager's client does so by
	// default.
	Client client.Client
	// Reader reads from the API server: a manager's GetAPIReader.
	Reader client.Reader
	// View caches the kinds with one object per node while it runs. Without it, each reconcile lists them.
	View *View
	// Versions is a discovery client.
	Versions Versioner
	// Ask asks one of several API servers for its version: see [Asking].
	Ask func(ctx context.Context, address string) (string, error)
	// Log reads the logs of crashing containers: see [Logs]. If nil, findings quote termination messages only.
	Log LogReader
	// TrustFloor identifies the operator's minimum trust policy; "" for none.
	TrustFloor string
	// Records names the inventories.
	Records inventory.Naming

	listed  bool         // list everything, without the View
	version atomic.Value // of the API server
}

// Read returns the existing objects among ids. An object that the operator may not read gets an error in why, which
// concerns only its driver.
func (c *Cluster) Read(
	ctx context.Context, ids []inventory.ID,
) (live plan.Live, why map[inventory.Key]error, err error) {
	ctx, end := tracing.Span(ctx, "read")
	defer func() { end(err) }()
	found, refused, err := sideBySide(ctx, ids, c.get)
	if err != nil {
		return nil, nil, err
	}
	live, why = plan.Live{}, map[inventory.Key]error{}
	for i, id := range ids {
		if found[i] != nil {
			live[id.Key] = found[i]
		}
		if refused[i] != nil {
			why[id.Key] = refused[i]
		}
	}
	return live, why, nil
}

// sideBySide reads one value per key, concurrently. It returns Forbidden errors by key in refused.
func sideBySide[K, V any](
	ctx context.Context, keys []K, read func(context.Context, K) (V, error),
) (found []V, refused []error, err error) {
	found, refused = make([]V, len(keys)), make([]error, len(keys))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, key := range keys {
		group.Go(func() (err error) {
			found[i], err = read(ctx, key)
			if fault.ReasonOf(err) == fault.Forbidden {
				refused[i], err = err, nil
			}
			return err
		})
	}
	return found, refused, group.Wait()
}

// get returns an object, or nil if it, its namespace or its kind is missing.
func (c *Cluster) get(ctx context.Context, id inventory.ID) (*unstructured.Unstructured, error) {
	o := empty(id)
	err := c.Reader.Get(ctx, types.NamespacedName{Namespace: id.Namespace, Name: id.Name}, o)
	if c.absent(ctx, id.Namespace, err) {
		return nil, nil //nolint:nilnil // absent is an answer
	}
	if err != nil {
		return nil, denied("read", id.Key, err)
	}
	return o, nil
}

// absent reports whether an error means a missing object. With a namespace its roles vanish, so reads there are
// forbidden.
func (c *Cluster) absent(ctx context.Context, namespace string, err error) bool {
	return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) || (apierrors.IsForbidden(err) && c.lost(ctx, namespace) != "")
}

// lost returns a message if a namespace is missing or being deleted, or "".
func (c *Cluster) lost(ctx context.Context, namespace string) string {
	if namespace == "" {
		return ""
	}
	ns := empty(inventory.ID{Key: inventory.Key{Kind: "Namespace", Name: namespace}, Version: "v1"})
	err := c.Reader.Get(ctx, types.NamespacedName{Name: namespace}, ns)
	switch {
	case apierrors.IsNotFound(err):
		return "namespace " + namespace + " is not there"
	case err == nil && !ns.GetDeletionTimestamp().IsZero():
		return "namespace " + namespace + " is being deleted"
	}
	return ""
}

// refused returns a fault for the API server's answer to a write. It names a missing namespace as the cause.
func (c *Cluster) refused(ctx context.Context, op string, key inventory.Key, err error) error {
	if apierrors.IsForbidden(err) {
		if lost := c.lost(ctx, key.Namespace); lost != "" {
			return fault.Errorf(fault.NotFound, "write to the cluster", "", // the same for each object: reported once
				"run `vdoctl deploy BUNDLE`; or create the namespace (driver-namespaces.yaml), then apply the operator's RBAC manifests",
				"%s", lost)
		}
	}
	return denied(op, key, err)
}

// denied returns a fault for an answer about one object. Its hint names what grants optional permissions, and how to
// change a class: the API server accepts no other parameters.
func denied(op string, key inventory.Key, err error) error {
	f := classify(op, key.String(), err)
	if f.Reason == fault.Forbidden && key.Group == mirrorset.Digests.Group && key.Kind == mirrorset.Digests.Kind {
		f.Hint = "apply the permissions: `vdo-bundle install-manifests BUNDLE --mirror-set | kubectl apply -f -`; " +
			"or set spec.openShift.mirrorSet of the VDOConfig to Check and apply a set yourself"
	}
	if f.Reason == fault.Incompatible && key.Kind == "StorageClass" {
		f.Hint = "give the class with the new settings another name; or delete this one, if nothing is to use it any more"
	}
	return f
}

func empty(id inventory.ID) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: id.Group, Version: id.Version, Kind: id.Kind})
	o.SetNamespace(id.Namespace)
	o.SetName(id.Name)
	return o
}

// DryRun asks the API server for the result of each object, without changes. It skips objects with a cached answer
// of no change. If namespace or kind is missing, the outcome is empty.
func (c *Cluster) DryRun(
	ctx context.Context, objects []render.Object, live plan.Live,
) (all map[inventory.Key]plan.Outcome, err error) {
	ctx, end := tracing.Span(ctx, "dry run")
	defer func() { end(err) }()
	outcomes, _, _ := sideBySide(ctx, objects, func(ctx context.Context, o render.Object) (plan.Outcome, error) { //nolint:errcheck // each outcome has its own
		return c.dryRun(ctx, o, live[plan.IDOf(o.Unstructured).Key]), nil
	})
	if err := ctx.Err(); err != nil {
		return nil, &fault.Error{Reason: fault.Interrupted, Op: "try", Subject: "the drivers' objects", Err: err}
	}
	all = make(map[inventory.Key]plan.Outcome, len(objects))
	for i, o := range objects {
		all[plan.IDOf(o.Unstructured).Key] = outcomes[i]
	}
	return all, nil
}

func (c *Cluster) dryRun(ctx context.Context, o render.Object, live *unstructured.Unstructured) plan.Outcome {
	q := c.ask(o, live)
	if _, known := unchanged.Get(q); known {
		return plan.Outcome{Object: live}
	}
	if trial := plan.Trial(live, o.Unstructured); trial != nil {
		if _, err := c.put(ctx, trial, render.Replace, trial, true); err != nil {
			return plan.Outcome{Err: c.refused(ctx, "try", plan.IDOf(trial).Key, err)}
		}
		return plan.Outcome{} // a comparison with the existing workload would mean nothing
	}
	would, err := c.put(ctx, o.Unstructured, o.Apply, live, true)
	switch {
	case err == nil:
		if live != nil && len(plan.Diff(live, would)) == 0 {
			unchanged.Set(q, nil, answerLasts)
		}
		return plan.Outcome{Object: would}
	case missingLocation(err):
		return plan.Outcome{}
	}
	return plan.Outcome{Err: c.refused(ctx, "try", plan.IDOf(o.Unstructured).Key, err)}
}

// missingLocation reports whether an object could not be tried because its namespace, kind or role does not exist
// yet. Without permission to bind roles, the API server looks the role up, and reports a missing one as a missing
// binding.
func missingLocation(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return meta.IsNoMatchError(err)
	}
	places := []string{"namespaces", "rolebindings", "clusterrolebindings"}
	return slices.Contains(places, status.Status().Details.Kind)
}

// put writes one object. It applies a missing one whatever its strategy, because a permission to create by name does
// not cover a plain create.
func (c *Cluster) put(ctx context.Context, o *unstructured.Unstructured, how render.Strategy, live *unstructured.Unstructured, dry bool) (*unstructured.Unstructured, error) {
	if how != render.Replace || live == nil {
		opts := []client.ApplyOption{client.FieldOwner(FieldManager), client.ForceOwnership}
		if dry {
			opts = append(opts, client.DryRunAll)
		}
		out := o.DeepCopy()
		err := c.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(out), opts...)
		return out, err
	}
	opts := []client.UpdateOption{client.FieldOwner(FieldManager)}
	if dry {
		opts = append(opts, client.DryRunAll)
	}
	out := plan.Merged(live, o)
	err := c.Client.Update(ctx, out, opts...)
	return out, err
}

// Apply executes a step and returns the new object. For Recreate, it deletes the existing object; the next reconcile
// creates it.
func (c *Cluster) Apply(
	ctx context.Context, s plan.Step, live *unstructured.Unstructured,
) (out *unstructured.Unstructured, err error) {
	ctx, end := tracing.Span(ctx, "apply",
		"object", s.Key.String(), "driver", string(s.Driver), "action", string(s.Action), "cause", string(s.Cause))
	defer func() { end(err) }()
	if s.Action == plan.Recreate {
		return nil, c.Delete(ctx, s)
	}
	if s.Adopts && s.Strategy != render.Replace && live != nil {
		if err := c.takeFields(ctx, live); err != nil {
			return nil, c.refused(ctx, "adopt", s.Key, err)
		}
	}
	out, err = c.put(ctx, s.Object, s.Strategy, live, false)
	if err != nil {
		return nil, c.refused(ctx, string(s.Action), s.Key, err)
	}
	return out, nil
}

// Amend writes an object that was read and changed, or a new one. It returns the new state.
func (c *Cluster) Amend(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	live := o
	if o.GetResourceVersion() == "" {
		live = nil
	}
	out, err := c.put(ctx, o, render.Replace, live, false)
	if err != nil {
		return nil, classify("change", plan.IDOf(o).Key.String(), err)
	}
	return out, nil
}

// controllers write defaults and state into objects; they keep their fields.
var controllers = []string{"kube-controller-manager", "kube-scheduler", "kubelet", "kube-apiserver"}

// takeFields moves the fields of tools to our manager, so that apply removes those that are no longer rendered.
func (c *Cluster) takeFields(ctx context.Context, live *unstructured.Unstructured) error {
	tools, taken := sets.New[string](), live.DeepCopy()
	fields := taken.GetManagedFields()
	for i, m := range fields {
		ours := m.Manager == FieldManager && m.Operation == metav1.ManagedFieldsOperationApply
		if ours || m.Subresource != "" || slices.Contains(controllers, m.Manager) {
			continue
		}
		// csaupgrade accepts updates only, and one entry per name.
		fields[i].Manager, fields[i].Operation = "tool-"+strconv.Itoa(i), metav1.ManagedFieldsOperationUpdate
		tools.Insert(fields[i].Manager)
	}
	if tools.Len() == 0 {
		return nil
	}
	taken.SetManagedFields(fields)
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(taken, tools, FieldManager)
	if err != nil || len(patch) == 0 {
		return err
	}
	return c.Client.Patch(ctx, empty(plan.IDOf(live)), client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(FieldManager))
}

// Delete requests an object's deletion once, if it is still the decided one. The object exists until its pods are
// gone; the caller reads to see that. Adoption by recreation does not wait, since a pod on an unreachable node would
// block it.
func (c *Cluster) Delete(ctx context.Context, s plan.Step) (err error) {
	ctx, end := tracing.Span(ctx, "delete", "object", s.Key.String(), "driver", string(s.Driver))
	defer func() { end(err) }()
	if s.Deleting {
		return nil
	}
	how := metav1.DeletePropagationForeground
	if s.AdoptsByRecreation() {
		how = metav1.DeletePropagationBackground
	}
	uid := types.UID(s.UID)
	opts := []client.DeleteOption{
		client.Preconditions{UID: &uid, ResourceVersion: &s.ResourceVersion},
		client.PropagationPolicy(how),
	}
	err = c.Client.Delete(ctx, empty(s.ID), opts...)
	if err == nil || c.absent(ctx, s.Namespace, err) {
		return nil
	}
	return denied("delete", s.Key, err)
}

// DeletePod deletes a driver's pod, if it is still the decided one; its DaemonSet creates another one.
func (c *Cluster) DeletePod(ctx context.Context, pod types.NamespacedName, uid types.UID) error {
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err := c.Client.Delete(ctx, o, client.Preconditions{UID: &uid})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return classify("delete", "Pod "+pod.String(), err)
}

// classify returns a fault for an API server's error.
func classify(op, subject string, err error) *fault.Error {
	if known := (*fault.Error)(nil); errors.As(err, &known) {
		return known
	}
	f := &fault.Error{Reason: fault.Internal, Op: op, Subject: subject, Err: err}
	var status apierrors.APIStatus
	switch {
	case fault.AdmissionHint(err) != "":
		f.Reason, f.Hint = fault.Refused, fault.AdmissionHint(err)
	case apierrors.IsForbidden(err):
		f.Reason = fault.Forbidden
		f.Hint = "apply the operator's RBAC manifests of this version, for its options too: rbac-antrea.yaml, rbac-classes.yaml. Or make an exception where pod security forbids it"
	case apierrors.IsUnauthorized(err):
		f.Reason, f.Hint = fault.Unauthorized, "check the operator's service account or kubeconfig"
	case apierrors.IsConflict(err):
		f.Reason = fault.Conflict
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		f.Reason = fault.Incompatible
		f.Hint = "the API server refuses it: see that the bundle is for this Kubernetes version; where a field is immutable, delete the object"
		if strings.Contains(err.Error(), "nodePort") {
			f.Hint = "choose another nodePort: a free one of the API server's range (--service-node-port-range)"
		}
	case apierrors.IsTooManyRequests(err):
		f.Reason = fault.Throttled
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err):
		f.Reason = fault.Unreachable
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		f.Reason = fault.Interrupted
	case !errors.As(err, &status) && !meta.IsNoMatchError(err):
		f.Reason, f.Hint = fault.Unreachable, "see that the API server can be reached"
	}
	if f.Reason == fault.Unreachable && strings.Contains(err.Error(), "failed calling webhook") {
		f.Hint = "an admission webhook does not answer: see to the pod behind it"
	}
	return f
}
