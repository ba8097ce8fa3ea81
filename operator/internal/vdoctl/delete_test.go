package vdoctl_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// installs has the operator's manifests applied, and returns their objects.
func (s *shop) installs() (all []client.Object) {
	s.t.Helper()
	require.NoError(s.t, cluster.InstallCRDs(whole.cluster.Config()))
	for _, m := range append([]deploy.Manifest{deploy.DriverNamespaces()}, deploy.Manifests()...) {
		for _, o := range s.read(string(m.Data)) {
			s.create(o)
			if o.GetObjectKind().GroupVersionKind().Kind != "Namespace" {
				all = append(all, o)
			}
		}
	}
	return all
}

// configured has the resources of a site applied: the finalizer is the operator's.
func (s *shop) configured() {
	s.t.Helper()
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: s.meta("account"), StringData: map[string]string{"username": "u", "password": "canary"}},
		&corev1.Secret{ObjectMeta: s.meta("of-somebody-else")},
		&corev1.ConfigMap{ObjectMeta: s.meta("vdo-trust")},
		&v1alpha1.VsphereCloudConfig{ObjectMeta: s.meta("east"), Spec: v1alpha1.VsphereCloudConfigSpec{VcIP: "vc.site.example", Credentials: "account"}},
		&v1alpha1.DriverBundle{ObjectMeta: s.meta("drivers"), Spec: v1alpha1.DriverBundleSpec{Reference: "registry.site/vdo:stable"}},
		&v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "vdo", Finalizers: []string{"vdo.vmware.com/drivers"}},
			Spec: v1alpha1.VDOConfigSpec{StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "east"}}},
	} {
		s.create(o)
	}
}

// release does what the operator does once the drivers are removed.
func (s *shop) release() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		v := s.config()
		if v.DeletionTimestamp == nil {
			return false
		}
		v.Finalizers = nil
		return s.k.Update(s.t.Context(), v) == nil
	}, 2*time.Minute, 100*time.Millisecond)
}

func (s *shop) there(o client.Object) bool {
	s.t.Helper()
	err := s.k.Get(s.t.Context(), client.ObjectKeyFromObject(o), o)
	if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		require.NoError(s.t, err)
	}
	return err == nil
}

func (s *shop) background(args ...string) (cmd *exec.Cmd, end func() result) {
	s.t.Helper()
	cmd = exec.CommandContext(s.t.Context(), "vdoctl", append(args, "-n", s.ns)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.conf)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(s.t, cmd.Start())
	return cmd, func() result {
		err := cmd.Wait()
		return ended(s.t, out.String(), err)
	}
}

func TestDeleteTakesWhatIsAskedForAndNothingElse(t *testing.T) {
	s := wholeCluster(t)
	installed := s.installs()
	s.configured()

	s.run("delete").is(2, "say what to delete")
	for _, flag := range []string{"--operator", "--configuration", "--crds"} {
		s.run("delete", flag, "--yes").is(8, "--keep-drivers")
	}
	s.run("delete", "--all").is(8, "no terminal")
	require.Contains(t, s.ok("delete", "--all", "--dry-run"), "VDOConfig vmware-system-vdo/vdo")
	require.Nil(t, s.config().DeletionTimestamp)

	// Interrupted while the operator removes the drivers: the next run goes on.
	cmd, end := s.background("delete", "--drivers", "--yes")
	require.Eventually(t, func() bool { return s.config().DeletionTimestamp != nil }, time.Minute, 100*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	end().is(130)
	_, end = s.background("delete", "--drivers", "--yes")
	s.release()
	out := end().is(0)
	require.False(t, s.there(&v1alpha1.VDOConfig{ObjectMeta: s.meta("vdo")}), out)
	require.Contains(t, s.ok("delete", "--drivers", "--yes"), "None of the requested parts exists")
	require.True(t, s.there(&v1alpha1.DriverBundle{ObjectMeta: s.meta("drivers")}))

	s.ok("delete", "--configuration", "--yes")
	for object, stays := range map[client.Object]bool{
		&v1alpha1.DriverBundle{ObjectMeta: s.meta("drivers")}: false, &corev1.Secret{ObjectMeta: s.meta("account")}: false,
		&corev1.ConfigMap{ObjectMeta: s.meta("vdo-trust")}: false, &corev1.Secret{ObjectMeta: s.meta("of-somebody-else")}: true,
	} {
		require.Equal(t, stays, s.there(object), object.GetName())
	}
	for _, o := range installed {
		require.True(t, s.there(o), o.GetName())
	}
	s.run("delete", "--all", "--yes").is(0, "Namespace vmware-system-vdo: a later operator needs the ConfigMaps vdo-bundle-… "+
		"and Secrets vdo-config-hash and vdo-highest-serials in it.", "kubectl delete namespace vmware-system-vdo\n",
		"if no volume is left: kubectl delete namespace vmware-system-csi\n", "kubectl delete crd NAME\n")
	for _, o := range installed {
		require.False(t, s.there(o), "%s %s", o.GetObjectKind().GroupVersionKind().Kind, o.GetName())
	}
	require.Contains(t, s.ok("delete", "--all", "--yes"), "None of the requested parts exists")
	for _, name := range []string{s.ns, "vmware-system-csi"} {
		require.True(t, s.there(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}), name)
	}
}

func TestDeleteCanLeaveTheDriversInstalled(t *testing.T) {
	s := wholeCluster(t)
	s.installs()
	s.configured()
	s.run("delete", "--keep-drivers", "--dry-run").is(0,
		"VDOConfig (the drivers stay installed, without the registration of their webhook)\n  VDOConfig vmware-system-vdo/vdo\n")
	_, end := s.background("delete", "--keep-drivers", "--operator", "--yes")
	require.Eventually(t, func() bool { return s.config().DeletionTimestamp != nil }, time.Minute, 100*time.Millisecond)
	require.Equal(t, v1alpha1.DeleteOrphan, s.config().Spec.OnDelete)
	require.True(t, s.there(&corev1.ServiceAccount{ObjectMeta: s.meta("vdo-operator")}), "the operator stays until the VDOConfig is gone")
	s.release()
	end().is(0, "VDOConfig vmware-system-vdo/vdo is gone")
	require.False(t, s.there(&corev1.ServiceAccount{ObjectMeta: s.meta("vdo-operator")}))
	for _, name := range []string{s.ns, "vmware-system-csi"} {
		require.True(t, s.there(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}), name)
	}
	s.run("delete", "--crds", "--yes").is(8, "there is what needs them: VsphereCloudConfig vmware-system-vdo/east")
	s.besideTenants()
	s.ok("delete", "--all", "--yes")
	require.True(t, s.there(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}))
}

// besideTenants has what others keep of the operator's kinds in namespaces of their own: it
// is not deleted, and keeps the kinds.
func (s *shop) besideTenants() {
	s.t.Helper()
	ctx := s.t.Context()
	at := metav1.ObjectMeta{Namespace: "tenants", Name: "theirs"}
	tenant := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "airship.airshipit.org/v1", "kind": "SIPCluster",
		"metadata": map[string]any{"namespace": "tenants", "name": "one"}}}
	others := []client.Object{&v1alpha1.VDOConfig{ObjectMeta: at, Spec: v1alpha1.VDOConfigSpec{StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "x"}}},
		&v1alpha1.DriverBundle{ObjectMeta: at, Spec: v1alpha1.DriverBundleSpec{Reference: "registry.site/vdo:stable"}}, tenant}
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: at.Namespace}})
	for _, o := range others {
		s.create(o)
	}
	s.run("delete", "--all", "--yes").is(8,
		"there is what needs them: VDOConfig tenants/theirs, DriverBundle tenants/theirs, SIPCluster tenants/one\n", "leave the CRDs: `vdoctl delete --drivers --configuration --operator")
	require.True(s.t, s.there(&v1alpha1.VsphereCloudConfig{ObjectMeta: s.meta("east")}))
	out := s.ok("delete", "--drivers", "--configuration", "--operator", "--dry-run")
	require.NotContains(s.t, out, "tenants")
	for _, o := range others {
		require.NoError(s.t, s.k.Delete(ctx, o))
	}
}
