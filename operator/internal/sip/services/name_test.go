package services

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNamesAreLabelsAndApart(t *testing.T) {
	long := strings.Repeat("a", 62)
	seen := map[string]bool{}
	for _, cluster := range []string{"a", "a.b", "a-b", long + "a", long + "b", "1.2-3"} {
		for _, kind := range []Kind{LoadBalancerControlPlane, LoadBalancerWorker, JumpHost, Auth} {
			for index := range 8 {
				name := Name(cluster, kind, index)
				require.Empty(t, validation.IsDNS1035Label(name), name)
				require.LessOrEqual(t, len(name), maxName)
				require.False(t, seen[name], name)
				seen[name] = true
			}
		}
		for _, ns := range []string{"t", "t-a", strings.Repeat("n", 63)} {
			name := Namespace(types.NamespacedName{Namespace: ns, Name: cluster})
			require.Empty(t, validation.IsDNS1123Label(name), name)
			require.False(t, seen[name], name)
			seen[name] = true
		}
	}
}
