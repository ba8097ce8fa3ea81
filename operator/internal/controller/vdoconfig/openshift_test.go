package vdoconfig_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// openShiftKinds are what OpenShift is known by, its kinds of mirror sets, and what says which
// nodes have taken them up.
var openShiftKinds = []struct{ kind, plural, group, version string }{
	{"ClusterVersion", "clusterversions", "config.openshift.io", "v1"},
	{"ImageDigestMirrorSet", "imagedigestmirrorsets", "config.openshift.io", "v1"},
	{"ImageContentSourcePolicy", "imagecontentsourcepolicies", "operator.openshift.io", "v1alpha1"},
	{"MachineConfigPool", "machineconfigpools", "machineconfiguration.openshift.io", "v1"},
}

// openShift has the cluster serve what OpenShift does, until the test ends.
func (w *world) openShift() {
	w.t.Helper()
	for _, k := range openShiftKinds {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(k.group + "/" + k.version)
		list.SetKind(k.kind + "List")
		crd := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: k.plural + "." + k.group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: k.group, Scope: apiextensionsv1.ClusterScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: k.plural, Singular: strings.ToLower(k.kind), Kind: k.kind, ListKind: k.kind + "List"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: k.version, Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}}}},
			},
		}
		w.create(crd)
		w.until("the kind is served", func() bool { return w.List(context.Background(), list) == nil })
		w.t.Cleanup(func() {
			w.discard(crd)
			w.until("the kind is gone", func() bool { return gone(w, crd, "", crd.Name) })
		})
	}
}

// mirrorSet is one of a kind, with entries of SOURCE and MIRROR.
func mirrorSet(apiVersion, kind, field, name string, entries ...string) *unstructured.Unstructured {
	var all []any
	for i := 0; i+1 < len(entries); i += 2 {
		all = append(all, map[string]any{"source": entries[i], "mirrors": []any{entries[i+1]}})
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{field: all}}}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetName(name)
	return o
}

const (
	cloudImage = "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere"
	ownSet     = "vdo-operator"
)

// set is the operator's, nil where it is not there.
func (c *cloud) set() *unstructured.Unstructured {
	c.t.Helper()
	o := mirrorSet("config.openshift.io/v1", "ImageDigestMirrorSet", "imageDigestMirrors", ownSet)
	if gone(c.world, o, "", ownSet) {
		return nil
	}
	return o
}

// leads is where a set leads the cloud provider's images.
func leads(set *unstructured.Unstructured) []string {
	entries, _, _ := unstructured.NestedSlice(set.Object, "spec", "imageDigestMirrors")
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		if entry["source"] == cloudImage {
			mirrors, _, _ := unstructured.NestedStringSlice(entry, "mirrors")
			return mirrors
		}
	}
	return nil
}

// Pods that name images as upstream does are not installed while nobody leads the nodes to the mirror. Where the
// operator is asked to, and under the rights that are given for that alone, it writes a set before what pulls, repairs
// it, and removes it with the VDOConfig after all pods.
func TestOnOpenShiftNodesAreLedToTheMirror(t *testing.T) {
	var w *world
	t.Cleanup(func() { // last: cleaning up needs the rights
		if w != nil {
			require.NoError(t, cluster.Operator.Revoke(context.Background(), w.Client, deploy.MirrorSetRights))
		}
	})
	w = start(t, "cpi@1.33.1")
	w.openShift()
	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	w.change(b, func() { b.Spec.ImageNames = v1alpha1.ImageNamesUpstream })
	w.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
	c := &cloud{world: w, v: w.config("site")}
	w.change(c.v, func() { c.v.Spec.StorageProvider = nil })
	w.r.Checks = passing{}
	w.look(c.v) // which puts the finalizer on
	held := func() v1alpha1.PreflightResult {
		t.Helper()
		w.look(c.v)
		require.Equal(t, "BlockInstall", cond(t, c.v, v1alpha1.ConditionPreflight).Reason, describe(c.v))
		r := c.v.Status.Preflight.Results[0]
		require.Equal(t, "image-mirror-set", r.ID)
		require.Equal(t, []string{cloudImage + " (no set has it)"}, r.Objects)
		require.Empty(t, c.runs())
		return r
	}
	require.Contains(t, held().Remedy, " "+repository+" --runtime openshift | oc apply -f -")
	images, err := w.r.Images(t.Context(), c.v)
	require.NoError(t, err)
	require.NotNil(t, images.Mirrors, "as vdoctl check has it, which asks the vCenters itself")

	w.change(c.v, func() { c.v.Spec.OpenShift = &v1alpha1.OpenShift{MirrorSet: v1alpha1.MirrorSetWrite} })
	w.lacks = true
	require.Contains(t, held().Remedy, "vdo-bundle install-manifests BUNDLE --mirror-set")
	w.access.refused.Forget()
	w.lacks = false

	require.NoError(t, cluster.Operator.Grant(t.Context(), w.Client, deploy.MirrorSetRights))
	var written []string
	tried := ""
	w.deny = func(_, name string) error { tried = name; return nil }
	w.fail = func(int) error { written = append(written, tried); return nil }
	w.ready(c.v)
	first := []string{repository + "/" + cloudImage}
	require.Equal(t, first, leads(c.set()))
	require.Less(t, slices.Index(written, ownSet), slices.Index(written, ccm), "%v", written)
	require.GreaterOrEqual(t, slices.Index(written, ownSet), 0)
	require.True(t, strings.HasPrefix(c.runs(), cloudImage+"@sha256:"), c.runs())
	w.writes = 0
	w.look(c.v)
	require.Zero(t, w.writes)

	c.remove(c.set())
	w.dropRecord(c.v)
	w.look(c.v)
	require.Equal(t, first, leads(c.set()), "it is repaired")
	w.ready(c.v)

	w.deny = func(method, name string) error {
		require.False(t, method == http.MethodDelete && name == ownSet && c.runs() != "", "there are pods still")
		return nil
	}
	require.NoError(t, w.Delete(t.Context(), c.v))
	w.removed(c.v)
	require.Nil(t, c.set())
}
