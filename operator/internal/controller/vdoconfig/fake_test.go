package vdoconfig

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/assess"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/credentials"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/decide"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
)

// fakeCluster is a cluster that is not OpenShift, and in which a snapshot-controller and upstream's webhook run.
type fakeCluster struct {
	Cluster

	maps               map[string]map[string]string // ConfigMaps, by name
	secrets            map[string]map[string][]byte // by name
	given              map[string][]byte            // the pull secret, of version 2
	live               plan.Live
	installed          map[string]bool  // VDOConfigs whose inventory is not empty
	unreadable         map[string]error // why an inventory cannot be read
	volumes, snapshots int
	unread             error // of pools, of which one takes the mirror set up
	unasked            error // why it is unknown whether a kind is served
	refusal            error // of a deletion
	corrupt            error // of the records
	deleted            bool
}

func (c *fakeCluster) Serves(schema.GroupKind) (bool, error) { return false, c.unasked }

func (*fakeCluster) APIServers(context.Context) ([]assess.APIServer, error) {
	return []assess.APIServer{{Version: "v1.33.0"}}, nil
}

func (c *fakeCluster) ConfigMap(_ context.Context, key types.NamespacedName) (map[string]string, error) {
	return c.maps[key.Name], nil
}

func (c *fakeCluster) Secret(_ context.Context, key types.NamespacedName) (map[string][]byte, error) {
	return c.secrets[key.Name], nil
}

func (c *fakeCluster) VersionedSecret(context.Context, types.NamespacedName) (map[string][]byte, string, error) {
	return c.given, "2", nil
}

func (*fakeCluster) Credentials(context.Context, *v1alpha1.VsphereCloudConfig) (credentials.Credentials, error) {
	return credentials.Credentials{}, nil
}

func (*fakeCluster) PolicyVersion(context.Context, *v1alpha1.DriverBundle) (string, error) {
	return "", nil
}

func (c *fakeCluster) Volumes(context.Context) (volumes, on int, _ error) { return c.volumes, 0, nil }

func (c *fakeCluster) OthersSnapshots(context.Context) (int, error) { return c.snapshots, nil }

func (c *fakeCluster) MachineConfigPools(context.Context) ([]decide.Pool, error) {
	return []decide.Pool{{Name: "worker", Target: "b", Has: "a"}}, c.unread
}

func (c *fakeCluster) Read(context.Context, []inventory.ID) (plan.Live, map[inventory.Key]error, error) {
	return c.live, nil, nil
}

func (*fakeCluster) Observe(context.Context) (assess.Observed, error) {
	d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "snapshot-controller"}}
	d.Labels = map[string]string{render.LabelManagedBy: render.ManagedBy, "vdo.vmware.com/version": "8.2.0"}
	left := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: render.CSINamespace, Name: drivers.Webhook}}
	left.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry.k8s.io/csi-vsphere/syncer:v3.3.1"}}
	return assess.Observed{Deployments: []appsv1.Deployment{d, left}}, nil
}

func (*fakeCluster) ObserveListed(context.Context) (assess.Observed, error) {
	return assess.Observed{}, nil
}

func (*fakeCluster) DryRun(context.Context, []render.Object, plan.Live) (map[inventory.Key]plan.Outcome, error) {
	return nil, nil
}

func (*fakeCluster) Apply(
	_ context.Context, s plan.Step, _ *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	return s.Object, nil
}

func (c *fakeCluster) Delete(context.Context, plan.Step) error { c.deleted = true; return c.refusal }

func (c *fakeCluster) Key(context.Context, string, ...string) ([]byte, string, error) {
	return []byte("key"), hashSecret, c.corrupt
}

func (c *fakeCluster) LoadInventory(_ context.Context, of types.NamespacedName) (l cluster.Loaded, _ error) {
	if c.installed[of.Name] {
		l.Inventory = inventory.Of(inventory.Entry{})
	}
	return l, c.unreadable[of.Name]
}

func (*fakeCluster) SaveInventory(
	_ context.Context, _ types.NamespacedName, inv inventory.Inventory, _ cluster.Loaded,
) (cluster.Loaded, error) {
	return cluster.Loaded{Inventory: inv}, nil
}

func (*fakeCluster) DeleteInventory(context.Context, types.NamespacedName) error { return nil }
