package render

import (
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
	if err := fault.Join(err, configErr, r.checkWebhook(s, p), setFeatureStates(s, p),
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
