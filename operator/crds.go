package operator

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// hasFields checks that a CRD has all fields of its kind. The API server drops fields that an older CRD lacks, also of
// the status, and the operator would act on the rest. A CRD that cannot be read passes.
func hasFields(ctx context.Context, api rest.Interface, apply string, kind any) error {
	name, crd := strings.ToLower(reflect.TypeOf(kind).Name())+"s."+v1alpha1.GroupVersion.Group, apiextensionsv1.CustomResourceDefinition{}
	data, err := api.Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + name).Do(ctx).Raw()
	if err != nil || json.Unmarshal(data, &crd) != nil {
		return nil //nolint:nilerr // see above
	}
	for _, v := range crd.Spec.Versions {
		if v.Name != v1alpha1.GroupVersion.Version {
			continue
		}
		if lacks := missingFields(reflect.TypeOf(kind), v.Schema.OpenAPIV3Schema, ""); len(lacks) > 0 {
			return fault.Errorf(fault.NotFound, "read CRD", name, "apply the CRDs of this operator's release: "+apply,
				"it is of another release and lacks %s", fault.Few(lacks, 5))
		}
	}
	return nil
}

// missingFields returns the paths of fields of a type that a schema lacks.
func missingFields(t reflect.Type, s *apiextensionsv1.JSONSchemaProps, at string) (lacks []string) {
	switch {
	case t.Kind() == reflect.Pointer:
		return missingFields(t.Elem(), s, at)
	case t.Kind() == reflect.Slice && s.Items != nil:
		return missingFields(t.Elem(), s.Items.Schema, at)
	case t.Kind() != reflect.Struct || len(s.Properties) == 0: // metadata, and times, which are strings
		return nil
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if of, ok := s.Properties[name]; ok {
			lacks = append(lacks, missingFields(t.Field(i).Type, &of, at+"."+name)...)
		} else if name != "" { // apiVersion and kind are inlined
			lacks = append(lacks, at+"."+name)
		}
	}
	return lacks
}
