package vdoctl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/preflight"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/privileges"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/revision"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/topology"
)

// a zone is not moved while a node uses it, or the cluster does not say who does. A tag on a VM or a resource pool says
// nothing of a zone; one on what the zone is in does.
func TestNoZoneMovesWhileItIsUsed(t *testing.T) {
	root, site := preflight.Ref{Type: "Folder", Value: "root"}, preflight.Ref{Type: "Datacenter", Value: "site"}
	pool, vm := preflight.Ref{Type: "ResourcePool", Value: "p"}, preflight.Ref{Type: "VirtualMachine", Value: "vm"}
	node := preflight.Node{Name: "one", Zones: map[string]string{"topology.csi.vmware.com/k8s-zone": "a"}}
	away := errors.New("connection refused")
	attach := topology.Step{Do: topology.Attach, Category: "k8s-zone", Tag: "b", Path: "/site"}
	detach := topology.Step{Do: topology.Detach, Category: "k8s-zone", Tag: "a", Path: "/"}
	for _, cluster := range []preflight.Cluster{{Nodes: []preflight.Node{node}}, {Err: away}} {
		for on, refused := range map[preflight.Ref]bool{root: true, site: true, pool: false, vm: false} {
			v := preflight.VCenter{Contents: preflight.Contents{
				Objects: map[preflight.Ref]preflight.Object{
					root: {}, site: {Name: "site", Parent: root}, pool: {Name: "p", Parent: site}},
				Tagged: map[preflight.Ref][]preflight.Category{on: {{Name: "k8s-zone", Tag: "a"}}}}}
			u := &tagUse{cluster: cluster}
			err := u.refuse(v, []topology.Step{attach})
			require.Equal(t, refused, err != nil, "%v: %v", on, err)
			require.Error(t, u.refuse(v, []topology.Step{detach}))
		}
	}
}

// what is not asked for stays: upgrades are manual by the earlier operator's ConfigMap.
func TestConfigureKeepsTheModeOfTheEarlierOperator(t *testing.T) {
	_, c := installation(t)
	o, d := answering(t, c)
	o.username, o.password, o.bundle = "u", "new", "registry.site/vdo:1"
	require.NoError(t, o.take(d))
	require.Empty(t, d.config.Spec.Upgrade, "spec.upgrade was not set, and no one has asked for it")
}

func TestConsentsToOlderReleasesDoNotAddUp(t *testing.T) {
	config := &v1alpha1.VDOConfig{}
	config.Status.Drivers = []v1alpha1.DriverStatus{{Driver: "cpi", Version: "1.99.0"}, {Driver: "csi", Version: "3.99.0"}}
	for i := range 5 {
		to := fmt.Sprintf("cpi@1.3%d.0, csi@3.%d.0", i, i)
		pin(config, v1alpha1.RevisionStatus{Releases: to}, "r-1", "me")
	}
	require.LessOrEqual(t, len(config.Spec.UpgradePolicy.AllowDowngrade), 8)
	pin(config, v1alpha1.RevisionStatus{Releases: "csi@3.1.0"}, "r-2", "me")
	pinned := []string{"cpi@1.34.0", "csi@3.1.0"}
	require.Equal(t, pinned, config.Spec.UpgradePolicy.AllowDowngrade)
	config.Spec.UpgradePolicy.AllowDowngrade = []string{"cpi@1.30.0"}
	require.Equal(t, []string{"cpi@1.30.0", "csi@3.0.0"}, downgrades(config, "cpi@1.30.0, csi@3.0.0"))
	require.Nil(t, downgrades(config, "cpi@1.30.0"))
}

// a revision that failed and stays, since nothing can be gone back to, is tried once more, approved before or not.
func TestAFailedRevisionThatStaysIsApprovedAgain(t *testing.T) {
	config := &v1alpha1.VDOConfig{}
	config.Spec.Upgrade = v1alpha1.UpgradeManual
	config.Status.Revisions = []v1alpha1.RevisionStatus{
		{Name: "r-2", Group: "csi", Current: true, Bundle: "b", Releases: "csi@3.5.1", Outcome: "Failed"},
	}
	config.Status.Drivers = []v1alpha1.DriverStatus{
		{Driver: "cpi", Version: "1.33.1"}, {Driver: "csi", Version: "3.3.1"},
	}
	whole := revision.Revision{Bundle: "b", Releases: []string{"cpi@1.33.1", "csi@3.5.1"}}.Name()
	const earlier = "r-2 2026-08-01T12:00:00Z"
	for approved, want := range map[string]string{"": "r-2", "r-1": "r-2", "r-2": "r-2", whole: whole} {
		config.Annotations, config.Spec.UpgradePolicy = map[string]string{v1alpha1.AnnotationRetry: earlier}, nil
		if approved != "" {
			approval := &v1alpha1.UpgradeApproval{Revision: approved, By: "another"}
			config.Spec.UpgradePolicy = &v1alpha1.UpgradePolicy{Approval: approval}
		}
		require.NoError(t, (&approveOptions{app: &app{}}).consentTo(config, "r-2", "me"))
		require.Contains(t, config.Annotations[v1alpha1.AnnotationRetry], "r-2 ")
		require.NotEqual(t, earlier, config.Annotations[v1alpha1.AnnotationRetry], "it is tried once for each value")
		require.Equal(t, &v1alpha1.UpgradeApproval{Revision: want, By: "me"}, config.Spec.UpgradePolicy.Approval)
	}

	config.Annotations = nil // the same while another group waits for an approval
	config.Status.Candidate = &v1alpha1.CandidateStatus{Name: "r-3", Releases: "cpi@1.33.1, csi@3.5.1", Reason: "NotApproved"}
	require.NoError(t, (&approveOptions{app: &app{}}).consentTo(config, "r-3", "me"))
	require.NotEmpty(t, config.Annotations[v1alpha1.AnnotationRetry], "the failed csi of r-3 is not tried again")
	config.Annotations, config.Status.Revisions, config.Status.Candidate.Reason = nil, nil, "Failed"
	require.NoError(t, (&approveOptions{app: &app{}}).consentTo(config, "r-3", "me"))
	require.NotEmpty(t, config.Annotations[v1alpha1.AnnotationRetry], "it failed, and what ran before runs")
}

func TestADowngradeNeedsItsOwnConsent(t *testing.T) {
	config, o := &v1alpha1.VDOConfig{}, &approveOptions{app: &app{}}
	config.Status.Drivers = []v1alpha1.DriverStatus{{Driver: "csi", Version: "3.5.1"}}
	config.Status.Candidate = &v1alpha1.CandidateStatus{Name: "r-1", Releases: "csi@3.3.1", Reason: "DowngradeRefused"}
	require.ErrorContains(t, o.consentTo(config, "r-1", "me"), "csi@3.3.1: older than what runs")
	require.Nil(t, config.Spec.UpgradePolicy)
	o.downgrade = true
	require.NoError(t, o.consentTo(config, "r-1", "me"))
	require.Equal(t, []string{"csi@3.3.1"}, config.Spec.UpgradePolicy.AllowDowngrade)

	o.downgrade, config.Status.Candidate.Name, config.Status.Candidate.Reason = false, "r-2", "WindowClosed"
	before := config.DeepCopy()
	require.NoError(t, o.consentTo(config, "r-2", "me"), "the spec allows it")
	require.Equal(t, before, config)
}

// the administrator's password, which `users` and `check` read from VDO_VCENTER_PASSWORD, is not the drivers'.
func TestThePasswordOfTheSecretIsKept(t *testing.T) {
	_, c := installation(t)
	var s corev1.Secret
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: operatorNamespace, Name: "vc"}, &s))
	s.Data = map[string][]byte{"username": []byte("drivers@vsphere.local"), "password": []byte("drivers-password")}
	require.NoError(t, c.Update(t.Context(), &s))
	env := func(name string) (string, bool) { return "administrators-password", name == passwordEnv }
	o, d := answering(t, c)
	o.getenv = env
	o.offerVCenter(d)
	require.Equal(t, "drivers@vsphere.local", o.username, "of the Secret: no flag names an account")
	require.NoError(t, o.readPassword(t.Context(), d, false))
	require.Equal(t, "drivers-password", o.password)
}

// a mirror whose path has the name of the operator's usual namespace.
func TestAnotherNamespaceLeavesImagesAlone(t *testing.T) {
	a := &app{}
	a.cluster.namespace = "vdo"
	const image = "registry.site/vmware-system-vdo/drivers@sha256:00"
	all, err := a.readManifest([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: vmware-system-vdo}\n" +
		"spec:\n  containers:\n  - image: " + image + "\n"))
	require.NoError(t, err)
	u, err := manifest(all[0])
	require.NoError(t, err)
	containers := u.Object["spec"].(map[string]any)["containers"].([]any)
	require.Equal(t, image, containers[0].(map[string]any)["image"])
}

// Nodes read user and password alone, and a token in their place ends within hours.
func TestALoginThatNodesCannotUseIsNotStored(t *testing.T) {
	for login, says := range map[string]string{
		`"auth":"cm9ib3Q6cHc="`:                 `{"auths":{"mirror.site":{"auth":"cm9ib3Q6cHc="}}}<nil>`,
		`"auth":"QVdTOnRva2Vu"`:                 "store the login of AWS from ",
		`"auth":"QTo=","identitytoken":"token"`: "nodes cannot use",
		`"registrytoken":"token"`:               "the login of a token from ",
	} {
		o := &deployOptions{app: &app{now: time.Now, getenv: os.LookupEnv}}
		o.authFile, o.to.Repository = filepath.Join(t.TempDir(), "auth.json"), "mirror.site/vdo/drivers"
		require.NoError(t, os.WriteFile(o.authFile, []byte(`{"auths":{"mirror.site":{`+login+`}}}`), 0o600))
		got, err := o.login(t.Context())
		require.Contains(t, fmt.Sprint(string(got), err), says)
	}
}

func TestAnObjectWithoutAFolderStays(t *testing.T) {
	all := []privileges.Object{{Kind: privileges.Ancestor, Path: "Folder:group-hidden"},
		{Kind: privileges.VM, Path: "VirtualMachine:vm-1"},
		{Kind: privileges.Root, Path: "/"}, {Kind: privileges.VM, Path: "/of-a-vapp"}}
	require.Equal(t, all, inFolders(all))
	k8s := privileges.Object{Kind: privileges.Ancestor, Path: "/dc/vm/k8s", ID: "Folder-k8s"}
	got := inFolders([]privileges.Object{k8s, {Kind: privileges.VM, Path: "/dc/vm/k8s/node"}})
	require.Equal(t, []privileges.Object{k8s, {Kind: privileges.VM, Path: k8s.Path, ID: k8s.ID}}, got)
}

func TestARollbackApprovesADriverThatIsLeftToOthers(t *testing.T) {
	config := &v1alpha1.VDOConfig{Status: v1alpha1.VDOConfigStatus{Drivers: []v1alpha1.DriverStatus{
		{Driver: "csi", Version: "3.7.3"}, {Driver: "snapshot-controller", Wanted: "8.2.0"},
	}}}
	want := revision.Revision{Bundle: "b", Releases: []string{"csi@3.6.3", "snapshot-controller@8.2.0"}}
	require.Equal(t, want.Name(), approvalOf(config, v1alpha1.RevisionStatus{Bundle: "b", Releases: "csi@3.6.3"}))
}
