package services

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
)

// Names returns the names of the services of a SIPCluster, in the order of [Render].
func Names(cluster string, spec *airship.Services) []string {
	var all []string
	for _, k := range []struct {
		kind Kind
		n    int
	}{
		{LoadBalancerControlPlane, len(spec.LoadBalancerControlPlane)}, {LoadBalancerWorker, len(spec.LoadBalancerWorker)},
		{JumpHost, len(spec.JumpHost)}, {Auth, len(spec.Auth)},
	} {
		for i := range k.n {
			all = append(all, Name(cluster, k.kind, i))
		}
	}
	return all
}

// most is how many services of a kind a SIPCluster may have, as its CustomResourceDefinition says.
const most = 8

// AllNames returns all names that services of a SIPCluster can have, whatever its spec says now.
func AllNames(cluster string) []string {
	return append(LeadingNames(cluster), Names(cluster, &airship.Services{Auth: make([]airship.Auth, most)})...)
}

// LeadingNames are those of [AllNames] whose services lead to hosts.
func LeadingNames(cluster string) []string {
	return Names(cluster, &airship.Services{
		LoadBalancerControlPlane: make([]airship.LoadBalancerControlPlane, most), LoadBalancerWorker: make([]airship.LoadBalancerWorker, most),
		JumpHost: make([]airship.JumpHost, most),
	})
}

// Made returns what may be made for a service of a name, whatever its kind: for who looks for
// it where the record of it is lost. Each has its kind and name, and no namespace.
func Made(name string) []metav1.PartialObjectMetadata {
	core := func(kind string) schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind(kind) }
	of := map[schema.GroupVersionKind][]string{
		appsv1.SchemeGroupVersion.WithKind("Deployment"): {""},
		core("Service"): {""},
		policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"): {""},
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"):   {""},
		core("ConfigMap"): {suffixConfig, suffixTrust},
		core("Secret"):    {suffixConfig, suffixPull, suffixHostKeys, suffixBMC, suffixTLS, suffixCA},
	}
	var all []metav1.PartialObjectMetadata
	for kind, suffixes := range of {
		for _, suffix := range suffixes {
			o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name + suffix}}
			o.SetGroupVersionKind(kind)
			all = append(all, o)
		}
	}
	return all
}
