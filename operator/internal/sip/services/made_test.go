package services

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
