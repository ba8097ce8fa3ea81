package render

import (
	"cmp"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
)

// podSpec returns the pod template's spec for changing, or nil if the object has none.
func podSpec(o *unstructured.Unstructured) map[string]any {
	if o.GetKind() != "Deployment" && o.GetKind() != "DaemonSet" {
		return nil
	}
	spec, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "template", "spec")
	m, _ := spec.(map[string]any)
	return m
}

// containers returns the containers of a pod spec for changing, init containers first.
func containers(spec map[string]any) []map[string]any {
	return append(items(spec["initContainers"]), items(spec["containers"])...)
}

func list(v any) []any {
	items, _ := v.([]any)
	return items
}

// items returns the maps in a list, for changing.
func items(v any) []map[string]any {
	var out []map[string]any
	for _, item := range list(v) {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func container(o *unstructured.Unstructured, name string) map[string]any {
	for _, c := range containers(podSpec(o)) {
		if c["name"] == name {
			return c
		}
	}
	return nil
}

// pin replaces all images of a workload with the mirror's, by digest, and adds the pull secret to its pods.
func (r *renderer) pin(s *source, o *unstructured.Unstructured) error {
	spec := podSpec(o)
	if spec == nil {
		return nil
	}
	var errs []error
	for _, c := range containers(spec) {
		written, _ := c["image"].(string)
		digest, err := s.digest(written)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if c["image"], err = r.imageName(s, written, digest); err != nil {
			errs = append(errs, err)
			continue
		}
		if c["imagePullPolicy"] == string(corev1.PullAlways) {
			c["imagePullPolicy"] = string(corev1.PullIfNotPresent)
		}
	}
	if len(r.in.PullSecret) > 0 {
		r.pullsFrom(s, o.GetNamespace())
		own := map[string]any{"name": PullSecret}
		others := slices.DeleteFunc(list(spec["imagePullSecrets"]), func(x any) bool { return reflect.DeepEqual(x, own) })
		spec["imagePullSecrets"] = append(others, own) // a patch may name it too
	}
	return fault.Join(errs...)
}

// imageName returns an image's name with its digest, in the site's location.
func (r *renderer) imageName(s *source, written string, digest image.Digest) (string, error) {
	from := r.in.origin(s.driver)
	repository := from.Repository
	if names := from.ImageNames; names == v1alpha1.ImageNamesPaths || names == v1alpha1.ImageNamesUpstream {
		ref, err := image.ParseReference(s.images[written]) // the lock has it, with its digest
		if err != nil {
			return "", err
		}
		if names == v1alpha1.ImageNamesPaths {
			mirror, err := image.ParseReference(from.Repository + "@" + digest.String())
			if err != nil {
				return "", err
			}
			if ref, err = ref.Below(mirror); err != nil {
				return "", err
			}
		}
		repository = ref.Repository()
	}
	return repository + "@" + digest.String(), nil
}

// addArgs appends arguments whose flag is missing, unless the container is missing.
func addArgs(c map[string]any, args ...string) {
	for _, a := range args {
		if c != nil && flagIndex(c, a) < 0 {
			setArg(c, a)
		}
	}
}

// addTopologyFlags adds the provisioner's flags that upstream has in comments only. Topology joins existing feature
// gates.
func addTopologyFlags(o *unstructured.Unstructured) {
	c := container(o, "csi-provisioner")
	const gate = "--feature-gates=Topology=true"
	if i := flagIndex(c, gate); i >= 0 {
		if text, ok := list(c["args"])[i].(string); ok && !strings.Contains(text, "Topology=") {
			list(c["args"])[i] = text + ",Topology=true"
		}
	}
	addArgs(c, gate, "--strict-topology")
}

const kubeletRoot = "/var/lib/kubelet"

// moveKubelet replaces the kubelet's root directory in a part of a pod. On Windows the same --root-dir has backslashes
// on drive C, which manifests write once or doubled.
func moveKubelet(part any, to string) {
	if to == "" || to == kubeletRoot {
		return
	}
	var pairs []string
	for _, separator := range []string{`\\`, `\`, "/"} {
		pairs = append(pairs, strings.ReplaceAll(kubeletRoot, "/", separator), strings.ReplaceAll(to, "/", separator))
	}
	replaceStrings(part, strings.NewReplacer(pairs...))
}

// replaceStrings replaces in all texts of a value, and returns it.
func replaceStrings(value any, by *strings.Replacer) any {
	switch v := value.(type) {
	case string:
		return by.Replace(v)
	case []any:
		for i := range v {
			v[i] = replaceStrings(v[i], by)
		}
	case map[string]any:
		for key := range v {
			v[key] = replaceStrings(v[key], by)
		}
	}
	return value
}

// fit lowers replicas to the number of fitting nodes, one on each, and at least 1. Further pods would stay pending
// and block upgrades.
func (r *renderer) fit(o *unstructured.Unstructured) {
	replicas, found, err := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if o.GetKind() != "Deployment" || err != nil {
		return
	}
	if !found {
		replicas = 1
	}
	nodes := r.nodesFor(o)
	if len(nodes) == 0 {
		selector, _, _ := unstructured.NestedStringMap(podSpec(o), "nodeSelector")
		r.note("no node can hold the pods of %s: those that fit their node selector (%s), affinity and tolerations "+
			"are missing or cordoned", RefOf(o), labels.FormatLabels(selector))
	}
	fitting := min(replicas, max(1, int64(len(nodes))))
	_ = unstructured.SetNestedField(o.Object, fitting, "spec", "replicas") // spec is a map: it was read above
}

// Workload is a Deployment or DaemonSet that would be rendered: the images and nodes of its pods.
type Workload struct {
	Driver  matrix.Driver
	Release string // csi@3.5.1
	Kind    string
	Name    string
	Images  []Image        // each once, sorted
	Pods    corev1.PodSpec // of its template
}

// Image is an image of the bundle.
type Image struct {
	Upstream string // its upstream repository: registry.k8s.io/csi-vsphere/driver
	Digest   image.Digest
}

// Workloads returns the workloads that Render makes of the chosen releases, before installation. Configuration,
// credentials, nodes and the storage driver's webhook (with images of its controller) do not matter. It includes the
// Windows plugin, and omits drivers that fail to render.
func Workloads(in Input) []Workload {
	in.ImageNames, in.PullSecret, in.VCenters, in.HashKey = v1alpha1.ImageNamesUpstream, nil, nil, make([]byte, minHashKey)
	in.Keep = map[matrix.Driver]bool{matrix.CPI: true, matrix.CSI: true}
	windows := metav1.ObjectMeta{Labels: labels.Set{corev1.LabelOSStable: "windows"}}
	in.Cluster.Nodes = []*corev1.Node{{ObjectMeta: windows}}
	if p := in.Spec.StorageProvider; p != nil {
		p = p.DeepCopy()
		p.Webhook, in.Spec.StorageProvider = false, p
	}
	for {
		rendered, err := Render(in)
		var failed Failed
		switch {
		case err == nil:
			return workloads(rendered, in.Releases)
		case !errors.As(err, &failed):
			return nil
		}
		in.Releases = slices.DeleteFunc(slices.Clone(in.Releases), func(id matrix.ReleaseID) bool { return failed[id.Driver] != nil })
	}
}

func workloads(r *Rendered, of []matrix.ReleaseID) []Workload {
	release := map[matrix.Driver]string{}
	for _, id := range of {
		release[id.Driver] = id.String()
	}
	var all []Workload
	for _, o := range r.Objects() {
		spec := podSpec(o.Unstructured)
		if spec == nil {
			continue
		}
		w := Workload{Driver: o.Driver, Release: release[o.Driver], Kind: o.GetKind(), Name: o.GetName()}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &w.Pods) != nil {
			continue // the lint has read it, and no later step changes its shape
		}
		seen := map[Image]bool{}
		for _, c := range containers(spec) {
			written, _ := c["image"].(string)
			if ref, err := image.ParseReference(written); err == nil {
				seen[Image{Upstream: ref.Repository(), Digest: ref.Digest()}] = true
			}
		}
		w.Images = slices.SortedFunc(maps.Keys(seen), func(a, b Image) int {
			return cmp.Or(cmp.Compare(a.Upstream, b.Upstream), cmp.Compare(a.Digest.String(), b.Digest.String()))
		})
		all = append(all, w)
	}
	return all
}

// Reach returns whether a pod of the workload fits a node: by node selector, required node affinity, lasting taints
// and, except for DaemonSets, cordons.
func (w *Workload) Reach() func(*corev1.Node) bool {
	reaches := reach(&w.Pods)
	return func(n *corev1.Node) bool { return (w.Kind == "DaemonSet" || !n.Spec.Unschedulable) && reaches(n) }
}
