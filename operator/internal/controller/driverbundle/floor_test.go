package driverbundle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
)

// Whoever writes a DriverBundle names the keys that it trusts; the operator's own floor
// is not theirs to lower.
func TestADriverBundleCannotLowerTheTrustFloor(t *testing.T) {
	w := newWorld(t)
	site, sites := mirror.NewKey(t)
	own := func(s *v1alpha1.DriverBundleSpec) {
		s.Trust = &v1alpha1.TrustPolicy{Keys: []v1alpha1.TrustKey{{ID: "own", PublicKey: w.public}}}
	}
	first := w.publish(mirror.Bundle{Seed: 1, Serial: 7}, w.key)
	w.bundle(own)
	require.Equal(t, first.String(), w.ready("True Succeeded").Status.Digest, "without a floor")

	key, err := trust.NewKey("site", []byte(sites), trust.KeyOptions{})
	require.NoError(t, err)
	w.floor, err = trust.NewPolicy(1, key)
	require.NoError(t, err)
	w.restart()
	b := w.ready("False Untrusted")
	require.Contains(t, message(b, v1alpha1.ConditionReady), "the operator's --trust-floor: ")
	require.Equal(t, "False Untrusted", condition(b, v1alpha1.ConditionVerified), "what was accepted before is held to it too")
	require.Equal(t, first.String(), b.Status.Digest, "and goes on serving")

	// Neither key alone will do, whatever else is named.
	w.publish(mirror.Bundle{Seed: 2, Serial: 8}, w.key)
	b = w.poke()
	require.Equal(t, "False Untrusted", condition(b, v1alpha1.ConditionReady))
	require.Contains(t, message(b, v1alpha1.ConditionReady), "the operator's --trust-floor: ")
	require.Equal(t, first.String(), b.Status.Digest)
	w.publish(mirror.Bundle{Seed: 3, Serial: 8}, site)
	b = w.poke()
	require.Equal(t, "False Untrusted", condition(b, v1alpha1.ConditionReady))
	require.NotContains(t, message(b, v1alpha1.ConditionReady), "--trust-floor", "it is the DriverBundle's own policy")
	require.Equal(t, first.String(), b.Status.Digest)

	both := w.publish(mirror.Bundle{Seed: 4, Serial: 8}, w.key, site)
	b = w.poke()
	require.Equal(t, "True Succeeded", condition(b, v1alpha1.ConditionReady))
	require.Equal(t, both.String(), b.Status.Digest)
	require.Equal(t, []string{"own"}, b.Status.VerifiedBy)
}
