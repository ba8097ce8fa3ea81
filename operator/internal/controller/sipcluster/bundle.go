package sipcluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

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

// Accepted is the bundle of the only DriverBundle in the operator's namespace, as package
// driverbundle has accepted it. Its fields are required, but for AllowOther.
type Accepted struct {
	Reader    client.Reader // of DriverBundles
	Secrets   client.Reader // past every cache
	Namespace string
	Store     Store
	// FloorID identifies the operator's own trust policy, as package driverbundle has it.
	FloorID string
	// AllowOther lets resources name images that are not in the bundle.
	AllowOther bool
}

// Store has the contents of accepted bundles.
type Store interface {
	Contents(ctx context.Context, b *v1alpha1.DriverBundle) (*bundle.Contents, error)
}

// Open reads the bundle. Where there is none, images that resources name may be had all the
// same, if others than the bundle's are allowed; where it cannot be used, none may.
func (a *Accepted) Open(ctx context.Context) (services.Images, []byte, error) {
	images, login, err := a.open(ctx)
	if a.AllowOther && errors.Is(err, errNoBundle) {
		return &locked{lock: &bundle.Lock{}, matrix: &matrix.Document{}, other: true}, nil, err
	}
	return images, login, err
}

func (a *Accepted) open(ctx context.Context) (services.Images, []byte, error) {
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
	return &locked{lock: contents.Lock, matrix: doc, repository: b.Status.Repository, other: a.AllowOther}, login, nil
}

// errNoBundle is that the site has no DriverBundle.
var errNoBundle = errors.New("there is no DriverBundle, and one is needed")

func (a *Accepted) find(ctx context.Context) (*v1alpha1.DriverBundle, error) {
	var all v1alpha1.DriverBundleList
	if err := a.Reader.List(ctx, &all, client.InNamespace(a.Namespace)); err != nil {
		return nil, &fault.Error{Reason: fault.Unreachable, Op: "list", Subject: "DriverBundles", Err: err}
	}
	if len(all.Items) == 1 {
		return &all.Items[0], nil
	}
	why := errNoBundle
	if n := len(all.Items); n > 0 {
		why = fmt.Errorf("there are %d DriverBundles, and one is needed", n)
	}
	return nil, fault.Errorf(fault.NotFound, "find", "DriverBundle",
		"have one DriverBundle in that namespace, whose spec.reference is a bundle with the services",
		"namespace %s: %w", a.Namespace, why)
}

// verified lets a bundle be used that was accepted and satisfies the trust policy of now:
// policy is its version (see [source.PolicyVersion]).
func verified(b *v1alpha1.DriverBundle, policy string) error {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionVerified)
	f := &fault.Error{Reason: fault.Incomplete, Op: "use", Subject: "DriverBundle " + b.Name, Err: errors.New("it is being verified")}
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

// login is what the mirror let in; none where it needs none.
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

// locked are the images of a bundle, at the mirror.
type locked struct {
	lock       *bundle.Lock
	matrix     *matrix.Document
	repository string
	other      bool
}

// releases are the names of the services' releases in a lock.
var releases = map[services.Kind]matrix.Driver{
	services.LoadBalancerControlPlane: matrix.HAProxy,
	services.LoadBalancerWorker:       matrix.HAProxy,
	services.Auth:                     matrix.Dex,
	services.JumpHost:                 bundle.JumpHost,
}

// Image returns an image of the bundle by digest: of a service's releases there the one that
// the matrix chooses.
func (l *locked) Image(kind services.Kind, asked string) (string, error) {
	if asked != "" {
		return l.named(kind, asked)
	}
	i, _, err := l.lock.Service(releases[kind], l.matrix)
	if err != nil {
		return "", err
	}
	return l.repository + "@" + i.Digest.String(), nil
}

// named finds an image that a resource names: as upstream calls it, or at the mirror.
func (l *locked) named(kind services.Kind, asked string) (string, error) {
	for _, i := range l.lock.Images {
		at := l.repository + "@" + i.Digest.String()
		ref := i.Reference.String()
		if asked == at || asked == ref || ref == "docker.io/"+asked || ref == "docker.io/library/"+asked || strings.HasPrefix(ref, asked+"@") {
			return at, nil
		}
	}
	if l.other {
		return asked, nil
	}
	return "", fault.Errorf(fault.Refused, "use image", asked,
		"take the field image away to run the bundle's; or start the operator with --allow-other-images",
		"it is not in the bundle: services.%s", kind)
}
