package cluster

import (
	"cmp"
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// shared is the API server that the tests of one package share.
var shared struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

// Main runs a package's tests, then stops the cluster that Config started, if any, and calls ends. Call it in
// TestMain:
//
//	func TestMain(m *testing.M) { cluster.Main(m) }
func Main(m *testing.M, ends ...func()) {
	debug.SetGCPercent(400) // saves a tenth of the processor's time under the race detector
	code := m.Run()
	for _, end := range ends {
		end()
	}
	if shared.cluster != nil {
		shared.cluster.Stop()
	}
	os.Exit(code)
}

// Config returns an administrator's configuration of an API server that all tests
// of the package share, without nodes, with the project's own CRDs.
func Config(t testing.TB) *rest.Config {
	t.Helper()
	shared.once.Do(func() {
		shared.cluster, shared.err = Start(context.Background(), Options{Progress: os.Stderr})
		if shared.err == nil {
			shared.err = InstallCRDs(shared.cluster.Config())
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster.Config()
}

// New starts a cluster for one test, with the project's own CRDs, and stops it when the test ends. If the test fails,
// it prints the ends of its logs.
func New(t testing.TB, opts Options) *Cluster {
	t.Helper()
	opts.Progress = cmp.Or[io.Writer](opts.Progress, os.Stderr)
	c, err := Start(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	if err := InstallCRDs(c.Config()); err != nil {
		t.Fatal(err)
	}
	return c
}

// Scheme has the kinds of Kubernetes and of the project. Making one takes as long as a reconcile.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme, airship.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err) // of kinds that contradict each other
		}
	}
	return s
})

// Client returns a client of the kinds of [Scheme].
func Client(t testing.TB, cfg *rest.Config) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Kubeconfig writes a kubeconfig for a server, with the permissions of a token, and returns its path.
func Kubeconfig(t testing.TB, server *rest.Config, token, namespace string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	at := &clientcmdapi.Cluster{Server: server.Host, CertificateAuthorityData: server.CAData}
	if err := writeKubeconfig(path, at, &clientcmdapi.AuthInfo{Token: token}, namespace); err != nil {
		t.Fatal(err)
	}
	return path
}

// InstallCRDs applies deploy/crds and deploy/sip/crds, and waits until the API server
// serves them.
func InstallCRDs(cfg *rest.Config) error {
	_, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{
		Paths: []string{
			filepath.Join(toolchain.Root(), "deploy", "crds"),
			filepath.Join(toolchain.Root(), "deploy", "sip", "crds"),
		}, ErrorIfPathMissing: true,
	})
	return err
}

// Namespace creates a namespace named after the test and returns its name. It requests the deletion when the test
// ends.
func Namespace(t testing.TB, cfg *rest.Config) string {
	t.Helper()
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(t.Name()))
	name = strings.Trim(name[:min(len(name), 40)], "-") + "-"
	c, ns := Client(t, cfg), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name}}
	if err := c.Create(context.Background(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), ns); err != nil {
			t.Logf("namespace %s stays: %v", ns.Name, err)
		}
	})
	return ns.Name
}
