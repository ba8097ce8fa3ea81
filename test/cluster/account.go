package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
)

// OperatorNamespace is the operator's as it is shipped.
const OperatorNamespace = "vmware-system-vdo"

// asShipped are the manifests of what the operator may do wherever it is installed.
var asShipped = []string{"namespaces.yaml", "rbac.yaml"}

// AsOperator is cfg, which is an administrator's, as the operator's service account: it may do
// what [Grant] and [GrantIn] gave it, and no more.
func AsOperator(cfg *rest.Config) *rest.Config {
	as := rest.CopyConfig(cfg)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + OperatorNamespace + ":vdo-operator",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + OperatorNamespace, "system:authenticated"},
	}
	return as
}

// Grant applies install manifests, of these names, or of what the operator may do everywhere.
func Grant(ctx context.Context, admin client.Client, manifests ...string) error {
	if len(manifests) == 0 {
		manifests = asShipped
	}
	objects, err := shipped(manifests)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := apply(ctx, admin, o); err != nil {
			return err
		}
	}
	return nil
}

// GrantIn makes a namespace what the operator's own is: with its rights there, and with the
// level of pods' security.
func GrantIn(ctx context.Context, admin client.Client, namespace string) error {
	objects, err := shipped(asShipped)
	if err != nil {
		return err
	}
	for _, o := range objects {
		switch {
		case o.GetKind() == "Namespace" && o.GetName() == OperatorNamespace:
			o.SetName(namespace)
		case o.GetNamespace() == OperatorNamespace && strings.HasPrefix(o.GetKind(), "Role"):
			o.SetNamespace(namespace)
		default:
			continue
		}
		if err := apply(ctx, admin, o); err != nil {
			return err
		}
	}
	return nil
}

// Revoke deletes what manifests of these names give.
func Revoke(ctx context.Context, admin client.Client, manifests ...string) error {
	objects, err := shipped(manifests)
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

// shipped are the objects of install manifests.
func shipped(manifests []string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, m := range deploy.Manifests() {
		if !slices.Contains(manifests, m.Name) {
			continue
		}
		for dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(m.Data), 4096); ; {
			o := &unstructured.Unstructured{}
			err := dec.Decode(&o.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", m.Name, err)
			}
			if len(o.Object) > 0 {
				all = append(all, o)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no install manifest is called %s", strings.Join(manifests, " or "))
	}
	return all, nil
}
