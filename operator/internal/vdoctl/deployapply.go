package vdoctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
)

// fieldManager owns what is applied.
const fieldManager = "vdoctl"

// operatorDeployment is the name of the operator's Deployment.
const operatorDeployment = "vdo-operator"

// What became of an object.
const (
	stateCreated, stateChanged, stateAdopted, stateUnchanged, stateKept = "created", "changed", "adopted", "unchanged", "kept"
)

// parsed reads manifests, for the namespace that was asked for. The drivers' namespaces come first:
// they are in no manifests, which are deleted again.
func (o *deployOptions) parsed(name string, data []byte) ([]client.Object, error) {
	data = bytes.ReplaceAll(data, []byte(operatorNamespace), []byte(o.cluster.namespace))
	objects, err := readManifest(data)
	installs := false
	for i, x := range objects {
		if x.GetObjectKind().GroupVersionKind().Version == "" || kindOf(x) == "" || x.GetName() == "" {
			err = fmt.Errorf("document %d has no apiVersion, kind or name", i+1)
			break
		}
		installs = installs || kindOf(x) == "Deployment" && x.GetNamespace() == o.cluster.namespace && x.GetName() == operatorDeployment
	}
	if err == nil && !installs {
		err = fmt.Errorf("it does not have the operator: Deployment %s/%s", o.cluster.namespace, operatorDeployment)
	}
	if err != nil {
		return nil, &fault.Error{Reason: fault.InvalidInput, Op: "read install manifests", Subject: name, Err: err, Hint: "write them with `vdo-bundle install-manifests`"}
	}
	namespaces, err := readManifest(deploy.DriverNamespaces().Data)
	return append(namespaces, objects...), err
}

// apply applies an object by server-side apply. Access that is there already is the site's.
func (o *deployOptions) apply(ctx context.Context, c client.Client, x client.Object) (string, error) {
	u, manifest := x.(*unstructured.Unstructured)
	if !manifest {
		return o.create(ctx, c, x)
	}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(u.GroupVersionKind())
	err := c.Get(ctx, client.ObjectKeyFromObject(u), live)
	if err != nil && !isGone(err) {
		return "", clusterFault("read "+describeObject(u), err)
	}
	before := live.GetResourceVersion()
	opts := []client.ApplyOption{client.FieldOwner(fieldManager)}
	if o.force {
		opts = append(opts, client.ForceOwnership)
	}
	if o.dryRun {
		opts = append(opts, client.DryRunAll)
	}
	switch err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), opts...); {
	case err == nil && before == "", o.dryRun && isGone(err): // its namespace or kind comes before it
		return stateCreated, nil
	case apierrors.IsConflict(err):
		return "", &fault.Error{Reason: fault.Conflict, Op: "apply", Subject: describeObject(u), Err: errors.New(strings.ReplaceAll(err.Error(), "\n", " ")),
			Hint: "see whether these fields are meant to be as they are; take them over with --force-conflicts"}
	case err != nil:
		return "", clusterFault("apply "+describeObject(u), err)
	case !sameButBookkeeping(live, u):
		return stateChanged, nil
	case ownedFields(live) != ownedFields(u):
		return stateAdopted, nil
	}
	return stateUnchanged, nil
}

// ownedFields are those that are set by what is applied here.
func ownedFields(u *unstructured.Unstructured) string {
	for _, m := range u.GetManagedFields() {
		if m.Manager == fieldManager && m.Operation == metav1.ManagedFieldsOperationApply && m.FieldsV1 != nil {
			return m.FieldsV1.String()
		}
	}
	return ""
}

// sameButBookkeeping tells whether an object is the same apart from who set what, and when.
func sameButBookkeeping(a, b *unstructured.Unstructured) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, u := range []*unstructured.Unstructured{a, b} {
		u.SetManagedFields(nil)
		u.SetResourceVersion("")
		u.SetGeneration(0)
	}
	left, errA := a.MarshalJSON()
	right, errB := b.MarshalJSON()
	return errA == nil && errB == nil && bytes.Equal(left, right)
}

func (o *deployOptions) create(ctx context.Context, c client.Client, x client.Object) (string, error) {
	opts := []client.CreateOption{client.FieldOwner(fieldManager)}
	if o.dryRun {
		opts = append(opts, client.DryRunAll)
	}
	switch err := c.Create(ctx, x, opts...); {
	case apierrors.IsAlreadyExists(err):
		return stateKept, nil
	case err != nil && (!o.dryRun || !isGone(err)):
		return "", clusterFault("create "+describeObject(x), err)
	}
	return stateCreated, nil
}

// waitReady waits until the operator's pods run as they were asked to.
func (o *deployOptions) waitReady(ctx context.Context, c client.Client) error {
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	p := o.progress()
	defer p.end()
	for {
		why, err := o.notReady(ctx, c) // a request that would outlast the limit says so in its own words
		if err != nil || why == "" {
			return err
		}
		p.show("waiting for Deployment " + operatorDeployment + ": " + why)
		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &fault.Error{Reason: fault.Incomplete, Op: "wait for the operator", Subject: o.cluster.namespace + "/" + operatorDeployment, Err: fmt.Errorf("it does not run after %s: %s", o.timeout, why),
				Hint: "see `kubectl -n " + o.cluster.namespace + " describe pods`; then run the same command again"}
		case <-time.After(pollEvery):
		}
	}
}

// notReady says why the operator does not run yet, "" where it does.
func (o *deployOptions) notReady(ctx context.Context, c client.Client) (string, error) {
	var d appsv1.Deployment
	if err := c.Get(ctx, client.ObjectKey{Namespace: o.cluster.namespace, Name: operatorDeployment}, &d); err != nil {
		return "", clusterFault("read the operator's Deployment", err)
	}
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	st := d.Status
	if st.ObservedGeneration >= d.Generation && st.UpdatedReplicas >= want && st.AvailableReplicas >= want && st.Replicas == st.UpdatedReplicas {
		return "", nil
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
		return "", clusterFault("read the operator's pods", err)
	}
	why := fmt.Sprintf("%d of %d pods are up", st.AvailableReplicas, want)
	for i := range pods.Items {
		if w := waitingFor(&pods.Items[i]); w != "" {
			return why + "; " + w, nil
		}
	}
	return why, nil
}

// waitingFor says what a pod waits for.
func waitingFor(p *corev1.Pod) string {
	for _, s := range p.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil {
			return p.Name + ": " + strings.TrimSpace(w.Reason+" "+w.Message)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue && c.Message != "" {
			return p.Name + ": " + c.Message
		}
	}
	return ""
}
