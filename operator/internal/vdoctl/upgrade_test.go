package vdoctl_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// shop is a namespace of the shared cluster with the operator's resources in it.
type shop struct {
	t    *testing.T
	k    client.Client
	ns   string
	conf string
}

func newShop(t *testing.T) *shop {
	c := control(t)
	k := clientOf(t, c)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "vdo-"}}
	require.NoError(t, k.Create(t.Context(), namespace))
	return &shop{t: t, k: k, ns: namespace.Name, conf: c.Kubeconfig()}
}

type result struct {
	t    *testing.T
	out  string
	code int
}

// is demands an exit code, and texts in what was printed, which it returns.
func (r result) is(code int, texts ...string) string {
	require.Equal(r.t, code, r.code, r.out)
	return r.has(texts...)
}

func (r result) has(texts ...string) string {
	for _, text := range texts {
		require.Contains(r.t, r.out, text)
	}
	return r.out
}

func (r result) both() (string, int) { return r.out, r.code }

// vdoctl runs the program with more of an environment. It ends before a garbage collection would help it.
func vdoctl(t *testing.T, env []string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "vdoctl", args...)
	cmd.Env = append(append(os.Environ(), "GOGC=off"), env...)
	out, err := cmd.CombinedOutput()
	return ended(t, string(out), err)
}

// ended is the result of a program that has ended with an error, or none.
func ended(t *testing.T, out string, err error) result {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return result{t, out, exit.ExitCode()}
	}
	require.NoError(t, err, out)
	return result{t, out, 0}
}

func fileOf(t *testing.T, name, text string) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// asAdministrator are the flags of who may change a vCenter.
func asAdministrator(t *testing.T) []string {
	t.Helper()
	file := fileOf(t, "admin", vcsim.Administrator.Password)
	return []string{"--username", vcsim.Administrator.Username, "--password-file", file}
}

// onlyWest is the file of a site with one vCenter, /site/west of it and an account, if one is given.
func onlyWest(t *testing.T, v *vcsim.VCenter, account vcsim.Account, more string) string {
	t.Helper()
	secret := fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: vc}
stringData: {username: %s, password: %q}
---
`, account.Username, account.Password)
	if account.Username == "" {
		secret = ""
	}
	return fileOf(t, "site.yaml", secret+fmt.Sprintf(`apiVersion: vdo.vmware.com/v1alpha1
kind: VsphereCloudConfig
metadata: {name: west}
spec: {vcIp: %s, port: %d, credentials: vc, thumbprint: "%s", datacenters: [site/west]}
%s`, v.Host, v.Port, v.SHA256, more))
}

func (s *shop) run(args ...string) result {
	s.t.Helper()
	args = append(args[:len(args):len(args)], "-n", s.ns)
	return vdoctl(s.t, []string{"KUBECONFIG=" + s.conf}, args...)
}

func (s *shop) ok(args ...string) string {
	s.t.Helper()
	return s.run(args...).is(0)
}

func (s *shop) read(text string) []*unstructured.Unstructured {
	all, err := cluster.Objects([]byte(text))
	require.NoError(s.t, err)
	return all
}

func (s *shop) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.ns, Name: name}
}

func got[T client.Object](s *shop, x T) T {
	require.True(s.t, s.there(x), x.GetName())
	return x
}

// add makes the resource of a vCenter, with the account of Secret vc.
func (s *shop) add(name string, v *vcsim.VCenter, datacenters ...string) *v1alpha1.VsphereCloudConfig {
	out := &v1alpha1.VsphereCloudConfig{ObjectMeta: s.meta(name), Spec: v1alpha1.VsphereCloudConfigSpec{
		VcIP: v.Host, Port: int32(v.Port), Credentials: "vc", Thumbprint: v.SHA256, Datacenters: datacenters}}
	require.NoError(s.t, s.k.Create(s.t.Context(), out))
	return out
}

func (s *shop) config() *v1alpha1.VDOConfig {
	return got(s, &v1alpha1.VDOConfig{ObjectMeta: s.meta("vdo")})
}

func (s *shop) bundle() *v1alpha1.DriverBundle {
	return got(s, &v1alpha1.DriverBundle{ObjectMeta: s.meta("drivers")})
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
		st.Drivers = []v1alpha1.DriverStatus{
			{Driver: "cpi", Version: "1.33.1", Ready: true}, {Driver: "csi", Version: "3.5.1", Ready: true}}
		at := metav1.Now()
		row := func(name, group, digest, release, outcome string) v1alpha1.RevisionStatus {
			return v1alpha1.RevisionStatus{Name: name, Group: group, Bundle: "registry.site/vdo@" + digest, Releases: release,
				Outcome: outcome, MadeAt: at, Since: at}
		}
		st.Revisions = []v1alpha1.RevisionStatus{
			row("r7-77777777", "cpi", oldDigest, "cpi@1.33.0", "Healthy"),
			row("r1-11111111", "csi", oldDigest, "csi@3.3.1", "Healthy"),
			row("r8-88888888", "cpi", newDigest, "cpi@1.33.1", "Healthy"),
			row("r2-22222222", "csi", newDigest, "csi@3.5.1", "Healthy"),
			row("r3-33333333", "csi", newDigest, "csi@3.6.0", "RolledBack"),
		}
		st.Revisions[2].Current, st.Revisions[3].Current, st.Revisions[3].ApprovedBy = true, true, "jane"
		st.Revisions[4].Reason = "it was not healthy after 15m"
	})
}

// operator makes the operator's Deployment, with a pod that is ready.
func (s *shop) operator() {
	labels := map[string]string{"app": "vdo-operator"}
	d := &appsv1.Deployment{ObjectMeta: s.meta("vdo-operator"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "operator", Image: "registry.site/vdo/operator:1.2.3"}}}}}}
	require.NoError(s.t, s.k.Create(s.t.Context(), d))
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 1, UpdatedReplicas: 1,
		ReadyReplicas: 1, AvailableReplicas: 1}
	require.NoError(s.t, s.k.Status().Update(s.t.Context(), d))
}

func (s *shop) status(change func(*v1alpha1.VDOConfigStatus)) {
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
	s.run("upgrade", "list").is(4, "vdoctl configure")

	s.upgraded()
	s.run("upgrade", "approve", "r4-44444444").is(8, "no upgrade waits")

	s.waits("r4-44444444", "cpi@1.33.1, csi@3.7.3", "NotApproved")
	out := s.run("upgrade", "list").is(0, "r2-22222222 *", "jane",
		"r3-33333333 RolledBack: it was not healthy after 15m", "waits r4-44444444 (NotApproved)",
		"why csi: nodes change", "do: vdoctl upgrade approve r4-44444444")
	require.Less(t, strings.Index(out, "r2-22222222"), strings.Index(out, "r1-11111111"), "newest first")
	require.Contains(t, s.ok("upgrade", "list", "-o", "name"), "revision/r2-22222222\n")
	require.Contains(t, s.ok("upgrade", "list", "-o", "json"), `"toDo": "vdoctl upgrade approve r4-44444444"`)

	out, _ = s.run("describe").both()
	require.Contains(t, out, "waits r4-44444444 (NotApproved)\n  releases: cpi@1.33.1, csi@3.7.3\n")
	require.Contains(t, out, "do: vdoctl upgrade approve r4-44444444")

	s.run("upgrade", "approve", "r5-55555555").is(8, "it is r4-44444444 that waits")
	s.run("upgrade", "approve").is(2, "missing argument REVISION")
	s.run("upgrade", "approve", "").is(2, "argument REVISION is empty")
	s.run("upgrade", "rollback", "").is(2, "argument REVISION is empty")

	require.Contains(t, s.ok("upgrade", "approve", "r4-44444444", "--dry-run"), "Nothing was changed")
	require.Nil(t, s.config().Spec.UpgradePolicy)

	out = s.ok("upgrade", "approve", "r4-44444444")
	approval := s.config().Spec.UpgradePolicy.Approval
	require.Equal(t, "r4-44444444", approval.Revision)
	require.NotEmpty(t, approval.By)
	require.Contains(t, out, "spec.upgradePolicy.approval.by: "+approval.By+"\n")
	require.Contains(t, out, "spec.upgradePolicy.approval.revision: r4-44444444\n")
	before := s.config().ResourceVersion
	require.Contains(t, s.ok("upgrade", "approve", "r4-44444444"),
		"r4-44444444 is approved already; the operator has not seen that yet")
	require.Equal(t, before, s.config().ResourceVersion)

	s.status(func(st *v1alpha1.VDOConfigStatus) { st.Candidate = nil })
	require.Contains(t, s.ok("upgrade", "approve", "r4-44444444"), "nothing waits")
	s.run("upgrade", "approve", "r5-55555555").is(8, "no upgrade waits")
	s.status(func(st *v1alpha1.VDOConfigStatus) {
		st.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionResolved, Status: metav1.ConditionFalse,
			Reason: "InvalidInput", Message: "spec.upgradePolicy.windows: wrong", LastTransitionTime: metav1.Now()}}
	})
	s.run("upgrade", "approve", "r5-55555555").is(8, "no upgrade waits: spec.upgradePolicy.windows: wrong")
	s.run("upgrade", "list").is(0, "upgrades are blocked: spec.upgradePolicy.windows: wrong")
	v := s.config()
	v.Spec.Suspend = true
	require.NoError(t, s.k.Update(t.Context(), v))
	s.run("upgrade", "approve", "r4-44444444").is(0, "is approved already; upgrades are blocked: spec.suspend is set")
	s.run("upgrade", "list").is(0, "upgrades are blocked: spec.suspend is set")

	s.waits("r4-44444444", "cpi@1.33.1, csi@3.7.3", "WindowClosed")
	v = s.config()
	v.Spec.Suspend, v.Spec.Upgrade = false, v1alpha1.UpgradeAutomatic
	require.NoError(t, s.k.Update(t.Context(), v))
	s.run("upgrade", "approve", "r4-44444444").is(0, "no approval is needed; it waits for: because of WindowClosed")

	s.waits("r6-66666666", "cpi@1.33.1, csi@3.3.1", "DowngradeRefused")
	out = s.ok("upgrade", "approve", "r6-66666666", "--allow-downgrade")
	unfolded := strings.Join(strings.Fields(out), " ")
	require.Contains(t, unfolded, "csi@3.3.1 may replace a newer release later too, until you remove the entry: `kubectl -n ")
}

func TestRollbackGoesToTheLastHealthyRevision(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.upgraded()
	for _, name := range []string{"r2-22222222", "r3-33333333", "r9-99999999"} { // current, rolled back, unknown
		s.run("upgrade", "rollback", name, "--yes").is(4, "it is no earlier revision that was healthy", "r1-11111111")
	}
	s.run("upgrade", "rollback").is(8, "no terminal to ask for confirmation")

	require.NotContains(t, s.ok("upgrade", "rollback", "--dry-run"), "warning")
	tracked := s.config()
	tracked.Annotations = map[string]string{"argocd.argoproj.io/tracking-id": "vdo"}
	require.NoError(t, s.k.Update(t.Context(), tracked))
	out := s.run("upgrade", "rollback", "--dry-run").is(0, "spec.drivers[csi].version: 3.3.1")
	unfolded := strings.Join(strings.Fields(out), " ")
	require.Contains(t, unfolded, "warning: Argo CD applies VDOConfig vdo and may undo this; "+
		"commit to its source: spec.drivers[cpi].driver: cpi; ")
	require.NotContains(t, unfolded, "applies DriverBundle")
	require.Equal(t, 1, strings.Count(out, "Nothing was changed"), out)
	require.Nil(t, s.config().Spec.UpgradePolicy)

	out = s.ok("upgrade", "rollback", "--yes")
	v, b := s.config(), s.bundle()
	require.Equal(t, []v1alpha1.DriverPolicy{{Driver: "csi", Policy: "lts", Version: "3.3.1"}, {Driver: "cpi", Version: "1.33.0"}}, v.Spec.Drivers)
	both := []string{"cpi@1.33.0", "csi@3.3.1"}
	require.Equal(t, both, v.Spec.UpgradePolicy.AllowDowngrade, "what came with it goes back too")
	offered := revision.Revision{Bundle: "registry.site/vdo@" + oldDigest, Releases: both}
	require.Equal(t, offered.Name(), v.Spec.UpgradePolicy.Approval.Revision)
	require.Contains(t, strings.Join(strings.Fields(out), " "), "shows it as "+offered.Name()+" while it waits")
	require.Equal(t, "registry.site/vdo@"+oldDigest, b.Spec.Reference)
	require.Equal(t, oldDigest, b.Spec.AcceptOlder)

	require.Contains(t, s.ok("upgrade", "rollback", "--yes", "-o", "yaml"), "already", "a second run changes nothing")
	require.Equal(t, b.ResourceVersion, s.bundle().ResourceVersion)

	shown, _ := s.run("describe").both()
	require.Regexp(t, `driver/csi +true +- +3\.5\.1 pinned to 3\.3\.1 by spec\.drivers\n`, shown)
	unfolded = strings.Join(strings.Fields(out), " ")
	require.Contains(t, unfolded, "spec.reference: registry.site/vdo:stable -> registry.site/vdo@"+oldDigest)
	require.Contains(t, unfolded, "spec.drivers[csi].version: 3.3.1")
}

func TestRollbackRefusesABundleThatIsTrustedNoMoreOrDoesNotFit(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.upgraded()
	reg := registry.Start(t, registry.Options{TLS: true})
	repo := mirror.New(t, reg, "vdo/drivers")
	signer, old := mirror.NewKey(t)
	_, rotated := mirror.NewKey(t)
	root := repo.Push(t, "1", mirror.Bundle{Serial: 1, Releases: []string{"csi@3.3.1"}})
	repo.Sign(t, root, signer)
	s.status(func(st *v1alpha1.VDOConfigStatus) {
		st.Revisions[0].Bundle = reg.Host + "/vdo/drivers@" + root.String()
		st.Revisions[1].Bundle = st.Revisions[0].Bundle
	})
	trusted := &corev1.ConfigMap{ObjectMeta: s.meta("vdo-trust"), Data: map[string]string{"new.pub": rotated}}
	s.create(trusted)
	ca := map[string]string{"ca.crt": string(reg.CA())}
	s.create(&corev1.ConfigMap{ObjectMeta: s.meta("vdo-registry-ca"), Data: ca})
	for _, consent := range []string{"--dry-run", "--yes"} {
		s.run("upgrade", "rollback", "r1-11111111", consent).is(3, root.String(), "signature")
	}
	trusted.Data["old.pub"] = old
	require.NoError(t, s.k.Update(t.Context(), trusted))
	s.run("upgrade", "rollback", "r1-11111111", "--yes").is(8, "csi@3.3.1 runs, and does not fit: serves 1.28 to 1.30")
	require.Equal(t, "registry.site/vdo:stable", s.bundle().Spec.Reference)

	s.status(func(st *v1alpha1.VDOConfigStatus) { st.Revisions[1].Releases = "csi@3.5.1" })
	s.ok("upgrade", "rollback", "r1-11111111", "--yes")
	require.Contains(t, s.bundle().Spec.Reference, root.String())
}
