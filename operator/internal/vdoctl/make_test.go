package vdoctl_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// runMake runs make at the top of the checkout.
func runMake(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"--no-print-directory"}, args...)...)
	cmd.Dir, cmd.Env = toolchain.Root(), append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestMakeDeployNeedsOneSource(t *testing.T) {
	both := []string{"deploy", "IMG=registry.site/vdo/operator:v1", "BUNDLE=registry.site/vdo/drivers:1"}
	for _, args := range [][]string{{"deploy"}, both} {
		out, err := runMake(t, nil, args...)
		require.Error(t, err, out)
		require.Contains(t, out, "set IMG or BUNDLE, not both", args)
	}
	out, err := runMake(t, nil, "-n", "deploy", "BUNDLE=registry.site/vdo/drivers:1", "DEPLOYFLAGS=--key vdo.pub")
	require.NoError(t, err, out)
	require.Contains(t, out, `deploy "$@" --key vdo.pub --dry-run && bin/vdoctl deploy "$@" --key vdo.pub`)
	require.NotContains(t, out, "--yes", "vdoctl asks")
	out, err = runMake(t, nil, "-n", "undeploy", "UNDEPLOYFLAGS=--all", "YES=1")
	require.NoError(t, err, out)
	require.Contains(t, out, "bin/vdoctl delete --all --dry-run && bin/vdoctl delete --all --yes")
}

func TestMakeDeployInstallsFromAnImageAndFromABundle(t *testing.T) {
	tier.Later(t, tier.All)
	s := wholeCluster(t)
	env := []string{"KUBECONFIG=" + s.conf}
	operator := &appsv1.Deployment{ObjectMeta: s.meta("vdo-operator")}

	out, err := runMake(t, env, "deploy", "IMG=registry.site/vdo/operator:v1")
	require.Error(t, err, out)
	require.Regexp(t, `(?ms)^context test \(https://.*\), namespace vmware-system-vdo\n.*created +Deployment.*no terminal`, out)
	require.False(t, s.there(operator))

	out, err = runMake(t, env, "deploy", "IMG=registry.site/vdo/operator:v1", "YES=1")
	require.NoError(t, err, out)
	require.True(t, s.there(operator))
	require.Equal(t, "registry.site/vdo/operator:v1", operator.Spec.Template.Spec.Containers[0].Image)

	r := newRelease(t)
	flags := "DEPLOYFLAGS=--key " + r.key + " --ca-file " + r.ca + " --authfile " + r.auth
	out, err = runMake(t, env, "deploy", "BUNDLE="+r.reference, flags, "YES=1")
	require.NoError(t, err, out)
	require.True(t, s.there(operator))
	require.Contains(t, operator.Spec.Template.Spec.Containers[0].Image, r.repository+"@sha256:")

	out, err = runMake(t, env, "undeploy", "YES=1")
	require.NoError(t, err, out)
	require.Regexp(t, `(?ms)^context test .*operator\n  .*Deployment vmware-system-vdo/vdo-operator.*crds\n`, out)
	require.False(t, s.there(operator))
	s.ok("delete", "--all", "--yes")
}
