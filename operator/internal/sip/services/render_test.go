package services

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/certificate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

// What every service has, whatever its kind. Where the cluster assigns users and refuses others, pods name none,
// and are no root all the same; elsewhere they name one, since images name theirs by a word.
func TestEveryServiceKeepsTheContract(t *testing.T) {
	for _, assigns := range []bool{false, true} {
		in := full(t)
		in.AssignsUsers = assigns
		set := rendered(t, in)
		require.Len(t, set, 4)
		for _, s := range set {
			s.keepsTheContract(t, assigns)
		}
	}
}

func (s Service) keepsTheContract(t *testing.T, assigns bool) {
	d := s.deployment(t)
	pod := d.Spec.Template
	context, container := pod.Spec.SecurityContext, pod.Spec.Containers[0]
	for _, id := range []*int64{context.RunAsUser, context.RunAsGroup, context.FSGroup} {
		require.Equal(t, assigns, id == nil, s.Name)
	}
	require.True(t, *context.RunAsNonRoot, s.Name)
	require.Nil(t, container.SecurityContext.RunAsUser, s.Name)
	require.True(t, *container.SecurityContext.RunAsNonRoot, s.Name)
	require.Equal(t, s.Image, container.Image)
	require.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
	require.Equal(t, s.Kind == Auth, *pod.Spec.AutomountServiceAccountToken, "Dex alone speaks to this API server")
	require.Zero(t, d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue(), "a pod goes when its successor is ready")

	service := object[corev1.Service](t, s, "Service", s.Name)
	budget := object[policyv1.PodDisruptionBudget](t, s, "PodDisruptionBudget", s.Name)
	policy := s.policy(t).Spec
	require.Equal(t, s.Name, pod.Labels["app.kubernetes.io/instance"])
	for _, selector := range []map[string]string{
		service.Spec.Selector, d.Spec.Selector.MatchLabels, budget.Spec.Selector.MatchLabels, policy.PodSelector.MatchLabels,
	} {
		require.Equal(t, map[string]string{"app.kubernetes.io/instance": s.Name}, selector)
	}
	require.Equal(t, []networkingv1.PolicyType{"Ingress", "Egress"}, policy.PolicyTypes)
	pull := object[corev1.Secret](t, s, "Secret", s.Name+"-pull")
	require.Equal(t, []corev1.LocalObjectReference{{Name: pull.Name}}, pod.Spec.ImagePullSecrets)
	require.Equal(t, corev1.SecretTypeDockerConfigJson, pull.Type)
	for _, u := range s.Objects {
		require.NotEmpty(t, u.GetAPIVersion())
		require.Empty(t, u.GetNamespace()+string(u.GetUID()), "who applies it knows where")
		require.NotContains(t, u.Object, "status")
		require.NotContains(t, u.Object["metadata"], "creationTimestamp")
	}
}

func TestSecretsAreInSecretsAlone(t *testing.T) {
	in := full(t)
	set := rendered(t, in)
	var public, secret, printed strings.Builder
	for _, u := range all(set) {
		if u.GetKind() != "Secret" {
			fmt.Fprint(&public, u.Object)
		}
	}
	for _, data := range keep(t, set) {
		for _, value := range data {
			var document any
			_ = json.Unmarshal(value, &document) // Dex's configuration has them escaped
			fmt.Fprintf(&secret, "%s %v", value, document)
		}
	}
	fmt.Fprintf(&printed, "%v %+v %#v", in.Input, in.Input, in.Input)
	hash := string(passwordHash()[:40])
	for _, word := range []string{clientSecret, bindPassword, hash, "PRIVATE KEY", "cHVsbDpwYXNz"} {
		require.Contains(t, secret.String(), word, "else this test looks for what is nowhere")
		require.NotContains(t, public.String(), word)
		require.NotContains(t, public.String(), base64.StdEncoding.EncodeToString([]byte(word)))
	}
	for _, word := range []string{"PRIVATE KEY", hash, clientSecret} {
		require.NotContains(t, printed.String(), word)
	}
}

func TestPodsAreRolledWhenTheyHaveToBe(t *testing.T) {
	in := full(t)
	first := rendered(t, in)
	in.Kept, in.Running = keep(t, first), running(t, first)
	in.Now = in.Now.Add(time.Hour)
	require.Equal(t, all(first), all(rendered(t, in)), "the same input gives the same bytes")

	for name, c := range map[string]struct {
		change func(*input)
		rolled []Kind
	}{
		"a worker has another address": {func(in *input) { in.Hosts[airship.RoleWorker] = []Host{bmHost("w-0", "10.0.1.9")} }, []Kind{LoadBalancerWorker, JumpHost}},
		"a key may log in no more":     {func(in *input) { in.Spec.JumpHost[0].SSHAuthorizedKeys[0] = newUser(t).line() }, []Kind{JumpHost}},
		"a client has another secret":  {func(in *input) { in.Secrets["dex"] = settingsOfDex("other") }, []Kind{Auth}},
		"another login of the mirror":  {func(in *input) { in.PullSecret = []byte(`{"auths":{}}`) }, nil},
		"the certificate is renewed":   {func(in *input) { in.Now = first.renewAt(t) }, []Kind{Auth}},
		"shortly before":               {func(in *input) { in.Now = first.renewAt(t).Add(-1) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := full(t)
			in.Kept, in.Running = keep(t, first), running(t, first)
			c.change(&in)
			var rolled []Kind
			for _, s := range rendered(t, in) {
				if !reflect.DeepEqual(s.deployment(t).Spec.Template, first.of(t, s.Kind).deployment(t).Spec.Template) {
					rolled = append(rolled, s.Kind)
				}
			}
			require.Equal(t, c.rolled, rolled)
		})
	}
}

// A host that came and went while pods ran leads to their replacement, as one that they started with, and as another
// template. Without a template, the annotation is as in earlier versions.
func TestPodsThatLedToAHostAreReplaced(t *testing.T) {
	in := full(t)
	for step, c := range []struct {
		hosts    int
		rolled   bool
		template string
	}{
		{1, true, ""}, {2, false, ""}, {1, true, ""}, {1, false, ""}, {1, true, "frontend a"}, {2, false, "frontend a"},
		{2, true, "frontend b"}, {1, true, "frontend b"}, {1, true, ""}, {1, false, ""},
	} {
		in.Templates = fstest.MapFS{}
		if c.template != "" {
			in.Templates = fstest.MapFS{"loadBalancerControlPlane.cfg": {Data: []byte(c.template)}}
		}
		was := in.Running[Name("one", LoadBalancerControlPlane, 0)]
		in.Hosts[airship.RoleControlPlane] = full(t).Hosts[airship.RoleControlPlane][:c.hosts]
		set := rendered(t, in)
		in.Kept, in.Running = keep(t, set), running(t, set)
		now := set.of(t, LoadBalancerControlPlane).deployment(t)
		rolled := was == nil || !reflect.DeepEqual(was.Spec.Template, now.Spec.Template)
		require.Equal(t, c.rolled, rolled, "step %d", step)
		require.Equal(t, c.template != "", strings.Contains(now.Spec.Template.Annotations[annotationHash], "."))
	}
}

func running(t *testing.T, set Set) map[string]*appsv1.Deployment {
	all := map[string]*appsv1.Deployment{}
	for _, s := range set {
		d := s.deployment(t)
		all[s.Name] = &d
	}
	return all
}

// Every port that a Service or a probe leads to is let in, and services reach what they serve.
func TestServicesReachWhatTheyServe(t *testing.T) {
	set := rendered(t, full(t))
	text := func(all []networkingv1.NetworkPolicyPort) string {
		var ports []string
		for _, p := range all {
			text := fmt.Sprintf("%s/%s", *p.Protocol, p.Port)
			if p.EndPort != nil {
				text += fmt.Sprintf("-%d", *p.EndPort)
			}
			ports = append(ports, text)
		}
		return strings.Join(ports, " ")
	}
	// reached is ENDPOINT, the first target, the probed port and what is let in, then CIDRS -> PORTS of each rule.
	reached := func(kind Kind) (out []string) {
		s := set.of(t, kind)
		policy := s.policy(t).Spec
		service := object[corev1.Service](t, s, "Service", s.Name)
		probe := s.deployment(t).Spec.Template.Spec.Containers[0].ReadinessProbe
		probed := regexp.MustCompile(`Port:\{0 (\d+)`).FindStringSubmatch(fmt.Sprint(probe.HTTPGet, probe.TCPSocket))[1]
		target := service.Spec.Ports[0].TargetPort.IntVal
		out = append(out, fmt.Sprintf("%s %d %s <- %s", s.Endpoints[0], target, probed, text(policy.Ingress[0].Ports)))
		for _, rule := range policy.Egress {
			to := ""
			for _, peer := range rule.To {
				to += peer.IPBlock.CIDR + " "
			}
			out = append(out, to+"-> "+text(rule.Ports))
		}
		return out
	}
	require.Equal(t, []string{":30443 6443 8404 <- TCP/6443 TCP/8404", "10.0.0.1/32 10.0.0.2/32 fd00::2/128 -> TCP/6443"}, reached(LoadBalancerControlPlane))
	require.Equal(t, []string{":31000-31009 31000 8404 <- TCP/31000-31009 TCP/8404", "10.0.1.1/32 -> TCP/31000-31009 TCP/10250"}, reached(LoadBalancerWorker))
	jump := []string{":30022 2222 2222 <- TCP/2222", "10.0.0.1/32 10.0.0.2/32 10.0.1.1/32 fd00::2/128 -> TCP/22 TCP/6443 TCP/31000-31009"}
	require.Equal(t, jump, reached(JumpHost))
	state := []string{":30556 5556 5558 <- TCP/5556 TCP/5558", "10.96.0.1/32 -> TCP/443", "10.0.0.250/32 -> TCP/6443"}
	require.Equal(t, append(slices.Clone(state),
		"10.0.0.0/8 fd00::/8 -> TCP/1-65535", "-> UDP/53 TCP/53 UDP/5353 TCP/5353"), reached(Auth))

	in := full(t)
	in.Hosts, in.Secrets["dex"] = nil, Secret{"config.yaml": []byte("staticPasswords: [{email: alice@tenant.site}]")}
	set = rendered(t, in)
	require.Len(t, reached(LoadBalancerControlPlane), 1, "there is no host")
	require.Equal(t, state, reached(Auth), "there is no connector")
	require.Len(t, reached(JumpHost), 1, "no BMC is reached")
}

func manyHosts(in *input, n int) {
	for i := range n {
		address := fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)
		in.Hosts[airship.RoleWorker] = append(in.Hosts[airship.RoleWorker], bmHost(fmt.Sprintf("worker-%04d.rack", i), address))
	}
}

// A fault of one service is told with its field and what to do, and keeps nothing else
// from being rendered.
func TestBadInputIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*input)
		kind   Kind
		want   string
	}{
		"a provider not allowed": {func(in *input) { in.Egress = nil }, Auth, "auth[0].configSecret: connectors: the site allows connections to no provider"},
		// Who may log in at one could at another.
		"a second login": {func(in *input) { in.Spec.Auth = append(in.Spec.Auth, in.Spec.Auth[0]) }, Auth, "auth[1]: a tenant cluster has one OIDC provider"},
		"too many ports": {func(in *input) {
			in.Spec.LoadBalancerWorker = []airship.LoadBalancerWorker{
				{NodePortRange: airship.PortRange{Start: 30000, End: 30600}}, {NodePortRange: airship.PortRange{Start: 31000, End: 31600}},
			}
		}, LoadBalancerWorker, "have 1202 ports together"},
		"more than a ConfigMap holds": {func(in *input) {
			manyHosts(in, 1000)
			for i := range int32(24) {
				check := airship.PortCheck{Port: in.Spec.LoadBalancerWorker[0].NodePortRange.Start, Path: fmt.Sprint("/", i)}
				in.Spec.LoadBalancerWorker[0].HealthChecks = append(in.Spec.LoadBalancerWorker[0].HealthChecks, check)
			}
		}, LoadBalancerWorker, "hosts make a configuration of"},
		"a template with another field": {func(in *input) {
			in.Templates = fstest.MapFS{"loadBalancerWorker.cfg": {Data: []byte("{{.Backends}}")}}
		}, LoadBalancerWorker, "loadBalancerWorker[0]: loadBalancerWorker.cfg:1:2: {{.Backends}} is no field or variable here"},
		"more than sshd passes on":   {func(in *input) { in.Spec.LoadBalancerWorker = nil; manyHosts(in, 3000) }, JumpHost, "hosts make an sshd_config of"},
		"passwords as they are":      {dexIs("connectors: [{config: {insecureNoSSL: true}}]"), Auth, "connectors[0]: insecureNoSSL is refused"},
		"no check of signatures":     {dexIs("connectors: [{}, {config: {InsecureSkipSignatureValidation: true}}]"), Auth, "connectors[1]: insecureSkipSignatureValidation is refused"},
		"a name that is there twice": {dexIs("host: a\nbindPW: '" + dexSecret + "'\nbindPW: [" + dexSecret + "\n"), Auth, "each name once: line 2"},
		"a config in other letters":  {dexIs("connectors: [{Config: {insecureNoSSL: true}}]"), Auth, "connectors[0]: config is there in other letters"},
		"other letters beside":       {dexIs("Connectors: [{type: ldap}]\nconnectors: [{type: ldap}]"), Auth, "connectors is there in other letters"},
		"no longer than asked":       {dexIs("connectors: [{}]\nExpiry: {idTokens: 5m}"), Auth, "expiry is there in other letters"},
		"origins in other letters":   {dexIs("connectors: [{}]\nWeb: {allowedOrigins: [a]}"), Auth, "web is there in other letters"},
		"a type in other letters":    {dexIs("connectors: [{Type: ldap}]"), Auth, "connectors[0]: type is there in other letters"},
		"no user could log in":       {dexIs("staticClients: [{id: console}]"), Auth, "there are neither connectors nor staticPasswords"},
		"no YAML of names":           {dexIs("- " + dexSecret), Auth, "auth[0].configSecret: config.yaml is not YAML of names"},
		"a slash at the end":         {func(in *input) { in.Spec.Auth[0].Issuer += "/" }, Auth, "spec.services.auth[0].issuer: it is missing, no URL, or ends in a slash"},
		"no certificate":             {func(in *input) { in.Spec.Auth[0].TLSSecret = "dex" }, Auth, "auth[0].tlsSecret: the Secret tenants/dex has no tls.crt"},
		"no issuer":                  {func(in *input) { in.Spec.Auth[0].Issuer = "" }, Auth, "spec.services.auth[0].issuer: it is missing"},
		"no settings":                {func(in *input) { in.Spec.Auth[0].ConfigSecret = "gone" }, Auth, "auth[0].configSecret: the Secret tenants/gone is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			in := full(t)
			c.change(&in)
			refused := slices.DeleteFunc(in.render(), func(s Service) bool { return s.Err == nil })
			require.NotEmpty(t, refused)
			for _, s := range refused {
				require.Equal(t, c.kind, s.Kind)
				require.Empty(t, s.Objects)
			}
			err := refused[0].Err
			require.ErrorContains(t, err, c.want)
			require.NotEmpty(t, fault.HintOf(err))
			require.NotContains(t, fault.Text(err), "s3cret")
		})
	}
}

func TestAJumpHostNamesAllFaults(t *testing.T) {
	in := full(t)
	in.Unusable = errors.New("the bundle is not verified")
	in.Hosts = map[airship.Role][]Host{airship.RoleWorker: {{Namespace: "metal3", Name: "w-0", Unread: true}}}
	in.Spec.JumpHost[0].SSHAuthorizedKeys = nil
	jump := in.render().of(t, JumpHost)
	for _, want := range []string{"not verified", "1 hosts have no known address", "no user can log in"} {
		require.Equal(t, 1, strings.Count(fault.Text(jump.Err), want), fault.Text(jump.Err))
	}
	require.Empty(t, jump.Objects)
	in = full(t)
	in.Spec.JumpHost[0].SSHAuthorizedKeys = nil
	jump = in.render().of(t, JumpHost)
	require.ErrorContains(t, jump.Err, "no user can log in")
	require.NotEmpty(t, jump.Objects, "one without a key runs, so that hosts can leave it")
}

const dexSecret = `s3cret-$HOME-{{.}}-"\`

func dexIs(settings string) func(*input) {
	return func(in *input) { in.Secrets["dex"] = Secret{dexSettings: []byte(settings)} }
}

// What comes in is what Dex reads, to the byte; where it runs is the pod's business.
func TestSettingsPassThrough(t *testing.T) {
	r, issuer := &rendering{field: "spec.services.auth[0]"}, "https://login.site:30556/dex"
	text, connectors, err := r.dexConfig(issuer, []byte(`
logger: {level: debug}
oauth2: {alwaysShowLoginScreen: true}
issuer: https://other
Storage: {type: memory}
web: {allowedOrigins: [https://console.site], https: 0.0.0.0:1}
staticClients: [{id: console, secret: '`+dexSecret+`'}]
connectors: [{type: ldap, id: l, config: {bindPW: '`+dexSecret+`', future: {setting: 1}}}, {type: github, id: g},
  {type: oidc, id: o, config: {clientID: c}}, {type: oidc, id: p, config: {RedirectURI: https://own}}]
staticPasswords: [{email: alice@site}]
`))
	require.NoError(t, err)
	require.Equal(t, []string{"ldap", "github", "oidc", "oidc"}, connectors)
	var got struct {
		Issuer          string
		Storage, Logger struct{ Type, Level string }
		Web             map[string]any
		OAuth2, Expiry  map[string]any
		StaticClients   []struct{ ID, Secret string }
		Connectors      []struct{ Config map[string]any }

		EnablePasswordDB bool
	}
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, issuer, got.Issuer)
	require.Equal(t, "kubernetes", got.Storage.Type, "whatever configSecret says, in whatever letters")
	require.NotContains(t, string(text), "memory")
	require.Equal(t, "debug", got.Logger.Level)
	require.Equal(t, []any{":5556", []any{"https://console.site"}}, []any{got.Web["https"], got.Web["allowedOrigins"]})
	require.Equal(t, map[string]any{"alwaysShowLoginScreen": true}, got.OAuth2)
	require.Equal(t, "1h", got.Expiry["idTokens"])
	require.Equal(t, dexSecret, got.StaticClients[0].Secret)
	future := map[string]any{"setting": 1.0}
	require.Equal(t, map[string]any{"bindPW": dexSecret, "future": future}, got.Connectors[0].Config)
	require.Equal(t, map[string]any{"clientID": "c", "redirectURI": issuer + "/callback"}, got.Connectors[2].Config)
	require.Equal(t, map[string]any{"RedirectURI": "https://own"}, got.Connectors[3].Config)
	require.True(t, got.EnablePasswordDB)
	text, _, err = r.dexConfig(issuer, []byte("enablePasswordDB: false\nstaticPasswords: [{email: alice@site}]"))
	require.NoError(t, err)
	require.Contains(t, string(text), `"enablePasswordDB": false`)
}

func TestTolerationsAndChecks(t *testing.T) {
	in := full(t)
	in.Spec.LoadBalancerControlPlane[0].HealthCheck = "TCP"
	in.Spec.LoadBalancerControlPlane[0].Tolerations = []corev1.Toleration{{Key: "edge", Operator: "Exists"}}
	in.Spec.LoadBalancerWorker[0].HealthChecks = []airship.PortCheck{
		{Port: 31001, Type: "TCP"}, {Port: 31002, Type: "HTTP"}, {Port: 31003, Type: "HTTPS", Path: "/ok"},
	}
	set := rendered(t, in)
	lb := set.of(t, LoadBalancerControlPlane)
	require.Equal(t, in.Spec.LoadBalancerControlPlane[0].Tolerations, lb.deployment(t).Spec.Template.Spec.Tolerations)
	text := lb.config(t)["haproxy.cfg"]
	require.Contains(t, text, "default-server check port 6443 inter")
	require.NotContains(t, text, "/readyz")
	lb = set.of(t, LoadBalancerWorker)
	text = lb.config(t)["haproxy.cfg"]
	for port, want := range map[string]string{
		"31001": "\n    default-server check port 31001 inter", "31002": " GET uri / ", "31003": " GET uri /ok ",
	} {
		require.Contains(t, text, "use_backend hosts-"+port+" if { dst_port "+port+" }\n")
		_, backend, _ := strings.Cut(text, "\nbackend hosts-"+port+"\n")
		backend, _, _ = strings.Cut(backend, "\nbackend ")
		require.Contains(t, backend, want)
		require.Equal(t, port == "31003", strings.Contains(backend, "check-ssl"))
	}
}

func TestHostsOfOneName(t *testing.T) {
	in := full(t)
	twin := bmHost("w-0", "10.0.1.2")
	twin.Namespace = "metal4"
	in.Hosts[airship.RoleWorker] = []Host{bmHost("w-0", "10.0.1.1"), twin, bmHost("without-address")}
	set := rendered(t, in)
	hosts := set.of(t, JumpHost).config(t)["hosts"]
	require.Contains(t, hosts, "w-0\tWorker\t10.0.1.1\nw-0\tWorker\t10.0.1.2\nwithout-address\tWorker\n")
	text := set.of(t, LoadBalancerWorker).config(t)["haproxy.cfg"]
	require.Contains(t, text, "server w-0.metal3 ipv4@10.0.1.1\n")
	require.Contains(t, text, "server w-0.metal4 ipv4@10.0.1.2\n")
	require.NotContains(t, text, "without-address")
}

// While a host cannot be read, a service goes on leading there. What cannot be rendered so stays as it is.
func TestUnreadHosts(t *testing.T) {
	note := func(text string) map[string]string { return map[string]string{annotationLeads: text} }
	both := []string{"10.0.1.1", "fd00::1"}
	for name, c := range map[string]struct {
		before  []string
		running map[string]string // annotations; nil for no Deployment
		leads   []string          // nil where what runs stays
	}{
		"noted":              {[]string{"10.0.1.1", "10.2.1.1"}, note("10.0.1.1,10.0.9.9"), []string{"10.0.1.1"}},
		"it leads elsewhere": {[]string{"10.0.1.1"}, note("10.0.9.9"), nil},
		"out of reach too":   {[]string{"10.0.1.1"}, note("10.0.9.9,192.0.2.1"), []string{}},
		"it leads nowhere":   {[]string{"10.0.1.1"}, note(""), []string{}},
		"it ran elsewhere":   {both, nil, both},
		"nothing known":      {nil, nil, nil},
	} {
		in := full(t)
		host := Host{Namespace: "metal3", Name: "w-0", Unread: true}
		for _, a := range c.before {
			host.Before = append(host.Before, netip.MustParseAddr(a))
		}
		in.Hosts = map[airship.Role][]Host{airship.RoleWorker: {host}}
		in.Running = map[string]*appsv1.Deployment{}
		for _, kind := range []Kind{LoadBalancerWorker, JumpHost} {
			if c.running != nil {
				meta := metav1.ObjectMeta{Annotations: c.running}
				in.Running[Name("one", kind, 0)] = &appsv1.Deployment{ObjectMeta: meta}
			}
		}
		for _, kind := range []Kind{LoadBalancerWorker, JumpHost} {
			s := in.render().of(t, kind)
			if c.leads == nil {
				require.ErrorContains(t, s.Err, "nodeInterfaceId: 1 hosts have no known address there", name)
				continue
			}
			require.NoError(t, s.Err, name)
			require.Equal(t, strings.Join(c.leads, ","), s.deployment(t).Annotations[annotationLeads], name)
			egress := must.Have(json.Marshal(s.policy(t).Spec.Egress))(t)
			for _, a := range c.leads {
				require.Contains(t, string(egress), a+"/", name)
			}
		}
	}
}

func TestNamesOfTheJumpHost(t *testing.T) {
	in := full(t)
	in.Hosts = map[airship.Role][]Host{airship.RoleWorker: {bmHost("w-0", "10.0.1.1"), bmHost("w-1", "10.0.1.1", "10.0.1.4")}}
	require.Equal(t, []corev1.HostAlias{
		{IP: "10.0.1.1", Hostnames: []string{"w-0", "w-1"}}, {IP: "10.0.1.4", Hostnames: []string{"w-1"}},
	}, rendered(t, in).of(t, JumpHost).deployment(t).Spec.Template.Spec.HostAliases)
}

func TestNamesAreLabelsAndApart(t *testing.T) {
	long := strings.Repeat("a", 62)
	seen := map[string]bool{}
	for _, cluster := range []string{"a", "a.b", "a-b", long + "a", long + "b", "1.2-3"} {
		for _, kind := range []Kind{LoadBalancerControlPlane, LoadBalancerWorker, JumpHost, Auth} {
			for index := range 8 {
				name := Name(cluster, kind, index)
				require.Empty(t, validation.IsDNS1035Label(name), name)
				require.LessOrEqual(t, len(name), maxName)
				require.False(t, seen[name], name)
				seen[name] = true
			}
		}
		for _, ns := range []string{"t", "t-a", strings.Repeat("n", 63)} {
			name := Namespace(types.NamespacedName{Namespace: ns, Name: cluster})
			require.Empty(t, validation.IsDNS1123Label(name), name)
			require.False(t, seen[name], name)
			seen[name] = true
		}
	}
}

// served is what the login serves, and what its clients are given to trust.
func served(t *testing.T, set Set) (cert *x509.Certificate, secret Secret, trusted string) {
	login := set.of(t, Auth)
	secret = object[corev1.Secret](t, login, "Secret", login.Name+"-tls").Data
	cert, _, err := certificate.Pair(secret["tls.crt"], secret["tls.key"])
	require.NoError(t, err)
	return cert, secret, object[corev1.ConfigMap](t, login, "ConfigMap", login.Name+"-trust").Data["ca.crt"]
}

// accepted tells whether a client that trusts these takes what is served.
func accepted(t *testing.T, chain []byte, trusted, host string, now time.Time) error {
	roots, rest := x509.NewCertPool(), x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(trusted)))
	cert := must.Have(certificate.Parse(chain))(t)
	rest.AppendCertsFromPEM(chain)
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, Intermediates: rest, DNSName: host, CurrentTime: now})
	return err
}

// The tenant's API server is told once what to trust: the certificate is kept, also while the operator's clock is an
// hour back, until it is for another host or ends soon. No key of an authority is kept.
func TestTheOwnCertificateIsKept(t *testing.T) {
	in := full(t)
	set := rendered(t, in)
	first, secret, trusted := served(t, set)
	require.NoError(t, accepted(t, secret["tls.crt"], trusted, "login.tenant.site", start))
	require.True(t, first.NotAfter.After(start.AddDate(9, 0, 0)))
	for _, u := range set.of(t, Auth).Objects {
		require.NotContains(t, u.GetName(), "-ca")
	}
	in.Kept = keep(t, set)
	for _, now := range []time.Time{start.Add(-time.Hour), set.renewAt(t).Add(-time.Second)} {
		in.Now = now
		same, _, still := served(t, rendered(t, in))
		require.Equal(t, first.Raw, same.Raw)
		require.Equal(t, trusted, still)
	}
	in.Now = set.renewAt(t)
	next, secret, still := served(t, rendered(t, in))
	require.NotEqual(t, first.Raw, next.Raw)
	require.NoError(t, accepted(t, secret["tls.crt"], still, "login.tenant.site", in.Now))
	in.Now, in.Spec.Auth[0].Issuer = start, "https://[fd00::7]:30556"
	_, secret, still = served(t, rendered(t, in))
	require.NoError(t, accepted(t, secret["tls.crt"], still, "fd00::7", start), "of another issuer")

	former := pairOf(t, pki.Root(t, "former")) // a program before v0.1 kept the CA; it signs one last time
	in.Kept[Name("one", Auth, 0)+"-ca"] = former
	in.Spec.Auth[0].Issuer = "https://login.tenant.site:30556"
	spec := pki.Spec{Name: "login", DNS: []string{"login.tenant.site"}, NotAfter: start.AddDate(0, 0, 90)}
	in.Kept[Name("one", Auth, 0)+"-tls"] = pairOf(t, pki.Root(t, "former").Issue(t, spec))
	set = rendered(t, in)
	last, secret, still := served(t, set)
	in.Kept = keep(t, set)
	in.Kept[Name("one", Auth, 0)+"-ca"] = former // it goes once the service is ready
	same, _, _ := served(t, rendered(t, in))
	require.Equal(t, last.Raw, same.Raw)
	require.Equal(t, string(former["tls.crt"]), still)
	require.NoError(t, accepted(t, secret["tls.crt"], still, "login.tenant.site", start))
}

// A certificate of the site's authority, a root or one below it, is served as it comes, with what clients trust.
func TestTheSitesCertificateIsServed(t *testing.T) {
	root := pki.Root(t, "site")
	below := root.Issue(t, pki.Spec{Name: "tenants", CA: true})
	spec := pki.Spec{Name: "login", DNS: []string{"login.tenant.site"}}
	direct, chained := pairOf(t, root.Issue(t, spec)), pairOf(t, below.Issue(t, spec))
	alone := pairOf(t, pki.Authority{}.Issue(t, spec))
	direct["ca.crt"], chained["ca.crt"] = pairOf(t, root)["tls.crt"], pairOf(t, root)["tls.crt"]
	chained["tls.crt"] = append(chained["tls.crt"], pairOf(t, below)["tls.crt"]...)
	for name, site := range map[string]Secret{"of a root": direct, "below it": chained, "without ca.crt": alone} {
		in := full(t)
		in.Spec.Auth[0].TLSSecret, in.Secrets["site"] = "site", site
		set := rendered(t, in)
		_, secret, trusted := served(t, set)
		require.Equal(t, site["tls.crt"], secret["tls.crt"], name)
		require.NoError(t, accepted(t, secret["tls.crt"], trusted, "login.tenant.site", start), name)
		in.Kept = keep(t, set)
		require.Equal(t, all(set), all(rendered(t, in)), name)
	}
}

func TestCertificatesThatCannotServeAreRefused(t *testing.T) {
	root := pki.Root(t, "site")
	spec := pki.Spec{Name: "login", DNS: []string{"login.tenant.site"}}
	good, ended := pairOf(t, root.Issue(t, spec)), spec
	ended.NotAfter = start
	later := spec
	later.NotBefore = start.Add(time.Hour)
	for name, secret := range map[string]Secret{
		"for another":    pairOf(t, root),
		"ended":          pairOf(t, root.Issue(t, ended)),
		"not yet":        pairOf(t, root.Issue(t, later)),
		"another's key":  {"tls.crt": good["tls.crt"], "tls.key": pairOf(t, pki.Root(t, "y"))["tls.key"]},
		"its key beside": {"tls.crt": slices.Concat(good["tls.crt"], good["tls.key"]), "tls.key": good["tls.key"]},
		"a key as a CA":  {"tls.crt": good["tls.crt"], "tls.key": good["tls.key"], "ca.crt": good["tls.key"]},
		"no PEM":         {"tls.crt": []byte("x"), "tls.key": []byte("y")},
	} {
		in := full(t)
		in.Spec.Auth[0].TLSSecret, in.Secrets["site"] = "site", secret
		login := in.render().of(t, Auth)
		require.Empty(t, login.Objects, name)
		require.ErrorContains(t, login.Err, "spec.services.auth[0].tlsSecret", name)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(login.Err), name)
		require.NotContains(t, fault.Text(login.Err), "PRIVATE KEY---", name)
	}
}

func pairOf(t *testing.T, a pki.Authority) Secret {
	key := must.Have(certificate.EncodeKey(a.Key))(t)
	return Secret{"tls.crt": certificate.Encode(a.Certificate.Raw), "tls.key": key}
}
