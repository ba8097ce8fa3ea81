package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/anew"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
)

// replace deletes an object and makes it anew. Killed in between, the next pass makes it.
func (c *Cluster) replace(ctx context.Context, s plan.Step, live *unstructured.Unstructured) (out *unstructured.Unstructured, err error) {
	err = anew.Make(ctx, c.Client, c.Reader, live.DeepCopy(), func() error {
		out, err = c.put(ctx, s.Object, s.Strategy, nil, false)
		return err
	})
	if err != nil {
		return nil, c.refused(ctx, string(s.Action), s.Key, err)
	}
	return out, nil
}

// tryAnew asks whether a workload that is to be made anew would be accepted. What it would be cannot
// be compared with the one that is there.
func (c *Cluster) tryAnew(ctx context.Context, trial *unstructured.Unstructured) plan.Outcome {
	key := plan.IDOf(trial).Key
	if err := c.Client.Update(ctx, trial, client.FieldOwner(FieldManager), client.DryRunAll); err != nil {
		return plan.Outcome{Err: c.refused(ctx, "try", key, err)}
	}
	return plan.Outcome{}
}

// madeImmutable tells whether an API server refuses a change for nothing but that somebody has
// made the ConfigMap or Secret immutable.
func madeImmutable(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	causes := status.Status().Details.Causes
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(c metav1.StatusCause) bool {
		return !strings.Contains(c.Message, "field is immutable when `immutable` is set")
	})
}
