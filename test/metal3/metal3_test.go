package metal3_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/metal3"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

// The stand-in has the names, scope, version and status subresource of the real kind, and each of its
// fields has the type of the real one.
func TestStandInMatchesTheRealKind(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(upstream.Dir(t), "metal3", "v0.13.2", "metal3.io_baremetalhosts.yaml"))
	require.NoError(t, err)
	var want, got apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal(data, &want))
	require.NoError(t, yaml.Unmarshal([]byte(metal3.CRD), &got))
	require.Equal(t, want.Name, got.Name)
	require.Equal(t, want.Spec.Group, got.Spec.Group)
	require.Equal(t, want.Spec.Names, got.Spec.Names)
	require.Equal(t, want.Spec.Scope, got.Spec.Scope)
	require.Len(t, want.Spec.Versions, 1)
	require.Len(t, got.Spec.Versions, 1)
	w, g := want.Spec.Versions[0], got.Spec.Versions[0]
	require.Equal(t, []any{w.Name, w.Served, w.Storage}, []any{g.Name, g.Served, g.Storage})
	require.Equal(t, w.Subresources, g.Subresources)
	alike(t, "", *w.Schema.OpenAPIV3Schema, *g.Schema.OpenAPIV3Schema)
}

func alike(t *testing.T, at string, want, got apiextensionsv1.JSONSchemaProps) {
	require.Equal(t, want.Type, got.Type, at)
	for name, field := range got.Properties {
		require.Contains(t, want.Properties, name, at)
		alike(t, at+"."+name, want.Properties[name], field)
	}
}
