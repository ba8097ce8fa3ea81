package deploy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// One set has a name of the operator's, and nodes are reconfigured by it: the rights are on that
// one alone, that to make it too, which holds for who names it in the request. Whether nodes have
// taken it up may be read, and nothing else of how they are configured.
func TestTheOperatorMayWriteItsMirrorSetWhereThatIsAskedForAndNoOther(t *testing.T) {
	own := access{"", "config.openshift.io", "imagedigestmirrorsets", "", "vdo-operator"}
	_, op := install(t)
	for _, verb := range []string{"get", "create", "update", "patch", "delete"} {
		own.verb = verb
		require.False(t, allowed(t, op, own), verb)
	}
	pools := access{"list", "machineconfiguration.openshift.io", "machineconfigpools", "", ""}
	require.False(t, allowed(t, op, pools))
	own.verb = "create"
	op, end := besides(t, "rbac-mirror-set.yaml", own)
	defer end()
	for _, verb := range []string{"get", "create", "patch", "delete"} {
		own.verb = verb
		require.Eventually(t, func() bool { return allowed(t, op, own) }, time.Minute, 50*time.Millisecond, verb)
		for _, other := range []access{{verb, own.group, own.resource, "", "other"}, {verb, own.group, own.resource, "", ""}, {verb, own.group, "imagetagmirrorsets", "", own.name}} {
			require.False(t, allowed(t, op, other), "%+v", other)
		}
	}
	require.Eventually(t, func() bool { return allowed(t, op, pools) }, time.Minute, 50*time.Millisecond)
	for _, verb := range []string{"get", "watch", "patch", "update", "create", "delete"} {
		require.False(t, allowed(t, op, access{verb, pools.group, pools.resource, "", "worker"}), verb)
	}
	require.False(t, allowed(t, op, access{"list", pools.group, "machineconfigs", "", ""}))
	require.False(t, allowed(t, op, access{"update", own.group, own.resource, "", own.name}), "it is applied")
	require.False(t, allowed(t, op, access{"deletecollection", own.group, own.resource, "", ""}))
}

// besides gives the operator the rights of one manifest more, while a test runs: others prove
// what the account may not do without, such as what is given.
func besides(t *testing.T, manifest string, gives access) (op client.Client, end func()) {
	t.Helper()
	admin, op := install(t)
	rights := read(t, manifest)
	for _, u := range rights {
		require.NoError(t, apply(t.Context(), admin, u))
	}
	return op, func() {
		for _, u := range rights {
			require.NoError(t, admin.Delete(t.Context(), u))
		}
		require.Eventually(t, func() bool { return !allowed(t, op, gives) }, time.Minute, 50*time.Millisecond)
	}
}
