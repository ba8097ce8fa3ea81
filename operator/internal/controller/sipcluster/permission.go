package sipcluster

import (
	"context"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/choose"
)

// deployPolicy is what a HostDeployPolicy says; all constraints have to hold.
type deployPolicy struct {
	HostClaimNamespaces *struct {
		Names       []string `json:"names"`
		NameMatches string   `json:"nameMatches"`
		HasLabels   []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"hasLabels"`
	} `json:"hostClaimNamespaces"`
}

// permits returns whether SIPClusters of a namespace may hold a host; HostClaims can replace it. It denies by
// default. A host's own annotation decides; without it, one HostDeployPolicy in the host's namespace has to
// accept the namespace, as Metal3 reads it. Where Metal3 has none of that kind, annotations alone permit.
func (r *Reconciler) permits(ctx context.Context, namespace string) (func(*choose.Host) bool, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(choose.HostKind.GroupVersion().WithKind("HostDeployPolicyList"))
	accepting := map[string]bool{} // namespaces with a policy that accepts
	var ns corev1.Namespace
	failed := r.Reader.Get(ctx, types.NamespacedName{Name: namespace}, &ns)
	err := pages.Each(ctx, r.Reader, list, func() {
		for i := range list.Items {
			spec, _, _ := unstructured.NestedMap(list.Items[i].Object, "spec")
			var p deployPolicy
			err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &p)
			if err == nil && p.accepts(namespace, ns.Labels) {
				accepting[list.Items[i].GetNamespace()] = true
			}
		}
	})
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		err = nil
	}
	if failed != nil {
		return nil, asked("read", "namespace "+namespace, failed)
	}
	if err != nil {
		return nil, fault.Errorf(fault.Unreachable, "read", "HostDeployPolicies", manifestsHint, "%w", err)
	}
	return func(h *choose.Host) bool {
		if named := allowed(h); named != nil {
			return slices.Contains(named, namespace)
		}
		return accepting[h.Namespace]
	}, nil
}

// accepts reports whether a policy accepts a namespace with these labels. One without
// constraints, or with an expression that is none, accepts nothing.
func (p deployPolicy) accepts(namespace string, labels map[string]string) bool {
	c := p.HostClaimNamespaces
	if c == nil || c.Names != nil && !slices.Contains(c.Names, namespace) {
		return false
	}
	if matches, err := regexp.MatchString(c.NameMatches, namespace); err != nil || !matches {
		return false
	}
	for _, want := range c.HasLabels {
		if value, ok := labels[want.Name]; !ok || want.Value != "" && value != want.Value {
			return false
		}
	}
	return true
}

// allowed returns the namespaces that a host's annotation permits; nil without one.
func allowed(h *choose.Host) []string {
	text, found := h.Annotations[airship.AnnotationAllowedNamespaces]
	if !found {
		return nil
	}
	all := []string{}
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			all = append(all, name)
		}
	}
	return all
}
