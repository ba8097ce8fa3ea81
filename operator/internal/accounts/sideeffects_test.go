package accounts_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/accounts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
)

const made = "vSphere drivers of Kubernetes cluster " + clusterID + ", Secret ns/vc; made by vdoctl"

// controllerWith is a driver that runs, and its configuration.
func controllerWith(account, password string) []client.Object {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: drivers.CSINamespace, Name: drivers.Controller}}
	d.Spec.Template.Annotations = map[string]string{render.AnnotationConfigHash: "h"}
	d.Status.UpdatedReplicas, d.Status.Replicas = 1, 1
	return []client.Object{d, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: drivers.CSINamespace, Name: render.CSISecret},
		Data: map[string][]byte{render.CSIConfigKey: []byte("user = \"" + account + "\"\npassword = \"" + password + "\"\n")}}}
}

func secretWith(account, password string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vc", UID: "u"}, Data: map[string][]byte{"username": []byte(account), "password": []byte(password)}}
}

func loginIn(t *testing.T, s *accounts.Site) accounts.Login {
	t.Helper()
	var x corev1.Secret
	require.NoError(t, s.API.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "vc"}, &x))
	return accounts.Login{Username: string(x.Data["username"]), Password: vcenter.Password(x.Data["password"])}
}

// tried is what the operator does with the Secret.
func tried(t *testing.T, s *accounts.Site) {
	t.Helper()
	var x corev1.Secret
	var vcc v1alpha1.VsphereCloudConfig
	require.NoError(t, s.API.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "vc"}, &x))
	require.NoError(t, s.API.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "west"}, &vcc))
	vcc.Status.ObservedGeneration, vcc.Status.VerifiedCredentials = 1, string(x.UID)+"/"+x.ResourceVersion
	require.NoError(t, s.API.Update(t.Context(), &vcc))
}

// The Secret is gone, and drivers run with their copy of it: their password stays.
func TestAPasswordThatIsInUseIsNotReset(t *testing.T) {
	v := newShared()
	v.accounts[firstName], v.passwords[firstName] = made, "old"
	s, _ := shareSite(t, v, controllerWith(firstName, "old")...)
	err := s.Create(t.Context(), accounts.Login{})
	require.Equal(t, fault.Refused, fault.ReasonOf(err))
	require.ErrorContains(t, err, "vmware-system-csi/vsphere-csi-controller runs with it")
	require.Contains(t, fault.HintOf(err), "put that account and its password back into the Secret")
	require.Empty(t, v.changes)

	// No driver has it, and yet somebody is logged in.
	s, _ = shareSite(t, v)
	v.sessions = []vcenter.Session{{Agent: "backup", Address: "10.0.0.9", Active: time.Now().Add(-time.Hour)}}
	require.ErrorContains(t, s.Create(t.Context(), accounts.Login{}), `by "backup" from "10.0.0.9"`)
	require.Empty(t, v.changes)
	v.sessions = nil
	require.NoError(t, s.Create(t.Context(), accounts.Login{}))
	require.Equal(t, []string{"set password of " + firstName}, v.changes)
	require.Equal(t, v.passwords[firstName], loginIn(t, s).Password)
}

// Of two runs at once one sets its password, and where both did it the next run mends it.
func TestTwoRunsAtOnceEndWithAPasswordThatWorks(t *testing.T) {
	v := newShared()
	v.accounts[firstName], v.accounts[nextName] = made, made
	rec := record(`{"account":"` + firstName + `","made":true,"next":"` + nextName + `","nextMade":true,"places":{}}`)
	s, _ := shareSite(t, v, append(controllerWith(firstName, "p"), secretWith(firstName, "p"), rec)...)
	var other error
	v.looking = func() { other = s.Rotate(t.Context(), accounts.Login{}) }
	err := s.Rotate(t.Context(), accounts.Login{})
	require.Equal(t, fault.Incomplete, fault.ReasonOf(other), "it waits for the operator: %v", other)
	require.Equal(t, fault.Conflict, fault.ReasonOf(err), "the record was changed: %v", err)
	require.Equal(t, accounts.Login{Username: nextName, Password: v.passwords[nextName]}, loginIn(t, s))

	// The Secret's password is refused: the next run sets another one, for rotate as for create.
	v.passwords[nextName] = "of a third run"
	err = s.Rotate(t.Context(), accounts.Login{})
	require.ErrorContains(t, err, "the operator has not logged in with it to west")
	require.NotEqual(t, vcenter.Password("of a third run"), v.passwords[nextName])
	require.Equal(t, accounts.Login{Username: nextName, Password: v.passwords[nextName]}, loginIn(t, s))

	v = newShared()
	v.accounts[firstName], v.passwords[firstName] = made, "of another run"
	rec = record(`{"account":"` + firstName + `","made":true,"places":{}}`)
	s, _ = shareSite(t, v, secretWith(firstName, "refused"), rec)
	require.NoError(t, s.Create(t.Context(), accounts.Login{}))
	require.Equal(t, v.passwords[firstName], loginIn(t, s).Password)
	require.NotEqual(t, vcenter.Password("of another run"), v.passwords[firstName])

	// Drivers that have another password than the Secret's keep what they log in with.
	v.passwords[firstName], v.changes = "theirs", nil
	s, _ = shareSite(t, v, append(controllerWith(firstName, "theirs"), secretWith(firstName, "mistyped"), rec)...)
	require.Equal(t, fault.Refused, fault.ReasonOf(s.Create(t.Context(), accounts.Login{})))
	require.Empty(t, v.changes)
}

// A driver that has another Secret's account is not waited for.
func TestARotationWaitsForTheDriversOfItsAccountAlone(t *testing.T) {
	v := newShared()
	v.accounts[firstName] = made
	rec := record(`{"account":"` + firstName + `","made":true,"places":{}}`)
	s, _ := shareSite(t, v, append(controllerWith("storage@vsphere.local", "x"), secretWith(firstName, "p"), rec)...)
	require.ErrorContains(t, s.Rotate(t.Context(), accounts.Login{}), "the operator has not logged in")
	tried(t, s)
	require.NoError(t, s.Rotate(t.Context(), accounts.Login{}))
	require.NotContains(t, v.accounts, firstName)

	// One that has it is, also where it was installed meanwhile, and by either name.
	for _, account := range []string{firstName, `VSPHERE.LOCAL\vdo-3f2a9c1b`} {
		v.accounts[firstName] = made
		s, _ = shareSite(t, v, append(controllerWith(account, "x"), secretWith(nextName, "p"),
			record(`{"account":"`+firstName+`","made":true,"next":"`+nextName+`","nextMade":true,"places":{}}`))...)
		tried(t, s)
		v.passwords[nextName] = "p"
		require.ErrorContains(t, s.Rotate(t.Context(), accounts.Login{}), "has another account")
		require.Contains(t, v.accounts, firstName)
	}
}

// A session of somebody else counts while it is open; those that this cluster's drivers have
// left behind do not.
func TestAnAccountWithSomebodyElsesSessionStays(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}}}
	for name, c := range map[string]struct {
		address string
		idle    time.Duration
		stays   bool
	}{
		"another cluster's, idle": {"10.0.0.2", time.Hour, true},
		"of no known address":     {"", time.Hour, true},
		"a node's, in use":        {"10.0.0.1", time.Second, true},
		"a node's, left behind":   {"10.0.0.1", time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := newShared()
			v.accounts[firstName] = made
			v.sessions = []vcenter.Session{{Agent: "csi", Address: c.address, Active: time.Now().Add(-c.idle)}}
			s, _ := shareSite(t, v, node, record(`{"account":"`+firstName+`","made":true,"places":{}}`))
			err := s.Delete(t.Context())
			_, there := v.accounts[firstName]
			require.Equal(t, c.stays, there)
			if c.stays {
				require.ErrorContains(t, err, `by "csi" from "`+c.address+`"`)
				return
			}
			require.NoError(t, err)
		})
	}
}
