package sipcluster

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
)

// ClusterRoles that the operator binds in each namespace that it creates: to itself, and to the namespace's default
// account, which only Dex uses.
const (
	servicesRole = "vdo-sip-services"
	dexRole      = "vdo-sip-dex"
)

// prepare creates the services' namespace and the operator's permissions in it, and reads its objects. It returns the
// reason to wait for the next reconcile, "" for none.
func (p *pass) prepare(ctx context.Context) (waits string, err error) {
	ns, err := p.findNamespace(ctx)
	switch {
	case err != nil:
		return "", err
	case ns == nil:
		return "creating namespace " + p.home, p.createNamespace(ctx)
	case !ns.DeletionTimestamp.IsZero():
		return "waiting for the deletion of namespace " + ns.Name, nil
	}
	if p.known.bound != ns.UID {
		created, err := p.bind(ctx)
		if err != nil {
			return "", err
		}
		p.known.bound = ns.UID
		if created {
			return "waiting for the operator's permissions in namespace " + p.home, nil
		}
	}
	all, err := p.read(ctx, p.home)
	switch {
	case err == nil:
		p.objects = all
	case fault.ReasonOf(err) == fault.Forbidden:
		p.known.bound = "" // the RoleBinding may be gone
	}
	return "", err
}

// findNamespace returns the services' namespace, nil if none exists. It refuses a foreign namespace of that name.
func (p *pass) findNamespace(ctx context.Context) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	err := p.Reader.Get(ctx, types.NamespacedName{Name: p.home}, ns)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, p.homeFault("read", err)
	case ns.Annotations[airship.AnnotationServicesOf] != p.key.String():
		return nil, fault.Errorf(fault.Refused, "use", "namespace "+p.home, "delete that namespace",
			"the operator did not create it for this SIPCluster")
	}
	return ns, nil
}

func (p *pass) createNamespace(ctx context.Context) error {
	labels := p.labels()
	for _, mode := range []string{"enforce", "warn"} {
		labels["pod-security.kubernetes.io/"+mode] = "restricted"
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: p.home, Labels: labels, Annotations: map[string]string{airship.AnnotationServicesOf: p.key.String()},
	}}
	return p.homeFault("create", p.Client.Create(ctx, ns, client.FieldOwner(cluster.FieldManager)))
}

// bind gives the operator's account, and Dex, their permissions in the services' namespace.
func (p *pass) bind(ctx context.Context) (created bool, err error) {
	self := &authenticationv1.SelfSubjectReview{}
	if err := p.Client.Create(ctx, self); err != nil {
		return false, asked("read", "the operator's own account", err)
	}
	subjects := []rbacv1.Subject{
		{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: self.Status.UserInfo.Username},
		{Kind: rbacv1.ServiceAccountKind, Namespace: p.home, Name: "default"},
	}
	for i, role := range []string{servicesRole, dexRole} {
		err = p.Client.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.home, Name: role, Labels: p.labels()},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   subjects[i : i+1],
		}, client.FieldOwner(cluster.FieldManager))
		if apierrors.IsNotFound(err) { // the ClusterRole is missing: the manifests are of an earlier release
			err = apierrors.NewForbidden(rbacv1.Resource("clusterroles"), role, err)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return false, p.homeFault("create a RoleBinding in", err)
		}
		created = created || err == nil
	}
	return created, nil
}

// isolation denies all traffic of pods that no other NetworkPolicy selects.
func (p *pass) isolation() *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"podSelector": map[string]any{}, "policyTypes": []any{"Ingress", "Egress"},
	}}}
	o.SetGroupVersionKind(networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"))
	o.SetName("default-deny")
	p.mark(o)
	return o
}

// removeNamespace deletes the services' namespace, and returns what it waits for. It returns "" if none exists or the
// one of that name is foreign: then no pod of a service runs.
func (p *pass) removeNamespace(ctx context.Context) (waits string, err error) {
	ns, err := p.findNamespace(ctx)
	if fault.ReasonOf(err) == fault.Refused {
		return "", nil
	}
	if err != nil || ns == nil {
		return "", err
	}
	if ns.DeletionTimestamp.IsZero() {
		err := p.Client.Delete(ctx, ns, client.Preconditions{UID: &ns.UID})
		if client.IgnoreNotFound(err) != nil {
			return "", p.homeFault("delete", err)
		}
	}
	return "waiting for the deletion of namespace " + ns.Name, nil
}

func (p *pass) homeFault(op string, err error) error { return asked(op, "namespace "+p.home, err) }
