package vdoconfig

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestExcludedNodesAreNotLookedAt(t *testing.T) {
	node := func(name string, labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	all := []*corev1.Node{
		node("vm", map[string]string{"site/metal": "no", "kubernetes.io/os": "linux"}), node("metal", map[string]string{"site/metal": "yes"}),
		node("bare", nil), node("cloud", map[string]string{"cloud": "other"}),
	}
	g := &gatherer{}
	require.Equal(t, all, g.onVSphere(all))
	g.spec.ExcludedNodes = map[string]string{"site/metal": "yes", "cloud": "other"}
	left := g.onVSphere(all)
	require.Equal(t, []*corev1.Node{all[0], all[2]}, left)
	require.Equal(t, "metal", all[1].Name, "what was observed stays as it is")
}
