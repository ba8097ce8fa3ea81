package sipcluster

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/source"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/store"
)

// Accepted is the bundle of the only DriverBundle in the operator's namespace, once package driverbundle has accepted
// it. Its fields are required.
type Accepted struct {
	Reader    client.Reader // of DriverBundles
	Secrets   client.Reader // uncached
	Namespace string
	Store     *store.Store
	// FloorID identifies the operator's own trust policy, as in package driverbundle.
	FloorID string
}

// Open returns the bundle's images and its pull secret.
func (a *Accepted) Open(ctx context.Context) (services.Images, []byte, error) {
	b, err := a.find(ctx)
	if err != nil {
		return nil, nil, err
	}
	policy, err := source.PolicyVersion(ctx, a.Secrets, b, a.FloorID)
	if err == nil {
		err = verified(b, policy)
	}
	if err != nil {
		return nil, nil, err
	}
	contents, err := a.Store.Contents(ctx, b)
	if fault.ReasonOf(err) == fault.Incomplete { // it passes: the mirror may have the rest soon
		err = &fault.Error{Reason: fault.Unreachable, Op: "read", Subject: "DriverBundle " + b.Name, Err: err}
	}
	if err != nil {
		return nil, nil, err
	}
	login, err := a.login(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	doc, err := store.ParseMatrix(b.Status.Digest, contents)
	if err != nil {
		return nil, nil, err
	}
	return imagesOf(contents.Lock, doc, b.Status.Repository), login, nil
}

// imagesOf returns a bundle's images at the mirror. The matrix chooses among a service's releases.
func imagesOf(lock *bundle.Lock, doc *matrix.Document, repository string) services.Images {
	return func(kind services.Kind) (string, error) {
		i, _, err := lock.Service(releases[kind], doc)
		if err != nil {
			return "", err
		}
		return repository + "@" + i.Digest.String(), nil
	}
}

func (a *Accepted) find(ctx context.Context) (*v1alpha1.DriverBundle, error) {
	var all v1alpha1.DriverBundleList
	if err := a.Reader.List(ctx, &all, client.InNamespace(a.Namespace)); err != nil {
		return nil, &fault.Error{Reason: fault.Unreachable, Op: "list", Subject: "DriverBundles", Err: err}
	}
	if len(all.Items) == 1 {
		return &all.Items[0], nil
	}
	return nil, fault.Errorf(fault.NotFound, "find", "DriverBundle",
		"have one DriverBundle in that namespace, whose spec.reference is a bundle with the services",
		"namespace %s has %d DriverBundles, and one is needed", a.Namespace, len(all.Items))
}

// verified returns an error unless the bundle was accepted and satisfies the current trust policy. policy is its
// version (see [source.PolicyVersion]).
func verified(b *v1alpha1.DriverBundle, policy string) error {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionVerified)
	// A reason that passes by itself, see condition.Passing.
	f := &fault.Error{Reason: fault.Unreachable, Op: "use", Subject: "DriverBundle " + b.Name, Err: errors.New("it is being verified")}
	switch {
	case c == nil || c.ObservedGeneration != b.Generation || c.Status == metav1.ConditionUnknown,
		c.Status == metav1.ConditionTrue && b.Status.VerifiedPolicy != policy:
		return f
	case c.Status != metav1.ConditionTrue:
		f.Reason, f.Err, f.Hint = fault.Untrusted, errors.New(c.Message), "push a bundle that the trust policy accepts, or correct the policy"
		return f
	case b.Status.Digest == "":
		f.Err, f.Hint = errors.New("none was accepted yet"), "see the conditions of the DriverBundle"
		return f
	}
	return nil
}

// login returns the pull secret that the mirror accepted; nil if it needs none.
func (a *Accepted) login(ctx context.Context, b *v1alpha1.DriverBundle) ([]byte, error) {
	name, _ := b.PullSecretName()
	d, err := source.Read(ctx, a.Secrets, a.Namespace, v1alpha1.KeyReference{Secret: name})
	if client.IgnoreNotFound(err) != nil {
		return nil, &fault.Error{Reason: fault.Unreachable, Op: "read pull secret", Subject: a.Namespace + "/" + name, Err: err}
	}
	if err != nil || d.Version != b.Status.VerifiedLogin {
		return nil, nil //nolint:nilerr // one that the mirror has not let in is given to nobody
	}
	return d.Values[corev1.DockerConfigJsonKey], nil
}

// releases are the names of the services' releases in a lock.
var releases = map[services.Kind]matrix.Driver{
	services.LoadBalancerControlPlane: matrix.HAProxy,
	services.LoadBalancerWorker:       matrix.HAProxy,
	services.Auth:                     matrix.Dex,
	services.JumpHost:                 bundle.JumpHost,
}
