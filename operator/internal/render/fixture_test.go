package render_test

import (
	"bytes"
	"encoding/base64"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a tenth of the processor's time, under the race detector
	os.Exit(m.Run())
}

const repository = "mirror.site:5000/vdo/drivers"

func version(t testing.TB, s string) matrix.Version {
	return must.Have(matrix.ParseVersion(s))(t)
}

// contentsIn returns the lock and the manifests of a bundle of the releases' stand-ins, with the manifests of a
// directory, see [upstream.Read].
func contentsIn(t testing.TB, dir string, ids ...matrix.ReleaseID) (*bundle.Lock, map[string][]byte) {
	t.Helper()
	lock, manifests := &bundle.Lock{Platforms: []image.Platform{{}}}, map[string][]byte{}
	known := map[string]bool{}
	for _, id := range ids {
		release, files := upstream.Release(t, dir, id, nil)
		maps.Copy(manifests, files)
		for _, ref := range slices.Sorted(maps.Values(release.Images)) {
			if !known[ref] {
				known[ref] = true
				lock.Images = append(lock.Images, bundle.Image{Reference: image.MustReference(ref), Digest: image.DigestOf([]byte(ref))})
			}
		}
		lock.Releases = append(lock.Releases, release)
	}
	return lock, manifests
}

// releases returns the releases of a driver that have stand-ins.
func releases(t testing.TB, d matrix.Driver) (ids []matrix.ReleaseID) {
	for _, text := range upstream.Releases() {
		id := must.Have(matrix.ParseReleaseID(text))(t)
		if id.Driver == d {
			ids = append(ids, id)
		}
	}
	return ids
}

func release(t testing.TB, d matrix.Driver, v string) matrix.ReleaseID {
	t.Helper()
	return matrix.ReleaseID{Driver: d, Version: version(t, v)}
}

const password = `p"a\s#s;w=o[r]d 'x' $y`

// input is a site with one vCenter and three control-plane nodes that wants the releases.
func input(t testing.TB, ids ...matrix.ReleaseID) render.Input {
	t.Helper()
	lock, manifests := contentsIn(t, "", ids...)
	return render.Input{
		Origin:   render.Origin{Lock: lock, Manifests: manifests, Matrix: upstream.Listed(t, manifests), Repository: repository},
		Releases: ids,
		Spec: v1alpha1.VDOConfigSpec{
			CloudProvider:   &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"vc-one"}},
			StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "vc-one"},
		},
		VCenters: map[string]render.VCenter{"vc-one": {
			Server: "vc1.site.example", Datacenters: []string{"DC one", "folder/dc2"},
			Credentials: render.Credentials{Username: "vdo@vsphere.local", Password: password},
		}},
		Cluster: render.Cluster{
			UID:   "0d9c6e0c-7a39-4c0e-9d7f-1c2f2b5f7a11",
			Nodes: []*corev1.Node{controlPlane("cp-1"), controlPlane("cp-2"), controlPlane("cp-3"), node("worker-1", "kubernetes.io/os", "linux")},
		},
		PullSecret: []byte(`{"auths":{"mirror.site:5000":{"auth":"dTpw"}}}`),
		HashKey:    bytes.Repeat([]byte{7}, 32),
	}
}

// changeVCenter changes the one vCenter of a site.
func changeVCenter(in render.Input, change func(*render.VCenter)) {
	v := in.VCenters["vc-one"]
	change(&v)
	in.VCenters["vc-one"] = v
}

func node(name string, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	return n
}

func controlPlane(name string) *corev1.Node {
	n := node(name, "kubernetes.io/os", "linux", "node-role.kubernetes.io/control-plane", "")
	return tainted(tainted(n, "node-role.kubernetes.io/control-plane", corev1.TaintEffectNoSchedule),
		"node.cloudprovider.kubernetes.io/uninitialized", corev1.TaintEffectNoSchedule)
}

func mustRender(t testing.TB, in render.Input) *render.Rendered {
	return must.Have(render.Render(in))(t)
}

// find returns an object by "Kind name", or nil.
func find(out *render.Rendered, what string) *render.Object {
	kind, name, _ := strings.Cut(what, " ")
	for _, o := range out.Objects() {
		if o.GetKind() == kind && o.GetName() == name {
			return &o
		}
	}
	return nil
}

func object(t testing.TB, out *render.Rendered, what string) *render.Object {
	o := find(out, what)
	require.NotNil(t, o, what)
	return o
}

// secretData returns a rendered Secret's data, decoded.
func secretData(t testing.TB, out *render.Rendered, name string) map[string]string {
	encoded := nested(unstructured.NestedStringMap(object(t, out, "Secret "+name).Object, "data"))(t)
	data := map[string]string{}
	for k, v := range encoded {
		text := must.Have(base64.StdEncoding.DecodeString(v))(t)
		data[k] = string(text)
	}
	return data
}

func stageOf(out *render.Rendered, what string) string {
	for _, s := range out.Stages {
		for _, o := range s.Objects {
			if o.GetKind()+" "+o.GetName() == what {
				return s.Name
			}
		}
	}
	return ""
}

// texts calls do for every string in an object, with the path to it.
func texts(value any, path string, do func(path, text string)) {
	switch v := value.(type) {
	case string:
		do(path, v)
	case []any:
		for _, item := range v {
			texts(item, path, do)
		}
	case map[string]any:
		for key, item := range v {
			do(path, key)
			texts(item, path+"."+key, do)
		}
	}
}

// nested gives a field of an object, which may not be of another type.
func nested[T any](v T, _ bool, err error) func(t testing.TB) T { return must.Have(v, err) }
