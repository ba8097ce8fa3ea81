package vdoctl

import (
	"errors"
	"strings"

	openapi "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
)

// checkSchema checks a document against the schema of its kind, as the API server would, except for rules in CEL. It
// accepts other kinds, and a draft without required fields: `configure` adds them.
func checkSchema(kind string, doc []byte) error {
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema spec.Schema }
			}
		}
	}
	var data any
	for _, m := range deploy.Manifests() {
		if m.Name != v1alpha1.GroupVersion.Group+"_"+strings.ToLower(kind)+"s.yaml" {
			continue
		}
		if err := fault.Join(yaml.Unmarshal(m.Data, &crd), yaml.Unmarshal(doc, &data)); err != nil {
			return err
		}
	}
	var errs []error
	for _, v := range crd.Spec.Versions { // there is one
		schema := &v.Schema.OpenAPIV3Schema
		for _, err := range validate.NewSchemaValidator(schema, nil, "", strfmt.Default).Validate(data).Errors {
			if invalid, ok := errors.AsType[openapi.Error](err); !ok || invalid.Code() != openapi.RequiredFailCode {
				text := strings.ReplaceAll(err.Error(), " in body", "")
				errs = append(errs, errors.New(strings.TrimPrefix(text, ".")))
			}
		}
	}
	return errors.Join(errs...)
}
