package e2e

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/readme"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/realnode"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/site"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/world"
)

const (
	namespace = "vmware-system-vdo"
	// patience is for conditions that a loaded machine reaches late; nothing waits for it.
	patience = 3 * time.Minute
)

// job is the main job in a test: both hosts, the site, and a client.
type job struct {
	t         *testing.T
	ctx       context.Context //nolint:containedctx // the test's
	dir       string
	connected *shell.Shell
	isolated  *shell.Shell
	upstream  *world.Upstream
	site      *site.Site
	client    client.Client

	program      string // the operator's
	stopOperator func()
	strayed      atomic.Int64 // connections that went neither to the mirror nor to the vCenter
	passes       int
}

// bin has the programs, built once for all tests.
var bin string

func TestMain(m *testing.M) {
	use := func(dir string) { bin = dir }
	toolchain.Main(m, use, "./bundler/cmd/vdo-bundle", "./operator/cmd/vdo-operator", "./operator/cmd/vdoctl")
}

// newLine starts a world with the releases upstream. In a hurry the upstream's
// manifests let nothing settle.
func newLine(t *testing.T, hurry bool, releases ...string) *job {
	t.Helper()
	return newJob(t, world.UpstreamOptions{Releases: releases, Hurry: hurry}, site.Options{})
}

// newJob starts a world with an upstream and a site.
func newJob(t *testing.T, upstreamOptions world.UpstreamOptions, siteOptions site.Options) *job {
	ctx := context.Background()
	l := &job{t: t, ctx: ctx, dir: t.TempDir(), program: "vdo-operator", stopOperator: func() {}}
	for _, dir := range []string{"connected", "site/tmp"} {
		require.NoError(t, os.MkdirAll(l.path(dir), 0o755))
	}
	upstreamOptions.Dir = l.path("connected")
	l.upstream = must.Have(world.NewUpstream(ctx, upstreamOptions))(t)
	t.Cleanup(l.upstream.Close)
	siteOptions.Dir, siteOptions.Progress = l.path("site"), os.Stderr
	l.site = must.Have(site.New(ctx, siteOptions))(t)
	t.Cleanup(l.site.Close)
	l.connected = &shell.Shell{Dir: l.path("connected"), Path: []string{bin}, Env: []string{
		"COSIGN_PASSWORD=" + keyPassword, "HOME=" + l.path("connected"), "DOCKER_CONFIG=" + l.path("connected"),
	}}
	l.isolated = &shell.Shell{Dir: l.path("site"), Path: []string{bin}, Env: append([]string{
		"HOME=" + l.path("site"), "DOCKER_CONFIG=" + l.path("site/docker"), "TMPDIR=" + l.path("site/tmp"),
	}, l.trap()...)}
	l.client = cluster.Client(t, l.site.Cluster.Config())
	require.NoError(t, cluster.InstallCRDs(l.site.Cluster.Config()))
	l.run(l.connected, "vdo-bundle keygen -o vdo")
	l.carry("vdo.pub")
	return l
}

const keyPassword = "canary-password-of-the-signing-key"

// trap is a proxy for everything that is not on this machine's loopback address, or in the
// world of real nodes: what comes by has left the site.
func (l *job) trap() []string {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.strayed.Add(1)
		l.t.Logf("a connection left the site: %s %s", r.Method, r.Host)
		http.Error(w, "there is no internet here", http.StatusBadGateway)
	}))
	l.t.Cleanup(proxy.Close)
	return []string{"HTTP_PROXY=" + proxy.URL, "HTTPS_PROXY=" + proxy.URL, "NO_PROXY=127.0.0.1,localhost," + realnode.Address}
}

func (l *job) path(name string) string { return filepath.Join(l.dir, filepath.FromSlash(name)) }

// run runs a command line that has to succeed.
func (l *job) run(sh *shell.Shell, words string, more ...string) string {
	args := append(strings.Fields(words), more...)
	out, err := sh.Run(l.ctx, args[0], args[1:]...)
	require.NoError(l.t, err, words)
	return out
}

// carry takes a file from the connected host to the isolated one.
func (l *job) carry(name string) {
	require.NoError(l.t, os.Rename(l.path("connected/"+name), l.path("site/"+name)))
}

// deliver builds, signs, carries, verifies and pushes a bundle of the releases
// under a tag of the mirror's repository.
func (l *job) deliver(tag, key string, releases ...string) {
	l.t.Helper()
	var chosen []string
	for _, r := range releases {
		chosen = append(chosen, "--release", r)
	}
	l.run(l.connected, "vdo-bundle lock -o lock.yaml --replace", append(chosen, l.upstream.Flags()...)...)
	l.run(l.connected, "vdo-bundle pull --lock lock.yaml -o drivers.tar", l.upstream.Flags()...)
	certificate, trusts := "", "--key vdo.pub"
	if key == "signer" {
		certificate, trusts = " --certificate signer.crt --certificate-chain issuing.crt", "--policy policy.yaml"
	}
	l.run(l.connected, "vdo-bundle sign drivers.tar --key "+key+".key"+certificate)
	l.carry("drivers.tar")
	l.run(l.isolated, "vdo-bundle verify drivers.tar "+trusts)
	l.run(l.isolated, "vdo-bundle push drivers.tar "+l.reference(tag)+" --ca-file mirror-ca.crt")
}

func (l *job) reference(tag string) string { return l.site.Mirror.Host + "/vdo/drivers:" + tag }

// startOperator runs the operator beside the cluster, with its account's rights.
func (l *job) startOperator() {
	operator, err := l.isolated.Start(l.path("site/operator.log"), l.program, "--kubeconfig", "operator.kubeconfig",
		"--namespace", namespace, "--leader-elect=false", "--metrics-bind-address", "0", "--health-probe-bind-address", "0")
	require.NoError(l.t, err)
	l.stopOperator = operator.Stop
	l.t.Cleanup(func() { operator.Stop(); l.showLog() })
}

func (l *job) showLog() {
	if log, err := os.ReadFile(l.path("site/operator.log")); err == nil && l.t.Failed() {
		l.t.Logf("the operator's log ends with:\n%s", log[max(0, len(log)-8<<10):])
		l.t.Logf("stand-in drivers: %v", l.site.Drivers.Err())
		l.showPods()
	}
}

func (l *job) showPods() {
	var pods corev1.PodList
	if err := l.client.List(l.ctx, &pods); err != nil {
		l.t.Log(err)
	}
	for _, p := range pods.Items {
		l.t.Logf("pod %s/%s on %q: %s, deleted %v, owners %v, conditions %+v", p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp, p.OwnerReferences, p.Status.Conditions)
	}
	for _, name := range []string{"kwok", "kube-controller-manager", "kube-scheduler"} {
		if log, err := os.ReadFile(l.path("site/cluster/" + name + ".log")); err == nil {
			l.t.Logf("%s's log ends with:\n%s", name, log[max(0, len(log)-4<<10):])
		}
	}
}

// prepare installs the operator's rights and its settings.
func (l *job) prepare() {
	rights := []string{"driver-namespaces.yaml", "namespaces.yaml", "rbac.yaml"}
	require.NoError(l.t, cluster.Operator.Grant(l.ctx, l.client, rights...))
	key := must.Have(os.ReadFile(l.path("site/vdo.pub")))(l.t)
	l.create(&corev1.ConfigMap{ObjectMeta: l.named("vdo-trust"), Data: map[string]string{"vdo.pub": string(key)}})
	l.create(&corev1.ConfigMap{ObjectMeta: l.named("vdo-registry-ca"), Data: map[string]string{"ca.crt": string(l.site.Mirror.CA())}})
	l.create(&corev1.Secret{
		ObjectMeta: l.named("vdo-registry"), Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: l.site.Mirror.DockerConfig()},
	})
	require.NoError(l.t, l.site.WriteKubeconfigOf(l.ctx, namespace, "vdo-operator", l.path("site/operator.kubeconfig")))
}

// trustCertificates gives the signer a certificate of the site's authority, and has the
// operator trust that besides the key, by the policy file that vdo-bundle reads.
func (l *job) trustCertificates() {
	root := pki.Root(l.t, "Corp Root")
	issuing := root.Issue(l.t, pki.Spec{Name: "Corp Issuing", CA: true})
	signer := issuing.Issue(l.t, pki.Spec{Name: "signer", Email: []string{"release@corp.example"}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}})
	files := map[string][]byte{
		"connected/signer.key": signer.KeyPEM(), "connected/signer.crt": signer.PEM(), "connected/issuing.crt": issuing.PEM(),
		"site/corp-root.crt": root.PEM(), "site/policy.yaml": []byte(`apiVersion: vdo.vmware.com/trust/v1
kind: TrustPolicy
keys:
- id: release
  file: release.pub
certificates:
- id: corp
  rootsFile: corp-root.crt
  identities:
  - email: release@corp.example
`),
	}
	for name, data := range files {
		require.NoError(l.t, os.WriteFile(l.path(name), data, 0o600))
	}
	key := must.Have(os.ReadFile(l.path("site/vdo.pub")))(l.t)
	require.NoError(l.t, os.WriteFile(l.path("site/release.pub"), key, 0o600))
	for _, c := range readme.Section(l.t, "deploy/docs/security.md", "To another key, or from keys to certificates") {
		l.typed(l.kubectl(), c)
	}
}

func (l *job) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace}
}

func (l *job) create(o client.Object) {
	require.NoError(l.t, l.client.Create(l.ctx, o))
}

// applyYAML creates every object of a text.
func (l *job) applyYAML(text string) {
	for _, o := range must.Have(cluster.Objects([]byte(text)))(l.t) {
		l.create(o)
	}
}

// ask asks for a pass of a resource now.
func (l *job) ask(o client.Object, name string) {
	l.passes++
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.vdo.vmware.com/requestedAt":"%d"}}}`, l.passes)
	o.SetName(name)
	o.SetNamespace(namespace)
	require.NoError(l.t, l.client.Patch(l.ctx, o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// eventually waits until ok returns "", and says what it last returned otherwise.
func (l *job) eventually(what string, ok func() string) {
	deadline, last := time.Now().Add(patience), "not looked yet"
	for time.Now().Before(deadline) {
		if last = ok(); last == "" {
			return
		}
		time.Sleep(100 * time.Millisecond) // between two looks
	}
	require.Fail(l.t, what, last)
}

// installed waits until the VDOConfig is Ready with the versions.
func (l *job) installed(name, cpi, csi string) *v1alpha1.VDOConfig {
	l.t.Helper()
	config := &v1alpha1.VDOConfig{}
	l.eventually(fmt.Sprintf("CPI %s and CSI %s ready", cpi, csi), func() string {
		if err := l.client.Get(l.ctx, client.ObjectKey{Namespace: namespace, Name: name}, config); err != nil {
			return err.Error()
		}
		got := map[string]string{}
		for _, d := range config.Status.Drivers {
			got[d.Driver] = d.Version
		}
		ready := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Status != metav1.ConditionTrue || got["cpi"] != cpi || got["csi"] != csi {
			return fmt.Sprintf("drivers %v, conditions %+v, nodes %+v", got, config.Status.Conditions, config.Status.Nodes)
		}
		return ""
	})
	return config
}

// eachWorkload visits the drivers' DaemonSets and Deployments.
func (l *job) eachWorkload(visit func(o client.Object, pod corev1.PodSpec)) {
	var sets appsv1.DaemonSetList
	require.NoError(l.t, l.client.List(l.ctx, &sets))
	for i := range sets.Items {
		visit(&sets.Items[i], sets.Items[i].Spec.Template.Spec)
	}
	var deployments appsv1.DeploymentList
	require.NoError(l.t, l.client.List(l.ctx, &deployments))
	for i := range deployments.Items {
		if deployments.Items[i].Namespace != namespace {
			visit(&deployments.Items[i], deployments.Items[i].Spec.Template.Spec)
		}
	}
}

// pods' images of what is installed, and the UIDs of the controllers.
func (l *job) workloads() (images []string, uids map[string]types.UID) {
	l.t.Helper()
	uids = map[string]types.UID{}
	l.eachWorkload(func(o client.Object, pod corev1.PodSpec) {
		uids[o.GetNamespace()+"/"+o.GetName()] = o.GetUID()
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			images = append(images, c.Image)
		}
	})
	return images, uids
}

// conditioned is a resource with conditions.
type conditioned interface {
	client.Object
	GetConditions() []metav1.Condition
}

// theSites reads the resource named site.
func theSites[T client.Object](l *job, o T) T {
	require.NoError(l.t, l.client.Get(l.ctx, client.ObjectKey{Namespace: namespace, Name: "site"}, o))
	return o
}

// says waits until a condition of the resource named site, as STATUS/REASON: message, has all of the parts.
func (l *job) says(o conditioned, kind string, parts ...string) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("%s says %q", kind, parts), func() string {
		if err := l.client.Get(l.ctx, client.ObjectKey{Namespace: namespace, Name: "site"}, o); err != nil {
			return err.Error()
		}
		c := meta.FindStatusCondition(o.GetConditions(), kind)
		if c == nil {
			return "no such condition"
		}
		text := fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message)
		for _, part := range parts {
			if !strings.Contains(text, part) {
				return text
			}
		}
		return ""
	})
}
