package deploy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// person returns a client of someone who may write VDOConfigs.
func person(t *testing.T, admin client.Client, name string) client.Client {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "vdoconfigs-of-" + name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"vdoconfigs"}, Verbs: []string{"create", "get", "update"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}}}
	for _, o := range []client.Object{role, binding} {
		require.NoError(t, admin.Create(t.Context(), o))
	}
	as := rest.CopyConfig(cluster.Config(t))
	as.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	return cluster.Client(t, as)
}

// No one consents to an upgrade in someone else's name; what was consented to stays
// while others, the operator among them, change the rest.
func TestWhoConsentsToAnUpgradeDoesSoInTheirOwnName(t *testing.T) {
	admin, operator := install(t)
	for _, u := range read(t, "approval.yaml") {
		require.NoError(t, apply(t.Context(), admin, u))
	}
	alice, bob := person(t, admin, "alice"), person(t, admin, "bob")
	consenting := func(by string) *v1alpha1.VDOConfig {
		return &v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "approved"}, Spec: v1alpha1.VDOConfigSpec{
			StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "vc"},
			UpgradePolicy:   &v1alpha1.UpgradePolicy{Approval: &v1alpha1.UpgradeApproval{Revision: "r2-00000000", By: by}}}}
	}
	v := consenting("alice")
	require.NoError(t, admin.Create(t.Context(), v))
	require.Eventually(t, func() bool { // the policy, and the rights, come into force in a while
		renamed := v.DeepCopy()
		renamed.Spec.UpgradePolicy.Approval.By = "carol"
		err := bob.Update(t.Context(), renamed, client.DryRunAll)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "has to be your own name, bob")
	}, 2*time.Minute, 200*time.Millisecond)
	require.Eventually(t, func() bool {
		return alice.Update(t.Context(), v, client.DryRunAll) == nil
	}, time.Minute, 200*time.Millisecond)
	restored := consenting("alice")
	restored.Name = "restored"
	require.NoError(t, bob.Create(t.Context(), restored, client.DryRunAll), "Velero and GitOps restore what was approved")

	update := func(c client.Client, edit func()) error {
		t.Helper()
		require.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(v), v))
		edit()
		return c.Update(t.Context(), v)
	}
	require.NoError(t, update(bob, func() { v.Spec.Suspend = true }), "the rest is anybody's who may")
	require.NoError(t, update(operator, func() { v.Finalizers = []string{"vdo.vmware.com/drivers"} }))
	require.NoError(t, update(operator, func() { v.Finalizers = nil }))
	require.ErrorContains(t, update(bob, func() { v.Spec.UpgradePolicy.Approval.Revision = "r3-00000000" }), "has to be your own name, bob")
	require.ErrorContains(t, update(operator, func() { v.Spec.UpgradePolicy.Approval.Revision = "r3-00000000" }), "has to be your own name")
	require.NoError(t, update(bob, func() { v.Spec.UpgradePolicy.Approval = &v1alpha1.UpgradeApproval{Revision: "r3-00000000", By: "bob"} }))
	require.NoError(t, update(alice, func() { v.Spec.UpgradePolicy.Approval = nil }))
}
