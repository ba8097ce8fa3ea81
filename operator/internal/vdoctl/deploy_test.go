package vdoctl_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/deploy"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

// release is a signed bundle with an operator, in a mirror with a login.
type release struct {
	reference, repository, root string
	key, stranger, ca, auth     string // files
	push                        func(version string) image.Digest
}

func newRelease(t *testing.T) release {
	t.Helper()
	reg := registry.Start(t, registry.Options{TLS: true, Auth: registry.Basic})
	repo := mirror.New(t, reg, "vdo/drivers")
	signer, public := mirror.NewKey(t)
	_, stranger := mirror.NewKey(t)
	push := func(version string) image.Digest {
		root := repo.Push(t, "1", mirror.Bundle{Seed: 4, Operator: version})
		repo.Sign(t, root, signer)
		return root
	}
	return release{
		push: push, reference: repo.Reference("1"), repository: reg.Host + "/vdo/drivers", root: push("1.2.3").String(),
		key: fileOf(t, "vdo.pub", public), stranger: fileOf(t, "stranger.pub", stranger),
		ca: fileOf(t, "ca.crt", string(reg.CA())), auth: fileOf(t, "auth.json", string(reg.DockerConfig())),
	}
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
	s.run("configure", "--bundle", "registry.site/vdo:1", "--server", "vc.site", "--username", "vdo@vsphere.local", "--no-check", "-o", file).is(0,
		"Written: "+file+"\nIf the operator is not installed yet, run `vdoctl deploy` before `kubectl apply`.\n")
	require.Contains(t, readFile(t, file), "kind: VDOConfig")
	for _, args := range []string{"status", "plan", "upgrade list", "upgrade rollback --yes", "matrix set registry.site/vdo:1", "preflight", "topology check"} {
		s.run(strings.Fields(args)...).is(4, "install the operator first: `vdoctl deploy BUNDLE`")
	}

	s.run("check").is(4, "; or check a file: --from-file site.yaml")
	s.run("deploy", r.reference, "--ca-file", r.ca, "--authfile", r.auth, "--yes").is(2, "--without-verification")
	s.run("deploy", r.reference, "--key", r.stranger, "--ca-file", r.ca, "--authfile", r.auth, "--yes").is(3)
	s.run("deploy", r.repository+":2", "--key", r.key, "--ca-file", r.ca, "--authfile", r.auth, "--yes").is(4)
	s.run("deploy", r.reference, "--key", r.key, "--ca-file", r.ca, "--authfile", os.DevNull, "--yes").is(6,
		" -u USER --ca-file "+r.ca+" --authfile "+os.DevNull+"`")
	s.run(r.args()...).is(8, "no terminal")

	host := s.ok(r.args("--dry-run", "--with-access", "--host-network", "--force-conflicts")...)
	require.NotContains(t, host, "close port ", "NetworkPolicies do not apply")
	out := s.run(r.args("--dry-run", "--with-access", "--mirror-set", "--rbac-policy")...).is(0,
		"warning: use "+strings.Split(r.reference, "/")[0]+": the operator's NetworkPolicies close port ",
		"created    ValidatingAdmissionPolicy vdo-operator-rights",
		"created    Deployment vmware-system-vdo/vdo-operator")
	require.Contains(t, out, "created    ClusterRole vdo-operator-mirror-set", "as `vdo-bundle install-manifests --mirror-set`")
	require.NotContains(t, out, "spec.template", "of what is new no fields are listed")
	d := &appsv1.Deployment{ObjectMeta: s.meta("vdo-operator")}
	require.False(t, s.there(d))

	s.run(r.args("--yes", "--with-access")...).is(0, "vdo-operator 1.2.3 (signed by vdo.pub), bundle "+r.root)
	require.True(t, s.there(d))
	require.Equal(t, int32(1), d.Status.AvailableReplicas, "it was waited for")
	require.Contains(t, d.Spec.Template.Spec.Containers[0].Image, r.repository+"@sha256:")
	out, _ = s.run("describe").both()
	require.Contains(t, out, "1.2.3, 1/1 ready")
	trusted, pull := &corev1.ConfigMap{ObjectMeta: s.meta("vdo-trust")}, &corev1.Secret{ObjectMeta: s.meta("vdo-registry")}
	require.True(t, s.there(trusted) && s.there(pull) && s.there(&corev1.ConfigMap{ObjectMeta: s.meta("vdo-registry-ca")}))
	require.Contains(t, trusted.Data["policy.yaml"], "vdo.pub")
	require.JSONEq(t, readFile(t, r.auth), string(pull.Data[corev1.DockerConfigJsonKey]))
	require.NotContains(t, out, "s3cret")

	out = s.ok(r.args("--yes", "--with-access", "-o", "json")...)
	require.NotContains(t, out, `"changed"`, "a second run changes nothing")
	require.NotContains(t, out, `"created"`)
	require.Contains(t, out, `"kept"`, "the site's access is left as it is")

	// Flux adds the API server's defaults to what it applies.
	require.NoError(t, s.k.Patch(ctx, d, client.RawPatch(types.ApplyPatchType, []byte(`{apiVersion: apps/v1, kind: Deployment,
metadata: {name: vdo-operator}, spec: {template: {spec: {containers: [{name: operator, env: [
{name: POD_NAMESPACE, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}}]}]}}}}`)),
		client.FieldOwner("kustomize-controller"), client.ForceOwnership))
	s.ok(r.args("--yes")...)

	// What someone else has set is not taken from them.
	require.NoError(t, s.k.Patch(ctx, d, client.RawPatch("application/json-patch+json",
		[]byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/args/1","value":"--trust-floor=/etc/vdo/floor"}]`)), client.FieldOwner("kubectl-patch")))
	p := &networkingv1.NetworkPolicy{ObjectMeta: s.meta("default-deny")} // stands for a new object of the next release
	require.NoError(t, s.k.Delete(ctx, p))
	account := &corev1.ServiceAccount{ObjectMeta: s.meta("vdo-operator")}
	require.NoError(t, s.k.Patch(ctx, account, client.RawPatch("application/merge-patch+json",
		[]byte(`{"automountServiceAccountToken":true}`)), client.FieldOwner("another-patch")))
	s.run(r.args("--yes")...).is(8, "kubectl-patch", "another-patch")
	s.run(r.args("--dry-run", "--force-conflicts")...).is(0, "args[]: --trust-floor=/etc/vdo/floor -> ")
	require.False(t, s.there(p), "written before the conflict was found")
	r.push("1.2.2") // as who holds the mirror can: its signature is good
	s.run(r.args("--yes", "--force-conflicts")...).is(8, "1.2.2 is older than the running 1.2.3", "--allow-downgrade")
	s.ok(r.args("--yes", "--force-conflicts", "--allow-downgrade")...)
	require.True(t, s.there(d))
	require.NotContains(t, d.Spec.Template.Spec.Containers[0].Args, "--trust-floor=/etc/vdo/floor")

	// The rights of the operator would go to another namespace's.
	for _, args := range [][]string{r.args("--dry-run"), {"delete", "--operator", "--yes"}} {
		vdoctl(t, []string{"KUBECONFIG=" + s.conf}, append(args, "-n", "other")...).is(8,
			"the operator is in namespace vmware-system-vdo, and a cluster has one", "hint: add -n vmware-system-vdo;")
	}
	s.run("deploy", "drivers.tar", "--key", r.key, "--yes").is(2, "vdo-bundle install-manifests FILE")
	s.ok("delete", "--all", "--yes")
}

func TestDeployTakesNoOtherYAMLForManifests(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n": "it does not have the operator: Deployment vmware-system-vdo/vdo-operator",
		"- a\n":       "cannot unmarshal array",
		"# nothing\n": "it does not have the operator",
	} {
		vdoctl(t, nil, "deploy", "--manifests", fileOf(t, "vdo.yaml", text), "--yes").is(2, want,
			"hint: write them with `vdo-bundle install-manifests`")
	}
	file := fileOf(t, "vdo.yaml", "# nothing\n")
	for _, flag := range []string{"--classes", "--with-access", "--key=" + file, "--ca-file=" + file} {
		vdoctl(t, nil, "deploy", "--manifests", file, flag, "--yes").is(2, "read flag "+strings.Split(flag, "=")[0],
			"--manifests applies the whole file", "name the bundle in the place of --manifests")
	}
	for _, limit := range []string{"0", "-5s"} {
		vdoctl(t, nil, "deploy", "--manifests", file, "--yes", "--timeout", limit).is(2, "read flag --timeout")
		vdoctl(t, nil, "delete", "--all", "--yes", "--timeout", limit).is(2, "give one second or more")
	}
}

func TestDeploySaysWhyTheOperatorDoesNotRun(t *testing.T) {
	tier.Later(t, tier.Peers)
	s := wholeCluster(t)
	read := func(name string) string { return readFile(t, filepath.Join("..", "..", "..", "deploy", name)) }
	rendered := fileOf(t, "vdo.yaml", read("namespaces.yaml")+"---\n"+read("rbac.yaml")+"---\n"+
		strings.Replace(read("operator.yaml"), "      affinity:", "      nodeSelector: {nowhere: \"true\"}\n      affinity:", 1))
	s.run("deploy", "--manifests", rendered, "--yes", "--timeout", "20s").is(9, "of 1 pods are new", " describe pods`")
	s.run("deploy", "registry.site/vdo:1", "--manifests", rendered, "--yes").is(2)
	s.ok("delete", "--all", "--yes")
}

// The path of a site from nothing: each step before deploy needs no cluster, and can be run again. The
// administrator's password is in no output and in no file.
func TestFirstRun(t *testing.T) {
	s := wholeCluster(t)
	r := newRelease(t)
	v := vcsim.Start(t, vcsim.Options{})
	dir := t.TempDir()
	site, accounts := filepath.Join(dir, "a site.yaml"), filepath.Join(dir, "a site.accounts.yaml")
	before := func(args ...string) string {
		out := vdoctl(t, []string{"KUBECONFIG=/dev/null"}, append(args, "-v", "9")...).is(0)
		require.NotContains(t, out, vcsim.Administrator.Password)
		return out
	}
	login := append(asAdministrator(t), "-f", site, "--yes")
	users := func(verb string) string { return before(append(strings.Fields("users "+verb), login...)...) }

	before("configure", "--bundle", r.reference, "--server", v.Host, "--port", portOf(v), "--thumbprint", v.SHA256,
		"--datacenters", "/site/west", "--drivers", "csi", "-o", site)
	require.Contains(t, users("create --dry-run"), "would make account vdo-xxxxxxxx@vsphere.local", "the name is not known yet")
	asks := append([]string{"users", "create", "--no-cluster", "--yes=false"}, login[:len(login)-1]...)
	vdoctl(t, []string{"KUBECONFIG=" + s.conf}, asks...).
		is(8, "Apply the above to vCenter vcenter ("+v.Host+":"+portOf(v)+")?")
	made := users("create")
	require.Contains(t, made, "set      Secret vmware-system-vdo/vcenter-account for vdo-")
	require.Contains(t, made, "Written: "+accounts+" (mode 0600); `vdoctl deploy -f '"+site+"'` moves it")
	require.Contains(t, made, "Once nodes exist, run it again, without --no-cluster")
	again := users("create")
	require.Contains(t, again, "nothing to do")
	require.Contains(t, again, "/sdk 200 OK in ", "what -v shows")
	require.NotContains(t, readFile(t, accounts), vcsim.Administrator.Password)
	require.Contains(t, before("check", "-f", site, "--no-cluster", "--only", "vcenter-account"), "1 check passed")
	users("rotate")

	deploy := r.args("-f", site, "--yes")
	s.run(append(deploy, "--dry-run")...).is(0, "created    Secret vmware-system-vdo/vcenter-account",
		"warning: use ConfigMap vmware-system-vdo/vdo-trust: the DriverBundle needs it, and it is not there\nhint: add --with-access",
		"ConfigMap vmware-system-vdo/vdo-registry-ca: ", "Secret vmware-system-vdo/vdo-registry: ",
		"warning: use "+strings.Split(r.reference, "/")[0]+": the operator's NetworkPolicies close port ",
		"warning: use "+v.Host+":"+portOf(v)+": the operator's NetworkPolicies close port "+portOf(v))
	port := networkingv1.NetworkPolicyPort{Port: ptr.To(intstr.FromInt32(1024)), EndPort: ptr.To(int32(65535))}
	open := &networkingv1.NetworkPolicy{ObjectMeta: s.meta("site-ports")}
	open.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{Ports: []networkingv1.NetworkPolicyPort{port}}}
	require.FileExists(t, accounts)
	out := s.ok(append(deploy, "--with-access")...)
	require.Contains(t, out, "the operator runs, and has its configuration")
	require.NotContains(t, out, "add --with-access")
	require.Contains(t, out, "close port ")
	require.NoError(t, s.k.Create(t.Context(), open))
	require.NoFileExists(t, accounts, "the cluster has it")
	secret := &corev1.Secret{ObjectMeta: s.meta("vcenter-account")}
	require.True(t, s.there(secret) && s.there(&v1alpha1.VDOConfig{ObjectMeta: s.meta("vdo")}))
	account := string(secret.Data["username"])
	require.True(t, strings.HasSuffix(account, "-b@vsphere.local"), "the second one: %s", account)
	require.Equal(t, []string{string(secret.Data["password"])}, v.Accepted(account))
	out = s.ok(append(deploy, "-o", "json")...)
	require.NotContains(t, out, `"changed"`, "again")
	require.NotContains(t, out, "warning", "all that is used is there, and open")
	ca := &corev1.ConfigMap{ObjectMeta: s.meta("vdo-registry-ca")}
	require.True(t, s.there(ca))
	data := ca.Data
	ca.Data = map[string]string{"ca.crt": "another"}
	require.NoError(t, s.k.Update(t.Context(), ca))
	s.run(append(deploy, "--dry-run")...).is(0, "warning: use ConfigMap vmware-system-vdo/vdo-registry-ca: it has another")
	ca.Data = data
	require.NoError(t, s.k.Update(t.Context(), ca))
	was := readFile(t, site)
	changed := strings.NewReplacer("/site/west", "/lab", "vcenter-account", "other").Replace(was)
	require.NoError(t, os.WriteFile(site, []byte(changed), 0o600))
	// The changes are seen before the question.
	for code, flag := range map[int]string{0: "--dry-run", 8: "--yes=false"} {
		s.run(append(deploy, flag)...).is(code, "changed    VsphereCloudConfig",
			"spec.datacenters[]: /site/west -> /lab",
			"warning: read the credentials of "+v.Host+": there is no Secret other in")
	}
	require.NoError(t, os.WriteFile(site, []byte(was), 0o600))

	// An older file is not written over what the cluster has, and no command changes its accounts.
	require.NoError(t, os.WriteFile(accounts, []byte("apiVersion: v1\nkind: Secret\n"+
		"metadata: {name: vcenter-account, namespace: vmware-system-vdo}\nstringData: {username: a@b, password: old}\n"), 0o600))
	p := &networkingv1.NetworkPolicy{ObjectMeta: s.meta("default-deny")}
	require.NoError(t, s.k.Delete(t.Context(), p))
	s.run(deploy...).is(8, "the cluster has another one than "+accounts)
	s.run(append([]string{"users", "rotate"}, login...)...).is(8, "the cluster has another one than "+accounts,
		"`vdoctl users delete -f '"+site+"' --no-cluster --username ADMIN`")
	require.False(t, s.there(p), "written before the conflict was found")
	require.NoError(t, os.Remove(accounts))

	// In the cluster the account is still known as the one that was made before.
	s.run(append([]string{"users", "delete"}, login...)...).is(0, "remove   account "+account)
	require.False(t, s.there(secret))
	left := must.Have(v.SessionCount(t.Context()))(t)
	require.Zero(t, left)
	require.NoError(t, s.k.Delete(t.Context(), open))
	s.ok("delete", "--all", "--yes")
}

// The Makefile is run with a program in the place of vdoctl that says what it is called with.
func TestMakeDeployNeedsOneSource(t *testing.T) {
	bin := t.TempDir()
	says := "#!/bin/sh\necho vdoctl \"$@\"\n[ \"$2\" != --manifests ] || cat \"$3\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "vdoctl"), []byte(says), 0o700))
	const image, bundle = "IMG=registry.site/vdo/operator:v1", "BUNDLE=registry.site/vdo/drivers:1"
	for _, c := range []struct {
		args []string
		ok   bool
		says string
	}{
		{[]string{"deploy"}, false, "set IMG or BUNDLE, one of them"},
		{[]string{"deploy", image, bundle}, false, "set IMG or BUNDLE, one of them"},
		{[]string{"deploy", bundle, "DEPLOYFLAGS=--key vdo.pub"}, true,
			"vdoctl deploy registry.site/vdo/drivers:1 --key vdo.pub --dry-run\nvdoctl deploy registry.site/vdo/drivers:1 --key vdo.pub\n"},
		{[]string{"deploy", image, "YES=1"}, true, "image: registry.site/vdo/operator:v1\n"},
		{[]string{"undeploy", "UNDEPLOYFLAGS=--all", "YES=1"}, true, "vdoctl delete --all --dry-run\nvdoctl delete --all --yes\n"},
	} {
		args := append([]string{"--no-print-directory", "BIN=" + bin, "VDOCTL=" + bin + "/vdoctl"}, c.args...)
		cmd := exec.CommandContext(t.Context(), "make", args...)
		cmd.Dir = toolchain.Root()
		out, err := cmd.CombinedOutput()
		require.Equal(t, c.ok, err == nil, "%s: %s", c.args, out)
		require.Contains(t, string(out), c.says)
	}
}

var whole struct {
	once    sync.Once
	cluster *cluster.Cluster
	err     error
}

// wholeCluster has controllers and nodes that answer, for what is waited for. Its CRDs come
// with what is installed. The tests that use it are not parallel: the operator's rights have
// one name in a cluster.
func wholeCluster(t *testing.T) *shop {
	whole.once.Do(func() {
		whole.cluster, whole.err = cluster.Start(context.Background(), cluster.Options{
			Progress: os.Stderr, Nodes: []cluster.Node{{Name: "worker-1", Initialized: true}}})
	})
	require.NoError(t, whole.err)
	return &shop{t: t, k: clientOf(t, whole.cluster), ns: "vmware-system-vdo", conf: whole.cluster.Kubeconfig()}
}

func readFile(t *testing.T, name string) string {
	return string(must.Have(os.ReadFile(name))(t))
}

// installs has the operator's manifests applied, and returns their objects.
func (s *shop) installs() (all []client.Object) {
	require.NoError(s.t, cluster.InstallCRDs(whole.cluster.Config()))
	for _, m := range append([]deploy.Manifest{deploy.DriverNamespaces()}, deploy.Manifests()...) {
		for _, o := range s.read(string(m.Data)) {
			s.create(o)
			if o.GetObjectKind().GroupVersionKind().Kind != "Namespace" {
				all = append(all, o)
			}
		}
	}
	return all
}

// configured has the resources of a site applied: the finalizer is the operator's.
func (s *shop) configured() {
	s.t.Helper()
	config := &v1alpha1.VDOConfig{ObjectMeta: s.meta("vdo"), Spec: v1alpha1.VDOConfigSpec{
		StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "east"}}}
	config.Finalizers = []string{"vdo.vmware.com/drivers"}
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: s.meta("account"), StringData: map[string]string{"username": "u", "password": "canary"}},
		&corev1.Secret{ObjectMeta: s.meta("of-somebody-else")},
		&corev1.ConfigMap{ObjectMeta: s.meta("vdo-trust")},
		&v1alpha1.VsphereCloudConfig{ObjectMeta: s.meta("east"), Spec: v1alpha1.VsphereCloudConfigSpec{VcIP: "vc.site.example", Credentials: "account"}},
		&v1alpha1.DriverBundle{ObjectMeta: s.meta("drivers"), Spec: v1alpha1.DriverBundleSpec{Reference: "registry.site/vdo:stable"}},
		config,
	} {
		s.create(o)
	}
}

// release does what the operator does once the drivers are removed.
func (s *shop) release() {
	require.Eventually(s.t, func() bool {
		v := s.config()
		if v.DeletionTimestamp == nil {
			return false
		}
		v.Finalizers = nil
		return s.k.Update(s.t.Context(), v) == nil
	}, 2*time.Minute, 100*time.Millisecond)
}

func (s *shop) there(o client.Object) bool {
	err := s.k.Get(s.t.Context(), client.ObjectKeyFromObject(o), o)
	if !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		require.NoError(s.t, err)
	}
	return err == nil
}

func (s *shop) background(args ...string) (cmd *exec.Cmd, end func() result) {
	cmd = exec.CommandContext(s.t.Context(), "vdoctl", append(args, "-n", s.ns)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.conf)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(s.t, cmd.Start())
	return cmd, func() result {
		err := cmd.Wait()
		return ended(s.t, out.String(), err)
	}
}

func TestDeleteTakesWhatIsAskedForAndNothingElse(t *testing.T) {
	s := wholeCluster(t)
	installed := s.installs()
	s.configured()

	s.run("delete").is(2, "say what to delete")
	for _, flag := range []string{"--operator", "--configuration", "--crds"} {
		s.run("delete", flag, "--yes").is(8, "--keep-drivers")
	}
	s.run("delete", "--all").is(8, "no terminal")
	require.Contains(t, s.ok("delete", "--all", "--dry-run"), "VDOConfig vmware-system-vdo/vdo")
	require.Nil(t, s.config().DeletionTimestamp)

	// Interrupted while the operator removes the drivers: the next run goes on.
	cmd, end := s.background("delete", "--drivers", "--yes")
	require.Eventually(t, func() bool { return s.config().DeletionTimestamp != nil }, time.Minute, 100*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	end().is(130)
	_, end = s.background("delete", "--drivers", "--yes")
	s.release()
	out := end().is(0)
	require.False(t, s.there(&v1alpha1.VDOConfig{ObjectMeta: s.meta("vdo")}), out)
	require.Contains(t, s.ok("delete", "--drivers", "--yes"), "None of the requested parts exists")
	require.True(t, s.there(&v1alpha1.DriverBundle{ObjectMeta: s.meta("drivers")}))

	s.ok("delete", "--configuration", "--yes")
	for object, stays := range map[client.Object]bool{
		&v1alpha1.DriverBundle{ObjectMeta: s.meta("drivers")}: false, &corev1.Secret{ObjectMeta: s.meta("account")}: false,
		&corev1.ConfigMap{ObjectMeta: s.meta("vdo-trust")}: false, &corev1.Secret{ObjectMeta: s.meta("of-somebody-else")}: true,
	} {
		require.Equal(t, stays, s.there(object), object.GetName())
	}
	for _, o := range installed {
		require.True(t, s.there(o), o.GetName())
	}
	s.run("delete", "--all", "--yes").is(0, "Namespace vmware-system-vdo: a later operator needs the ConfigMaps vdo-bundle-… "+
		"and Secrets vdo-config-hash and vdo-highest-serials in it.", "`kubectl delete namespace vmware-system-vdo`\n",
		"if no volume is left: `kubectl delete namespace vmware-system-csi`\n", "`kubectl delete crd NAME`\n")
	for _, o := range installed {
		require.False(t, s.there(o), "%s %s", o.GetObjectKind().GroupVersionKind().Kind, o.GetName())
	}
	require.Contains(t, s.ok("delete", "--all", "--yes"), "None of the requested parts exists")
	for _, name := range []string{s.ns, "vmware-system-csi"} {
		require.True(t, s.there(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}), name)
	}
}

func TestDeleteCanLeaveTheDriversInstalled(t *testing.T) {
	s := wholeCluster(t)
	s.installs()
	s.configured()
	s.run("delete", "--keep-drivers", "--dry-run").is(0,
		"VDOConfig (the drivers stay installed, without the registration of their webhook)\n  VDOConfig vmware-system-vdo/vdo\n")
	_, end := s.background("delete", "--keep-drivers", "--operator", "--yes")
	require.Eventually(t, func() bool { return s.config().DeletionTimestamp != nil }, time.Minute, 100*time.Millisecond)
	require.Equal(t, v1alpha1.DeleteOrphan, s.config().Spec.OnDelete)
	require.True(t, s.there(&corev1.ServiceAccount{ObjectMeta: s.meta("vdo-operator")}), "the operator stays until the VDOConfig is gone")
	s.release()
	end().is(0, "VDOConfig vmware-system-vdo/vdo is gone")
	require.False(t, s.there(&corev1.ServiceAccount{ObjectMeta: s.meta("vdo-operator")}))
	for _, name := range []string{s.ns, "vmware-system-csi"} {
		require.True(t, s.there(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}), name)
	}
	s.run("delete", "--crds", "--yes").is(8, "there is what needs them: VsphereCloudConfig vmware-system-vdo/east")
	s.besideTenants()
	s.ok("delete", "--all", "--yes")
	require.True(t, s.there(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}))
}

// besideTenants has what others keep of the operator's kinds in namespaces of their own: it
// is not deleted, and keeps the kinds.
func (s *shop) besideTenants() {
	ctx := s.t.Context()
	at := metav1.ObjectMeta{Namespace: "tenants", Name: "theirs"}
	tenant := s.read("apiVersion: airship.airshipit.org/v1\nkind: SIPCluster\nmetadata: {namespace: tenants, name: one}\n")[0]
	spec := v1alpha1.VDOConfigSpec{StorageProvider: &v1alpha1.StorageProvider{VsphereCloudConfig: "x"}}
	others := []client.Object{&v1alpha1.VDOConfig{ObjectMeta: at, Spec: spec},
		&v1alpha1.DriverBundle{ObjectMeta: at, Spec: v1alpha1.DriverBundleSpec{Reference: "registry.site/vdo:stable"}}, tenant}
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: at.Namespace}})
	for _, o := range others {
		s.create(o)
	}
	s.run("delete", "--all", "--yes").is(8,
		"there is what needs them: VDOConfig tenants/theirs, DriverBundle tenants/theirs, SIPCluster tenants/one\n", "leave the CRDs: `vdoctl delete --drivers --configuration --operator")
	require.True(s.t, s.there(&v1alpha1.VsphereCloudConfig{ObjectMeta: s.meta("east")}))
	out := s.ok("delete", "--drivers", "--configuration", "--operator", "--dry-run")
	require.NotContains(s.t, out, "tenants")
	for _, o := range others {
		require.NoError(s.t, s.k.Delete(ctx, o))
	}
}
