package vdoctl

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

func metaOf(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

// installation is one, and a delete of all of it.
func installation(t *testing.T, more ...client.Object) (*deleteOptions, client.Client) {
	t.Helper()
	west := &v1alpha1.VsphereCloudConfig{ObjectMeta: metaOf("vmware-system-vdo", "west")}
	west.Generation, west.Spec.Credentials = 1, "vc"
	all := append([]client.Object{
		&corev1.Namespace{ObjectMeta: metaOf("", "vmware-system-vdo")}, &corev1.Namespace{ObjectMeta: metaOf("", "vmware-system-csi")},
		&corev1.Secret{ObjectMeta: metaOf("vmware-system-vdo", "vc")},
		west,
		&v1alpha1.VDOConfig{ObjectMeta: metaOf("vmware-system-vdo", "vdo")},
	}, more...)
	o := &deleteOptions{app: &app{out: &bytes.Buffer{}, err: &bytes.Buffer{}}, goals: goals{drivers: true, settings: true, operator: true}, timeout: time.Minute}
	o.cluster.namespace, o.yes = operatorNamespace, true
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).WithReturnManagedFields().Build()
	return o, client.WithFieldOwner(c, fieldManager)
}

// After delete --keep-drivers no VDOConfig has the drivers.
func TestDeleteNamesTheWayToDriversWithoutAVDOConfig(t *testing.T) {
	o, c := installation(t, &appsv1.Deployment{ObjectMeta: metaOf("vmware-system-csi", "vsphere-csi-controller")})
	r := must.Have(o.plan(t.Context(), c))(t)
	require.Len(t, r.Stays, 3, "the operator removes them")
	require.NoError(t, c.Delete(t.Context(), &v1alpha1.VDOConfig{ObjectMeta: metaOf(operatorNamespace, "vdo")}))
	r = must.Have(o.plan(t.Context(), c))(t)
	require.Contains(t, r.Stays, "Deployment vmware-system-csi/vsphere-csi-controller: no VDOConfig has these drivers; to "+
		"remove them, deploy one (`vdoctl deploy BUNDLE -f FILE`), then run `vdoctl delete --drivers`")

	require.NoError(t, c.Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metaOf("", operatorDeployment),
		Subjects: []rbacv1.Subject{{Name: operatorDeployment, Namespace: "elsewhere"}}}))
	_, err := o.plan(t.Context(), c)
	require.ErrorContains(t, err, "the operator is in namespace elsewhere", "so is its VDOConfig")
}

func TestDeleteKeepsTheRecordOfAccounts(t *testing.T) {
	for _, ns := range []string{"vmware-system-vdo", "kube-system"} {
		o, c := installation(t, &corev1.ConfigMap{ObjectMeta: metaOf(ns, "vdo-account-vc")},
			&corev1.ConfigMap{ObjectMeta: metaOf("vmware-system-vdo", v1alpha1.DefaultTrustName)})
		all := o.goals
		o.goals = goals{drivers: true}
		must.Have(o.plan(t.Context(), c))(t) // the drivers go first
		o.goals, o.keepDrivers = goals{settings: true, operator: true}, true
		r := must.Have(o.plan(t.Context(), c))(t)
		require.Equal(t, []string{"ConfigMap vmware-system-vdo/" + v1alpha1.DefaultTrustName, "VsphereCloudConfig vmware-system-vdo/west"},
			r.Stages[1].Objects, "a run that was cut short finds the rest by what names it")
		require.Contains(t, r.Stays[1], "Secret vc, ConfigMap vdo-account-vc: the account of the drivers; ")
		o.keepDrivers = false
		for _, g := range []goals{all, {settings: true, drivers: true}, {drivers: true, operator: true}} {
			o.goals = g
			_, err := o.plan(t.Context(), c)
			require.ErrorContains(t, err, "of Secrets vc")
			var refused *fault.Error
			require.ErrorAs(t, err, &refused)
			require.Contains(t, refused.Hint, "`vdoctl delete --drivers`)")
			require.Contains(t, refused.Hint, "`vdoctl users delete --username ADMIN --secret NAME`)")
		}
	}
}

// users delete removes the Secret first: run again, it finds the record beside the place of the Secret.
func TestAnAccountIsWhereItsSecretOrRecordIs(t *testing.T) {
	o := &accountOptions{usersOptions: usersOptions{app: &app{}}, secret: "theirs"}
	o.cluster.namespace = operatorNamespace
	secret := func(ns string) client.Object { return &corev1.Secret{ObjectMeta: metaOf(ns, "theirs")} }
	record := func(ns string) client.Object { return &corev1.ConfigMap{ObjectMeta: metaOf(ns, "vdo-account-theirs")} }
	for want, objects := range map[string][][]client.Object{
		"kube-system":       {{secret("kube-system")}, {record("kube-system")}},
		"vmware-system-vdo": {{}, {record("vmware-system-vdo")}, {secret("vmware-system-vdo"), secret("kube-system")}},
	} {
		for i, list := range objects {
			_, c := installation(t, append(list, &corev1.Namespace{ObjectMeta: metaOf("", "kube-system")})...)
			at := must.Have(o.recorded(t.Context(), c))(t)
			require.Equal(t, want, at.Namespace, i)
		}
	}
}

func TestDeleteDoesNotLeaveDriversUnsaid(t *testing.T) {
	ctx := context.Background()
	o, c := installation(t)
	r := must.Have(o.plan(ctx, c))(t)
	require.NoError(t, orphan(ctx, c, []client.Object{&v1alpha1.VDOConfig{ObjectMeta: metaOf("vmware-system-vdo", "vdo")}}))
	require.ErrorContains(t, o.removeAll(ctx, c, r), "spec.onDelete is Orphan", "asked again after the consent")
	must.Fail(t, must.Err(o.plan(ctx, c)), fault.Refused, "VDOConfig vmware-system-vdo/vdo: spec.onDelete is Orphan")

	o, c = installation(t)
	r = must.Have(o.plan(ctx, c))(t)
	volume := &corev1.PersistentVolume{ObjectMeta: metaOf("", "late"), Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.vsphere.vmware.com"}}}}
	require.NoError(t, c.Create(ctx, volume))
	require.ErrorContains(t, o.removeAll(ctx, c, r), "volumes use the storage driver: late")
	must.Fail(t, must.Err(o.plan(ctx, c)), fault.Refused, "volumes use the storage driver: late")
	require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: "vmware-system-vdo", Name: "vdo"}, &v1alpha1.VDOConfig{}), "nothing was begun")
}

func TestANamespaceThatIsDeletedIsReleasedByHand(t *testing.T) {
	ctx := t.Context()
	o, c := installation(t)
	in := &corev1.Namespace{ObjectMeta: metaOf("", operatorNamespace)}
	require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(in), in))
	in.Finalizers = []string{"kubernetes"}
	require.NoError(t, c.Update(ctx, in))
	require.NoError(t, c.Delete(ctx, in))
	_, err := o.plan(ctx, c)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err))
	require.ErrorContains(t, err, "waits for VDOConfig vdo")
	require.Contains(t, fault.HintOf(err), `kubectl -n vmware-system-vdo patch vdoconfig vdo --type merge -p '{"metadata":{"finalizers":null}}'`)
	r := must.Have(readStatus(ctx, c, operatorNamespace))(t)
	require.Contains(t, fmt.Sprint(r.Waiting), "Namespace vmware-system-vdo Terminating it is being deleted")

	// It ends by itself without a VDOConfig.
	require.NoError(t, c.Delete(ctx, &v1alpha1.VDOConfig{ObjectMeta: metaOf(operatorNamespace, "vdo")}))
	must.Have(o.plan(ctx, c))(t)
}

func TestDeleteSaysWhatItStillWaitsFor(t *testing.T) {
	v := &v1alpha1.VDOConfig{ObjectMeta: metaOf(operatorNamespace, "stays")}
	v.Status.Conditions = []metav1.Condition{condition("Ready", "False", "Refused", "spec.suspend is set")}
	v.Finalizers = []string{v1alpha1.FinalizerDrivers}
	o, c := installation(t, v)
	said := o.err.(*bytes.Buffer) //nolint:forcetypeassert,errcheck // installation made it
	must.Have(o.plan(t.Context(), c))(t)
	require.Contains(t, said.String(), "warning: only a running operator removes the drivers, and there is no operator in")
	said.Reset()
	renewed := metav1.NewMicroTime(time.Now().Add(-2 * time.Minute))
	lease := &coordinationv1.Lease{ObjectMeta: metaOf(operatorNamespace, operatorDeployment)}
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("host_1"), RenewTime: &renewed}
	require.NoError(t, c.Create(t.Context(), lease))
	must.Fail(t, must.Err(o.plan(t.Context(), c)), fault.Refused, "delete the VDOConfig: only a running operator")
	stopped := &appsv1.Deployment{ObjectMeta: lease.ObjectMeta, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](0)}}
	stopped.ResourceVersion = ""
	require.NoError(t, c.Create(t.Context(), stopped))
	must.Fail(t, must.Err(o.plan(t.Context(), c)), fault.Refused, "delete the VDOConfig: only a running operator")
	stopped.Spec.Replicas = ptr.To[int32](1)
	require.NoError(t, c.Update(t.Context(), stopped))
	must.Have(o.plan(t.Context(), c))(t) // it starts
	require.Empty(t, said.String())
	o.timeout = 0 // it looks once
	must.Fail(t, o.gone(t.Context(), c, []client.Object{v}), fault.Incomplete,
		"not within 1ns: VDOConfig vmware-system-vdo/stays: spec.suspend is set")
}

func TestAWaitSaysThatTheAPIServerIsAway(t *testing.T) {
	var said bytes.Buffer
	answers := []error{fault.Errorf(fault.Unreachable, "read", "the VDOConfig", "", "connection refused"), nil}
	err := (&app{err: &said}).wait(t.Context(), time.Minute, "wait", "", func() (why string, err error) {
		err, answers = answers[0], answers[1:]
		return "", err
	})
	require.NoError(t, err)
	require.Contains(t, said.String(), "waiting for read the VDOConfig: connection refused")
}
