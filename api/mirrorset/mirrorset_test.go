package mirrorset_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/mirrorset"
)

func entries(t *testing.T, mirror string, images ...string) mirrorset.Entries {
	var refs []image.Reference
	for _, i := range images {
		refs = append(refs, image.MustReference(i))
	}
	all, err := mirrorset.Of(refs, image.MustReference(mirror))
	require.NoError(t, err)
	return all
}

func TestEachRepositoryIsLedToItsPlaceBelowTheMirrorOnce(t *testing.T) {
	got := entries(t, "registry.site:5000/vdo/drivers:1", "registry.k8s.io/b:1", "host.corp:8443/c:1", "registry.k8s.io/b:2", "nginx:1", "registry.k8s.io/a/b@"+image.DigestOf(nil).String())
	require.Equal(t, mirrorset.Entries{
		{Source: "docker.io/library/nginx", Mirrors: []string{"registry.site:5000/vdo/drivers/docker.io/library/nginx"}},
		{Source: "host.corp:8443/c", Mirrors: []string{"registry.site:5000/vdo/drivers/host.corp_8443/c"}},
		{Source: "registry.k8s.io/a/b", Mirrors: []string{"registry.site:5000/vdo/drivers/registry.k8s.io/a/b"}},
		{Source: "registry.k8s.io/b", Mirrors: []string{"registry.site:5000/vdo/drivers/registry.k8s.io/b"}},
	}, got)
	_, err := mirrorset.Of([]image.Reference{image.MustReference("[::1]:5000/a:1")}, image.MustReference("registry.site/vdo:1"))
	require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
}

// What one set has is in the union, whatever else is, and the first one's mirrors come first.
func TestAUnionTakesNothingAway(t *testing.T) {
	now, was := entries(t, "new.site/v:1", "up.example/a:1", "up.example/b:1"), entries(t, "old.site/v:1", "up.example/b:1", "up.example/c:1")
	want := mirrorset.Entries{
		{Source: "up.example/a", Mirrors: []string{"new.site/v/up.example/a"}},
		{Source: "up.example/b", Mirrors: []string{"new.site/v/up.example/b", "old.site/v/up.example/b"}},
		{Source: "up.example/c", Mirrors: []string{"old.site/v/up.example/c"}},
	}
	got := mirrorset.Union(now, was)
	require.Equal(t, want, got)
	require.Equal(t, want, mirrorset.Union(now, got), "and again it is the same")
	require.Equal(t, entries(t, "old.site/v:1", "up.example/b:1", "up.example/c:1"), was, "what it is made of stays as it is")
	require.Empty(t, mirrorset.Union())
}

// The form of config.openshift.io/v1, read strictly.
func TestAnObjectReadsBack(t *testing.T) {
	all := mirrorset.Union(entries(t, "new.site/v:1", "up.example/a:1"), entries(t, "old.site/v:1", "up.example/a:1"))
	for _, k := range mirrorset.Kinds() {
		data, err := json.Marshal(all.Object(k, "x", mirrorset.NeverContactSource))
		require.NoError(t, err)
		require.JSONEq(t, `{"apiVersion":"`+k.APIVersion()+`","kind":"`+k.Kind+`","metadata":{"name":"x"},"spec":{"`+k.Field+
			`":[{"source":"up.example/a","mirrors":["new.site/v/up.example/a","old.site/v/up.example/a"],"mirrorSourcePolicy":"NeverContactSource"}]}}`, string(data))
	}
	require.Equal(t, "config.openshift.io/v1", mirrorset.Digests.APIVersion())
}
