package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
)

// Account is the service account of an operator, with its shipped permissions.
type Account struct {
	namespace, name string
	manifests       func() []deploy.Manifest
	// asShipped are the manifests of its permissions that do not depend on the namespace of the installation.
	asShipped []string
}

var (
	// Operator is the account of the operator of drivers.
	Operator = Account{"vmware-system-vdo", "vdo-operator", withDriverNamespaces,
		[]string{"driver-namespaces.yaml", "namespaces.yaml", "rbac.yaml", deploy.RightsPolicy}}
	// SIPOperator is the account of the operator of SIPClusters.
	SIPOperator = Account{"vmware-system-sip", "vdo-operator-sip", deploy.SIPManifests,
		[]string{"sip-namespace.yaml", "sip-rbac.yaml", "sip-policy.yaml"}}
)

func withDriverNamespaces() []deploy.Manifest {
	return append([]deploy.Manifest{deploy.DriverNamespaces()}, deploy.Manifests()...)
}

// Config returns cfg, an administrator's, for the account: it has only the permissions from [Account.Grant] and
// similar.
func (a Account) Config(cfg *rest.Config) *rest.Config {
	as := rest.CopyConfig(cfg)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: a.user(),
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + a.namespace, "system:authenticated"},
	}
	return as
}

// Namespace returns the account's namespace.
func (a Account) Namespace() string { return a.namespace }

func (a Account) user() string { return "system:serviceaccount:" + a.namespace + ":" + a.name }

// Within returns [Account.Config], and the requests of it that the API server refused.
func (a Account) Within(cfg *rest.Config) (*rest.Config, *Refused) {
	as, refused := a.Config(cfg), &Refused{}
	as.Wrap(func(next http.RoundTripper) http.RoundTripper { return noting{next, refused} })
	return as, refused
}

// Refused are the requests that the account lacked permission for, even if the program hid the error.
type Refused struct {
	mu  sync.Mutex
	all []string
}

// None fails the test if any request was refused.
func (r *Refused) None(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) > 0 {
		t.Errorf("the account has no right to:\n%s", strings.Join(slices.Compact(slices.Sorted(slices.Values(r.all))), "\n"))
	}
}

// Forget clears the requests: another test uses the account.
func (r *Refused) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = nil
}

type noting struct {
	http.RoundTripper
	refused *Refused
}

func (n noting) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := n.RoundTripper.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusForbidden {
		n.refused.mu.Lock()
		defer n.refused.mu.Unlock()
		n.refused.all = append(n.refused.all, req.Method+" "+req.URL.RequestURI())
	}
	return resp, err
}

// Grant applies install manifests of these names, by default those of asShipped.
func (a Account) Grant(ctx context.Context, admin client.Client, manifests ...string) error {
	if len(manifests) == 0 {
		manifests = a.asShipped
	}
	objects, err := a.shipped(manifests)
	if err != nil {
		return err
	}
	return a.give(ctx, admin, objects)
}

// GrantIn gives a namespace the account's permissions and the pod security level of its own namespace.
func (a Account) GrantIn(ctx context.Context, admin client.Client, namespace string) error {
	objects, err := a.shipped(a.asShipped)
	if err != nil {
		return err
	}
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		switch {
		case o.GetKind() == "Namespace" && o.GetName() == a.namespace:
			o.SetName(namespace)
		case o.GetNamespace() == a.namespace && strings.HasPrefix(o.GetKind(), "Role"):
			o.SetNamespace(namespace)
		default:
			return true
		}
		return false
	})
	return a.give(ctx, admin, objects)
}

// Bind binds a ClusterRole of the account's manifests to it in a namespace.
func (a Account) Bind(ctx context.Context, admin client.Client, role, namespace string) error {
	objects, err := a.shipped(a.asShipped)
	if err != nil {
		return err
	}
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() != "ClusterRole" || o.GetName() != role })
	return a.give(ctx, admin, append(objects, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": rbacv1.SchemeGroupVersion.String(), "kind": "RoleBinding",
		"metadata": map[string]any{"namespace": namespace, "name": role},
		"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": role},
		"subjects": []any{map[string]any{"kind": rbacv1.ServiceAccountKind, "namespace": a.namespace, "name": a.name}},
	}}))
}

// give applies manifests, and waits until the API server, which watches permissions, knows them.
func (a Account) give(ctx context.Context, admin client.Client, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if err := apply(ctx, admin, o); err != nil {
			return err
		}
	}
	for _, o := range objects {
		if !strings.HasSuffix(o.GetKind(), "RoleBinding") {
			continue
		}
		ref, _, _ := unstructured.NestedStringMap(o.Object, "roleRef") //nolint:errcheck // the API server took it
		i := slices.IndexFunc(objects, func(r *unstructured.Unstructured) bool {
			isThere := r.GetKind() == "ClusterRole" || r.GetNamespace() == o.GetNamespace()
			return r.GetKind() == ref["kind"] && r.GetName() == ref["name"] && isThere
		})
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, &role); err != nil {
			return err
		}
		if err := a.Await(ctx, admin, o.GetNamespace(), role.Rules[0]); err != nil {
			return fmt.Errorf("wait for %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// Await waits until the API server knows that the account has the first permission of a rule.
func (a Account) Await(ctx context.Context, admin client.Client, namespace string, rule rbacv1.PolicyRule) error {
	right := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0]}
	if len(rule.ResourceNames) > 0 {
		right.Name = rule.ResourceNames[0]
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: a.user(), ResourceAttributes: &right}}
		err := admin.Create(ctx, review)
		return review.Status.Allowed, err
	})
}

// Revoke deletes the objects of manifests of these names.
func (a Account) Revoke(ctx context.Context, admin client.Client, manifests ...string) error {
	objects, err := a.shipped(manifests)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := admin.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

func apply(ctx context.Context, admin client.Client, o *unstructured.Unstructured) error {
	err := admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("admin"), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// shipped returns the objects of install manifests.
func (a Account) shipped(manifests []string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, m := range a.manifests() {
		if !slices.Contains(manifests, m.Name) {
			continue
		}
		objects, err := Objects(m.Data)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", m.Name, err)
		}
		all = append(all, objects...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no install manifest is called %s", strings.Join(manifests, " or "))
	}
	return all, nil
}

// Objects returns the objects of a manifest, which may have many documents, some of them empty.
func Objects(manifest []byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := dec.Decode(&o.Object); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}
