package vdoctl

import (
	"bytes"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
)

const (
	stageDrivers       = "drivers"
	stageConfig        = "VDOConfig (the drivers stay installed, without the registration of their webhook)"
	stageConfiguration = "configuration"
	stageOperator      = "operator"
	stageCRDs          = "crds"
)

// resources are what of the operator's kinds is in the cluster.
type resources struct {
	known                 bool            // the cluster knows one of the kinds
	configs, rest, others []client.Object // VDOConfigs, what the namespace has besides, and what others have
}

func readResources(ctx context.Context, c client.Reader, namespace string) (out resources, err error) {
	lists := []client.ObjectList{&v1alpha1.VDOConfigList{}, &v1alpha1.VsphereCloudConfigList{},
		&v1alpha1.DriverBundleList{}, &v1alpha1.CompatibilityConfigList{}}
	for _, list := range lists {
		err := c.List(ctx, list)
		if isGone(err) {
			continue
		}
		if err == nil {
			out.known = true
			err = meta.EachListItem(list, func(x runtime.Object) error { out.add(namespace, x); return nil })
		}
		if err != nil {
			return out, clusterstate.Fault("read the operator's resources", err)
		}
	}
	return out, nil
}

func (r *resources) add(namespace string, x runtime.Object) {
	of := x.(client.Object) //nolint:forcetypeassert,errcheck // all are
	to := &r.rest
	if of.GetNamespace() != namespace {
		to = &r.others
	} else if _, ok := x.(*v1alpha1.VDOConfig); ok {
		to = &r.configs
	}
	*to = append(*to, of)
}

func ofType[T client.Object](all []client.Object) (out []T) {
	for _, x := range all {
		if x, ok := x.(T); ok {
			out = append(out, x)
		}
	}
	return out
}

func described[T client.Object](all []T) (out []string) {
	for _, x := range all {
		out = append(out, describeObject(x))
	}
	return out
}

// referencesOf are the Secrets and ConfigMaps that vCenters and bundles name.
func referencesOf(all []client.Object) (out []v1alpha1.KeyReference) {
	for _, x := range all {
		switch x := x.(type) {
		case *v1alpha1.VsphereCloudConfig:
			out = append(out, v1alpha1.KeyReference{Secret: x.Spec.Credentials})
			if x.Spec.CA != nil {
				out = append(out, *x.Spec.CA)
			}
		case *v1alpha1.DriverBundle:
			pull, _ := x.PullSecretName()
			ca, _ := x.CAReference()
			out = append(append(out, v1alpha1.KeyReference{Secret: pull}, ca), x.TrustSources()...)
		}
	}
	return out
}

// plan says what of what is asked for is there, stage by stage, and what stays of it.
func (o *deleteOptions) plan(ctx context.Context, c client.Client) (removal, error) {
	out := removal{Stages: []stage{}, DryRun: o.dryRun}
	has, err := o.observe(ctx, c)
	if err != nil {
		return out, err
	}
	var errs []error
	add := func(name string, objects []client.Object, err error) {
		if errs = append(errs, err); len(objects) > 0 {
			out.Stages = append(out.Stages, stage{name, described(objects), objects})
		}
	}
	switch {
	case o.keepDrivers:
		add(stageConfig, has.configs, nil)
	case o.drivers:
		add(stageDrivers, has.configs, nil)
	}
	if o.settings {
		named, err := o.namedBy(ctx, c, has.rest)
		add(stageConfiguration, named, err)
	}
	if o.operator {
		objects, err := o.operatorObjects(ctx, c)
		add(stageOperator, objects, err)
	}
	if o.crds {
		kinds, err := presentKinds(ctx, c)
		add(stageCRDs, kinds, err)
	}
	out.Stays, err = o.stays(ctx, c)
	return out, fault.Join(append(errs, err)...)
}

// observe reads the operator's resources. What speaks against what is asked for is an error.
func (o *deleteOptions) observe(ctx context.Context, c client.Client) (resources, error) {
	has, err := readResources(ctx, c, o.cluster.namespace)
	if err != nil {
		return has, err
	}
	return has, fault.Join(o.leftWithoutOperator(has.configs), o.inUse(ctx, c), o.orphaned(has.configs),
		o.accountsLeft(ctx, c), o.kindsInUse(ctx, c, has))
}

// leftWithoutOperator refuses to take away what the removal of the drivers needs.
func (o *deleteOptions) leftWithoutOperator(configs []client.Object) error {
	if o.drivers || o.keepDrivers || len(configs) == 0 {
		return nil
	}
	return fault.Errorf(fault.Refused, "delete", "VDOConfig "+configs[0].GetName(),
		"remove them with it (--drivers), or leave them installed without an operator (--keep-drivers)",
		"the drivers are installed, and need what is to be deleted")
}

const maxNamed = 10

func firstOf(names []string) string { return fault.Few(names, maxNamed) }

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
		return clusterstate.Fault("read the PersistentVolumes", err)
	}
	if len(volumes) == 0 {
		return nil
	}
	return fault.Errorf(fault.Refused, "delete", "the drivers",
		"delete their claims first (`kubectl get pv` shows them), or leave the drivers installed with --keep-drivers",
		"volumes use the storage driver: %s", firstOf(volumes))
}

// namedBy are the resources of the configuration in the namespace, and what they name there, or the operator
// looks for by its name.
func (o *deleteOptions) namedBy(ctx context.Context, c client.Client, own []client.Object) ([]client.Object, error) {
	refs := append(referencesOf(own), v1alpha1.KeyReference{Secret: v1alpha1.DefaultPullSecretName})
	for _, name := range []string{v1alpha1.DefaultTrustName, v1alpha1.DefaultCAName,
		v1alpha1.LegacyMatrixName, v1alpha1.LegacyMatrixOtherName} {
		refs = append(refs, v1alpha1.KeyReference{ConfigMap: name})
	}
	return present(ctx, c, append(own, referenced(o.cluster.namespace, refs...)...))
}

// referenced are the Secrets and ConfigMaps of references; those that are not set have no name.
func referenced(namespace string, refs ...v1alpha1.KeyReference) (out []client.Object) {
	for _, ref := range refs {
		out = append(out, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.Secret}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.ConfigMap}})
	}
	return out
}

// operatorObjects are what the operator was installed by, the last applied first. CRDs are a stage of their own,
// and namespaces stay.
func (o *deleteOptions) operatorObjects(ctx context.Context, c client.Client) ([]client.Object, error) {
	all := []client.Object{
		unnamespaced("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "vdo-upgrade-approval"),
		unnamespaced("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "vdo-upgrade-approval"),
	}
	manifests := deploy.Manifests()
	for i := len(manifests) - 1; i >= 0; i-- {
		read, err := readManifest(bytes.ReplaceAll(manifests[i].Data, []byte(operatorNamespace), []byte(o.cluster.namespace)))
		if err != nil {
			return nil, err
		}
		slices.Reverse(read)
		all = append(all, read...)
	}
	all = slices.DeleteFunc(all, func(x client.Object) bool { return kindOf(x) == crdKind || kindOf(x) == "Namespace" })
	return present(ctx, c, all)
}

const crdVersion, crdKind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"

func presentKinds(ctx context.Context, c client.Reader) ([]client.Object, error) {
	var all []client.Object
	for _, plural := range []string{"vdoconfigs", "vspherecloudconfigs", "driverbundles", "compatibilityconfigs"} {
		all = append(all, unnamespaced(crdVersion, crdKind, plural+"."+v1alpha1.GroupVersion.Group))
	}
	return present(ctx, c, all)
}

// stays is what a person deletes: the operator's namespace, in which others may keep something, and what the
// drivers made themselves. That is the namespace with the cluster id, and kinds whose objects map volumes and
// snapshots.
func (o *deleteOptions) stays(ctx context.Context, c client.Reader) (out []string, err error) {
	namespace := func(name, why string) {
		left, errOf := present(ctx, c, []client.Object{unnamespaced("v1", "Namespace", name)})
		err = fault.Join(err, errOf)
		for range left {
			out = append(out, "Namespace "+name+": "+why+": kubectl delete namespace "+name)
		}
	}
	if o.operator && o.settings {
		namespace(o.cluster.namespace, "others may keep something in it; if nothing of that is needed")
	}
	if !o.drivers {
		return out, err
	}
	namespace(drivers.CSINamespace, "keeps the cluster id of volumes; if no volume is left")
	return append(out, "CRDs of cns.vmware.com and snapshot.storage.k8s.io: may map volumes and snapshots; "+
		"if none is left: kubectl delete crd NAME"), err
}

// orphan has the operator leave the drivers where they are.
func orphan(ctx context.Context, c client.Client, configs []client.Object) error {
	for _, x := range configs {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"onDelete":"Orphan"}}`))
		if err := c.Patch(ctx, x, patch); client.IgnoreNotFound(err) != nil {
			return clusterstate.Fault("have the drivers stay", err)
		}
	}
	return nil
}

// whyNotGone says what a VDOConfig that is being deleted waits for, as far as it tells.
func whyNotGone(x client.Object) string {
	if config, ok := x.(*v1alpha1.VDOConfig); ok {
		ready := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionReady)
		if ready != nil && ready.Status != metav1.ConditionTrue {
			return ": " + ready.Message
		}
	}
	return ""
}
