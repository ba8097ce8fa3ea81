package v1_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
)

func TestMain(m *testing.M) { cluster.Main(m) }

// shape is one spec and what the API server answers: nothing, or a fragment of its
// message.
type shape struct{ name, resource, spec, refusal string }

const everything = `
nodes:
  ControlPlane: {labelSelector: {matchLabels: {flavor: control-plane}}, topologyKey: vino.airshipit.org/rack, count: {active: 3, standby: 1}}
  Worker: {labelSelector: {matchExpressions: [{key: flavor, operator: In, values: [worker]}]}, topologyKey: vino.airshipit.org/host, count: {active: 4}}
services:
  loadBalancerControlPlane: [{image: "haproxy:2.3.2", nodeLabels: {kubernetes.io/os: linux}, nodePort: 30000, nodeInterfaceId: oam-ipv4, clusterIP: 10.0.0.7}]
  loadBalancerWorker: [{image: "haproxy:2.3.2", nodePortRange: {start: 30002, end: 30011}, nodeInterfaceId: oam-ipv4}]
  jumpHost: [{image: "", nodePort: 30001, bmc: {proxy: true, proxyURL: "http://proxy.site:3128", caSecret: bmc-ca}, sshAuthorizedKeys: [ssh-rsa AAAA key], nodeSSHPrivateKeys: ssh-keys}]
  auth:
    - nodePort: 30012
      issuer: https://login.site.example:30012/dex
      configSecret: dex
      caSecret: login-ca
      tlsSecret: login-tls
`

var shapes = []shape{
	{"everything", "", everything, ""},
	{"nothing", "", "{}", ""},
	{"no count", "", "nodes: {Worker: {}}\nservices: {}", ""},
	{"an earlier auth without issuer", "", "services: {auth: [{image: dex, nodePort: 30000, nodeInterfaceId: oam}]}", ""},
	{"name as long as a label", strings.Repeat("a", 63), "{}", ""},
	{"name longer than a label", strings.Repeat("a", 64), "{}", "at most 63 characters"},
	{"older roles", "", "nodes: {master: {count: {active: 1}}, worker: {count: {active: 1}}}", "write ControlPlane for master and Worker for worker"},
	{"unknown role", "", "nodes: {Storage: {}}", "roles are ControlPlane and Worker"},
	{"negative count", "", "nodes: {Worker: {count: {active: -1}}}", "should be greater than or equal to 0"},
	{"too large a count", "", "nodes: {Worker: {count: {standby: 1001}}}", "should be less than or equal to 1000"},
	{"topology key", "", "nodes: {Worker: {topologyKey: 'a rack'}}", "write the key of a label"},
	{"an inverted range", "", "services: {loadBalancerWorker: [{nodePortRange: {start: 30001, end: 30000}}]}", "start is above end"},
	{"too wide a range", "", "services: {loadBalancerWorker: [{nodePortRange: {start: 1, end: 1001}}]}", "at most 1000 ports"},
	{"checks", "", "services: {loadBalancerControlPlane: [{nodePort: 1, healthCheck: TCP, tolerations: [{operator: Exists}]}], " +
		"loadBalancerWorker: [{nodePortRange: {start: 2, end: 3}, healthChecks: [{port: 2, type: HTTP, path: /healthz}]}]}", ""},
	{"a load balancer", "", "services: {jumpHost: [{nodePort: 1, serviceType: LoadBalancer, loadBalancerClass: site/class}]}", ""},
	{"no type of Service", "", "services: {jumpHost: [{nodePort: 1, serviceType: ClusterIP}]}", "supported values"},
	{"a class of two words", "", "services: {jumpHost: [{nodePort: 1, loadBalancerClass: a b}]}", "should match"},
	{"port 0", "", "services: {jumpHost: [{nodePort: 0}]}", "should be greater than or equal to 1"},
	{"port 65536", "", "services: {jumpHost: [{nodePort: 65536}]}", "should be less than or equal to 65535"},
	{"interface of two lines", "", `services: {jumpHost: [{nodePort: 1, nodeInterfaceId: "a\nb"}]}`, "on one line"},
	{"a traffic policy", "", "services: {jumpHost: [{nodePort: 1, externalTrafficPolicy: Local, bmc: {caSecret: bmc-ca}}]}", ""},
	{"an unknown traffic policy", "", "services: {jumpHost: [{nodePort: 1, externalTrafficPolicy: Node}]}", "supported values"},
	{"name of a Secret", "", "services: {jumpHost: [{nodePort: 1, nodeSSHPrivateKeys: ../etc}]}", "write the name of a Secret"},
	{"a principal of two words", "", "services: {jumpHost: [{nodePort: 1, authorizedPrincipals: [a b]}]}", "should match"},
	{"keys", "", "services: {jumpHost: [{nodePort: 1, sshAuthorizedKeys: [ssh-ed25519 AAAA, \"ecdsa-sha2-nistp256 AA== a b\\n\", " +
		"sk-ssh-ed25519@openssh.com AA], trustedUserCAKeys: [ssh-rsa AA ca]}]}", ""},
	{"a word", "", "services: {jumpHost: [{nodePort: 1, sshAuthorizedKeys: [x]}]}", "should match"},
	{"the sample's key", "", "services: {jumpHost: [{nodePort: 1, sshAuthorizedKeys: [ssh-ed25519 YOUR-PUBLIC-KEY a]}]}", "should match"},
	{"a key with options", "", "services: {jumpHost: [{nodePort: 1, sshAuthorizedKeys: ['command=\"ls\" ssh-rsa AA']}]}", "should match"},
	{"two keys on one line", "", `services: {jumpHost: [{nodePort: 1, sshAuthorizedKeys: ["ssh-rsa AA\nssh-rsa AA"]}]}`, "should match"},
	{"a certificate", "", "services: {jumpHost: [{nodePort: 1, sshAuthorizedKeys: [ssh-rsa-cert-v01@openssh.com AA]}]}", "should match"},
	{"a CA that is no key", "", "services: {jumpHost: [{nodePort: 1, trustedUserCAKeys: [x]}]}", "should match"},
	{"plain issuer", "", "services: {auth: [{nodePort: 1, issuer: 'http://login.site'}]}", "write https://HOST:PORT"},
	{"issuer with a query", "", "services: {auth: [{nodePort: 1, issuer: 'https://login.site/?a'}]}", "without user, query and fragment"},
}

func TestSIPCluster(t *testing.T) {
	cfg := cluster.Config(t)
	c, ns := cluster.Client(t, cfg), cluster.Namespace(t, cfg)
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			u := &unstructured.Unstructured{Object: map[string]any{}}
			var spec any
			require.NoError(t, yaml.Unmarshal([]byte(shape.spec), &spec), shape.spec)
			u.Object["spec"] = spec
			u.SetGroupVersionKind(airship.GroupVersion.WithKind("SIPCluster"))
			u.SetNamespace(ns)
			u.SetName(shape.resource)
			if shape.resource == "" {
				u.SetGenerateName("x-")
			}
			err := c.Create(t.Context(), u, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
			if shape.refusal == "" {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, shape.refusal)
		})
	}
}

// An API server refuses CRDs whose rules call functions of its own release, not only of later ones.
func TestRulesCallFunctionsThatEveryAPIServerHas(t *testing.T) {
	rule := regexp.MustCompile("XValidation:rule=(`[^`]+`|\"[^\"]+\")")
	old := regexp.MustCompile(`\b(all|contains|duration|filter|has|matches|size)\(`)
	files := must.Have(filepath.Glob("*.go"))(t)
	for _, file := range append(files, must.Have(filepath.Glob("../../v1alpha1/*.go"))(t)...) {
		for _, text := range rule.FindAllString(string(must.Have(os.ReadFile(file))(t)), -1) {
			require.NotRegexp(t, `\w\(`, old.ReplaceAllString(text, "("), "%s: name what Kubernetes 1.25 has", file)
		}
	}
}
