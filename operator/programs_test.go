package operator_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/v1alpha1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/help"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/metal3"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/shell"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// free returns an address of loopback that no one listens on.
func free(t *testing.T) string {
	l := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().String()
}

const namespace = operator.DefaultNamespace

// install gives the operator's account the rights that are shipped, and returns a token of it.
func install(t *testing.T, c client.Client) string {
	require.NoError(t, cluster.Operator.Grant(t.Context(), c))
	return token(t, c, "vdo-operator")
}

func token(t *testing.T, c client.Client, account string) string {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), sa)))
	req := &authenticationv1.TokenRequest{}
	require.NoError(t, c.SubResource("token").Create(t.Context(), sa, req))
	return req.Status.Token
}

// The program as it runs in the cluster: with the ServiceAccount's rights alone,
// elected, its endpoints open, checking a vCenter, and ending when asked.
func TestTheOperatorRunsWithItsOwnRights(t *testing.T) {
	c := cluster.Client(t, cluster.Config(t))
	cfg := cluster.Config(t)
	path := cluster.Kubeconfig(t, cfg, install(t, c), "")
	metrics, probes := free(t), free(t)
	traces := collect(t)
	stderr := &shell.Log{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	code := make(chan int, 1)
	go func() {
		code <- operator.Main(ctx, "v1.2.3", []string{"--kubeconfig", path, "--leader-elect",
			"--metrics-bind-address", metrics, "--health-probe-bind-address", probes}, io.Discard, stderr)
	}()

	// As the earlier operator's users say where drivers are.
	matrix := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.LegacyMatrixName}}
	matrix.Data = map[string]string{"versionConfigURL": "oci://mirror.invalid/vdo:1"}
	require.NoError(t, c.Create(t.Context(), matrix))
	made := &v1alpha1.DriverBundle{}
	key := client.ObjectKeyFromObject(matrix)
	require.Eventually(t, func() bool { return c.Get(t.Context(), key, made) == nil }, time.Minute, 50*time.Millisecond)
	require.NoError(t, c.Delete(t.Context(), matrix))
	require.Eventually(t, func() bool { return apierrors.IsNotFound(c.Get(t.Context(), key, made)) },
		time.Minute, 50*time.Millisecond)

	vc := vcsim.Start(t, vcsim.Options{Version: "7.0.3"})
	canary := "Canary-" + vcsim.Admin.Password
	require.NoError(t, c.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vc-ca"},
		Data:       map[string]string{"ca.crt": string(vc.CA)}}))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vc-creds"},
		StringData: map[string]string{"username": vcsim.Admin.Username, "password": canary}}
	require.NoError(t, c.Create(t.Context(), secret))
	v := &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vc"},
		Spec: v1alpha1.VsphereCloudConfigSpec{VcIP: vc.Host, Port: int32(vc.Port), Credentials: "vc-creds", //nolint:gosec // a port
			CA: &v1alpha1.KeyReference{ConfigMap: "vc-ca"}, Datacenters: []string{"site/prod/east,", "lab"}}} // with the comma that a list was typed with
	// As the earlier operator's command line wrote it: the thumbprint counts. It is checked before the login at v is
	// refused, which delays logins with the same password elsewhere.
	pinned := &v1alpha1.VsphereCloudConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pinned"},
		Spec: v1alpha1.VsphereCloudConfigSpec{VcIP: vc.Host, Port: v.Spec.Port, Credentials: "vc-creds", Insecure: true,
			Thumbprint: strings.Repeat("AB:", 19) + "AB"}}
	require.NoError(t, c.Create(t.Context(), pinned))
	reasonOf := func(v *v1alpha1.VsphereCloudConfig, want string) {
		require.Eventually(t, func() bool {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(v), v); err != nil {
				return false
			}
			ready := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReady)
			return ready != nil && ready.Reason == want
		}, time.Minute, 50*time.Millisecond, "%s: %+v\n%s", want, v, stderr)
	}
	reason := func(want string) { t.Helper(); reasonOf(v, want) }
	reasonOf(pinned, "CertificateInvalid")
	require.NoError(t, c.Create(t.Context(), v))
	reason("Unauthorized")
	secret.StringData = map[string]string{"password": vcsim.Admin.Password}
	require.NoError(t, c.Update(t.Context(), secret))
	reason("Succeeded")
	require.Equal(t, "7.0.3", v.Status.Version)
	require.Equal(t, 2, vc.Logins(vcsim.Admin.Username), "one login for each password")
	n := must.Have(vc.SessionCount(t.Context()))(t)
	require.Zero(t, n)

	reader := endpoints(t, c, metrics, probes)
	servedMetrics(t, "https://"+metrics+"/metrics", reader, canary, vc.Host, vcsim.Admin.Username)

	// Another vCenter of the same name is used once it is accepted.
	is := v.Status.InstanceUUID
	v.Status.InstanceUUID = "another"
	require.NoError(t, c.Status().Update(t.Context(), v))
	metav1.SetMetaDataAnnotation(&v.ObjectMeta, v1alpha1.AnnotationRequestedAt, "now")
	require.NoError(t, c.Update(t.Context(), v))
	reason("Conflict")
	require.Equal(t, []string{"", is}, []string{v.Status.VerifiedCredentials, v.Status.UnacceptedInstanceUUID})
	v.Spec.AcceptInstanceUUID = is
	require.NoError(t, c.Update(t.Context(), v))
	reason("Succeeded")

	cancel()
	require.Equal(t, operator.ExitOK, <-code, stderr)
	requireJSON(t, stderr.String(), canary, vcsim.Admin.Password)
	require.Subset(t, steps(t, traces.String()), [][3]string{{"", "pass", ""}, {"pass", "ask vCenter", ""}, {"pass", "ask vCenter", "Unauthorized"}})
	for _, secret := range []string{canary, vcsim.Admin.Password, vc.Host, vcsim.Admin.Username} {
		require.NotContains(t, traces.String(), secret)
	}
	var lease unstructured.Unstructured
	lease.SetAPIVersion("coordination.k8s.io/v1")
	lease.SetKind("Lease")
	require.NoError(t, c.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: "vdo-operator"}, &lease))
	holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
	require.Empty(t, holder, "the lease is given back, so that the next one need not wait")
}

func TestTheOperatorGoesOnWithoutARightToWatch(t *testing.T) {
	c := cluster.Client(t, cluster.Config(t))
	install(t, c)
	account := cluster.Operator.Config(cluster.Config(t))
	own := must.Have(client.New(account, client.Options{Scheme: c.Scheme()}))(t)
	for ns, unlisted := range map[string]string{metav1.NamespaceSystem: "services", namespace: "configmaps"} {
		role := &rbacv1.Role{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "vdo-operator"}, role))
		shipped := slices.Clone(role.Rules)
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Resources, unlisted) && len(r.ResourceNames) == 0
		})
		require.NoError(t, c.Update(t.Context(), role))
		t.Cleanup(func() {
			role.Rules = shipped
			require.NoError(t, c.Update(context.Background(), role))
		})
	}
	config := &v1alpha1.VDOConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "site"},
		Spec: v1alpha1.VDOConfigSpec{CloudProvider: &v1alpha1.CloudProvider{VsphereCloudConfigs: []string{"none"}}}}
	require.NoError(t, c.Create(t.Context(), config))
	t.Cleanup(func() {
		none := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		require.NoError(t, c.Patch(context.Background(), config, none))
		require.NoError(t, c.Delete(context.Background(), config))
	})
	require.Eventually(t, func() bool {
		services := own.List(t.Context(), &corev1.ServiceList{}, client.InNamespace(metav1.NamespaceSystem))
		return apierrors.IsForbidden(services) &&
			apierrors.IsForbidden(own.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(namespace)))
	}, time.Minute, 20*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- operator.Run(ctx, account, operator.Options{Log: logr.Discard(), SeveralInProcess: true})
	}()
	var ready *metav1.Condition
	require.Eventually(t, func() bool {
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(config), config))
		ready = meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionReady)
		return ready != nil && strings.Contains(ready.Message, `cannot list resource "configmaps"`) &&
			strings.Contains(ready.Message, `cannot list resource "services"`)
	}, time.Minute, 50*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}

// servedMetrics are of what the operator saw and did, and hold none of the secrets.
func servedMetrics(t *testing.T, url, token string, secrets ...string) {
	code, text := fetch(t, url, token)
	require.Equal(t, http.StatusOK, code, text)
	for _, want := range []string{
		`vdo_build_info{goversion="go`, `version="v1.2.3"} 1`,
		`vdo_condition{kind="VsphereCloudConfig",name="vc",reason="Succeeded",status="True",type="Ready"} 1`,
		`vdo_vcenter_check_duration_seconds{name="vc"} `,
		`vdo_vcenter_checks_total{reason="Succeeded"} 1`,
		`vdo_events_total{kind="VsphereCloudConfig",reason="Unauthorized",type="Warning"} 1`,
		`vdo_object_changes_total{cause="drift",driver="csi"} 0`,
		// The rules name the controllers.
		`controller_runtime_reconcile_errors_total{controller="vdoconfig"}`,
		`controller_runtime_reconcile_errors_total{controller="driverbundle"}`,
		`controller_runtime_reconcile_errors_total{controller="vspherecloudconfig"}`,
		`controller_runtime_reconcile_errors_total{controller="matrix-configmap"}`,
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, vcsim.Admin.Password, "in metrics of libraries neither")
	for _, line := range strings.Split(text, "\n") {
		for _, s := range secrets {
			require.False(t, strings.HasPrefix(line, "vdo_") && strings.Contains(line, s), line)
		}
	}
}

// endpoints are alive, and metrics are for those who may read them. It returns the token
// of one who may.
func endpoints(t *testing.T, c client.Client, metrics, probes string) string {
	require.Equal(t, http.StatusOK, get(t, "http://"+probes+"/healthz", ""))
	require.Equal(t, http.StatusOK, get(t, "http://"+probes+"/readyz", ""))
	require.Equal(t, http.StatusUnauthorized, get(t, "https://"+metrics+"/metrics", ""))
	reader := token(t, c, "prometheus")
	require.Equal(t, http.StatusForbidden, get(t, "https://"+metrics+"/metrics", reader))
	require.NoError(t, c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "vdo-operator-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "prometheus"}}}))
	allowed := token(t, c, "prometheus") // a denial is remembered for a while by token
	require.Eventually(t, func() bool { return get(t, "https://"+metrics+"/metrics", allowed) == http.StatusOK }, time.Minute, 100*time.Millisecond)
	return allowed
}

func get(t *testing.T, url, token string) int {
	t.Helper()
	code, _ := fetch(t, url, token)
	return code
}

func fetch(t *testing.T, url, token string) (code int, body string) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	h := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	var res *http.Response
	require.Eventually(t, func() bool { res, err = h.Do(req); return err == nil }, time.Minute, 50*time.Millisecond, "%s: the server is started with the manager", url) //nolint:bodyclose // closed below
	defer res.Body.Close()
	text := must.Have(io.ReadAll(res.Body))(t)
	return res.StatusCode, string(text)
}

// requireJSON requires each line of the log to be a JSON object without secrets.
func requireJSON(t *testing.T, text string, secrets ...string) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	require.NotEmpty(t, lines)
	for _, line := range lines {
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry), "%q", line)
		// Said at the end: the lease is given back before all else has ended, an event is being written.
		why := fmt.Sprint(entry["error"])
		if why != "leader election lost" && (entry["logger"] != "events" || !strings.HasSuffix(why, "context canceled")) {
			require.NotEqual(t, "error", entry["level"], line)
		}
	}
	for _, s := range secrets {
		require.NotContains(t, text, s)
	}
	require.Contains(t, text, `"version":"v1.2.3"`)
}

func TestErrorsAtTheStart(t *testing.T) {
	cfg := cluster.Config(t)
	broken := filepath.Join(t.TempDir(), "broken")
	require.NoError(t, os.WriteFile(broken, []byte("not a kubeconfig"), 0o600))
	busy := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer busy.Close()
	nobody := rest.CopyConfig(cfg)
	nobody.Host = "https://" + free(t)
	otherCA := rest.CopyConfig(cfg)
	otherCA.CAData = vcsim.Start(t, vcsim.Options{}).CA
	admin := cluster.Kubeconfig(t, cfg, cfg.BearerToken, "")
	floor := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(floor, []byte("apiVersion: vdo.vmware.com/trust/v1\nkind: TrustPolicy\nkeys: [{id: release, file: release.pub}]\n"), 0o600))

	for name, c := range map[string]struct {
		args []string
		code int
		text []string
	}{
		"no pod":         {[]string{}, operator.ExitUsage, []string{"this is not a pod", "--kubeconfig FILE"}},
		"unknown flag":   {[]string{"--nope"}, operator.ExitUsage, []string{"--nope", "--help"}},
		"argument":       {[]string{"x"}, operator.ExitUsage, []string{`"x"`, "--help"}},
		"controllers":    {[]string{"--controllers", "both"}, operator.ExitUsage, []string{`"both"`, "--controllers", "drivers, sip"}},
		"egress of sip":  {[]string{"--sip-egress", "10.0.0.0/8"}, operator.ExitUsage, []string{"needs --controllers=sip", "leave it out"}},
		"log level":      {[]string{"--log-level", "loud"}, operator.ExitUsage, []string{`"loud"`, "debug, info, error"}},
		"floor unset":    {[]string{"--kubeconfig", admin, "--trust-floor", "", "--plain-http="}, operator.ExitUsage, []string{`--plain-http "": empty`, `--trust-floor "": empty`, "leave it out"}},
		"no floor":       {[]string{"--kubeconfig", admin, "--trust-floor", "/missing"}, operator.ExitUsage, []string{"--trust-floor /missing: it is not there", "mount the policy"}},
		"floor a folder": {[]string{"--kubeconfig", admin, "--trust-floor", filepath.Dir(floor)}, operator.ExitUsage, []string{"is a directory", "mount the policy"}},
		"floor no YAML":  {[]string{"--kubeconfig", admin, "--trust-floor", broken}, operator.ExitUsage, []string{"--trust-floor", broken}},
		"floor's key":    {[]string{"--kubeconfig", admin, "--trust-floor", floor}, operator.ExitUsage, []string{filepath.Join(filepath.Dir(floor), "release.pub") + ": it is not there"}},
		"no kubeconfig":  {[]string{"--kubeconfig", "/missing"}, operator.ExitUsage, []string{"/missing", "readable"}},
		"bad kubeconfig": {[]string{"--kubeconfig", broken}, operator.ExitUsage, []string{broken}},
		"nobody there":   {[]string{"--kubeconfig", cluster.Kubeconfig(t, nobody, "x", "")}, operator.ExitCluster, []string{nobody.Host, "see that the API server runs"}},
		"other CA":       {[]string{"--kubeconfig", cluster.Kubeconfig(t, otherCA, "x", "")}, operator.ExitCluster, []string{"certificate signed by unknown authority"}},
		"bad token":      {[]string{"--kubeconfig", cluster.Kubeconfig(t, cfg, "secret-canary", "")}, operator.ExitCluster, []string{"credentials are not accepted"}},
		"port in use":    {[]string{"--kubeconfig", admin, "--health-probe-bind-address", busy.Addr().String()}, operator.ExitFailed, []string{"address already in use", "--health-probe-bind-address"}},
	} {
		t.Run(name, func(t *testing.T) {
			stderr := &shell.Log{}
			got := operator.Main(t.Context(), "", c.args, io.Discard, stderr)
			require.Equal(t, c.code, got, stderr.String())
			for _, text := range c.text {
				require.Contains(t, stderr.String(), text)
			}
			require.NotContains(t, stderr.String(), "secret-canary")
		})
	}
}

func TestCRDsOfAnotherReleaseAreRefused(t *testing.T) {
	cfg := cluster.Config(t)
	c := cluster.Client(t, cfg)
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "vdoconfigs.vdo.vmware.com"}}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(crd), crd))
	is := crd.DeepCopy()
	status := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	delete(status.Properties["drivers"].Items.Schema.Properties, "source")
	require.NoError(t, c.Patch(t.Context(), crd, client.MergeFrom(is)))
	defer func() {
		lacks := crd.DeepCopy()
		crd.Spec = is.Spec
		require.NoError(t, c.Patch(context.Background(), crd, client.MergeFrom(lacks)))
	}()
	stderr := &shell.Log{}
	args := []string{"--kubeconfig", cluster.Kubeconfig(t, cfg, cfg.BearerToken, "")}
	require.Equal(t, operator.ExitCluster, operator.Main(t.Context(), "", args, io.Discard, stderr))
	require.Contains(t, stderr.String(), "it is of another release and lacks .status.drivers.source (apply the CRDs")
}

func TestVersionAndHelp(t *testing.T) {
	var out bytes.Buffer
	require.Zero(t, operator.Main(t.Context(), "v9.8.7", []string{"--version"}, &out, io.Discard))
	require.Contains(t, out.String(), "v9.8.7")
	out.Reset()
	require.Zero(t, operator.Main(t.Context(), "", []string{"--help"}, &out, io.Discard))
	require.Contains(t, out.String(), "--namespace")
	help.TextFits(t, "vdo-operator", out.String())
}

// collect has the programs that are started after send their traces, by OTLP over HTTP, and returns
// all of them: messages behind each other are one.
func collect(t *testing.T) *shell.Log {
	t.Helper()
	traces := &shell.Log{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		_, _ = traces.Write(body)
	}))
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	return traces
}

// steps are the spans of traces: the name of the parent, its own, and the reason that it failed for.
func steps(t *testing.T, traces string) (all [][3]string) {
	var got collector.ExportTraceServiceRequest
	require.NoError(t, proto.Unmarshal([]byte(traces), &got))
	var spans []*tracev1.Span
	names := map[string]string{}
	for _, of := range got.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			spans = append(spans, scope.GetSpans()...)
		}
	}
	for _, s := range spans {
		names[string(s.GetSpanId())] = s.GetName()
	}
	for _, s := range spans {
		all = append(all, [3]string{names[string(s.GetParentSpanId())], s.GetName(), s.GetStatus().GetMessage()})
	}
	return all
}

const (
	sipAccount    = "system:serviceaccount:vmware-system-sip:vdo-operator-sip"
	driverAccount = "system:serviceaccount:vmware-system-vdo:vdo-operator"
)

// The program, with the rights that deploy/sip gives its account and no others, gives a
// tenant cluster its hosts, and its services a namespace. What it does then is tested with the controller.
func TestTenantClusterByTheAccountOfDeploySIP(t *testing.T) {
	cfg := cluster.Config(t)
	admin := cluster.Client(t, cluster.Config(t))
	metal3.Install(t, cfg)
	for _, ns := range []string{"metal3", "tenants"} { // as bindings.yaml has them
		require.NoError(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})))
	}
	for _, f := range []string{
		"namespace.yaml", "rbac.yaml", "policy.yaml", "operator.yaml", "networkpolicy.yaml", "bindings.yaml",
	} {
		applyFile(t, admin, filepath.Join("deploy", "sip", f))
	}
	for _, h := range []metal3.Host{{Name: "cp-1", Address: "10.0.0.1"}, {Name: "w-1", Address: "10.0.1.1"}} {
		h.Namespace, h.Allowed, h.Labels = "metal3", "tenants", map[string]string{"flavor": h.Name[:1]}
		require.NoError(t, metal3.Create(t.Context(), admin, h))
	}
	var hosts apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal([]byte(metal3.CRD), &hosts))
	beta := hosts.Spec.Versions[0]
	beta.Name = "v1beta1"
	hosts.Spec.Versions[0].Served, hosts.Spec.Versions[0].Storage = false, false // as Metal3 plans
	hosts.Spec.Versions = append(hosts.Spec.Versions, beta)
	install := envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{&hosts}}
	_, err := envtest.InstallCRDs(cfg, install)
	require.NoError(t, err)
	sip := &airship.SIPCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "one"}, Spec: airship.SIPClusterSpec{
		Nodes: map[airship.Role]airship.NodeSet{
			airship.RoleControlPlane: {LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"flavor": "c"}}, Count: &airship.NodeCount{Active: 1}},
			airship.RoleWorker:       {LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"flavor": "w"}}, Count: &airship.NodeCount{Active: 1}},
		},
		Services: airship.Services{
			LoadBalancerWorker: []airship.LoadBalancerWorker{{Service: airship.Service{NodeInterfaceID: "oam"}, NodePortRange: airship.PortRange{Start: 32001, End: 32003}}},
		},
	}}
	require.NoError(t, admin.Create(t.Context(), sip))

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- operator.Run(ctx, cluster.SIPOperator.Config(cfg), operator.Options{
			Controllers: operator.SIP, LeaderElect: true, Log: logr.Discard(), SeveralInProcess: true,
		})
	}()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })

	var ready metav1.Condition
	for begun := time.Now(); ready.Reason != airship.ReasonInfraServiceFailure || sip.Status.Namespace == ""; time.Sleep(50 * time.Millisecond) {
		require.Less(t, time.Since(begun), 3*time.Minute, ready.Message)
		require.NoError(t, admin.Get(t.Context(), client.ObjectKeyFromObject(sip), sip))
		is := meta.FindStatusCondition(sip.Status.Conditions, v1alpha1.ConditionReady)
		ready = ptr.Deref(is, metav1.Condition{Message: "no condition"})
	}
	require.Contains(t, ready.Message, "find DriverBundle", "services need the bundle, hosts do not")
	require.NoError(t, admin.Get(t.Context(), client.ObjectKey{Name: sip.Status.Namespace}, &corev1.Namespace{}))
}

func TestNoAccountReadsCredentialsOfVCentersAndOfHosts(t *testing.T) {
	admin := cluster.Client(t, cluster.Config(t))
	for _, ns := range []string{"metal3", "tenants"} {
		require.NoError(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})))
	}
	for _, f := range []string{"driver-namespaces.yaml", "namespaces.yaml", "rbac.yaml", "sip/namespace.yaml", "sip/rbac.yaml", "sip/bindings.yaml"} {
		applyFile(t, admin, filepath.Join("deploy", f))
	}
	for _, c := range []struct {
		account, namespace string
		allowed            bool
	}{
		{sipAccount, "metal3", true}, {sipAccount, "tenants", true}, {sipAccount, "vmware-system-sip", true},
		{sipAccount, "vmware-system-vdo", false}, {sipAccount, "kube-system", false}, {sipAccount, "vmware-system-csi", false}, {sipAccount, "default", false},
		{driverAccount, "vmware-system-vdo", true}, {driverAccount, "metal3", false}, {driverAccount, "tenants", false}, {driverAccount, "vmware-system-sip", false},
	} {
		for _, verb := range []string{"get", "list", "watch"} {
			if c.allowed && verb != "get" {
				continue
			}
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: c.account, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.namespace, Verb: verb, Resource: "secrets"},
			}}
			require.NoError(t, admin.Create(t.Context(), review))
			require.Equal(t, c.allowed, review.Status.Allowed, "%s %s in %s", c.account, verb, c.namespace)
		}
	}
}

// The sample is accepted with a key, and refused while it has the placeholder.
func TestTheSIPSampleApplies(t *testing.T) {
	admin := cluster.Client(t, cluster.Config(t))
	for _, ns := range []string{"vmware-system-sip", "tenants"} {
		require.NoError(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})))
	}
	sample := must.Have(os.ReadFile(filepath.Join(toolchain.Root(), "deploy", "sip", "sample.yaml")))(t)
	require.ErrorContains(t, applied(t, admin, sample, client.DryRunAll), "spec.services.jumpHost[0].sshAuthorizedKeys[0]")
	yours := bytes.ReplaceAll(sample, []byte("YOUR-PUBLIC-KEY"), []byte("AAAA"))
	require.NoError(t, applied(t, admin, yours, client.DryRunAll))
}

func applyFile(t *testing.T, c client.Client, path string) {
	data := must.Have(os.ReadFile(filepath.Join(toolchain.Root(), path)))(t)
	require.NoError(t, applied(t, c, data), path)
}

func applied(t *testing.T, c client.Client, data []byte, opts ...client.ApplyOption) error {
	objects := must.Have(cluster.Objects(data))(t)
	opts = append(opts, client.FieldOwner("test"), client.ForceOwnership)
	var errs []error
	for _, u := range objects {
		errs = append(errs, c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), opts...))
	}
	return errors.Join(errs...)
}
