package operator_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/matrix"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/store"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/upstream"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/world"
)

// Every release goes the whole line: vdo-bundle
// locks, pulls, signs and pushes it; the operator reads it out of the mirror by
// the key it trusts and renders it; a real API server accepts every object, and
// every image is in the mirror under the name that pods will ask for.
func TestEveryReleaseGoesTheWholeLineToTheAPIServer(t *testing.T) {
	upstream.Each(t, goTheWholeLine)
}

func goTheWholeLine(t *testing.T, manifests string) {
	ctx, releases := t.Context(), upstream.Releases()
	mirror := registry.Start(t, registry.Options{TLS: true, Auth: registry.Basic})
	publicKey := deliverAll(t, mirror, manifests, releases)

	admin := connect(t)
	ns := cluster.Namespace(t, cluster.Config(t))
	contents := readMirror(t, admin, ns, mirror, publicKey)
	require.Len(t, contents.Lock.Releases, len(releases)+1, "the operator among them")
	listed, err := matrix.Parse("the bundle's", contents.Matrix)
	require.NoError(t, err)
	cert, err := webhookcert.Issue(time.Now(), rand.Reader)
	require.NoError(t, err)
	for _, r := range contents.Lock.Releases {
		if r.Driver == bundle.Operator {
			continue // deploy's tests apply its manifests
		}
		id := matrix.ReleaseID{Driver: r.Driver, Version: r.Version}
		t.Run(id.String(), func(t *testing.T) {
			out, err := render.Render(render.Input{
				Lock: contents.Lock, Manifests: contents.Manifests, Matrix: listed, Repository: mirror.Host + "/vdo/drivers",
				Releases: []matrix.ReleaseID{id},
				Spec: v1alpha1.VDOConfigSpec{
					CloudProvider: &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"site"}},
					StorageProvider: &v1alpha1.StorageProvider{
						VsphereCloudConfig: "site", Webhook: true, TopologyCategories: []string{"k8s-region", "k8s-zone"},
					},
				},
				VCenters: map[string]render.VCenter{"site": {
					Server: "vc.site.example", Datacenters: []string{"east"}, Insecure: true,
					Credentials: render.Credentials{Username: "vdo@vsphere.local", Password: "secret"},
				}},
				Cluster: render.Cluster{UID: "0d9c6e0c-7a39-4c0e-9d7f-1c2f2b5f7a11", Nodes: []render.Node{
					{Name: "cp", Labels: map[string]string{"kubernetes.io/os": "linux", "node-role.kubernetes.io/control-plane": ""}},
					{Name: "win", Labels: map[string]string{"kubernetes.io/os": "windows"}},
				}},
				PullSecret: mirror.DockerConfig(), HashKey: []byte("sixteen bytes or more"), Webhook: cert,
			})
			require.NoError(t, err)
			require.NotEmpty(t, out.Objects())
			for _, o := range out.Objects() {
				if o.GetKind() == "Namespace" { // what is in it needs it, in a dry run too
					if err := admin.Create(ctx, o.DeepCopy()); !apierrors.IsAlreadyExists(err) {
						require.NoError(t, err)
					}
				}
				require.NoError(t, admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(o.DeepCopy()),
					client.DryRunAll, client.FieldOwner("test"), client.ForceOwnership), "%s", o)
				for _, ref := range podImages(o.Object) {
					require.NoError(t, mirror.Serves(ctx, ref))
				}
			}
		})
	}
}

// deliverAll does the connected host's work with the program itself: one signed
// bundle of all releases in the mirror, as tag 1. It returns the public key.
func deliverAll(t *testing.T, mirror *registry.Registry, manifests string, releases []string) []byte {
	t.Helper()
	dir := t.TempDir()
	up, err := world.NewUpstream(t.Context(), world.UpstreamOptions{Dir: dir, Manifests: manifests, Releases: releases})
	require.NoError(t, err)
	t.Cleanup(up.Close)
	require.NoError(t, toolchain.Programs(t.Context(), filepath.Join(dir, "bin"), "./bundler/cmd/vdo-bundle"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), mirror.DockerConfig(), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), mirror.CA(), 0o600))
	host := &shell.Shell{Dir: dir, Path: []string{filepath.Join(dir, "bin")}, Env: []string{"HOME=" + dir, "DOCKER_CONFIG=" + dir, "COSIGN_PASSWORD=secret"}}
	run := func(words string, more ...string) {
		t.Helper()
		args := append(strings.Fields(words), more...)
		_, err := host.Run(t.Context(), "vdo-bundle", args...)
		require.NoError(t, err, words)
	}
	var chosen []string
	for _, r := range releases {
		chosen = append(chosen, "--release", r)
	}
	images.Push(t, up.Registry, "vdo/vdo-operator:v1.0.0", images.Spec{Seed: 1})
	run("keygen -o key")
	run("lock -o lock.yaml --drivers cpi,csi,cni,snapshot-controller --operator "+up.Registry.Host+"/vdo/vdo-operator:v1.0.0", append(chosen, up.Flags()...)...)
	run("pull --lock lock.yaml -o drivers.tar", up.Flags()...)
	run("sign drivers.tar --key key.key")
	run("push drivers.tar " + mirror.Host + "/vdo/drivers:1 --ca-file ca.crt")
	key, err := os.ReadFile(filepath.Join(dir, "key.pub"))
	require.NoError(t, err)
	return key
}

// readMirror reads the bundle as the operator does, and by the key.
func readMirror(t *testing.T, admin client.Client, ns string, mirror *registry.Registry, publicKey []byte) *bundle.Contents {
	t.Helper()
	ctx := context.Background()
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultCAName}, Data: map[string]string{"ca.crt": string(mirror.CA())}},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultPullSecretName}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: mirror.DockerConfig()},
		},
	} {
		o.SetNamespace(ns)
		require.NoError(t, admin.Create(ctx, o))
	}
	driverBundle := &v1alpha1.DriverBundle{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "drivers"},
		Spec:       v1alpha1.DriverBundleSpec{Reference: mirror.Host + "/vdo/drivers:1"},
	}
	session, err := store.New(store.Options{Client: admin}).Open(ctx, driverBundle)
	require.NoError(t, err)
	root, _, err := session.Resolve(ctx)
	require.NoError(t, err)
	evidence, err := session.Evidence(ctx, root)
	require.NoError(t, err)
	key, err := trust.NewKey("key", publicKey, trust.KeyOptions{})
	require.NoError(t, err)
	policy, err := trust.NewPolicy(1, key)
	require.NoError(t, err)
	_, err = policy.Verify(image.MustDigest(root.Digest.String()), evidence, time.Now())
	require.NoError(t, err)
	contents, err := session.Contents(ctx, root)
	require.NoError(t, err)
	return contents
}

// podImages returns the images of a rendered workload.
func podImages(object map[string]any) (images []string) {
	for _, kind := range []string{"initContainers", "containers"} {
		list, _, _ := unstructured.NestedSlice(object, "spec", "template", "spec", kind)
		for _, c := range list {
			if m, ok := c.(map[string]any); ok {
				images = append(images, m["image"].(string)) //nolint:forcetypeassert // the API server has accepted it
			}
		}
	}
	return images
}
