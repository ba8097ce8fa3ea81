package render

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/drivers"
)

// Bounds of a patch and its result. The largest object that may be patched, Antrea's agent, has 10 kB, its
// configuration 30 kB.
const (
	maxPatchBytes   = 8 << 10
	maxPatchedBytes = 256 << 10
)

// patchable returns an empty object of each kind that may be patched. Its type defines the fields and the merge of
// lists.
var patchable = map[string]func() any{
	"Deployment":     func() any { return &appsv1.Deployment{} },
	"DaemonSet":      func() any { return &appsv1.DaemonSet{} },
	"Service":        func() any { return &corev1.Service{} },
	"ServiceAccount": func() any { return &corev1.ServiceAccount{} },
	"ConfigMap":      func() any { return &corev1.ConfigMap{} },
	"CSIDriver":      func() any { return &storagev1.CSIDriver{} },
}

func badPatch(field, hint, format string, args ...any) error {
	return fault.Errorf(fault.InvalidInput, "patch drivers", field, hint, format, args...)
}

func (s *source) patch(field string, p v1alpha1.Patch) error {
	i, err := s.target(field, p.Target)
	if err != nil {
		return err
	}
	o := s.objects[i]
	field += " of " + RefOf(o).String()
	if by := madeBySettings[o.GetKind()+" "+o.GetName()]; by != "" {
		return badPatch(field, "set it there", "its content is made from %s", by)
	}
	decoded, err := readPatch(p.Patch)
	if err != nil {
		return badPatch(field, "write a strategic merge patch (a map) or a JSON patch (a list of operations) in YAML or JSON", "%w", err)
	}
	changed, err := patched(o, decoded)
	if err != nil {
		kind, name := strings.ToLower(o.GetKind()), o.GetName()
		if o.GetNamespace() != "" {
			name += " -n " + o.GetNamespace()
		}
		hint := fmt.Sprintf("see what the object has and can have: `kubectl get %s %s -o yaml`, `kubectl explain %[1]s --recursive`",
			kind, name)
		return badPatch(field, hint, "%w", err)
	}
	if o.GetKind() == "ConfigMap" {
		s.roll(changed)
	}
	return s.replace(i, changed, field)
}

// roll rolls the pods of the release's workloads when a ConfigMap changes, since they read it at their start only.
func (s *source) roll(changed *unstructured.Unstructured) {
	sum := image.DigestOf(fmt.Append(nil, changed.Object["data"]))
	for _, o := range s.objects {
		if podSpec(o) != nil {
			setTemplateAnnotation(o, "checksum/"+changed.GetName(), sum.Hex())
		}
	}
}

// target returns the index of the object that a patch names; a patch that matches nothing is an error.
func (s *source) target(field string, t v1alpha1.PatchTarget) (int, error) {
	var others []string
	for i, o := range s.objects {
		if o.GetKind() != t.Kind {
			continue
		}
		if o.GetName() == t.Name && (t.Namespace == "" || t.Namespace == o.GetNamespace()) {
			return i, nil
		}
		others = append(others, strings.TrimPrefix(RefOf(o).String(), t.Kind+" "))
	}
	name := Ref{Namespace: t.Namespace, Name: t.Name}
	name.Kind = t.Kind
	hint := s.name() + " has no object of that kind"
	if len(others) > 0 {
		slices.Sort(others)
		hint = "name one of these: " + strings.Join(others, ", ")
	}
	return -1, badPatch(field+".target", hint, "%s has no %s", s.name(), name)
}

// madeBySettings are the settings that make the content of objects.
var madeBySettings = map[string]string{
	"ConfigMap " + drivers.CloudConfigMap: "spec.cloudProvider and the VsphereCloudConfigs",
	"ConfigMap " + drivers.FeatureStates:  "spec.storageProvider.featureStates",
}

// readPatch reads a patch, bounded, as JSON: a map or a list.
func readPatch(text string) ([]byte, error) {
	if len(text) > maxPatchBytes {
		return nil, fmt.Errorf("%d bytes: more than %d", len(text), maxPatchBytes)
	}
	patch, err := yaml.YAMLToJSONStrict([]byte(text))
	if err == nil && !bytes.HasPrefix(patch, []byte("{")) && !bytes.HasPrefix(patch, []byte("[")) {
		err = errors.New("it is neither a map nor a list")
	}
	return patch, err
}

// patched returns a patched copy of an object; fields that its kind lacks are an error.
func patched(o *unstructured.Unstructured, patch []byte) (*unstructured.Unstructured, error) {
	typed := patchable[o.GetKind()]
	if typed == nil {
		return nil, fmt.Errorf("objects of kind %s cannot be patched", o.GetKind())
	}
	apply := mergePatch
	if bytes.HasPrefix(patch, []byte("[")) {
		apply = jsonPatch
	}
	content, err := apply(o, patch, typed())
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, typed(), true); err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: content}, nil
}

func mergePatch(o *unstructured.Unstructured, patch []byte, typed any) (content map[string]any, err error) {
	defer func() { // the library compares values as keys, and keys cannot be lists or maps
		if p := recover(); p != nil {
			err = fmt.Errorf("it does not fit the object: %v", p)
		}
	}()
	var change map[string]any
	if err := json.Unmarshal(patch, &change); err != nil {
		return nil, err
	}
	return strategicpatch.StrategicMergeMapPatch(o.DeepCopy().Object, change, typed)
}

func jsonPatch(o *unstructured.Unstructured, patch []byte, _ any) (map[string]any, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	original, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	options := jsonpatch.NewApplyOptions()
	options.AccumulatedCopySizeLimit = maxPatchedBytes
	result, err := operations.ApplyWithOptions(original, options)
	if err != nil {
		return nil, err
	}
	if len(result) > maxPatchedBytes {
		return nil, fmt.Errorf("it makes the object larger than %d bytes", maxPatchedBytes)
	}
	var content map[string]any
	return content, json.Unmarshal(result, &content)
}
