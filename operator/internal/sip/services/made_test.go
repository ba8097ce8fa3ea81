package services

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Whatever is rendered for a service is found again by the service's name.
func TestMadeNamesAllThatIsRendered(t *testing.T) {
	in := full(t)
	set := rendered(t, in)
	require.Len(t, set.Services, 4)
	var names []string
	for _, s := range set.Services {
		names = append(names, s.Name)
		made := map[metav1.TypeMeta]map[string]bool{}
		for _, o := range Made(s.Name) {
			if made[o.TypeMeta] == nil {
				made[o.TypeMeta] = map[string]bool{}
			}
			made[o.TypeMeta][o.Name] = true
		}
		for _, o := range s.Objects {
			of := metav1.TypeMeta{APIVersion: o.GetAPIVersion(), Kind: o.GetKind()}
			require.True(t, made[of][o.GetName()], "%s %s", o.GetKind(), o.GetName())
		}
	}
	require.Equal(t, names, Names(in.Cluster.Name, &in.Spec))
}

// As many names are looked for as the API server takes services of a kind.
func TestAllNamesAreAsManyAsMayBe(t *testing.T) {
	data, err := os.ReadFile("../../../../deploy/sip/crds/airship.airshipit.org_sipclusters.yaml")
	require.NoError(t, err)
	var crd apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal(data, &crd))
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	kinds := spec.Properties["services"].Properties
	all := AllNames("t")
	require.Len(t, all, len(kinds)*most)
	for kind, of := range kinds {
		require.Equal(t, int64(most), *of.MaxItems, kind)
		for i := range most {
			require.Contains(t, all, Name("t", Kind(kind), i))
		}
	}
}
