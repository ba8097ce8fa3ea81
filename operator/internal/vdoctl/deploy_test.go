package vdoctl_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// release is a signed bundle with an operator, in a mirror with a login and as a folder.
type release struct {
	reference, repository, folder, root string
	key, stranger, ca, auth             string // files
}

func newRelease(t *testing.T) release {
	t.Helper()
	reg := registry.Start(t, registry.Options{TLS: true, Auth: registry.Basic})
	repo := mirror.New(t, reg, "vdo/drivers")
	b := mirror.Bundle{Seed: 4, Operator: "1.2.3"}
	signer, public := mirror.NewKey(t)
	_, stranger := mirror.NewKey(t)
	root := repo.Push(t, "1", b)
	repo.Sign(t, root, signer)

	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	g, store := b.Build(t)
	signed, err := signer.Sign(root, "", nil)
	require.NoError(t, err)
	for d, data := range store {
		file("layout/blobs/sha256/"+d[len("sha256:"):], data)
	}
	for _, n := range g.Manifests {
		file("layout/blobs/sha256/"+n.Descriptor.Digest.Encoded(), n.Data)
	}
	for _, blob := range signed.Blobs {
		file("layout/blobs/sha256/"+blob.Descriptor.Digest.Encoded(), blob.Data)
	}
	manifest := signed.Manifest
	signature := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digestOf(manifest), Size: int64(len(manifest)), Annotations: map[string]string{ocispec.AnnotationRefName: signed.Tag}}
	file("layout/blobs/sha256/"+signature.Digest.Encoded(), manifest)
	index, err := json.Marshal(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, Manifests: []ocispec.Descriptor{g.Manifests[len(g.Manifests)-1].Descriptor, signature}})
	require.NoError(t, err)
	file("layout/index.json", index)
	file("layout/oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	return release{
		reference: repo.Reference("1"), repository: reg.Host + "/vdo/drivers", folder: filepath.Join(dir, "layout"), root: root.String(),
		key: file("vdo.pub", []byte(public)), stranger: file("stranger.pub", []byte(stranger)), ca: file("ca.crt", reg.CA()), auth: file("auth.json", reg.DockerConfig()),
	}
}

// tarOf packs a folder.
func tarOf(t *testing.T, folder string) string {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	require.NoError(t, w.AddFS(os.DirFS(folder)))
	require.NoError(t, w.Close())
	name := filepath.Join(t.TempDir(), "drivers.tar")
	require.NoError(t, os.WriteFile(name, out.Bytes(), 0o600))
	return name
}

func (r release) args(args ...string) []string {
	return append([]string{"deploy", r.reference, "--key", r.key, "--ca-file", r.ca, "--authfile", r.auth}, args...)
}

func TestDeployInstallsTheOperatorOfASignedBundle(t *testing.T) {
	s := wholeCluster(t)
	r := newRelease(t)
	ctx := t.Context()

	// The first steps write the configuration before the operator is installed.
	file := filepath.Join(t.TempDir(), "site.yaml")
	out := s.ok("configure", "--bundle", "registry.site/vdo:1", "--server", "vc.site", "--username", "vdo@vsphere.local", "--no-check", "--write", file)
	require.Contains(t, out, "Written: "+file+"\nIf the operator is not installed yet, run `vdoctl deploy` before `kubectl apply`.\n")
	require.Contains(t, readFile(t, file), "kind: VDOConfig")
	for _, args := range []string{"status", "plan", "upgrade list", "upgrade rollback --yes", "matrix set registry.site/vdo:1", "preflight", "topology check"} {
		said, code := s.run(strings.Fields(args)...)
		require.Equal(t, 4, code, "%s: %s", args, said)
		require.Contains(t, said, "install the operator first: `vdoctl deploy BUNDLE`", args)
		takesFile := args == "preflight" || args == "topology check"
		require.Equal(t, takesFile, strings.Contains(said, "--from-file"), "%s: %s", args, said)
	}

	out, code := s.run("deploy", r.reference, "--ca-file", r.ca, "--authfile", r.auth, "--yes")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "--without-verification")
	out, code = s.run("deploy", r.reference, "--key", r.stranger, "--ca-file", r.ca, "--authfile", r.auth, "--yes")
	require.Equal(t, 3, code, out)
	out, code = s.run("deploy", r.repository+":2", "--key", r.key, "--ca-file", r.ca, "--authfile", r.auth, "--yes")
	require.Equal(t, 4, code, out)
	out, code = s.run("deploy", r.reference, "--key", r.key, "--ca-file", r.ca, "--authfile", os.DevNull, "--yes")
	require.Equal(t, 6, code, out)
	out, code = s.run(r.args()...)
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "no terminal")

	out = s.ok(r.args("--dry-run", "--with-access", "--mirror-set", "--rbac-policy")...)
	require.Contains(t, out, "created    ValidatingAdmissionPolicy vdo-operator-rights")
	require.Contains(t, out, "created    Deployment vmware-system-vdo/vdo-operator")
	require.Contains(t, out, "created    ClusterRole vdo-operator-mirror-set", "as `vdo-bundle install-manifests --mirror-set`")
	require.NotContains(t, out, "applying")
	d := &appsv1.Deployment{ObjectMeta: s.meta("vdo-operator")}
	require.False(t, s.there(d))

	out = s.ok(r.args("--yes", "--with-access")...)
	require.Contains(t, out, "vdo-operator 1.2.3 (signed by vdo.pub), bundle "+r.root)
	require.True(t, s.there(d))
	require.Equal(t, int32(1), d.Status.AvailableReplicas, "it was waited for")
	require.Contains(t, d.Spec.Template.Spec.Containers[0].Image, r.repository+"@sha256:")
	out, _ = s.run("describe")
	require.Contains(t, out, "operator  1.2.3, 1/1 ready")
	trusted, pull := &corev1.ConfigMap{ObjectMeta: s.meta("vdo-trust")}, &corev1.Secret{ObjectMeta: s.meta("vdo-registry")}
	require.True(t, s.there(trusted) && s.there(pull) && s.there(&corev1.ConfigMap{ObjectMeta: s.meta("vdo-registry-ca")}))
	require.Contains(t, trusted.Data["policy.yaml"], "vdo.pub")
	require.JSONEq(t, readFile(t, r.auth), string(pull.Data[corev1.DockerConfigJsonKey]))
	require.NotContains(t, out, "s3cret")

	out = s.ok(r.args("--yes", "--with-access", "-o", "json")...)
	require.NotContains(t, out, `"changed"`, "a second run changes nothing")
	require.NotContains(t, out, `"created"`)
	require.Contains(t, out, `"kept"`, "the site's access is left as it is")

	// What kubectl applied, and is as it has to be, is vdoctl's from then on: a dry run says so too.
	account := &corev1.ServiceAccount{ObjectMeta: s.meta("vdo-operator")}
	require.True(t, s.there(account))
	account.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	require.NoError(t, s.k.Update(ctx, account, client.FieldOwner("kubectl")))
	for _, how := range []string{"--dry-run", "--yes"} {
		require.Contains(t, s.ok(r.args(how)...), "adopted    ServiceAccount vmware-system-vdo/vdo-operator", how)
	}
	require.Contains(t, s.ok(r.args("--yes")...), "unchanged  ServiceAccount vmware-system-vdo/vdo-operator")

	// What somebody else has set is not taken from them.
	require.NoError(t, s.k.Patch(ctx, d, client.RawPatch("application/json-patch+json",
		[]byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/args/1","value":"--trust-floor=/etc/vdo/floor"}]`)), client.FieldOwner("kubectl-patch")))
	out, code = s.run(r.args("--yes")...)
	require.Equal(t, 8, code, out)
	require.Contains(t, out, "kubectl-patch")
	s.ok(r.args("--yes", "--force-conflicts", "--no-wait")...)
	require.True(t, s.there(d))
	require.NotContains(t, d.Spec.Template.Spec.Containers[0].Args, "--trust-floor=/etc/vdo/floor")

	// The same from a folder, a tar, and manifests that were printed; nothing differs.
	for _, src := range []string{"oci:" + r.folder, tarOf(t, r.folder)} {
		out, code = s.run("deploy", src, "--key", r.key, "--yes")
		require.Equal(t, 2, code, out)
		require.Contains(t, out, "--repository")
		out, code = s.run("deploy", src, "--key", r.stranger, "--repository", r.repository, "--yes")
		require.Equal(t, 3, code, out)
		out = s.ok("deploy", src, "--key", r.key, "--repository", r.repository, "--yes", "-o", "json")
		require.NotContains(t, out, `"changed"`)
	}
	s.ok("delete", "--all", "--yes")
}

func TestDeployTakesNoOtherYAMLForManifests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vdo.yaml")
	for text, want := range map[string]string{
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n": "it does not have the operator: Deployment vmware-system-vdo/vdo-operator",
		"version: 1\nreleases: []\n":                             "document 1 has no apiVersion, kind or name",
		"- a\n":                                                  "cannot unmarshal array",
		"# nothing\n":                                            "it does not have the operator",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		var errs bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "vdoctl", "deploy", "--manifests", file, "--yes")
		cmd.Stderr = &errs
		require.Error(t, cmd.Run())
		require.Equal(t, 2, cmd.ProcessState.ExitCode())
		require.Contains(t, errs.String(), want)
		require.Contains(t, errs.String(), "hint: write them with `vdo-bundle install-manifests`")
	}
}

func TestDeployReadsNothingThatWasTamperedWith(t *testing.T) {
	s := wholeCluster(t)
	r := newRelease(t)
	blobs, err := filepath.Glob(filepath.Join(r.folder, "blobs/sha256/*"))
	require.NoError(t, err)
	changed := 0
	for _, name := range blobs {
		data := readFile(t, name)
		if !strings.Contains(data, "kind: Deployment") {
			continue
		}
		changed++
		require.NoError(t, os.WriteFile(name, bytes.Replace([]byte(data), []byte("replicas: 1"), []byte("replicas: 9"), 1), 0o600))
	}
	require.NotZero(t, changed)
	out, code := s.run("deploy", "oci:"+r.folder, "--key", r.key, "--repository", r.repository, "--yes")
	require.Equal(t, 3, code, out)
	require.False(t, s.there(&appsv1.Deployment{ObjectMeta: s.meta("vdo-operator")}))
	out, code = s.run("deploy", "./nothing.tar", "--key", r.key, "--repository", r.repository, "--yes")
	require.Equal(t, 4, code, out)
	out, code = s.run("deploy", r.key, "--key", r.key, "--repository", r.repository, "--yes")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "it is not a bundle's tar")
}

func TestDeploySaysWhyTheOperatorDoesNotRun(t *testing.T) {
	tier.Later(t, tier.Peers)
	s := wholeCluster(t)
	r := newRelease(t)
	rendered := filepath.Join(t.TempDir(), "vdo.yaml")
	data := readFile(t, filepath.Join("..", "..", "..", "deploy", "namespaces.yaml")) + "---\n" + readFile(t, filepath.Join("..", "..", "..", "deploy", "rbac.yaml")) + "---\n" +
		string(bytes.Replace([]byte(readFile(t, filepath.Join("..", "..", "..", "deploy", "operator.yaml"))), []byte("      affinity:"), []byte("      nodeSelector: {nowhere: \"true\"}\n      affinity:"), 1))
	require.NoError(t, os.WriteFile(rendered, []byte(data), 0o600))
	out, code := s.run("deploy", "--manifests", rendered, "--yes", "--timeout", "20s")
	require.Equal(t, 9, code, out)
	require.Contains(t, out, "node(s) didn't match")
	out, code = s.run("deploy", r.reference, "--manifests", rendered, "--yes")
	require.Equal(t, 2, code, out)
	s.ok("delete", "--all", "--yes")
}
