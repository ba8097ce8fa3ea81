package vdoctl_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

// The canaries: passwords of a vCenter and of a registry, one that is in a configuration
// file alone, and one that is in no Secret. Letters that JSON, Go, URLs and INI files escape.
const (
	canary         = `Canary"7&<ü 1\x`
	registryCanary = "canary-of-the-registry-22"
	fileCanary     = "canary-in-a-file-333"
	looseCanary    = "canary-in-no-secret-4444"
)

// leaky is the log of a driver that prints its secrets.
const leaky = "login with " + canary + "\npull " + registryCanary + "\nconf " + fileCanary + "\nhello from the driver\n"

// kubelet makes a node whose kubelet answers so.
func (s *shop) kubelet(answer http.HandlerFunc) *corev1.Node {
	server := httptest.NewTLSServer(answer)
	s.t.Cleanup(server.Close)
	at := server.Listener.Addr().(*net.TCPAddr)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.ns + "-node"}}
	s.create(n)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.IP.String()}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(at.Port)
	require.NoError(s.t, s.k.Status().Update(s.t.Context(), n))
	return n
}

// leaks has a node with a kubelet, a driver's pod on it whose log has secrets, and objects
// that have them in other places.
func (s *shop) leaks() {
	s.t.Helper()
	n := s.kubelet(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("previous") == "true" {
			http.Error(w, "previous terminated container not found", http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, leaky)
	})

	login := base64.StdEncoding.EncodeToString([]byte("puller:" + registryCanary))
	s.create(&corev1.ServiceAccount{ObjectMeta: s.meta("default")})
	s.create(&corev1.Secret{ObjectMeta: s.meta("vc"), StringData: map[string]string{"username": "administrator@vsphere.local", "password": canary}})
	s.create(&corev1.Secret{ObjectMeta: s.meta("vdo-registry"), StringData: map[string]string{".dockerconfigjson": `{"auths":{"registry.site":{"auth":"` + login + `"}}}`}})
	s.create(&corev1.Secret{ObjectMeta: s.meta("vsphere-config-secret"), StringData: map[string]string{
		"csi-vsphere.conf": "[VirtualCenter \"vc.site.example\"]\nuser = \"u\"\npassword = \"" + fileCanary + "\"\ndatacenters = \"/site/prod/east\"\n"}})
	s.create(&corev1.ConfigMap{ObjectMeta: s.meta("notes"), Data: map[string]string{"note": "the old password was " + canary, "bmc-password": looseCanary}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "vsphere-csi-node-x", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: looseCanary}},
		Spec: corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Name: "vsphere-csi-node", Image: "x", Env: []corev1.EnvVar{{Name: "BMC_TOKEN", Value: looseCanary}, {Name: "MODE", Value: "node"}}}}}}
	s.create(pod)
	s.create(&appsv1.Deployment{ObjectMeta: s.meta("vdo-operator"), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Template: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "operator", Image: "registry.site/vdo@" + newDigest, Args: []string{"--password=" + canary}}}}}}})
}

func (s *shop) create(o client.Object) {
	require.NoError(s.t, client.IgnoreAlreadyExists(s.k.Create(s.t.Context(), o)), o.GetName())
}

func unpacked(t *testing.T, name string) map[string]string {
	f := must.Have(os.Open(name))(t)
	defer f.Close() //nolint:errcheck // only read
	z := must.Have(gzip.NewReader(f))(t)
	out := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		data := must.Have(io.ReadAll(r))(t)
		out[strings.TrimPrefix(h.Name, "vdo-support/")] = string(data)
	}
}

func TestSupportBundleHasWhatHelpsAndNoSecret(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	east, _ := vcenters(t)
	s.leaks()
	s.upgraded()
	s.add("east", east)
	file := filepath.Join(t.TempDir(), "support.tar.gz")
	out := s.run("support-bundle", file).is(0, file+": ")
	info := must.Have(os.Stat(file))(t)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	files := unpacked(t, file)
	log := "logs/" + s.ns + "/vsphere-csi-node-x/vsphere-csi-node.log"
	for name, text := range map[string]string{
		log: "hello from the driver", "status.yaml": "csi", "version.yaml": "client:", "preflight.yaml": "vcenter-account",
		"resources/" + s.ns + "/VDOConfig/vdo.yaml": "r2-22222222", "resources/" + s.ns + "/Secret/vc.yaml": "bytes",
		"resources/" + s.ns + "/Deployment/vdo-operator.yaml": newDigest, "resources/cluster/Node/" + s.ns + "-node.yaml": "InternalIP",
		"resources/" + s.ns + "/Pod/vsphere-csi-node-x.yaml": "value: node", "resources/" + s.ns + "/DriverBundle/drivers.yaml": "registry.site/vdo",
	} {
		require.Contains(t, files[name], text, name)
	}
	require.Equal(t, 3, strings.Count(files[log], "[hidden]"), files[log])
	for _, secret := range []string{canary, registryCanary, fileCanary, looseCanary, `Canary"7`, `Canary\"7`} {
		for _, form := range []string{secret, base64.RawStdEncoding.EncodeToString([]byte(secret))} {
			for name, data := range files {
				require.NotContains(t, data, form, "%s has %q", name, form)
				require.NotContains(t, name, form)
			}
			require.NotContains(t, out, form)
		}
	}

	s.run("support-bundle", file).is(8, "it is there already")
	full := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -f 1; exec vdoctl support-bundle "$0" -n "$1"`, file+"2", s.ns)
	full.Env = append(os.Environ(), "KUBECONFIG="+s.conf)
	text, err := full.CombinedOutput()
	ended(t, string(text), err).is(7, "file too large")
	left := must.Have(os.ReadDir(filepath.Dir(file)))(t)
	require.Len(t, left, 1, "a run that fails leaves nothing")
	s.run("support-bundle", filepath.Join(t.TempDir(), "no", "such", "folder.tar.gz")).is(7)
	s.run("support-bundle", "--tail", "0").is(2)
}

// A log that is there and cannot be read makes the archive incomplete, and it says so; one of a
// container that has not begun does not.
func TestSupportBundleWithoutALogSaysThatItIsIncomplete(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var code atomic.Int32
	code.Store(http.StatusBadRequest) // as of a container that has not begun
	node := s.kubelet(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no log", int(code.Load())) })
	t.Cleanup(func() { require.NoError(t, s.k.Delete(context.Background(), node)) })
	s.create(&corev1.ServiceAccount{ObjectMeta: s.meta("default")})
	pod := &corev1.Pod{ObjectMeta: s.meta("vsphere-csi-node-y"), Spec: corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "driver", Image: "x"}}}}
	s.create(pod)
	collect := func() (string, string, int) {
		file := filepath.Join(t.TempDir(), "support.tar.gz")
		out, code := s.run("support-bundle", file, "--no-preflight").both()
		return out, unpacked(t, file)["unread.txt"], code
	}
	log := "logs/" + s.ns + "/vsphere-csi-node-y/driver and 1 other log: "
	out, unread, exit := collect()
	require.Zero(t, exit, out)
	require.Contains(t, out, "\ncomplete: ")
	require.Equal(t, "complete: all that is there was read\n", unread)

	code.Store(http.StatusInternalServerError)
	out, unread, exit = collect()
	require.Equal(t, 9, exit, out)
	require.Contains(t, out, "\nincomplete: something that is there could not be read\n  "+log)
	require.True(t, strings.HasPrefix(unread, "incomplete: something that is there could not be read\n"+log), unread)
	require.Contains(t, unread, ": no log", "the kubelet's reason")
}

func TestSupportBundleNeedsACluster(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	dir := t.TempDir()
	for name, c := range map[string]struct {
		edit func(*clientcmdapi.Config)
		code int
		want string
	}{
		"away":    {func(c *clientcmdapi.Config) { c.Clusters["test"].Server = "https://127.0.0.1:1" }, 5, "https://127.0.0.1:1"},
		"refused": {func(c *clientcmdapi.Config) { c.AuthInfos["user"].Token = "no-such" }, 6, "log in to the cluster again"},
	} {
		as := &shop{t: t, k: s.k, ns: s.ns, conf: s.kubeconfig(c.edit)}
		out := as.run("support-bundle", filepath.Join(dir, name)).is(c.code, c.want)
		require.Equal(t, 1, strings.Count(out, "error: "), out)
		require.LessOrEqual(t, strings.Count(out, "\n"), 2, out)
	}
	left := must.Have(os.ReadDir(dir))(t)
	require.Empty(t, left)
}

func (s *shop) kubeconfig(edit func(*clientcmdapi.Config)) string {
	c := must.Have(clientcmd.LoadFromFile(s.conf))(s.t)
	edit(c)
	file := filepath.Join(s.t.TempDir(), "kubeconfig")
	require.NoError(s.t, clientcmd.WriteToFile(*c, file))
	return file
}
