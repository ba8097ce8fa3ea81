package services

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Which address the audit lines show is the site's choice.
func TestExternalTrafficPolicyOfTheJumpHost(t *testing.T) {
	in := full(t)
	set := rendered(t, in)
	require.Empty(t, object[corev1.Service](t, set.of(t, JumpHost), "Service", Name("one", JumpHost, 0)).Spec.ExternalTrafficPolicy)
	in.Spec.JumpHost[0].ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	set = rendered(t, in)
	require.Equal(t, corev1.ServiceExternalTrafficPolicyLocal, object[corev1.Service](t, set.of(t, JumpHost), "Service", Name("one", JumpHost, 0)).Spec.ExternalTrafficPolicy)
}

// Names are looked up on OpenShift too, whose DNS pods listen on 5353.
func TestDNSOfServices(t *testing.T) {
	in := full(t)
	set := rendered(t, in)
	for _, kind := range []Kind{Auth} {
		s := set.of(t, kind)
		open := map[string]bool{}
		for _, rule := range object[networkingv1.NetworkPolicy](t, s, "NetworkPolicy", s.Name).Spec.Egress {
			for _, p := range rule.Ports {
				open[string(*p.Protocol)+p.Port.String()] = true
			}
		}
		for _, want := range []string{"UDP53", "TCP53", "UDP5353", "TCP5353"} {
			require.True(t, open[want], "%s: %s", kind, want)
		}
	}
}
