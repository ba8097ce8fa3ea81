package vdoconfig_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
)

// openShiftKinds are what OpenShift is known by, its kinds of mirror sets, and what says which
// nodes have taken them up.
var openShiftKinds = []struct{ kind, plural, group, version string }{
	{"ClusterVersion", "clusterversions", "config.openshift.io", "v1"},
	{"ImageDigestMirrorSet", "imagedigestmirrorsets", "config.openshift.io", "v1"},
	{"ImageContentSourcePolicy", "imagecontentsourcepolicies", "operator.openshift.io", "v1alpha1"},
	{"MachineConfigPool", "machineconfigpools", "machineconfiguration.openshift.io", "v1"},
}

// onOpenShift is whether the cluster serves those kinds. Tests that need them follow each other,
// and making kinds takes seconds: they stay until a test begins that is not of these.
var onOpenShift bool

// openShift has the cluster serve what OpenShift does, and removes all objects of it after the test.
func (w *world) openShift() {
	w.t.Helper()
	for _, k := range openShiftKinds {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(k.group + "/" + k.version)
		list.SetKind(k.kind + "List")
		if !onOpenShift {
			crd := &apiextensionsv1.CustomResourceDefinition{
				// The API server lets nobody else name its groups without an approval.
				ObjectMeta: metav1.ObjectMeta{Name: k.plural + "." + k.group},
				Spec: apiextensionsv1.CustomResourceDefinitionSpec{
					Group: k.group, Scope: apiextensionsv1.ClusterScoped,
					Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: k.plural, Singular: strings.ToLower(k.kind), Kind: k.kind, ListKind: k.kind + "List"},
					Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: k.version, Served: true, Storage: true,
						Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: openShiftSchema(k.kind)}}},
				},
			}
			w.create(crd)
			w.until("the kind is served", func() bool { return w.List(context.Background(), list) == nil })
		}
		w.t.Cleanup(func() {
			o := &unstructured.Unstructured{}
			o.SetAPIVersion(k.group + "/" + k.version)
			o.SetKind(k.kind)
			require.NoError(w.t, w.DeleteAllOf(context.Background(), o))
		})
	}
	onOpenShift = true
}

// endOpenShift has the cluster serve the kinds of Kubernetes alone again.
func (a *access) endOpenShift(t *testing.T) {
	t.Helper()
	for _, k := range openShiftKinds {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: k.plural + "." + k.group}}
		require.NoError(t, a.admin.Delete(t.Context(), crd))
		require.Eventually(t, func() bool {
			return apierrors.IsNotFound(a.admin.Get(t.Context(), client.ObjectKeyFromObject(crd), crd))
		}, patience, poll, "the kind is gone")
	}
	onOpenShift, a.stale = false, true
}

// openShiftSchema is strict of what the operator writes, as OpenShift is, and lax of all else.
func openShiftSchema(kind string) *apiextensionsv1.JSONSchemaProps {
	type props = apiextensionsv1.JSONSchemaProps
	keep, atomic, set := true, "atomic", "set"
	if kind != "ImageDigestMirrorSet" {
		return &props{Type: "object", XPreserveUnknownFields: &keep}
	}
	text := func(all ...string) props {
		p := props{Type: "string"}
		for _, one := range all {
			p.Enum = append(p.Enum, apiextensionsv1.JSON{Raw: []byte(`"` + one + `"`)})
		}
		return p
	}
	list := func(of props, how *string) props {
		return props{Type: "array", XListType: how, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &of}}
	}
	entry := props{Type: "object", Required: []string{"source"}, Properties: map[string]props{
		"source": text(), "mirrors": list(text(), &set), "mirrorSourcePolicy": text("NeverContactSource", "AllowContactingSource")}}
	spec := props{Type: "object", Properties: map[string]props{"imageDigestMirrors": list(entry, &atomic)}}
	return &props{Type: "object", Required: []string{"spec"}, Properties: map[string]props{"spec": spec}}
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

// upstreamNames is a site on OpenShift whose cloud provider is asked for, under the shipped
// rights, with pods that name images as upstream does.
func upstreamNames(t *testing.T) (*world, *cloud) {
	t.Helper()
	w := startOn(t, "cpi@1.33.1", true)
	w.openShift()
	w.r.Checks = passing{}
	b := get(w, &v1alpha1.DriverBundle{}, w.ns, "site")
	w.change(b, func() { b.Spec.ImageNames = v1alpha1.ImageNamesUpstream })
	w.verified(b, metav1.ConditionTrue, "Succeeded", "signed by a")
	c := &cloud{world: w, v: w.config("site")}
	w.change(c.v, func() { c.v.Spec.StorageProvider = nil })
	w.look(c.v) // which puts the finalizer on
	return w, c
}

const cloudImage = "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere"

// Pods whose images nobody leads to the mirror are not installed; sets of any kind that lead
// there are understood, and what runs is not touched where one is taken away.
func TestOnOpenShiftNothingIsInstalledThatTheNodesDoNotFind(t *testing.T) {
	w, c := upstreamNames(t)
	held := func(says string) {
		t.Helper()
		w.look(c.v)
		require.Equal(t, "BlockInstall", cond(t, c.v, v1alpha1.ConditionPreflight).Reason, describe(c.v))
		r := c.v.Status.Preflight.Results[0]
		require.Equal(t, "image-mirror-set", r.ID)
		require.Equal(t, []string{cloudImage + " (" + says + ")"}, r.Objects)
		require.Contains(t, r.Remedy, "vdo-bundle mirror-config "+repository+"@sha256:")
		require.Contains(t, r.Remedy, " "+repository+" --runtime openshift | oc apply -f -")
	}
	w.r.Checks = unanswered{}
	held("no set has it") // which asks no vCenter
	images, err := w.r.Images(t.Context(), c.v)
	require.NoError(t, err)
	require.NotNil(t, images.Mirrors, "as vdoctl check has it, which asks the vCenters itself")
	w.r.Checks = passing{}
	held("no set has it")
	require.Empty(t, c.runs())
	wrong := mirrorSet("config.openshift.io/v1", "ImageDigestMirrorSet", "imageDigestMirrors", "wrong", "registry.k8s.io/cloud-pv-vsphere", "other.site/x")
	w.create(wrong)
	held("ImageDigestMirrorSet wrong leads elsewhere")
	require.Empty(t, c.runs())

	old := mirrorSet("operator.openshift.io/v1alpha1", "ImageContentSourcePolicy", "repositoryDigestMirrors", "old", "registry.k8s.io", repository+"/registry.k8s.io")
	w.create(old)
	held("ImageDigestMirrorSet wrong leads elsewhere")
	require.NoError(t, w.Delete(t.Context(), wrong))
	w.ready(c.v)
	require.True(t, strings.HasPrefix(c.runs(), cloudImage+"@sha256:"), c.runs())

	require.NoError(t, w.Delete(t.Context(), old))
	held("no set has it")
	require.True(t, isTrue(c.v, "Ready"), "what runs is as it is asked for: %s", describe(c.v))
	require.NotEmpty(t, c.runs())
	require.True(t, apierrors.IsNotFound(w.Get(t.Context(), client.ObjectKeyFromObject(old), old)), "nobody has made it again")
}
