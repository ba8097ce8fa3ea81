package vdoctl

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/accounts"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/logins"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vcenter"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// A linked vCenter may have a new password late. Then it is tried there again.
func TestAPasswordIsTriedAgain(t *testing.T) {
	v := vcsim.Start(t, vcsim.Options{})
	o := &accountOptions{usersOptions: usersOptions{app: &app{logins: &logins.Logins{}, now: time.Now}}}
	in := &site{app: o.app, preferAsked: true, reader: &accountFile{made: &objects{}}}
	in.login = func(context.Context, string, vcenter.Target) (credentials.Credentials, error) {
		a := vcsim.Administrator
		return credentials.Credentials{Username: a.Username, Password: a.Password}, nil
	}
	config := &v1alpha1.VsphereCloudConfig{}
	config.Spec = v1alpha1.VsphereCloudConfigSpec{VcIP: v.Host, Port: int32(v.Port), Thumbprint: v.SHA256}
	p, err := o.place(t.Context(), in, configured{config: config}, vcenter.Ask{})
	require.NoError(t, err)
	defer o.open[0].Close()
	late := accounts.Login{Username: vcsim.Admin.Username, Password: "late"}
	_, err = p.Verify(t.Context(), late)
	require.Equal(t, fault.Unauthorized, fault.ReasonOf(err), err)
	v.SetPassword(late.Username, string(late.Password))
	_, err = p.Verify(t.Context(), late)
	require.NoError(t, err)
}

// Two runs read the file before either writes: logins, a question and the verifying lie between. None takes from it
// what the other one has written. Only the owner reads it.
func TestTwoRunsKeepEachOthersAccounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "site.yaml")
	open := func() *accountFile {
		f, err := accountsOf(file)
		require.NoError(t, err)
		return f
	}
	record := func(name string) *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: metaOf("ns", name)} }
	require.NoError(t, os.WriteFile(accountFileName(file), nil, 0o644))
	one, other := open(), open()
	require.NoError(t, one.Create(t.Context(), record("east")))
	info, err := os.Stat(one.name)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, other.Create(t.Context(), record("west")))
	require.True(t, apierrors.IsAlreadyExists(other.Create(t.Context(), record("east"))))
	for range 2 {
		require.NoError(t, one.Create(t.Context(), &corev1.Secret{ObjectMeta: metaOf("ns", "west")}))
	}
	require.NoError(t, one.Update(t.Context(), record("east")))
	all := []string{"Secret ns/west", "ConfigMap ns/east", "ConfigMap ns/west"}
	require.ElementsMatch(t, all, described(open().made.values()))

	deploys := open()
	require.NoError(t, other.Delete(t.Context(), record("west")))
	require.Equal(t, fault.Conflict, fault.ReasonOf(deploys.remove()), "it moves what it has read, and no more")
	require.ElementsMatch(t, []string{"Secret ns/west", "ConfigMap ns/east"}, described(open().made.values()))
	require.NoError(t, one.Delete(t.Context(), record("east")))
	require.NoError(t, one.Delete(t.Context(), &corev1.Secret{ObjectMeta: metaOf("ns", "west")}))
	_, err = os.Stat(one.name)
	require.ErrorIs(t, err, os.ErrNotExist)
}
