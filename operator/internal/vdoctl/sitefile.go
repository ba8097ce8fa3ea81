package vdoctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// objects are what a file holds. It is a reader of the Secrets and ConfigMaps among them.
type objects struct {
	client.Reader

	config   *v1alpha1.VDOConfig
	bundle   *v1alpha1.DriverBundle // of bundles the one that counts
	bundles  []*v1alpha1.DriverBundle
	vcenters []v1alpha1.VsphereCloudConfig
	secrets  map[client.ObjectKey]*corev1.Secret
	maps     map[client.ObjectKey]*corev1.ConfigMap
	where    map[string]string // what was read is in the file, by describeObject
}

// Get finds a Secret or ConfigMap.
func (o *objects) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *corev1.Secret:
		if s, ok := o.secrets[key]; ok {
			s.DeepCopyInto(into)
			return nil
		}
	case *corev1.ConfigMap:
		if m, ok := o.maps[key]; ok {
			m.DeepCopyInto(into)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// parseSite reads YAML or JSON documents, and names all that is wrong with them. Resources of
// others are passed over: a file may hold all that a site applies. A kind or a field that is not
// known is an error where Kubernetes or the operator defines it, since a slip would go unseen.
// What could be read is returned beside errors, so that what is wrong with it is told with them.
// The namespace is the operator's, for what says none.
func parseSite(name string, data []byte, namespace string) (*objects, error) {
	out := &objects{
		secrets: map[client.ObjectKey]*corev1.Secret{}, maps: map[client.ObjectKey]*corev1.ConfigMap{},
		where: map[string]string{},
	}
	scheme, err := newScheme()
	if err != nil {
		return out, err
	}
	err = out.decodeAll(scheme, name, data)
	if unclear := out.chooseBundle(name, namespace); err == nil {
		err = unclear
	}
	if err == nil && out.config == nil && len(out.vcenters) == 0 {
		err = &fault.Error{
			Reason: fault.NotFound, Op: "read", Subject: name,
			Err:  errors.New("it has neither a VDOConfig nor a VsphereCloudConfig"),
			Hint: "name a YAML file with them: `vdoctl configure --write site.yaml` writes one",
		}
	}
	return out, err
}

// decodeAll reads the documents of a file.
func (o *objects) decodeAll(scheme *runtime.Scheme, name string, data []byte) error {
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	docs, err := documents(data)
	var errs []error
	if err != nil {
		errs = append(errs, &fault.Error{
			Reason: fault.InvalidInput, Op: "read", Subject: name, Err: err, Hint: "name a file in YAML or JSON",
		})
	}
	for i, doc := range docs {
		where := fmt.Sprintf("document %d", i+1)
		if err := o.decode(scheme, decoder, doc, where); err != nil {
			errs = append(errs, &fault.Error{
				Reason: fault.InvalidInput, Op: "read", Subject: name + ", " + where, Err: err,
				Hint: "correct the file; `kubectl apply --dry-run=server -f FILE` says more",
			})
		}
	}
	return fault.Join(errs...)
}

// siteGroups are the groups of a site's resources: an unknown kind of them is a slip, and of others theirs.
var siteGroups = []schema.GroupVersion{v1alpha1.GroupVersion, airship.GroupVersion, {Version: "v1"}}

// decode reads one document, or each item of one that is a list.
func (o *objects) decode(scheme *runtime.Scheme, decoder runtime.Decoder, doc []byte, where string) error {
	var content any
	if err := yaml.Unmarshal(doc, &content); err != nil || content == nil {
		return err
	}
	var of metav1.TypeMeta
	if _ = yaml.Unmarshal(doc, &of); of.Kind == "" || of.APIVersion == "" { // the decoder says what else is wrong
		return errors.New("it has no apiVersion and kind, so that it is no resource of Kubernetes")
	}
	object, _, err := decoder.Decode(doc, nil, nil)
	switch {
	case runtime.IsNotRegisteredError(err):
		known := func(g schema.GroupVersion) bool {
			own := g.Group == of.GroupVersionKind().Group
			return own || g.Group != "" && scheme.Recognizes(g.WithKind(of.Kind))
		}
		if slices.ContainsFunc(siteGroups, known) {
			return fmt.Errorf("there is no kind %q in %s", of.Kind, of.APIVersion)
		}
		return nil
	case err != nil:
		return err
	case !meta.IsListType(object):
		return o.add(object, where)
	}
	items, err := meta.ExtractList(object)
	errs := []error{err}
	for _, item := range items {
		if raw, ok := item.(*runtime.Unknown); ok {
			errs = append(errs, o.decode(scheme, decoder, raw.Raw, where))
		} else {
			errs = append(errs, o.add(item, where))
		}
	}
	return errors.Join(errs...)
}

// add takes what a configuration is of. What would take the place of another one is refused: of the
// two only one would count, unseen.
func (o *objects) add(object runtime.Object, where string) error {
	switch object := object.(type) {
	case *v1alpha1.VDOConfig, *v1alpha1.DriverBundle, *v1alpha1.VsphereCloudConfig, *corev1.Secret, *corev1.ConfigMap:
		of := describeObject(object.(client.Object)) //nolint:forcetypeassert,errcheck // they are
		if first, there := o.where[of]; there {
			return fmt.Errorf("%s is there twice: the first is in %s", of, first)
		}
		o.where[of] = where
	}
	switch object := object.(type) {
	case *v1alpha1.VDOConfig:
		if o.config != nil {
			first := describeObject(o.config)
			return fmt.Errorf("a second VDOConfig: a cluster has one, and %s is in %s", first, o.where[first])
		}
		o.config = object
	case *v1alpha1.DriverBundle:
		if _, err := image.ParseHosted(object.Spec.Reference); err != nil {
			return err
		}
		o.bundles = append(o.bundles, object)
	case *v1alpha1.VsphereCloudConfig:
		o.vcenters = append(o.vcenters, *object)
	case *corev1.Secret:
		if object.Data == nil {
			object.Data = map[string][]byte{}
		}
		for k, v := range object.StringData {
			object.Data[k] = []byte(v)
		}
		object.StringData = nil
		o.secrets[client.ObjectKeyFromObject(object)] = object
	case *corev1.ConfigMap:
		o.maps[client.ObjectKeyFromObject(object)] = object
	}
	return nil
}

// chooseBundle takes the DriverBundle that the VDOConfig would be installed from: of its namespace,
// since a file may have those of other operators too, which read them in theirs.
func (o *objects) chooseBundle(file, namespace string) error {
	fit := o.bundlesIn(o.namespace())
	if len(fit) != 1 {
		fit = o.bundlesIn(cmp.Or(o.namespace(), namespace), "")
	}
	switch {
	case len(fit) == 1:
		o.bundle = fit[0]
		return nil
	case len(o.bundles) == 1:
		o.bundle = o.bundles[0]
		return nil
	case len(o.bundles) == 0:
		return nil
	}
	var all []string
	for _, b := range o.bundles {
		all = append(all, describeObject(b)+" in "+o.where[describeObject(b)])
	}
	return &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: file, Err: fmt.Errorf("it has %d DriverBundles, and does not say which of them counts: %s", len(all), strings.Join(all, "; ")),
		Hint: "take away all but one, or name it in spec.bundle of the VDOConfig"}
}

// namespace is that of the configuration; "" where the file does not say it.
func (o *objects) namespace() string {
	switch {
	case o.config != nil:
		return o.config.Namespace
	case len(o.vcenters) > 0:
		return o.vcenters[0].Namespace
	}
	return ""
}

// bundlesIn are the bundles of namespaces; where the VDOConfig names one, that one.
func (o *objects) bundlesIn(namespaces ...string) (out []*v1alpha1.DriverBundle) {
	for _, b := range o.bundles {
		named := o.config == nil || o.config.Spec.Bundle == nil || o.config.Spec.Bundle.Name == b.Name
		if named && slices.Contains(namespaces, b.Namespace) {
			out = append(out, b)
		}
	}
	return out
}

// secret is a Secret of the file; nil where it has none of this name, or there is no file.
func (o *objects) secret(namespace, name string) *corev1.Secret {
	if o == nil {
		return nil
	}
	return o.secrets[client.ObjectKey{Namespace: namespace, Name: name}]
}

// moveTo puts what names no namespace into one, as `kubectl apply -n` does.
func (o *objects) moveTo(namespace string) {
	for _, x := range o.own() {
		x.SetNamespace(namespace)
	}
	moveInto(o.secrets, namespace)
	moveInto(o.maps, namespace)
}

func moveInto[T client.Object](all map[client.ObjectKey]T, namespace string) {
	for key, x := range all {
		if key.Namespace == "" {
			delete(all, key)
			x.SetNamespace(namespace)
			all[client.ObjectKeyFromObject(x)] = x
		}
	}
}

// own are the operator's resources of the file; a bundle that is not chosen is another operator's.
func (o *objects) own() []client.Object {
	var all []client.Object
	if o.config != nil {
		all = append(all, o.config)
	}
	if o.bundle != nil {
		all = append(all, o.bundle)
	}
	return append(all, pointers(o.vcenters)...)
}

// within refuses resources of another namespace than the operator's, where it reads none, and those
// that are there twice once [objects.moveTo] has put them there.
func (o *objects) within(namespace string) error {
	var errs []error
	for _, of := range slices.Sorted(maps.Keys(o.where)) {
		kind, name, _ := strings.Cut(of, " ")
		if first, there := o.where[kind+" "+namespace+"/"+name]; there && !strings.Contains(name, "/") {
			errs = append(errs, &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: of,
				Err:  fmt.Errorf("it is there twice: without a namespace in %s, and with %s in %s", o.where[of], namespace, first),
				Hint: "take one of them away"})
		}
	}
	for _, object := range o.own() {
		if in := object.GetNamespace(); in != "" && in != namespace {
			errs = append(errs, &fault.Error{Reason: fault.InvalidInput, Op: "read", Subject: describeObject(object),
				Err:  fmt.Errorf("it is of namespace %s, where the operator of namespace %s does not read it", in, namespace),
				Hint: "correct its metadata.namespace, or name the operator's with `--namespace`"})
		}
	}
	return fault.Join(errs...)
}
