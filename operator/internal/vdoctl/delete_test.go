package vdoctl_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	worldsite "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/site"
)

// installs has the operator's manifests applied, and returns their objects.
func (s *shop) installs() (all []client.Object) {
	s.t.Helper()
	require.NoError(s.t, cluster.InstallCRDs(whole.cluster.Config()))
	for _, m := range append([]deploy.Manifest{deploy.DriverNamespaces()}, deploy.Manifests()...) {
		file := s.t.TempDir() + "/" + m.Name
		require.NoError(s.t, os.WriteFile(file, m.Data, 0o600))
		objects, err := worldsite.ReadObjects(file)
		require.NoError(s.t, err)
		for _, o := range objects {
			if err := s.k.Create(s.t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
				require.NoError(s.t, err, o.GetName())
			}
			if m.Name != deploy.DriverNamespaces().Name {
				all = append(all, o)
			}
		}
	}
	return all
}

// configured has the resources of a site applied: the finalizer is the operator's.
func (s *shop) configured() {
	s.t.Helper()
	ctx := s.t.Context()
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: s.meta("account"), StringData: map[string]string{"username": "u", "password": "canary"}},
		&corev1.Secret{ObjectMeta: s.meta("of-somebody-else")},
		&corev1.ConfigMap{ObjectMeta: s.meta("vdo-trust")},
		&v1alpha1.VsphereCloudConfig{ObjectMeta: s.meta("east"), Spec: v1alpha1.VsphereCloudConfigSpec{VcIP: "vc.site.example", Credentials: "account"}},
		&v1alpha1.DriverBundle{ObjectMeta: s.meta("drivers"), Spec: v1alpha1.DriverBundleSpec{Reference: "registry.site/vdo:stable"}},
		&v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "vdo", Finalizers: []string{"vdo.vmware.com/drivers"}},
			Spec: v1alpha1.VDOConfigSpec{StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "east"}}},
	} {
		require.NoError(s.t, s.k.Create(ctx, o), o.GetName())
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

// foreignGoes has what keeps the operator's namespace deleted.
func (s *shop) foreignGoes() {
	s.t.Helper()
	require.NoError(s.t, s.k.Delete(s.t.Context(), &corev1.Secret{ObjectMeta: s.meta("of-somebody-else")}))
}

func (s *shop) there(o client.Object) bool {
	s.t.Helper()
	err := s.k.Get(s.t.Context(), client.ObjectKeyFromObject(o), o)
	if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		require.NoError(s.t, err)
	}
	return err == nil
}

// background runs vdoctl, and returns a function that waits for its end.
func (s *shop) background(args ...string) (cmd *exec.Cmd, end func() (string, int)) {
	s.t.Helper()
	cmd = exec.CommandContext(s.t.Context(), "vdoctl", append(args, "-n", s.ns)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.conf)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(s.t, cmd.Start())
	return cmd, func() (string, int) {
		err := cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return out.String(), exit.ExitCode()
		}
		require.NoError(s.t, err, out.String())
		return out.String(), 0
	}
}

func TestDeleteTakesWhatIsAskedForAndNothingElse(t *testing.T) {
	s := wholeCluster(t)
	installed := s.installs()
	s.configured()
	ctx := t.Context()

	out, code := s.run("delete")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "say what to delete")
	for _, flag := range []string{"--operator", "--configuration", "--crds"} {
		out, code = s.run("delete", flag, "--yes")
		require.Equal(t, 8, code, out)
		require.Contains(t, out, "--keep-drivers")
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.vsphere.vmware.com", VolumeHandle: "handle"}},
	}}
	require.NoError(t, s.k.Create(ctx, volume))
	out, code = s.run("delete", "--all", "--yes")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "volumes use the storage driver: kept")
	require.Nil(t, s.config().DeletionTimestamp, "nothing was begun")
	require.NoError(t, s.k.Delete(ctx, volume))
	require.Eventually(t, func() bool { return !s.there(volume) }, time.Minute, 100*time.Millisecond)

	out, code = s.run("delete", "--all")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "no terminal")
	require.Contains(t, s.ok("delete", "--all", "--dry-run"), "VDOConfig vmware-system-vdo/vdo")
	require.Nil(t, s.config().DeletionTimestamp)

	// Interrupted while the operator removes the drivers: the next run goes on.
	cmd, end := s.background("delete", "--drivers", "--yes")
	require.Eventually(t, func() bool { return s.config().DeletionTimestamp != nil }, time.Minute, 100*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	out, code = end()
	require.Equal(t, 130, code, out)
	_, end = s.background("delete", "--drivers", "--yes")
	s.release()
	out, code = end()
	require.Zero(t, code, out)
	require.False(t, s.there(&v1alpha1.VDOConfig{ObjectMeta: s.meta("vdo")}), out)
	require.Contains(t, s.ok("delete", "--drivers", "--yes"), "Nothing of what was asked for is there")
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
	require.Contains(t, s.ok("delete", "--all", "--dry-run"), "Namespace vmware-system-vdo: it holds what is not of this installation: Secret vmware-system-vdo/of-somebody-else")
	s.foreignGoes()
	s.ok("delete", "--all", "--yes")
	for _, o := range installed {
		require.False(t, s.there(o), "%s %s", o.GetObjectKind().GroupVersionKind().Kind, o.GetName())
	}
	require.Contains(t, s.ok("delete", "--all", "--yes"), "Nothing of what was asked for is there")
	csi := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "vmware-system-csi"}}
	require.True(t, s.there(csi), "the cluster id is there")
}

func TestDeleteCanLeaveTheDriversInstalled(t *testing.T) {
	s := wholeCluster(t)
	s.installs()
	s.configured()
	out := s.ok("delete", "--keep-drivers", "--dry-run")
	require.Contains(t, out, "VDOConfig (the drivers stay installed, without the registration of their webhook)\n  VDOConfig vmware-system-vdo/vdo\n")
	_, end := s.background("delete", "--keep-drivers", "--operator", "--yes")
	require.Eventually(t, func() bool { return s.config().DeletionTimestamp != nil }, time.Minute, 100*time.Millisecond)
	require.Equal(t, v1alpha1.DeleteOrphan, s.config().Spec.OnDelete)
	require.True(t, s.there(&corev1.ServiceAccount{ObjectMeta: s.meta("vdo-operator")}), "the operator stays until the VDOConfig is gone")
	s.release()
	out, code := end()
	require.Zero(t, code, out)
	require.Contains(t, out, "VDOConfig vmware-system-vdo/vdo is gone")
	require.False(t, s.there(&corev1.ServiceAccount{ObjectMeta: s.meta("vdo-operator")}))
	for _, name := range []string{s.ns, "vmware-system-csi"} {
		require.True(t, s.there(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}), name)
	}
	out, code = s.run("delete", "--crds", "--yes")
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "with them would go VsphereCloudConfig vmware-system-vdo/east")
	s.besideTenants()
	s.foreignGoes()
	s.ok("delete", "--all", "--yes")
	require.False(t, s.there(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}))
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
	out, code := s.run("delete", "--all", "--yes")
	require.Equal(s.t, 8, code, out)
	for _, text := range []string{"none of it was deleted:\ncontext test (", "namespace vmware-system-vdo\nconfiguration\n", "  VsphereCloudConfig vmware-system-vdo/east\n", "  CustomResourceDefinition driverbundles.vdo.vmware.com\n",
		"others in the cluster need them: VDOConfig tenants/theirs, DriverBundle tenants/theirs, SIPCluster tenants/one\n", "leave the CRDs: `vdoctl delete --drivers --configuration --operator"} {
		require.Contains(s.t, out, text)
	}
	require.NotContains(s.t, out, "  VDOConfig tenants/theirs")
	require.True(s.t, s.there(&v1alpha1.VsphereCloudConfig{ObjectMeta: s.meta("east")}))
	out = s.ok("delete", "--drivers", "--configuration", "--operator", "--dry-run")
	require.NotContains(s.t, out, "tenants")
	for _, o := range others {
		require.NoError(s.t, s.k.Delete(ctx, o))
	}
}

func TestDeleteSaysWhatItStillWaitsFor(t *testing.T) {
	s := wholeCluster(t)
	s.installs()
	s.configured()
	v := s.config()
	v.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "Refused", Message: "spec.suspend is set", LastTransitionTime: metav1.Now()}}
	require.NoError(t, s.k.Status().Update(t.Context(), v))
	out, code := s.run("delete", "--drivers", "--yes", "--timeout", "2s")
	require.Equal(t, 9, code, out)
	require.Contains(t, out, fmt.Sprintf("VDOConfig %s/vdo: it is still there after 2s: spec.suspend is set", s.ns))
	s.release()
	s.foreignGoes()
	s.ok("delete", "--all", "--yes")
}
