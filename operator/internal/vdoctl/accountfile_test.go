package vdoctl

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

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
