package upstream_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

// Each stand-in equals the real file, object by object and field by field, except for what
// [shared] leaves out: prose, order, schemas of CRDs, values of samples and Antrea's
// configuration, checksums and probes' times.
func TestStandInsMatchTheRealFiles(t *testing.T) {
	dir := upstream.Dir(t)
	var known []string
	for _, d := range []matrix.Driver{matrix.CNI, matrix.CPI, matrix.CSI, matrix.SnapshotController} {
		versions, err := os.ReadDir(filepath.Join(dir, upstream.Folder(d)))
		require.NoError(t, err)
		for _, v := range versions {
			known = append(known, string(d)+"@"+v.Name()[1:])
		}
	}
	require.Equal(t, known, upstream.Releases(), "every release of %s has a stand-in", dir)
	for _, text := range upstream.Releases() {
		id, err := matrix.ParseReleaseID(text)
		require.NoError(t, err)
		entries, err := os.ReadDir(filepath.Join(dir, upstream.Folder(id.Driver), "v"+id.Version.String()))
		require.NoError(t, err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		require.ElementsMatch(t, names, upstream.Files(id), text)
		for _, name := range names {
			t.Run(text+"/"+name, func(t *testing.T) {
				want, own := objects(t, dir, id, name), objects(t, "", id, name)
				for key := range want {
					require.Equal(t, want[key], own[key], key)
				}
				require.Len(t, own, len(want))
			})
		}
	}
}

// Every release of the default matrix has a stand-in for each file that the matrix lists.
func TestEveryReleaseHasStandIns(t *testing.T) {
	doc, err := matrix.Parse(matrix.DefaultName, matrix.Default())
	require.NoError(t, err)
	for _, r := range doc.Releases {
		for _, m := range r.Manifests {
			require.NotEmpty(t, objects(t, "", r.ReleaseID, m.Name), "%s of %s", m.Name, r)
		}
	}
}

// objects returns what is compared of a manifest's objects, by kind and name.
func objects(t *testing.T, dir string, id matrix.ReleaseID, name string) map[string]any {
	t.Helper()
	data, err := upstream.Read(dir, id, name)
	require.NoError(t, err)
	out := map[string]any{}
	for dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var o unstructured.Unstructured
		if err := dec.Decode(&o.Object); err == io.EOF { //nolint:errorlint // the decoder's own
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if o.Object != nil {
			out[fmt.Sprint(o.GetAPIVersion(), " ", o.GetKind(), " ", o.GetNamespace(), "/", o.GetName())] = shared(&o)
		}
	}
}

// shared returns the fields of an object that a stand-in has in common with the real one.
func shared(o *unstructured.Unstructured) map[string]any {
	switch o.GetKind() {
	case "ConfigMap", "Secret":
		if o.GetNamespace() == "kube-system" { // samples of the cloud provider, Antrea's configuration
			for _, field := range []string{"data", "stringData"} {
				values, _, _ := unstructured.NestedMap(o.Object, field)
				for key := range values {
					values[key] = ""
				}
				o.Object[field] = values
			}
		}
	case "CustomResourceDefinition":
		var versions []string
		list, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
		for _, item := range list {
			v := item.(map[string]any)
			_, status, _ := unstructured.NestedMap(v, "subresources", "status")
			versions = append(versions, fmt.Sprint(v["name"], v["served"], v["storage"], status))
		}
		slices.Sort(versions)
		spec := o.Object["spec"].(map[string]any)
		names := spec["names"].(map[string]any)
		return map[string]any{
			"scope": spec["scope"], "group": spec["group"], "versions": versions, "conversion": spec["conversion"],
			"kind": names["kind"], "plural": names["plural"], "singular": names["singular"],
		}
	case "Role", "ClusterRole":
		rights := map[string]bool{}
		var role rbacv1.ClusterRole
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			panic(err)
		}
		for _, rule := range role.Rules {
			rule.NonResourceURLs = nil // in some of the real ones
			for _, right := range validation.BreakdownRule(rule) {
				rights[right.String()] = true
			}
		}
		o.Object["rules"] = rights
	}
	normalize(o.Object, o.GetLabels()["app"] == "antrea")
	return o.Object
}

// normalize puts lists of objects into one order and drops what differs by intent in Antrea's pods.
func normalize(value any, antrea bool) {
	switch v := value.(type) {
	case map[string]any:
		if antrea {
			delete(v, "checksum/config")
			for _, field := range []string{"failureThreshold", "initialDelaySeconds", "periodSeconds", "timeoutSeconds"} {
				delete(v, field)
			}
		}
		for _, field := range v {
			normalize(field, antrea)
		}
	case []any:
		for _, item := range v {
			normalize(item, antrea)
		}
		if len(v) > 0 {
			if _, ok := v[0].(map[string]any); ok {
				slices.SortFunc(v, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
		}
	}
}
