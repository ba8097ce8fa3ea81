package v1alpha1_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/yaml"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
)

// crd reads one of deploy/crds.
func crd(t *testing.T, plural string) *unstructured.Unstructured {
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "crds", "vdo.vmware.com_"+plural+".yaml"))
	require.NoError(t, err)
	u := &unstructured.Unstructured{}
	asJSON, err := yaml.YAMLToJSON(data)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(asJSON, &u.Object))
	return u
}

// unchecked takes out of a schema all that refuses something but types, as the
// predecessor's CRDs had it.
func unchecked(schema any) any {
	switch s := schema.(type) {
	case map[string]any:
		for _, key := range []string{
			"x-kubernetes-validations", "required", "enum", "pattern", "minLength", "maxLength", "minItems", "maxItems",
			"minimum", "maximum", "minProperties", "maxProperties", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
		} {
			if _, isField := s[key].(map[string]any); !isField { // one that is named like it
				delete(s, key)
			}
		}
		for key, value := range s {
			s[key] = unchecked(value)
		}
	case []any:
		for i := range s {
			s[i] = unchecked(s[i])
		}
	}
	return schema
}

// What was stored under the predecessor's CRDs is not lost under these: whatever rule it
// breaks, it can be annotated, its status written, the finalizer put on and taken off,
// and it can be deleted. The rules are held against what is changed of the spec.
func TestWhatWasStoredBeforeTheRulesCanBeKeptAndDeleted(t *testing.T) {
	cfg := cluster.New(t, cluster.Options{}).Config()
	c := cluster.Client(t, cfg)
	ns := cluster.Namespace(t, cfg)
	for plural, k := range map[string]struct {
		kind   string
		shapes []string
		change string // of a spec: a patch that breaks a rule
		rule   string
	}{
		"vdoconfigs": {"VDOConfig", []string{
			`{}`,
			`{cloudProvider: {}}`,
			`{cloudProvider: {vsphereCloudConfigs: [A_B, A_B], topology: {zone: z}}}`,
			`{storageProvider: {}}`,
			`{storageProvider: {vsphereCloudConfig: v, customKubeletPath: relative, clusterDistribution: "a\nb"}}`,
			`{storageProvider: {vsphereCloudConfig: v, fileVolumes: {vsanDataStoreUrl: ["a\nb"], netPermissions: [{ips: banana, permissions: ALL}]}}}`,
		}, `{"spec":{"storageProvider":{"vsphereCloudConfig":"C D"}}}`, "write the name of a Kubernetes object"},
		"vspherecloudconfigs": {"VsphereCloudConfig", []string{
			`{}`,
			`{vcIp: "999.1.1.1", credentials: "A B", datacenters: ["a\nb", "a,b"], thumbprint: zz}`,
			`{vcIp: vc.site, datacenters: []}`,
		}, `{"spec":{"vcIp":"999.1.1.2","credentials":"c"}}`, "spec.vcIp"},
		"compatibilityconfigs": {"CompatibilityConfig", []string{`{}`}, "", ""},
	} {
		t.Run(k.kind, func(t *testing.T) {
			old := crd(t, plural)
			versions, _, err := unstructured.NestedSlice(old.Object, "spec", "versions")
			require.NoError(t, err)
			require.NoError(t, unstructured.SetNestedSlice(old.Object, unchecked(versions).([]any), "spec", "versions"))
			apply := func(u *unstructured.Unstructured) {
				require.NoError(t, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("admin"), client.ForceOwnership))
			}
			apply(old)
			var stored []*unstructured.Unstructured
			for _, spec := range append(k.shapes, nothing) {
				u := object(t, ns, k.kind, spec)
				if spec == nothing {
					delete(u.Object, "spec")
				}
				require.Eventually(t, func() bool { // the CRD takes a moment
					err := c.Create(t.Context(), u)
					return err == nil || !apierrors.IsInvalid(err)
				}, 30*time.Second, 50*time.Millisecond, spec)
				require.NotEmpty(t, u.GetUID(), spec)
				stored = append(stored, u)
			}
			apply(crd(t, plural))
			if k.change != "" {
				require.Eventually(t, func() bool {
					return apierrors.IsInvalid(c.Create(t.Context(), object(t, ns, k.kind, k.shapes[0]), client.DryRunAll))
				}, 30*time.Second, 50*time.Millisecond, "the rules are in force")
			}
			for _, u := range stored {
				keptAndDeleted(t, c, u, k.change, k.rule)
			}
		})
	}
}

// nothing is a resource without even a spec. It asks for nothing, so it need not be kept.
const nothing = "null"

func keptAndDeleted(t *testing.T, c client.Client, u *unstructured.Unstructured, change, rule string) {
	if _, exists := u.Object["spec"]; !exists {
		require.NoError(t, c.Delete(t.Context(), u))
		require.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(u), u)), "gone, without a spec")
		return
	}
	spec, err := json.Marshal(u.Object["spec"])
	require.NoError(t, err)
	patch := func(what string, f func()) {
		before := u.DeepCopy()
		f()
		require.NoError(t, c.Patch(t.Context(), u, client.MergeFrom(before)), "%s: %s", what, spec)
	}
	patch("annotated", func() { u.SetAnnotations(map[string]string{"a": "b"}) })
	patch("finalizer put on", func() { controllerutil.AddFinalizer(u, "vdo.vmware.com/drivers") })
	if u.GetKind() != "CompatibilityConfig" {
		before := u.DeepCopy()
		require.NoError(t, unstructured.SetNestedField(u.Object, int64(1), "status", "observedGeneration"))
		require.NoError(t, c.Status().Patch(t.Context(), u, client.MergeFrom(before)), "status: %s", spec)
		err := c.Patch(t.Context(), u.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(change)))
		require.True(t, apierrors.IsInvalid(err), "%s: %v", spec, err)
		require.ErrorContains(t, err, rule)
	}
	require.NoError(t, c.Delete(t.Context(), u))
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(u), u))
	patch("finalizer taken off", func() { controllerutil.RemoveFinalizer(u, "vdo.vmware.com/drivers") })
	require.True(t, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(u), u)), "gone: %s", spec)
}
