package vdoctl

import (
	"errors"
	"slices"
	"strings"
	"sync"

	openapi "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
)

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

var schemas sync.Map // read ones, by kind

// schemaOf returns the schema of one of our kinds, or nil.
func schemaOf(kind string) (*spec.Schema, error) {
	if known, ok := schemas.Load(kind); ok {
		return known.(*spec.Schema), nil //nolint:forcetypeassert // see below
	}
	for _, m := range deploy.Manifests() {
		if m.Name != v1alpha1.GroupVersion.Group+"_"+strings.ToLower(kind)+"s.yaml" {
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
		schema := &crd.Spec.Versions[0].Schema.OpenAPIV3Schema // there is one version
		schemas.Store(kind, schema)
		return schema, nil
	}
	return nil, nil
}
