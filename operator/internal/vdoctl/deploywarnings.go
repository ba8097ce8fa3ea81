package vdoctl

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
)

// warnOfAccess warns if trust, CA or login of the file's bundle are missing, or others than those that are used here.
// It also warns if a vCenter's account or CA is in neither file nor cluster.
func (o *deployOptions) warnOfAccess(ctx context.Context, c client.Reader, here []client.Object) {
	if o.draft == nil {
		return
	}
	d := o.draft
	all := append(append(readers{o.accounts.made}, d.readers...), c)
	for i := range d.vcenters {
		if _, err := credentials.Read(ctx, all, &d.vcenters[i]); isMissing(err) {
			o.warning(err)
		}
	}
	for _, x := range referenced(d.namespace, referencesOf([]client.Object{d.bundle})...) {
		i := slices.Index(described(here), describeObject(x))
		optional := slices.Contains([]string{"", v1alpha1.DefaultPullSecretName, v1alpha1.DefaultCAName}, x.GetName())
		if i < 0 && optional {
			continue
		}
		why, hint := "the DriverBundle needs it, and it is not there", "create it"
		if i >= 0 {
			hint = "add --with-access"
		}
		err := all.Get(ctx, client.ObjectKeyFromObject(x), x)
		if err == nil && i >= 0 && differs(here[i], x) {
			why, hint = "it has another content than what is used here, and stays", "to replace it, delete it and add --with-access"
		} else if !isGone(err) || i >= 0 && o.withAccess {
			continue
		}
		o.warning(fault.Errorf(fault.NotFound, "use", describeObject(x), hint, "%s", why))
	}
}

// differs reports whether a ConfigMap lacks the CA of another one. Policies and logins have many forms.
func differs(want, is client.Object) bool {
	ca, ok := want.(*corev1.ConfigMap)
	if !ok {
		return false
	}
	old, known := is.(*corev1.ConfigMap).Data[v1alpha1.DefaultCAKey] //nolint:forcetypeassert,errcheck // the same kind
	return known && !strings.Contains(old, strings.TrimSpace(ca.Data[v1alpha1.DefaultCAKey]))
}

// warnOfPorts warns if the NetworkPolicies of the operator close the port of the mirror or of a vCenter of the file.
func (o *deployOptions) warnOfPorts(ctx context.Context, c client.Reader, installed []client.Object) {
	var policies networkingv1.NetworkPolicyList
	_ = c.List(ctx, &policies, client.InNamespace(o.cluster.namespace)) // those of the site; at worst a warning too much
	for _, u := range ofType[*unstructured.Unstructured](installed) {
		var p networkingv1.NetworkPolicy
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &p)
		if err == nil && u.GetKind() == "NetworkPolicy" {
			policies.Items = append(policies.Items, p)
		}
		if on, _, _ := unstructured.NestedBool(u.Object, "spec", "template", "spec", "hostNetwork"); on {
			return // they do not apply to the nodes' network
		}
	}
	d := cmp.Or(o.draft, &draft{objects: &objects{bundle: &v1alpha1.DriverBundle{}}})
	mirror, _ := image.ParseHosted(cmp.Or(d.bundle.Spec.Reference, o.to.Repository))
	uses := []string{mirror.Host()}
	for _, v := range d.vcenters {
		uses = append(uses, net.JoinHostPort(v.Spec.VcIP, strconv.Itoa(int(cmp.Or(v.Spec.Port, 443)))))
	}
	for _, address := range uses {
		_, port, _ := net.SplitHostPort(address)
		if n, err := strconv.Atoi(port); err == nil && isClosed(policies.Items, int32(n)) { //nolint:gosec // a port
			o.warning(fault.Errorf(fault.Refused, "use", address, "apply a NetworkPolicy that opens it beside "+
				"those of the namespace", "the operator's NetworkPolicies close port %s", port))
		}
	}
}

func isClosed(policies []networkingv1.NetworkPolicy, port int32) bool {
	for i := range policies {
		for _, rule := range policies[i].Spec.Egress {
			if len(rule.Ports) == 0 || slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool {
				return p.Port == nil || p.Port.IntVal <= port && port <= max(p.Port.IntVal, ptr.Deref(p.EndPort, 0))
			}) {
				return false
			}
		}
	}
	return len(policies) > 0
}
