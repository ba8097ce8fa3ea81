package pages_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
)

// server answers with pages as an API server does, decoded into the list that it is given.
type server struct {
	client.Reader

	pages []string
	asked []client.ListOptions
	err   error // after the last page
}

func (s *server) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	s.asked = append(s.asked, *o.ApplyOptions(opts))
	n := len(s.asked) - 1
	if n == len(s.pages) {
		return s.err
	}
	return json.Unmarshal([]byte(s.pages[n]), list)
}

func TestAListIsReadPageByPage(t *testing.T) {
	s := &server{pages: []string{
		`{"metadata":{"continue":"more"},"items":[{"metadata":{"name":"a","labels":{"of":"a"}}},{"metadata":{"name":"b","annotations":{"of":"b"}}}]}`,
		`{"metadata":{"continue":"still"},"items":[{"metadata":{"name":"c"}}]}`,
		`{"metadata":{},"items":[{"metadata":{"name":"d"}},{"metadata":{"name":"e"}}]}`,
	}}
	var kept []*corev1.Node
	require.NoError(t, pages.Each(t.Context(), s, &corev1.NodeList{}, func(n *corev1.Node) {
		kept = append(kept, n)
	}, client.InNamespace("ns")))
	var names []string
	for _, n := range kept {
		names = append(names, n.Name)
	}
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, names, "a page is not read over the one before")
	require.Equal(t, map[string]string{"of": "a"}, kept[0].Labels)
	for _, n := range kept[2:] {
		require.Equal(t, metav1.ObjectMeta{Name: n.Name}, n.ObjectMeta, "nothing of the page before is in the next one")
	}
	for i, token := range []string{"", "more", "still"} {
		require.Equal(t, client.ListOptions{Namespace: "ns", Limit: pages.Size, Continue: token}, s.asked[i])
	}
}

func TestAPageThatIsNotReadIsTheReadersError(t *testing.T) {
	away := errors.New("away")
	s := &server{pages: []string{`{"metadata":{"continue":"more"},"items":[{"metadata":{"name":"a"}}]}`}, err: away}
	read := 0
	require.Equal(t, away, pages.Each(t.Context(), s, &corev1.NodeList{}, func(*corev1.Node) { read++ }))
	require.Equal(t, 1, read)
}

func TestAPageIsAsLargeAsIsAskedFor(t *testing.T) {
	s := &server{pages: []string{`{"items":[]}`}}
	require.NoError(t, pages.Each(t.Context(), s, &corev1.NodeList{}, func(*corev1.Node) {}, client.Limit(7)))
	require.Equal(t, []client.ListOptions{{Limit: 7}}, s.asked)
}
