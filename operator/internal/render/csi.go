package render

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// renderCSI configures the storage driver and sorts its objects into stages. Controller and syncer come first,
// because they make the CRDs that node plugins read.
func (r *renderer) renderCSI(s *source) error {
	p := r.in.Spec.StorageProvider
	if p == nil {
		return missingSettings(s, "storageProvider")
	}
	kept := r.in.Keep[matrix.CSI]
	vcenters, err := r.in.vcenters(matrix.CSI, StorageVCenters(p))
	if err == nil && len(vcenters) == 0 && !kept {
		err = missingSettings(s, "storageProvider.vsphereCloudConfig")
	}
	config, configErr := r.csiData(s, p, vcenters)
	if err := fault.Join(err, configErr, r.narrowed, r.checkWebhook(s, p), setFeatureStates(s, p),
		s.requires("Deployment "+drivers.Controller, "DaemonSet "+drivers.Node, "ConfigMap "+FeatureStates,
			"CSIDriver "+drivers.CSIDriver)); err != nil {
		return err
	}
	r.drops(kept, "storage driver's configuration", r.in.Cluster.ExistingStorageConfig, config[CSIConfigKey])
	r.dropsStates(s)
	r.addCSINamespace(s)
	hash := configHash(r.in.HashKey, config)
	if kept {
		config, hash = nil, ""
	}
	r.configuration(s, secret(CSINamespace, CSISecret, "Opaque", config))
	for _, o := range s.objects {
		r.placeCSI(s, o, hash)
	}
	r.addClasses(s, p)
	crd := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	topology := Ref{GroupVersionKind: crd, Name: "csinodetopologies.cns.vmware.com"}
	r.waitFor(StageCSIController, Wait{Kind: Exists, Object: topology,
		Why: "the syncer makes it when it has logged in to vCenter; node plugins cannot register without it"})
	return nil
}

func (r *renderer) placeCSI(s *source, o *unstructured.Unstructured, hash string) {
	p := r.in.Spec.StorageProvider
	switch kind, name := o.GetKind(), o.GetName(); {
	case kind == "Namespace", slices.Contains(snapshotWebhook, kind+" "+name):
	case partOfWebhook(kind, name):
		if p.Webhook {
			r.placeWebhook(s, o)
		}
	case kind == "ConfigMap" && name == FeatureStates:
		r.add(s, StageCSIController, o, Replace)
	case kind == "Deployment":
		if len(p.TopologyCategories) > 0 {
			addTopologyFlags(o)
		}
		r.placeReader(s, o, hash)
	case kind == "DaemonSet" && name == drivers.NodeWindows && !r.windows():
	case kind == "DaemonSet":
		moveKubelet(podSpec(o), p.KubeletPath()) // host paths, mounts, the registrar's paths, probes
		exclude(podSpec(o), r.in.Spec.ExcludedNodes)
		if len(p.TopologyCategories) > 0 {
			setTemplateAnnotation(o, AnnotationTopology, strings.Join(p.TopologyCategories, ","))
		}
		if r.in.Canary {
			_ = unstructured.SetNestedMap(o.Object, map[string]any{"type": string(appsv1.OnDeleteDaemonSetStrategyType)}, "spec", "updateStrategy") // spec is a map
		}
		r.place(s, o)
	default:
		r.place(s, o)
	}
}

// setFeatureStates changes states of the release. Its ConfigMap replaces the one on the cluster as a whole.
func setFeatureStates(s *source, p *v1alpha1.StorageProvider) error {
	o := s.find("ConfigMap", FeatureStates)
	if o == nil || len(p.FeatureStates) == 0 {
		return nil
	}
	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil {
		return err
	}
	var bad problems
	states := slices.Sorted(maps.Keys(data))
	for _, name := range slices.Sorted(maps.Keys(p.FeatureStates)) {
		bad.when(!slices.Contains(states, name), "spec.storageProvider.featureStates",
			"it has these: "+strings.Join(states, ", "), "%s has no feature state %q", s.name(), name)
		data[name] = fmt.Sprint(p.FeatureStates[name])
	}
	_ = unstructured.SetNestedStringMap(o.Object, data, "data") // data is a map: it was read above
	s.roll(o)
	return fault.Join(bad...)
}

var snapshotWebhook = []string{
	"ServiceAccount snapshot-webhook", "ClusterRole snapshot-webhook-runner", "ClusterRoleBinding snapshot-webhook-role",
	"Service snapshot-validation-service", "Deployment snapshot-validation-deployment",
	"ValidatingWebhookConfiguration validation-webhook.snapshot.storage.k8s.io",
}

// addCSINamespace adds the driver's namespace, with labels that admit its privileged node plugin.
func (r *renderer) addCSINamespace(s *source) {
	ns := object("v1", "Namespace", "", CSINamespace)
	labels := map[string]string{}
	for _, mode := range []string{"enforce", "audit", "warn"} {
		labels["pod-security.kubernetes.io/"+mode] = "privileged"
	}
	if r.openShift() {
		labels["security.openshift.io/scc.podSecurityLabelSync"] = "false"
		ns.SetAnnotations(map[string]string{"openshift.io/node-selector": ""}) // instead of the cluster's default
	}
	ns.SetLabels(labels)
	r.add(s, StageBase, ns, Merge)
}

const (
	annotationDefaultClass         = "storageclass.kubernetes.io/is-default-class"
	annotationDefaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"
)

func (r *renderer) addClasses(s *source, p *v1alpha1.StorageProvider) {
	for _, c := range p.StorageClasses {
		r.add(s, StageClasses, storageClass(c, len(p.TopologyCategories) > 0), Merge)
	}
	for _, c := range p.SnapshotClasses {
		o := object("snapshot.storage.k8s.io/v1", "VolumeSnapshotClass", "", c.Name)
		o.Object["driver"] = drivers.CSIDriver
		o.Object["deletionPolicy"] = cmp.Or(c.DeletionPolicy, "Delete")
		o.SetAnnotations(map[string]string{annotationDefaultSnapshotClass: fmt.Sprint(c.Default)})
		r.add(s, StageClasses, o, Merge)
	}
}

func storageClass(c v1alpha1.StorageClass, topology bool) *unstructured.Unstructured {
	o := object("storage.k8s.io/v1", "StorageClass", "", c.Name)
	o.Object["provisioner"] = drivers.CSIDriver
	parameters := map[string]any{}
	for name, value := range map[string]string{
		"storagepolicyname": c.StoragePolicy, "datastoreurl": c.DatastoreURL, "csi.storage.k8s.io/fstype": c.FSType,
	} {
		if value != "" {
			parameters[name] = value
		}
	}
	if len(parameters) > 0 {
		o.Object["parameters"] = parameters
	}
	binding := "Immediate"
	if topology {
		binding = "WaitForFirstConsumer"
	}
	o.Object["volumeBindingMode"] = cmp.Or(c.VolumeBindingMode, binding)
	o.Object["reclaimPolicy"] = cmp.Or(c.ReclaimPolicy, "Delete")
	o.Object["allowVolumeExpansion"] = c.AllowVolumeExpansion == nil || *c.AllowVolumeExpansion
	o.SetAnnotations(map[string]string{annotationDefaultClass: fmt.Sprint(c.Default)})
	return o
}

// renderSnapshot places the snapshot CRDs and controller. The controller runs on the control plane, with the request
// rate of CSI's own installer.
func (r *renderer) renderSnapshot(s *source) error {
	if err := s.requires("Deployment snapshot-controller"); err != nil {
		return err
	}
	for _, o := range s.objects {
		if o.GetKind() == "Deployment" {
			toControlPlane(podSpec(o))
			addArgs(container(o, "snapshot-controller"), "--kube-api-qps=100", "--kube-api-burst=100")
		}
		r.place(s, o)
	}
	return nil
}

// toControlPlane lets pods run on control-plane nodes only, unless a patch chose others.
func toControlPlane(spec map[string]any) {
	var terms, tolerations []any
	for _, key := range drivers.ControlPlaneLabels {
		terms = append(terms, map[string]any{"matchExpressions": []any{map[string]any{"key": key, "operator": "Exists"}}})
		tolerations = append(tolerations, map[string]any{"key": key, "operator": "Exists", "effect": "NoSchedule"})
	}
	spec["tolerations"] = append(list(spec["tolerations"]), tolerations...)
	affinity := child(child(child(spec, "affinity"), "nodeAffinity"), "requiredDuringSchedulingIgnoredDuringExecution")
	if len(list(affinity["nodeSelectorTerms"])) == 0 {
		affinity["nodeSelectorTerms"] = terms
	}
}
