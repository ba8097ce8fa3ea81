package services

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
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
