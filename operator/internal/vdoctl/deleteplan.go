package vdoctl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
)

// The stages, in their order.
const (
	stageDrivers       = "drivers"
	stageConfig        = "VDOConfig (the drivers stay installed, without the registration of their webhook)"
	stageConfiguration = "configuration"
	stageOperator      = "operator"
	stageNamespaces    = "namespaces"
	stageCRDs          = "crds"
)

// resources are what of the operator's kinds is in the cluster, in all namespaces.
type resources struct {
	configs  []v1alpha1.VDOConfig
	vcenters []v1alpha1.VsphereCloudConfig
	bundles  []v1alpha1.DriverBundle
	compat   []v1alpha1.CompatibilityConfig
	kinds    bool // are known to the cluster
}

// readResources reads those of all namespaces: a kind takes all of its own with it.
func readResources(ctx context.Context, c client.Reader) (resources, error) {
	var configs v1alpha1.VDOConfigList
	var vcenters v1alpha1.VsphereCloudConfigList
	var bundles v1alpha1.DriverBundleList
	var compat v1alpha1.CompatibilityConfigList
	known := false
	for _, list := range []client.ObjectList{&configs, &vcenters, &bundles, &compat} {
		err := c.List(ctx, list)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return resources{}, clusterFault("read the operator's resources", err)
		}
		known = true
	}
	return resources{configs.Items, vcenters.Items, bundles.Items, compat.Items, known}, nil
}

// in are those of a namespace.
func (r resources) in(namespace string) resources {
	return resources{within(r.configs, namespace), within(r.vcenters, namespace), within(r.bundles, namespace), within(r.compat, namespace), r.kinds}
}

// elsewhere are those of other namespaces.
func (r resources) elsewhere(namespace string) []client.Object {
	all := slices.Concat(pointers(r.configs), pointers(r.vcenters), pointers(r.bundles), pointers(r.compat))
	return slices.DeleteFunc(all, func(x client.Object) bool { return x.GetNamespace() == namespace })
}

func within[T any, P interface {
	*T
	client.Object
}](items []T, namespace string) (out []T) {
	for i := range items {
		if P(&items[i]).GetNamespace() == namespace {
			out = append(out, items[i])
		}
	}
	return out
}

// plan says what is deleted, stage by stage. What speaks against it is the error beside that.
func (o *deleteOptions) plan(ctx context.Context, c client.Client) (removal, error) {
	all, err := readResources(ctx, c)
	if err != nil {
		return removal{}, err
	}
	own := all.in(o.cluster.namespace)
	refused := fault.Join(o.leftWithoutOperator(own), o.inUse(ctx, c), o.orphaned(own), o.accountsLeft(ctx, c), o.kindsInUse(ctx, c, all))
	out, err := o.stages(ctx, c, own)
	return out, fault.Join(refused, err)
}

// stages are what is asked for and there, and what stays of it.
func (o *deleteOptions) stages(ctx context.Context, c client.Client, r resources) (removal, error) {
	out := removal{Stages: []stage{}}
	for _, find := range []func(context.Context, client.Client, resources) ([]stage, error){o.driverStage, o.settingsStage, o.operatorStages, o.kindStage} {
		stages, err := find(ctx, c, r)
		if err != nil {
			return out, err
		}
		for _, s := range stages {
			if len(s.objects) > 0 {
				out.Stages = append(out.Stages, s)
			}
		}
	}
	kept, err := o.keepNamespaces(ctx, c, &out)
	if err != nil {
		return out, err
	}
	out.Stays, err = o.stays(ctx, c)
	out.Stays = append(kept, out.Stays...)
	return out, err
}

// newStage lists each object once.
func newStage(name string, objects []client.Object) stage {
	s := stage{Name: name}
	for _, x := range objects {
		if d := describeObject(x); !slices.Contains(s.Objects, d) {
			s.objects, s.Objects = append(s.objects, x), append(s.Objects, d)
		}
	}
	return s
}

func (o *deleteOptions) driverStage(_ context.Context, _ client.Client, r resources) ([]stage, error) {
	if !o.drivers && !o.keepDrivers {
		return nil, nil
	}
	name := stageDrivers
	if o.keepDrivers {
		name = stageConfig
	}
	return []stage{newStage(name, pointers(r.configs))}, nil
}

func (o *deleteOptions) settingsStage(ctx context.Context, c client.Client, r resources) ([]stage, error) {
	if !o.settings {
		return nil, nil
	}
	named, err := o.namedBy(ctx, c, r)
	return []stage{newStage(stageConfiguration, named)}, err
}

func (o *deleteOptions) operatorStages(ctx context.Context, c client.Client, _ resources) ([]stage, error) {
	if !o.operator {
		return nil, nil
	}
	objects, namespaces, err := o.operatorObjects(ctx, c)
	return []stage{newStage(stageOperator, objects), newStage(stageNamespaces, namespaces)}, err
}

func (o *deleteOptions) kindStage(ctx context.Context, c client.Client, _ resources) ([]stage, error) {
	if !o.crds {
		return nil, nil
	}
	kinds, err := presentKinds(ctx, c)
	return []stage{newStage(stageCRDs, kinds)}, err
}

// leftWithoutOperator refuses to take away what the removal of the drivers needs.
func (o *deleteOptions) leftWithoutOperator(r resources) error {
	if o.drivers || o.keepDrivers || len(r.configs) == 0 {
		return nil
	}
	return &fault.Error{Reason: fault.Refused, Op: "delete", Subject: "VDOConfig " + r.configs[0].Name,
		Err:  errors.New("the drivers are installed, and need what is to be deleted"),
		Hint: "remove them with it (--drivers), or leave them installed without an operator (--keep-drivers)"}
}

// maxNamed is how many objects a message names.
const maxNamed = 5

// inUse refuses while volumes use the storage driver.
func (o *deleteOptions) inUse(ctx context.Context, c client.Client) error {
	if !o.drivers {
		return nil
	}
	var volumes []string
	var list corev1.PersistentVolumeList
	if err := pages.Each(ctx, c, &list, func() {
		for i := range list.Items {
			if s := list.Items[i].Spec; s.CSI != nil && s.CSI.Driver == drivers.CSIDriver || s.VsphereVolume != nil {
				volumes = append(volumes, list.Items[i].Name)
			}
		}
	}); err != nil {
		return clusterFault("read the PersistentVolumes", err)
	}
	if len(volumes) == 0 {
		return nil
	}
	return &fault.Error{Reason: fault.Refused, Op: "delete", Subject: "the drivers",
		Err:  errors.New("volumes use the storage driver: " + firstOf(volumes)),
		Hint: "delete their claims first (`kubectl get pv` shows them), or leave the drivers installed with --keep-drivers"}
}

// named are the Secrets and ConfigMaps that resources name, and those with names of their own.
type named struct{ secrets, configMaps map[string]bool }

func (n named) key(ref *v1alpha1.KeyReference) {
	if ref != nil {
		n.secrets[ref.Secret], n.configMaps[ref.ConfigMap] = true, true
	}
}

func (n named) by(x client.Object) {
	switch x := x.(type) {
	case *v1alpha1.VsphereCloudConfig:
		n.secrets[x.Spec.Credentials] = true
		n.key(x.Spec.CA)
	case *v1alpha1.DriverBundle:
		name, _ := x.PullSecretName()
		n.secrets[name] = true
		n.key(x.Spec.CA)
		for _, ref := range x.TrustSources() {
			n.key(&ref)
		}
	}
}

// namedBy are the resources of the configuration in the namespace, and what they name there.
func (o *deleteOptions) namedBy(ctx context.Context, c client.Client, r resources) ([]client.Object, error) {
	var out []client.Object
	n := named{map[string]bool{v1alpha1.DefaultPullSecretName: true}, map[string]bool{
		v1alpha1.DefaultTrustName: true, v1alpha1.DefaultCAName: true, v1alpha1.LegacyMatrixName: true, v1alpha1.LegacyMatrixOtherName: true}}
	for _, x := range slices.Concat(pointers(r.vcenters), pointers(r.bundles), pointers(r.compat)) {
		n.by(x)
		out = append(out, x)
	}
	for _, name := range slices.Sorted(maps.Keys(n.secrets)) {
		out = append(out, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.cluster.namespace, Name: name}})
	}
	for _, name := range slices.Sorted(maps.Keys(n.configMaps)) {
		out = append(out, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: o.cluster.namespace, Name: name}})
	}
	return present(ctx, c, out)
}

// operatorObjects are what the operator was installed by, the last applied first, and its
// namespace unless the configuration stays in it.
func (o *deleteOptions) operatorObjects(ctx context.Context, c client.Client) (objects, namespaces []client.Object, err error) {
	all := []client.Object{
		unnamespaced("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "vdo-upgrade-approval"),
		unnamespaced("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "vdo-upgrade-approval"),
	}
	manifests := deploy.Manifests()
	for i := len(manifests) - 1; i >= 0; i-- {
		read, err := readManifest(bytes.ReplaceAll(manifests[i].Data, []byte(operatorNamespace), []byte(o.cluster.namespace)))
		if err != nil {
			return nil, nil, err
		}
		slices.Reverse(read)
		all = append(all, read...)
	}
	if all, err = present(ctx, c, all); err != nil {
		return nil, nil, err
	}
	objects, namespaces = o.withoutKinds(all)
	return objects, namespaces, nil
}

// withoutKinds parts what is installed: the kinds go later, in a stage of their own.
func (o *deleteOptions) withoutKinds(all []client.Object) (objects, namespaces []client.Object) {
	for _, x := range all {
		switch kindOf(x) {
		case "CustomResourceDefinition":
		case "Namespace":
			if o.settings {
				namespaces = append(namespaces, x)
			}
		default:
			objects = append(objects, x)
		}
	}
	return objects, namespaces
}

const crdVersion, crdKind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"

// presentKinds are the operator's own CRDs.
func presentKinds(ctx context.Context, c client.Reader) ([]client.Object, error) {
	var all []client.Object
	for _, plural := range []string{"vdoconfigs", "vspherecloudconfigs", "driverbundles", "compatibilityconfigs"} {
		all = append(all, unnamespaced(crdVersion, crdKind, plural+"."+v1alpha1.GroupVersion.Group))
	}
	return present(ctx, c, all)
}

// stays are what the drivers made themselves and nobody deletes: the namespace with the cluster
// id, and kinds whose objects map volumes and snapshots. Told where the drivers go.
func (o *deleteOptions) stays(ctx context.Context, c client.Reader) ([]string, error) {
	if !o.drivers {
		return nil, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.FromAPIVersionAndKind(crdVersion, crdKind+"List"))
	if err := c.List(ctx, list); err != nil {
		return nil, clusterFault("read the CRDs", err)
	}
	var out []string
	for i := range list.Items {
		name := list.Items[i].GetName()
		if strings.HasSuffix(name, ".cns.vmware.com") || strings.HasSuffix(name, ".snapshot.storage.k8s.io") {
			out = append(out, name+": the storage driver's, may hold what maps volumes or snapshots; where that is not needed: kubectl delete crd "+name)
		}
	}
	slices.Sort(out)
	left, err := present(ctx, c, []client.Object{unnamespaced("v1", "Namespace", drivers.CSINamespace)})
	for _, ns := range left {
		out = append(out, describeObject(ns)+
			": keeps the cluster id of volumes; if no volume is left: kubectl delete namespace "+ns.GetName())
	}
	return out, err
}

// orphan has the operator leave the drivers where they are.
func orphan(ctx context.Context, c client.Client, configs []client.Object) error {
	for _, x := range configs {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"onDelete":"Orphan"}}`))
		if err := c.Patch(ctx, x, patch); client.IgnoreNotFound(err) != nil {
			return clusterFault("have the drivers stay", err)
		}
	}
	return nil
}

// whyNotGone says what an object that is being deleted waits for, as far as it tells.
func whyNotGone(x client.Object) string {
	config, ok := x.(*v1alpha1.VDOConfig)
	if !ok {
		return ""
	}
	for _, t := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionReady} {
		if cond := meta.FindStatusCondition(config.Status.Conditions, t); cond != nil && (t == v1alpha1.ConditionStalled) == (cond.Status == metav1.ConditionTrue) && cond.Message != "" {
			return ": " + cmp.Or(cond.Message, cond.Reason)
		}
	}
	return ""
}
