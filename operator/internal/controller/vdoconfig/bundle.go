package vdoconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
)

// gatherBundle finds the bundle and opens it. Where that cannot be done, what is
// installed is repaired from the bundle that was last installed from.
func (g *gatherer) gatherBundle(ctx context.Context) error {
	b, err := g.findBundle(ctx)
	if err == nil {
		g.follows = b.Name
		g.bundle, err = g.openAccepted(ctx, b)
	}
	if g.bundle != nil {
		return g.gatherLogin(ctx)
	}
	last, unopened := g.openLast(ctx, b)
	if last == nil {
		g.unresolved = fault.Join(err, unopened) // the pass goes on to assess
		return nil
	}
	g.bundle = last
	g.holdBundle(err)
	g.login, err = g.installedLogin(ctx)
	return err
}

// openAccepted reads the accepted bundle, where there is one; else it is waited for.
func (g *gatherer) openAccepted(ctx context.Context, b *v1alpha1.DriverBundle) (*opened, error) {
	if b.Status.Digest == "" {
		return nil, g.notAccepted(b)
	}
	policy, err := g.Cluster.PolicyVersion(ctx, b)
	if err != nil {
		return nil, err
	}
	verified := g.verifiedBundle(b, policy)
	if fresh := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionFresh); fresh != nil && fresh.Status == metav1.ConditionFalse && b.Spec.AcceptOlder != b.Status.Digest {
		g.stale = &fault.Error{
			Reason: fault.Reason(fresh.Reason), Op: "install from", Subject: "DriverBundle " + b.Name, Err: errors.New(fresh.Message),
			Hint: "what is installed stays; push a newer bundle, or accept this one in spec.acceptOlder of the DriverBundle",
		}
		g.holdBundle(g.stale)
	}
	source := b.DeepCopy()
	source.Spec.ImageNames = g.imageNames(b, b.Status.Repository+"@"+b.Status.Digest)
	o, err := g.open(ctx, source)
	if err != nil {
		return nil, err
	}
	o.policy, o.verified = policy, verified
	return o, nil
}

func (g *gatherer) open(ctx context.Context, b *v1alpha1.DriverBundle) (*opened, error) {
	contents, err := g.Store.Contents(ctx, b)
	if err != nil {
		return nil, err
	}
	doc, err := g.matrices.parse("matrix of "+b.Status.Digest, contents.Matrix)
	if err != nil {
		return nil, err
	}
	return &opened{source: b, contents: contents, matrix: doc}, nil
}

// openLast opens the bundle that was last installed from, while anything is installed, if it is not
// the one given, which could not be opened; nil where it is, or nothing is installed.
func (g *gatherer) openLast(ctx context.Context, b *v1alpha1.DriverBundle) (*opened, error) {
	reference := lastFrom(g.config, g.inventory)
	if reference == "" || g.inventory.Len() == 0 || (b != nil && b.Status.Repository+"@"+b.Status.Digest == reference) {
		return nil, nil
	}
	o, err := g.openSource(ctx, reference)
	if err != nil {
		return nil, &fault.Error{Reason: fault.ReasonOf(err), Op: "repair from", Subject: reference, Err: err, Hint: "what runs stays, and is not repaired until the bundle that it came from, or another one that is accepted, can be read"}
	}
	return o, nil
}

// imageNames is how pods name the images of a bundle: as the DriverBundle says while it refers
// to the bundle's repository, whose layout it speaks of; else as they were last named when
// that was in force. To another mirror images may have been pushed another way.
func (g *gatherer) imageNames(b *v1alpha1.DriverBundle, bundle string) v1alpha1.ImageNames {
	repository, _, _ := strings.Cut(bundle, "@")
	if b != nil {
		if ref, err := image.ParseReference(b.Spec.Reference); err == nil && ref.Repository() == repository {
			return b.Spec.ImageNames
		}
	}
	memory := g.inventory.Memory()
	if memory.Bundle == bundle {
		return memory.ImageNames
	}
	for _, r := range slices.Backward(memory.Revisions.Records) {
		if r.Bundle == bundle {
			return r.ImageNames
		}
	}
	return memory.ImageNames
}

// lastFrom is the bundle that the drivers were last installed from, "" before there are
// any. It is kept in the inventory, which is written before anything else is, and in the
// status: either may be lost.
func lastFrom(config *v1alpha1.VDOConfig, inv inventory.Inventory) string {
	return cmp.Or(inv.Memory().Bundle, config.Status.Bundle)
}

// verifiedBundle holds installations and upgrades where the accepted bundle's
// signature is not good under the trust policy of now, or was not held against it yet; it
// tells whether it is good.
func (g *gatherer) verifiedBundle(b *v1alpha1.DriverBundle, policy string) bool {
	verified := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionVerified)
	switch {
	case verified == nil || verified.ObservedGeneration != b.Generation,
		verified.Status == metav1.ConditionTrue && b.Status.VerifiedPolicy != policy:
		g.waiting, g.bundleHeld = "DriverBundle "+b.Name+" is being verified", true
	case verified.Status != metav1.ConditionTrue:
		g.holdBundle(&fault.Error{
			Reason: fault.Reason(verified.Reason), Op: "install from", Subject: "DriverBundle " + b.Name, Err: errors.New(verified.Message),
			Hint: "what is installed stays and is repaired; push a bundle that the trust policy accepts, or correct the policy",
		})
	default:
		return true
	}
	return false
}

// findBundle returns the bundle named, or the only one there is.
func (g *gatherer) findBundle(ctx context.Context) (*v1alpha1.DriverBundle, error) {
	return FindBundle(ctx, g.Client, g.config)
}

// FindBundle returns the DriverBundle that a VDOConfig names, or the only one there is.
func FindBundle(ctx context.Context, c client.Reader, config *v1alpha1.VDOConfig) (*v1alpha1.DriverBundle, error) {
	namespace := config.Namespace
	var all v1alpha1.DriverBundleList
	if err := c.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return nil, &fault.Error{Reason: fault.Unreachable, Op: "list", Subject: "DriverBundles", Err: err}
	}
	if ref := config.Spec.Bundle; ref != nil {
		for i := range all.Items {
			if all.Items[i].Name == ref.Name {
				return &all.Items[i], nil
			}
		}
		return nil, &fault.Error{
			Reason: fault.NotFound, Op: "find", Subject: "DriverBundle " + ref.Name, Err: fmt.Errorf("namespace %s has no DriverBundle of that name", namespace),
			Hint: "correct spec.bundle.name, or create the DriverBundle",
		}
	}
	switch len(all.Items) {
	case 1:
		return &all.Items[0], nil
	case 0:
		return nil, &fault.Error{
			Reason: fault.NotFound, Op: "find", Subject: "DriverBundle", Err: fmt.Errorf("namespace %s has no DriverBundle", namespace),
			Hint: "create a DriverBundle whose spec.reference is the bundle in the mirror",
		}
	}
	names := make([]string, 0, len(all.Items))
	for i := range all.Items {
		names = append(names, all.Items[i].Name)
	}
	slices.Sort(names)
	return nil, &fault.Error{
		Reason: fault.InvalidInput, Op: "choose", Subject: "DriverBundle", Err: fmt.Errorf("namespace %s has %d: %s", namespace, len(names), few(names)),
		Hint: "name one in spec.bundle.name",
	}
}

// notAccepted says why a bundle cannot be installed from; one that was not looked
// at yet is only waited for.
func (g *gatherer) notAccepted(b *v1alpha1.DriverBundle) error {
	ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		g.waiting = "DriverBundle " + b.Name + " is being verified"
		return nil
	}
	return &fault.Error{
		Reason: fault.Reason(ready.Reason), Op: "install from", Subject: "DriverBundle " + b.Name,
		Hint: "correct what the DriverBundle's conditions name first", Err: errors.New(ready.Message),
	}
}
