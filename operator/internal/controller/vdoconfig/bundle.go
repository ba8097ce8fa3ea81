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
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// observeBundle finds the bundle and opens it. Where that cannot be done, what is
// installed is repaired from the bundle that was last installed from.
func (p *pass) observeBundle(ctx context.Context) error {
	b, err := p.findBundle(ctx)
	if err == nil {
		p.site.bundle = b
		err = p.openBundle(ctx, b)
	}
	if p.site.contents != nil {
		return p.observeLogin(ctx)
	}
	if !p.openLast(ctx) {
		return p.notResolved(err)
	}
	p.hold(err)
	p.site.login, err = p.installedLogin(ctx)
	return err
}

// openBundle reads the contents of the accepted bundle, where there is one; else it
// is waited for.
func (p *pass) openBundle(ctx context.Context, b *v1alpha1.DriverBundle) error {
	if b.Status.Digest == "" {
		return p.notAccepted(b)
	}
	policy, err := p.Cluster.PolicyVersion(ctx, b)
	if err != nil {
		return err
	}
	p.verifiedBundle(b, policy)
	if fresh := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionFresh); fresh != nil && fresh.Status == metav1.ConditionFalse && b.Spec.AcceptOlder != b.Status.Digest {
		p.hold(&fault.Error{
			Reason: fault.Reason(fresh.Reason), Op: "install from", Subject: "DriverBundle " + b.Name, Err: errors.New(fresh.Message),
			Hint: "what is installed stays; push a newer bundle, or consent to this one by spec.acceptOlder of the DriverBundle",
		})
	}
	return p.readContents(ctx, b)
}

func (p *pass) readContents(ctx context.Context, b *v1alpha1.DriverBundle) error {
	contents, err := p.Store.Contents(ctx, b)
	if err != nil {
		return err
	}
	doc, err := p.matrices.parse("matrix of "+b.Status.Digest, contents.Matrix)
	if err != nil {
		return err
	}
	p.site.bundle, p.site.contents, p.site.matrix = b, contents, doc
	return nil
}

// openLast opens the bundle that was last installed from, while anything is installed. Its
// DriverBundle may have been deleted, or have accepted another one since: then it is
// read as its digest says, from memory, from a copy that is left or from the mirror.
func (p *pass) openLast(ctx context.Context) bool {
	reference := cmp.Or(p.config.Status.Bundle, p.site.inventory.Memory().Bundle)
	repository, digest, ok := strings.Cut(reference, "@")
	if b := p.site.bundle; !ok || p.site.inventory.Len() == 0 || (b != nil && b.Status.Digest == digest && b.Status.Repository == repository) {
		return false // it is the one that could not be opened
	}
	last := &v1alpha1.DriverBundle{}
	last.Namespace, last.Spec.Reference = p.name.Namespace, reference
	if ref := p.config.Spec.Bundle; ref != nil {
		last.Name = ref.Name
	}
	var all v1alpha1.DriverBundleList
	if err := p.Client.List(ctx, &all, client.InNamespace(p.name.Namespace)); err != nil {
		return false
	}
	for i := range all.Items {
		if st := &all.Items[i].Status; st.Digest == digest && st.Repository == repository {
			last = all.Items[i].DeepCopy()
		}
	}
	last.Status.Digest, last.Status.Repository = digest, repository
	return p.readContents(ctx, last) == nil
}

// verifiedBundle holds installations and upgrades where the accepted bundle's
// signature is not good under the trust policy of now, or was not held against it yet.
func (p *pass) verifiedBundle(b *v1alpha1.DriverBundle, policy string) {
	verified := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionVerified)
	switch {
	case verified == nil || verified.ObservedGeneration != b.Generation,
		verified.Status == metav1.ConditionTrue && b.Status.VerifiedPolicy != policy:
		p.outcome.waiting = "DriverBundle " + b.Name + " is being verified"
	case verified.Status != metav1.ConditionTrue:
		p.hold(&fault.Error{
			Reason: fault.Reason(verified.Reason), Op: "install from", Subject: "DriverBundle " + b.Name, Err: errors.New(verified.Message),
			Hint: "what is installed stays and is repaired; push a bundle that the trust policy accepts, or correct the policy",
		})
	}
}

// notResolved notes why nothing can be chosen; the pass goes on to assess.
func (p *pass) notResolved(err error) error {
	p.outcome.resolved = fault.Join(p.outcome.resolved, err)
	return nil
}

// at notes an error of reading a driver's place as that driver's fault, where it is
// about the place; else it is returned.
func (p *pass) at(d matrix.Driver, err error) error {
	if fault.ReasonOf(err) != fault.Forbidden {
		return err
	}
	p.fault(d, err)
	return nil
}

func (p *pass) fault(d matrix.Driver, err error) {
	if p.site.faults == nil {
		p.site.faults = map[matrix.Driver]error{}
	}
	p.site.faults[d] = fault.Join(p.site.faults[d], err)
}

// hold keeps new installations and upgrades back.
func (p *pass) hold(err error) { p.site.hold = fault.Join(p.site.hold, err) }

// findBundle returns the bundle named, or the only one there is.
func (p *pass) findBundle(ctx context.Context) (*v1alpha1.DriverBundle, error) {
	var all v1alpha1.DriverBundleList
	if err := p.Client.List(ctx, &all, client.InNamespace(p.name.Namespace)); err != nil {
		return nil, &fault.Error{Reason: fault.Unreachable, Op: "list", Subject: "DriverBundles", Err: err}
	}
	if ref := p.config.Spec.Bundle; ref != nil {
		for i := range all.Items {
			if all.Items[i].Name == ref.Name {
				return &all.Items[i], nil
			}
		}
		return nil, &fault.Error{
			Reason: fault.NotFound, Op: "find", Subject: "DriverBundle " + ref.Name, Err: fmt.Errorf("namespace %s has none of that name", p.name.Namespace),
			Hint: "correct spec.bundle.name, or create the DriverBundle",
		}
	}
	switch len(all.Items) {
	case 1:
		return &all.Items[0], nil
	case 0:
		return nil, &fault.Error{
			Reason: fault.NotFound, Op: "find", Subject: "DriverBundle", Err: fmt.Errorf("namespace %s has none", p.name.Namespace),
			Hint: "create a DriverBundle whose spec.reference is the bundle in the mirror",
		}
	}
	names := make([]string, 0, len(all.Items))
	for i := range all.Items {
		names = append(names, all.Items[i].Name)
	}
	slices.Sort(names)
	return nil, &fault.Error{
		Reason: fault.InvalidInput, Op: "choose", Subject: "DriverBundle", Err: fmt.Errorf("there are %d: %v", len(names), names),
		Hint: "name one in spec.bundle.name",
	}
}

// notAccepted says why a bundle cannot be installed from; one that was not looked
// at yet is only waited for.
func (p *pass) notAccepted(b *v1alpha1.DriverBundle) error {
	ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		p.outcome.waiting = "DriverBundle " + b.Name + " is being verified"
		return nil
	}
	return &fault.Error{
		Reason: fault.Reason(ready.Reason), Op: "install from", Subject: "DriverBundle " + b.Name,
		Hint: "see to the DriverBundle first", Err: errors.New(ready.Message),
	}
}
