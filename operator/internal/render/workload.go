package render

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// podSpec returns the pod template's spec for changing, or nil for what has none.
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

// items are those of a list that are maps, for changing.
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

// pin makes all images of a workload the mirror's, by digest, and gives its pods
// the login of the mirror.
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
		spec["imagePullSecrets"] = append(list(spec["imagePullSecrets"]), map[string]any{"name": PullSecret})
	}
	return fault.Join(errs...)
}

// imageName is an image's name by its digest, in the place where the site has it.
func (r *renderer) imageName(s *source, written string, digest image.Digest) (string, error) {
	from := r.in.origin(s.driver)
	repository := from.Repository
	if names := from.ImageNames; names == v1alpha1.ImageNamesPaths || names == v1alpha1.ImageNamesUpstream {
		ref, err := image.ParseReference(s.images[written]) // the lock has it, and its digest
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

// addArgs appends the arguments whose flag is not there yet.
func addArgs(c map[string]any, args ...string) {
	for _, a := range args {
		if flagIndex(c, a) < 0 {
			setArg(c, a)
		}
	}
}

// addTopologyFlags gives the provisioner what upstream has as comments only. Where
// it has feature gates already, Topology joins them.
func addTopologyFlags(o *unstructured.Unstructured) {
	c := container(o, "csi-provisioner")
	if c == nil {
		return
	}
	const gate = "--feature-gates=Topology=true"
	if i := flagIndex(c, gate); i >= 0 {
		if text, ok := list(c["args"])[i].(string); ok && !strings.Contains(text, "Topology=") {
			list(c["args"])[i] = text + ",Topology=true"
		}
	}
	addArgs(c, gate, "--strict-topology")
}

const kubeletRoot = "/var/lib/kubelet"

// moveKubelet replaces the kubelet's root folder wherever the node plugin's pods
// name it: host paths, mounts, the registrar's paths, probes. On Windows, a kubelet
// told the same --root-dir has the same path with backslashes on drive C, which
// manifests write with one backslash or two.
func moveKubelet(o *unstructured.Unstructured, to string) {
	if to == "" || to == kubeletRoot {
		return
	}
	var pairs []string
	for _, separator := range []string{`\\`, `\`, "/"} {
		pairs = append(pairs, strings.ReplaceAll(kubeletRoot, "/", separator), strings.ReplaceAll(to, "/", separator))
	}
	replaceStrings(podSpec(o), strings.NewReplacer(pairs...))
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

// fit lowers replicas to what the cluster's nodes can hold, one on each, and at
// least 1: more would wait for ever, and an upgrade with them.
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
		r.note("no node can hold the pods of %s: it needs a schedulable control-plane node with the label and taints that its manifest expects", RefOf(o))
	}
	fitting := min(replicas, max(1, int64(len(nodes))))
	_ = unstructured.SetNestedField(o.Object, fitting, "spec", "replicas") // spec is a map: it was read above
}
