package vdoctl

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	openapi "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/clusterstate"
)

// objects are the objects of a file, all in a namespace. It is a reader of them.
type objects struct {
	client.Reader

	namespace string // of objects without one
	config    *v1alpha1.VDOConfig
	bundle    *v1alpha1.DriverBundle
	vcenters  []v1alpha1.VsphereCloudConfig
	all       map[string]client.Object // these, Secrets and ConfigMaps, by describeObject
}

func (o *objects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	is, ok := o.all[kindOf(into)+" "+key.String()]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(is.DeepCopyObject()).Elem())
	return nil
}

// parseSite reads YAML or JSON documents, and reports all errors. It skips resources of other groups, since a file may
// have all of a site. Beside errors it returns the readable objects, so that the caller reports their errors too. The
// namespace defaults to the operator's.
func parseSite(name string, data []byte, namespace string) (*objects, error) {
	const hint = "name a YAML file with them: `vdoctl configure -o site.yaml` writes one"
	out, err := readObjects(name, data, namespace)
	if _, noYAML := documents(data); noYAML != nil {
		err = fault.Errorf(fault.InvalidInput, "read", name, hint,
			"it is no YAML file with a VDOConfig or a VsphereCloudConfig: %w", noYAML)
	} else if err == nil && out.config == nil && len(out.vcenters) == 0 {
		err = fault.Errorf(fault.NotFound, "read", name, hint, "it has neither a VDOConfig nor a VsphereCloudConfig")
	}
	return out, err
}

func readObjects(name string, data []byte, namespace string) (*objects, error) {
	o := &objects{namespace: namespace, all: map[string]client.Object{}}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	docs, err := documents(data)
	var errs []error
	wrong := func(subject string, err error) {
		if err != nil {
			errs = append(errs, &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: subject, Err: err,
				Hint: "correct the file; `kubectl apply --dry-run=server -f FILE` says more"})
		}
	}
	wrong(name, err)
	for i, doc := range docs {
		wrong(fmt.Sprintf("%s, document %d", name, i+1), o.decode(decoder, doc))
	}
	return o, fault.Join(errs...)
}

// siteGroups are the groups of a site's resources: an unknown kind is an error in them, and skipped in others.
var siteGroups = []string{"", v1alpha1.GroupVersion.Group, airship.GroupVersion.Group}

// decode reads one document. An unknown kind or field of Kubernetes or the operator is an error, since it would hide a
// typo.
func (o *objects) decode(decoder runtime.Decoder, doc []byte) error {
	var of *metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &of); err == nil && of == nil {
		return nil // only comments
	} else if err == nil && of.GroupVersionKind().Group == v1alpha1.GroupVersion.Group {
		if err := checkSchema(of.Kind, doc); err != nil {
			return err
		}
	}
	data, err := yaml.YAMLToJSONStrict(doc) // the decoder takes what begins with { for JSON
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(data, []byte("{")) {
		return errors.New("it is no Kubernetes manifest")
	}
	object, _, err := decoder.Decode(data, nil, nil)
	if runtime.IsNotRegisteredError(err) && !slices.Contains(siteGroups, of.GroupVersionKind().Group) {
		return nil
	}
	if err == nil && meta.IsListType(object) {
		err = fmt.Errorf("write a %s as a List, as kubectl get does", of.Kind)
	}
	if err != nil {
		return err
	}
	return o.add(object)
}

// add adds an object of a configuration. It refuses a duplicate, since only one of the two would apply.
func (o *objects) add(object runtime.Object) error {
	switch object.(type) {
	case *v1alpha1.VDOConfig, *v1alpha1.DriverBundle, *v1alpha1.VsphereCloudConfig, *corev1.Secret, *corev1.ConfigMap:
		own := object.(client.Object) //nolint:forcetypeassert,errcheck // all are
		own.SetNamespace(cmp.Or(own.GetNamespace(), o.namespace))
		own.SetResourceVersion("")
		if of := describeObject(own); o.all[of] != nil {
			return fmt.Errorf("%s is there twice", of)
		}
		o.put(own)
	}
	switch object := object.(type) {
	case *v1alpha1.VDOConfig:
		if o.config != nil {
			return fmt.Errorf("a second VDOConfig: a cluster has one, and %s is there", describeObject(o.config))
		}
		o.config = object
	case *v1alpha1.DriverBundle:
		if _, err := image.ParseHosted(object.Spec.Reference); err != nil {
			return err
		}
		switch {
		case object.Namespace != o.namespace: // another operator's namespace, which reads it there
		case o.bundle != nil:
			return fmt.Errorf("a second DriverBundle: the drivers are from one, and %s is there", describeObject(o.bundle))
		default:
			o.bundle = object
		}
	case *v1alpha1.VsphereCloudConfig:
		if err := isHost(object.Spec.VcIP); err != nil { // a connection's error would be less clear
			return fmt.Errorf("spec.vcIp of %s, %q: %w", describeObject(object), object.Spec.VcIP, err)
		}
		o.vcenters = append(o.vcenters, *object)
	}
	return nil
}

func (o *objects) put(x client.Object) {
	if s, ok := x.(*corev1.Secret); ok {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		for k, v := range s.StringData {
			s.Data[k] = []byte(v)
		}
		s.StringData = nil
	}
	o.all[describeObject(x)] = x
}

// values returns the ConfigMaps, and then the Secrets, sorted.
func (o *objects) values() []client.Object {
	all := slices.Collect(maps.Values(o.all))
	all = slices.DeleteFunc(all, func(x client.Object) bool { return kindOf(x) != "ConfigMap" && kindOf(x) != "Secret" })
	slices.SortFunc(all, func(a, b client.Object) int { return strings.Compare(describeObject(a), describeObject(b)) })
	return all
}

// within refuses objects that the operator does not read: resources of another namespace, and another bundle than the
// named one.
func (o *objects) within() error {
	own := pointers(o.vcenters)
	if o.config != nil {
		own = append(own, o.config)
	}
	var errs []error
	if o.config != nil && o.bundle != nil && o.config.Spec.Bundle != nil && o.config.Spec.Bundle.Name != o.bundle.Name {
		errs = append(errs, fault.Errorf(fault.InvalidInput, "read", describeObject(o.bundle),
			"give both the same name, or leave one of them out",
			"spec.bundle of %s names another one, %s", describeObject(o.config), o.config.Spec.Bundle.Name))
	}
	for _, object := range own {
		if in := object.GetNamespace(); in != o.namespace {
			errs = append(errs, fault.Errorf(fault.InvalidInput, "read", describeObject(object),
				"correct its metadata.namespace, or name the operator's with `--namespace`",
				"it is of namespace %s, where the operator of namespace %s does not read it", in, o.namespace))
		}
	}
	return fault.Join(errs...)
}

func pointers[T any, P interface {
	*T
	client.Object
}](items []T) []client.Object {
	out := make([]client.Object, len(items))
	for i := range items {
		out[i] = P(&items[i])
	}
	return out
}

// present returns the existing objects, each once. It skips objects without a name.
func present(ctx context.Context, c client.Reader, all []client.Object) ([]client.Object, error) {
	var out []client.Object
	done := map[string]bool{}
	for _, x := range all {
		name := describeObject(x)
		if x.GetName() == "" || done[name] {
			continue
		}
		done[name] = true
		err := c.Get(ctx, client.ObjectKeyFromObject(x), x)
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, clusterstate.Fault("read "+name, err)
		}
		out = append(out, x)
	}
	return out, nil
}

func isGone(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// documents splits a file into its documents, and a List, as kubectl get writes it, into its items.
func documents(data []byte) (out [][]byte, err error) {
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	for docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		var list struct {
			Kind  string            `json:"kind"`
			Items []json.RawMessage `json:"items"`
		}
		if yaml.Unmarshal(doc, &list) != nil || list.Kind != "List" {
			out = append(out, doc)
			continue
		}
		for _, item := range list.Items {
			out = append(out, item)
		}
	}
}

func readManifest(data []byte) (out []client.Object, err error) {
	docs, err := documents(data)
	for _, doc := range docs {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &u.Object); err != nil {
			return nil, err
		}
		if u.Object != nil { // otherwise only comments
			out = append(out, u)
		}
	}
	return out, err
}

// readManifest returns the operator's resources of a file, moved to its namespace.
func (a *app) readManifest(data []byte) ([]client.Object, error) {
	var moved []byte
	for line := range bytes.Lines(data) {
		if !bytes.Contains(line, []byte("image: ")) { // a repository may have that name
			line = bytes.ReplaceAll(line, []byte(operatorNamespace), []byte(a.cluster.namespace))
		}
		moved = append(moved, line...)
	}
	return readManifest(moved)
}

func unnamespaced(apiVersion, kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetName(name)
	return u
}

func kindOf(x client.Object) string { return fullKindOf(x).Kind }

func fullKindOf(x client.Object) schema.GroupVersionKind {
	if typed, _, err := scheme.ObjectKinds(x); err == nil {
		return typed[0]
	}
	return x.GetObjectKind().GroupVersionKind()
}

// describeObject returns "Kind namespace/name".
func describeObject(x client.Object) string {
	if x.GetNamespace() == "" {
		return kindOf(x) + " " + x.GetName()
	}
	return kindOf(x) + " " + x.GetNamespace() + "/" + x.GetName()
}

// checkSchema checks a document against the schema of its kind, as the API server would, except for rules in CEL. It
// accepts other kinds, and a draft with required fields absent or empty: `configure` adds them. The API server drops
// keys without a value.
func checkSchema(kind string, doc []byte) error {
	schema, err := schemaOf(kind)
	if err != nil || schema == nil {
		return err
	}
	var data any
	if err := yaml.Unmarshal(doc, &data); err != nil {
		return err
	}
	accepted := []int32{openapi.RequiredFailCode, openapi.TooShortFailCode}
	var errs []error
	for _, err := range validate.NewSchemaValidator(schema, nil, "", strfmt.Default).Validate(data).Errors {
		invalid, ok := errors.AsType[*openapi.Validation](err)
		if ok && (slices.Contains(accepted, invalid.Code()) || invalid.Value == "null") {
			continue
		}
		text := strings.ReplaceAll(err.Error(), " in body", "")
		errs = append(errs, errors.New(strings.TrimPrefix(text, ".")))
	}
	return errors.Join(errs...)
}

// schemaOf returns the schema of one of our kinds, or nil.
func schemaOf(kind string) (*spec.Schema, error) {
	name := v1alpha1.GroupVersion.Group + "_" + strings.ToLower(kind) + "s.yaml"
	for _, m := range deploy.Manifests() {
		if m.Name != name {
			continue
		}
		var crd struct {
			Spec struct {
				Versions []struct {
					Schema struct{ OpenAPIV3Schema spec.Schema }
				}
			}
		}
		if err := yaml.Unmarshal(m.Data, &crd); err != nil {
			return nil, err
		}
		return &crd.Spec.Versions[0].Schema.OpenAPIV3Schema, nil // there is one version
	}
	return nil, nil
}
