package vdoctl

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// Somebody changes, makes or deletes what configure has read, while it asks.
func TestConfigureDoesNotUndoWhatSomebodyElseChanged(t *testing.T) {
	key := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: operatorNamespace, Name: name} }
	for name, meanwhile := range map[string]func(c client.Client) error{
		"VDOConfig changed": func(c client.Client) error {
			var v v1alpha1.VDOConfig
			require.NoError(t, c.Get(t.Context(), key("vdo"), &v))
			v.Spec.Suspend = true
			return c.Update(t.Context(), &v)
		},
		"Secret changed": func(c client.Client) error {
			var s corev1.Secret
			require.NoError(t, c.Get(t.Context(), key("vc"), &s))
			s.Data = map[string][]byte{"password": []byte("theirs")}
			return c.Update(t.Context(), &s)
		},
		"DriverBundle made": func(c client.Client) error {
			return c.Create(t.Context(), &v1alpha1.DriverBundle{ObjectMeta: metaOf(operatorNamespace, "drivers")})
		},
		"VsphereCloudConfig deleted": func(c client.Client) error {
			return c.Delete(t.Context(), &v1alpha1.VsphereCloudConfig{ObjectMeta: metaOf(operatorNamespace, "west")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := installation(t)
			d := drafted(t, c)
			require.NoError(t, d.apply(t.Context(), c, true))
			require.NoError(t, meanwhile(c))
			err := d.apply(t.Context(), c, false)
			require.Equal(t, fault.Conflict, fault.ReasonOf(err), "%v", err)
			require.ErrorContains(t, err, "somebody has changed it since it was read")

			d = drafted(t, c)
			require.NoError(t, d.apply(t.Context(), c, false), "run again")
			var v v1alpha1.VDOConfig
			require.NoError(t, c.Get(t.Context(), key("vdo"), &v))
			require.Equal(t, name == "VDOConfig changed", v.Spec.Suspend)
			require.Equal(t, v1alpha1.UpgradeMode("Manual"), v.Spec.Upgrade)
		})
	}
}

// drafted are the answers of a person about what is there.
func drafted(t *testing.T, c client.Client) *draft {
	t.Helper()
	o := &configureOptions{app: &app{}, given: func(string) bool { return false }, kept: map[string]bool{}}
	o.cluster.namespace = operatorNamespace
	o.vcenter = "west"
	d, err := o.draft()
	require.NoError(t, err)
	_, err = o.begin(t.Context(), c, d)
	require.NoError(t, err)
	o.offer(d)
	require.NoError(t, o.chosen(t.Context(), c, d))
	o.port, o.username, o.password, o.upgrade, o.bundle = "443", "u", "new", "Manual", "registry.site/vdo:1"
	require.NoError(t, d.take(&o.answers))
	return d
}
