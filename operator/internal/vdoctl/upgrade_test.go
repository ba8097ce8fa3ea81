package vdoctl_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// shop is a namespace of the shared cluster with the operator's resources in it.
type shop struct {
	t    *testing.T
	k    client.Client
	ns   string
	conf string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	c := control(t)
	k := clientOf(t, c)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "vdo-"}}
	require.NoError(t, k.Create(t.Context(), namespace))
	return &shop{t: t, k: k, ns: namespace.Name, conf: c.Kubeconfig()}
}

// run runs vdoctl in the namespace, and returns what it printed and its exit code.
func (s *shop) run(args ...string) (string, int) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "vdoctl", append(args[:len(args):len(args)], "-n", s.ns)...)
	if args[0] == "__complete" { // the last argument is the one to complete
		cmd.Args = append([]string{"vdoctl", "__complete", "-n", s.ns}, args[1:]...)
	}
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.conf)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	require.NoError(s.t, err)
	return string(out), 0
}

// ok runs it, and demands exit code 0.
func (s *shop) ok(args ...string) string {
	s.t.Helper()
	out, code := s.run(args...)
	require.Zero(s.t, code, out)
	return out
}

func (s *shop) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.ns, Name: name}
}

func (s *shop) config() *v1alpha1.VDOConfig {
	s.t.Helper()
	var v v1alpha1.VDOConfig
	require.NoError(s.t, s.k.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: "vdo"}, &v))
	return &v
}

func (s *shop) bundle() *v1alpha1.DriverBundle {
	s.t.Helper()
	var b v1alpha1.DriverBundle
	require.NoError(s.t, s.k.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: "drivers"}, &b))
	return &b
}

var (
	oldDigest = "sha256:" + strings.Repeat("a", 64)
	newDigest = "sha256:" + strings.Repeat("b", 64)
)

// upgraded has a site whose drivers came from a bundle, then from another one.
func (s *shop) upgraded() {
	ctx := s.t.Context()
	require.NoError(s.t, s.k.Create(ctx, &v1alpha1.DriverBundle{ObjectMeta: s.meta("drivers"), Spec: v1alpha1.DriverBundleSpec{Reference: "registry.site/vdo:stable"}}))
	b := s.bundle()
	b.Status = v1alpha1.DriverBundleStatus{Repository: "registry.site/vdo", Digest: newDigest}
	require.NoError(s.t, s.k.Status().Update(ctx, b))
	require.NoError(s.t, s.k.Create(ctx, &v1alpha1.VDOConfig{ObjectMeta: s.meta("vdo"), Spec: v1alpha1.VDOConfigSpec{
		Upgrade: v1alpha1.UpgradeManual, StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "east"},
		Drivers: []v1alpha1.DriverPolicy{{Driver: "csi", Policy: "lts"}}}}))
	s.status(func(st *v1alpha1.VDOConfigStatus) {
		st.Revision = "r2-22222222"
		st.Drivers = []v1alpha1.DriverStatus{{Driver: "cpi", Version: "1.33.1", Ready: true}, {Driver: "csi", Version: "3.5.1", Ready: true}}
		at := metav1.Now()
		st.Revisions = []v1alpha1.RevisionStatus{
			{Name: "r1-11111111", Bundle: "registry.site/vdo@" + oldDigest, Releases: "cpi@1.33.1, csi@3.3.1", Outcome: "Healthy", MadeAt: at, Since: at},
			{Name: "r2-22222222", Bundle: "registry.site/vdo@" + newDigest, Releases: "cpi@1.33.1, csi@3.5.1", Outcome: "Healthy", MadeAt: at, Since: at, ApprovedBy: "jane"},
			{Name: "r3-33333333", Bundle: "registry.site/vdo@" + newDigest, Releases: "cpi@1.33.1, csi@3.6.0", Outcome: "RolledBack", Reason: "it was not healthy after 15m", MadeAt: at, Since: at},
		}
	})
}

func (s *shop) status(change func(*v1alpha1.VDOConfigStatus)) {
	s.t.Helper()
	v := s.config()
	change(&v.Status)
	v.Status.ObservedGeneration = v.Generation
	require.NoError(s.t, s.k.Status().Update(s.t.Context(), v))
}

func (s *shop) waits(name, releases, reason string) {
	s.status(func(st *v1alpha1.VDOConfigStatus) {
		st.Candidate = &v1alpha1.CandidateStatus{Name: name, Releases: releases, Reason: reason,
			Message: "because of " + reason,
			Gates: []v1alpha1.CandidateGate{{Driver: "cpi", Reason: reason, Message: "because of " + reason},
				{Driver: "csi", Reason: "Interlocked", Message: "nodes change"}}}
	})
}

func TestUpgradeIsListedAndApprovedInOnesOwnName(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	out, code := s.run("upgrade", "list")
	require.Equal(t, 4, code, out)
	require.Contains(t, out, "vdoctl configure")

	s.upgraded()
	out, code = s.run("upgrade", "approve", "r4-44444444")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "no upgrade waits")

	s.waits("r4-44444444", "cpi@1.33.1, csi@3.7.3", "NotApproved")
	out = s.ok("upgrade", "list")
	for _, text := range []string{"r2-22222222 *", "jane",
		"r3-33333333 rolledback: it was not healthy after 15m", "waits r4-44444444 (NotApproved)", "why csi: nodes change", "do: vdoctl upgrade approve r4-44444444"} {
		require.Contains(t, out, text)
	}
	require.Less(t, strings.Index(out, "r2-22222222"), strings.Index(out, "r1-11111111"), "newest first")
	require.Contains(t, s.ok("upgrade", "list", "-o", "json"), `"toDo": "vdoctl upgrade approve r4-44444444"`)

	out, _ = s.run("describe")
	require.Contains(t, out, "upgrade  r4-44444444: cpi@1.33.1, csi@3.7.3 (NotApproved)")
	require.Contains(t, out, "do: vdoctl upgrade approve r4-44444444")

	out, code = s.run("upgrade", "approve", "r5-55555555")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "it is r4-44444444 that waits")
	out, code = s.run("upgrade", "approve")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "missing argument REVISION")

	require.Contains(t, s.ok("upgrade", "approve", "r4-44444444", "--dry-run"), "Nothing was changed")
	require.Nil(t, s.config().Spec.UpgradePolicy)
	require.Contains(t, s.ok("__complete", "upgrade", "approve", ""), "r4-44444444\n")

	out = s.ok("upgrade", "approve", "r4-44444444")
	approval := s.config().Spec.UpgradePolicy.Approval
	require.Equal(t, "r4-44444444", approval.Revision)
	require.NotEmpty(t, approval.By)
	require.Contains(t, out, "r4-44444444 by "+approval.By, "as the API server knows the user")
	before := s.config().ResourceVersion
	require.Contains(t, s.ok("upgrade", "approve", "r4-44444444", "--by", "somebody else"), "the consent to r4-44444444 is there already")
	require.Equal(t, before, s.config().ResourceVersion)

	s.status(func(st *v1alpha1.VDOConfigStatus) { st.Revision, st.Candidate = "r4-44444444", nil })
	require.Contains(t, s.ok("upgrade", "approve", "r4-44444444"), "in force already")
}

func TestADowngradeAndAFailedRevisionNeedTheirOwnConsent(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.upgraded()
	s.waits("r1-11111111", "cpi@1.33.1, csi@3.3.1", "DowngradeRefused")
	out, code := s.run("upgrade", "approve", "r1-11111111")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "csi@3.3.1: older than what runs")
	require.Nil(t, s.config().Spec.UpgradePolicy)
	s.ok("upgrade", "approve", "r1-11111111", "--allow-downgrade")
	require.Equal(t, []string{"csi@3.3.1"}, s.config().Spec.UpgradePolicy.AllowDowngrade)

	s.waits("r3-33333333", "cpi@1.33.1, csi@3.6.0", "Failed")
	for _, was := range []string{"r3-33333333", "r3-33333333 2026-08-01T12:00:00Z"} { // by hand, and of the time before
		v := s.config()
		metav1.SetMetaDataAnnotation(&v.ObjectMeta, v1alpha1.AnnotationRetry, was)
		require.NoError(t, s.k.Update(t.Context(), v))
		require.Contains(t, s.ok("upgrade", "approve", "r3-33333333"), v1alpha1.AnnotationRetry)
		wish := s.config().Annotations[v1alpha1.AnnotationRetry]
		require.True(t, strings.HasPrefix(wish, "r3-33333333 "), wish)
		require.NotEqual(t, was, wish, "it is tried once for each value")
	}

	s.waits("r4-44444444", "cpi@1.33.1, csi@3.7.3", "WindowClosed")
	before := s.config().ResourceVersion
	require.Contains(t, s.ok("upgrade", "approve", "r4-44444444"), "because of WindowClosed")
	require.Equal(t, before, s.config().ResourceVersion, "nobody's consent opens a window")
}

func TestRollbackGoesToTheLastHealthyRevision(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.upgraded()
	for name, why := range map[string]string{"r2-22222222": "it is the one in force", "r3-33333333": "it was not healthy: rolledback", "r9-99999999": "no such revision is remembered"} {
		out, code := s.run("upgrade", "rollback", name, "--yes")
		require.NotZero(t, code, out)
		require.Contains(t, out, why)
	}
	out, code := s.run("upgrade", "rollback")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "there is no terminal to ask for consent")

	require.NotContains(t, s.ok("upgrade", "rollback", "--dry-run"), "warning")
	tracked := s.config()
	tracked.Annotations = map[string]string{"argocd.argoproj.io/tracking-id": "vdo"}
	require.NoError(t, s.k.Update(t.Context(), tracked))
	out = s.ok("upgrade", "rollback", "--dry-run")
	require.Contains(t, out, "spec.drivers[csi].version: 3.3.1")
	unfolded := strings.Join(strings.Fields(out), " ")
	require.Contains(t, unfolded, "warning: Argo CD applies VDOConfig vdo and may undo this; commit to its source: spec.drivers[cpi].version: 1.33.1; spec.drivers[csi].version: 3.3.1; ")
	require.NotContains(t, unfolded, "applies DriverBundle")
	require.Equal(t, 1, strings.Count(out, "Nothing was changed"), out)
	require.Nil(t, s.config().Spec.UpgradePolicy)

	was, followed := s.config().Spec, s.bundle().Spec
	out = s.ok("upgrade", "rollback", "--yes")
	v, b := s.config(), s.bundle()
	require.Equal(t, []v1alpha1.DriverPolicy{{Driver: "csi", Policy: "lts", Version: "3.3.1"}, {Driver: "cpi", Version: "1.33.1"}}, v.Spec.Drivers)
	require.Equal(t, []string{"csi@3.3.1"}, v.Spec.UpgradePolicy.AllowDowngrade)
	require.Equal(t, "r1-11111111", v.Spec.UpgradePolicy.Approval.Revision)
	require.Equal(t, "registry.site/vdo@"+oldDigest, b.Spec.Reference)
	require.Equal(t, oldDigest, b.Spec.AcceptOlder)

	require.Contains(t, s.ok("upgrade", "rollback", "--yes", "-o", "yaml"), "already", "a second run changes nothing")
	require.Equal(t, b.ResourceVersion, s.bundle().ResourceVersion)

	shown, _ := s.run("describe")
	require.Regexp(t, `csi +3\.5\.1 +- +true +pinned to 3\.3\.1 by spec\.drivers\n`, shown)
	require.Contains(t, out, "take that out, and consent to what `vdoctl upgrade list` then shows:\n")
	s.typed(out)
	require.Equal(t, was, s.config().Spec)
	require.Equal(t, followed, s.bundle().Spec)
}

// typed runs the kubectl commands of an output, as they are printed.
func (s *shop) typed(out string) {
	s.t.Helper()
	for _, line := range strings.Split(out, "\n") {
		if !strings.HasPrefix(line, "  kubectl ") {
			continue
		}
		cmd := exec.CommandContext(s.t.Context(), "bash", "-ec", line)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+s.conf)
		said, err := cmd.CombinedOutput()
		require.NoError(s.t, err, "%s\n%s", line, said)
	}
}
