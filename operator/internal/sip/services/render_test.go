package services

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// What every service has, whatever its kind.
func TestEveryServiceKeepsTheContract(t *testing.T) {
	set := rendered(t, full(t))
	require.Len(t, set.Services, 4)
	for _, s := range set.Services {
		d := s.deployment(t)
		pod := d.Spec.Template
		require.Equal(t, s.Image, pod.Spec.Containers[0].Image)
		require.True(t, *pod.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem)
		require.False(t, *pod.Spec.AutomountServiceAccountToken, "none of the services speaks to this API server")
		require.Zero(t, d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue(), "a pod goes when its successor is ready")

		service := object[corev1.Service](t, s, "Service", s.Name)
		budget := object[policyv1.PodDisruptionBudget](t, s, "PodDisruptionBudget", s.Name)
		for _, selector := range []map[string]string{service.Spec.Selector, d.Spec.Selector.MatchLabels, budget.Spec.Selector.MatchLabels, s.policy(t).Spec.PodSelector.MatchLabels} {
			require.Equal(t, map[string]string{"app.kubernetes.io/instance": s.Name}, selector)
			require.Equal(t, s.Name, pod.Labels["app.kubernetes.io/instance"])
		}
		require.Equal(t, []networkingv1.PolicyType{"Ingress", "Egress"}, s.policy(t).Spec.PolicyTypes)
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
}

// Every port that a Service leads to is let in, and is one that every node answers on.
func TestPortsAreLetIn(t *testing.T) {
	set := rendered(t, full(t))
	for kind, want := range map[Kind][]Ports{
		LoadBalancerControlPlane: {{30443, 30443}}, LoadBalancerWorker: {{31000, 31009}}, JumpHost: {{30022, 30022}}, Auth: {{30556, 30556}},
	} {
		s := set.of(t, kind)
		require.Equal(t, want, s.Ports, kind)
		policy, container := s.policy(t), s.deployment(t).Spec.Template.Spec.Containers[0]
		var in []int
		for _, p := range object[corev1.Service](t, s, "Service", s.Name).Spec.Ports {
			in = append(in, p.TargetPort.IntValue())
			require.GreaterOrEqual(t, p.TargetPort.IntValue(), 1024, "pods may not listen below")
		}
		for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe} {
			if probe.HTTPGet != nil {
				in = append(in, probe.HTTPGet.Port.IntValue())
			} else {
				in = append(in, probe.TCPSocket.Port.IntValue())
			}
		}
		for _, port := range in {
			require.True(t, letIn(policy.Spec.Ingress[0].Ports, port), "%s: %d", kind, port)
		}
		require.False(t, letIn(policy.Spec.Ingress[0].Ports, 9999))
	}
}

func letIn(ports []networkingv1.NetworkPolicyPort, port int) bool {
	return slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		last := p.Port.IntValue()
		if p.EndPort != nil {
			last = int(*p.EndPort)
		}
		return p.Port.IntValue() <= port && port <= last
	})
}

// Nothing secret is anywhere but in a Secret, nor in what can be printed.
func TestSecretsAreInSecretsAlone(t *testing.T) {
	in := full(t)
	set := rendered(t, in)
	kept := keep(t, set)
	secret := []string{clientSecret, bindPassword, string(in.Secrets["alice"]["hash"][:40]), "PRIVATE KEY", "cHVsbDpwYXNz"}
	for _, data := range kept {
		if key := data[hashKey]; key != nil {
			secret = append(secret, string(key))
		}
	}
	found := map[string]bool{}
	for _, u := range all(set) {
		data, err := json.Marshal(u.Object)
		require.NoError(t, err)
		text := string(data)
		if u.GetKind() == "Secret" {
			for _, value := range kept[u.GetName()] {
				text += string(value)
				text += unescaped(value)
			}
		}
		for _, word := range secret {
			hidden := strings.Contains(text, word) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(word)))
			if u.GetKind() == "Secret" {
				found[word] = found[word] || hidden
				continue
			}
			require.False(t, hidden, "%s %s has a secret", u.GetKind(), u.GetName())
		}
	}
	for _, word := range secret {
		require.True(t, found[word], "this test looks for what is nowhere")
	}
	printed := fmt.Sprintf("%v %+v %#v", in, in, in)
	for _, word := range secret[:4] {
		require.NotContains(t, printed, word)
	}
}

// unescaped are the texts of a JSON document, one after another.
func unescaped(data []byte) string {
	var v any
	if json.Unmarshal(data, &v) != nil {
		return ""
	}
	return fmt.Sprint(v)
}

// A second pass with what the first one left changes no byte, and a pod is rolled by what
// it reads at its start and by nothing else.
func TestPodsAreRolledWhenTheyHaveToBe(t *testing.T) {
	in := full(t)
	first := rendered(t, in)
	in.Kept = keep(t, first)
	in.Now = in.Now.Add(time.Hour)
	require.Equal(t, all(first), all(rendered(t, in)), "the same input gives the same bytes")

	for name, c := range map[string]struct {
		change func(*Input)
		rolled []Kind
	}{
		"a host of the control plane is added": {func(in *Input) {
			in.Hosts[airship.RoleControlPlane] = append(in.Hosts[airship.RoleControlPlane], bmHost("cp-2", "10.0.0.3"))
		}, []Kind{LoadBalancerControlPlane, JumpHost}},
		"a worker has another address": {func(in *Input) { in.Hosts[airship.RoleWorker] = []Host{bmHost("w-0", "10.0.1.9")} }, []Kind{LoadBalancerWorker, JumpHost}},
		"a key may log in no more":     {func(in *Input) { in.Spec.JumpHost[0].SSHAuthorizedKeys = nil }, []Kind{JumpHost}},
		"a client has another secret":  {func(in *Input) { in.Secrets["console"] = Secret{"clientSecret": []byte("other")} }, []Kind{Auth}},
		"another login of the mirror":  {func(in *Input) { in.PullSecret = []byte(`{"auths":{}}`) }, nil},
		"the certificate is renewed":   {func(in *Input) { in.Now = first.RenewAt }, []Kind{Auth}},
		"shortly before":               {func(in *Input) { in.Now = first.RenewAt.Add(-1) }, nil},
		"a load balancer trusts others": {func(in *Input) {
			in.Secrets["ca"] = Secret{"ca.crt": in.Kept[Name("one", Auth, 0)+"-ca"]["tls.crt"]}
			in.Spec.LoadBalancerControlPlane[0].CASecret = "ca"
		}, []Kind{LoadBalancerControlPlane}},
	} {
		t.Run(name, func(t *testing.T) {
			in := full(t)
			in.Kept = keep(t, first)
			c.change(&in)
			var rolled []Kind
			for _, s := range rendered(t, in).Services {
				if !reflect.DeepEqual(s.deployment(t).Spec.Template, first.of(t, s.Kind).deployment(t).Spec.Template) {
					rolled = append(rolled, s.Kind)
				}
			}
			require.Equal(t, c.rolled, rolled)
		})
	}
}

// The pods get out to what they serve and nowhere else.
func TestServicesReachWhatTheyServe(t *testing.T) {
	set := rendered(t, full(t))
	type reach struct {
		to    string
		ports string
	}
	reached := func(kind Kind) (out []reach) {
		for _, rule := range set.of(t, kind).policy(t).Spec.Egress {
			var to, ports []string
			for _, peer := range rule.To {
				to = append(to, peer.IPBlock.CIDR)
			}
			for _, p := range rule.Ports {
				text := fmt.Sprintf("%s/%s", *p.Protocol, p.Port)
				if p.EndPort != nil {
					text += fmt.Sprintf("-%d", *p.EndPort)
				}
				ports = append(ports, text)
			}
			out = append(out, reach{strings.Join(to, " "), strings.Join(ports, " ")})
		}
		return out
	}
	require.Equal(t, []reach{{"10.0.0.1/32 10.0.0.2/32 fd00::2/128", "TCP/6443"}}, reached(LoadBalancerControlPlane))
	require.Equal(t, []reach{{"10.0.1.1/32", "TCP/31000-31009 TCP/10250"}}, reached(LoadBalancerWorker))
	require.Equal(t, []reach{
		{"10.0.0.1/32 10.0.0.2/32 10.0.1.1/32 fd00::2/128", "TCP/22 TCP/6443 TCP/31000-31009"},
	}, reached(JumpHost))
	require.Equal(t, []reach{
		{"10.0.0.0/8 fd00::/8", "TCP/1-65535"}, {"", "UDP/53 TCP/53 UDP/5353 TCP/5353"},
	}, reached(Auth))

	in := full(t)
	in.Hosts, in.Spec.Auth[0].Connectors, in.Spec.JumpHost[0].BMC = nil, nil, &airship.BMC{Proxy: true, ProxyURL: "http://proxy.site:3128"}
	set = rendered(t, in)
	require.Empty(t, reached(LoadBalancerControlPlane), "there is no host")
	require.Empty(t, reached(Auth), "there is no connector")
	require.Empty(t, reached(JumpHost), "neither a BMC nor a proxy is reached")
}

// A fault of one service is told with its field and what to do, and keeps nothing else
// from being rendered.
func TestBadInputIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Input)
		kind   Kind
		want   string
	}{
		"a loopback address":       {func(in *Input) { in.Hosts[airship.RoleWorker] = []Host{bmHost("w-0", "127.0.0.1")} }, LoadBalancerWorker, `the host metal3/w-0 has the address "127.0.0.1"`},
		"a link-local address":     {func(in *Input) { in.Hosts[airship.RoleWorker] = []Host{bmHost("w-0", "169.254.169.254")} }, LoadBalancerWorker, `"169.254.169.254"`},
		"a provider not allowed":   {func(in *Input) { in.Egress = nil }, Auth, "connectors[0]: the site allows connections to no provider"},
		"an image that is refused": {func(in *Input) { in.Spec.Auth[0].Image = "refused" }, Auth, "resolve image refused"},
		"no clusterIP":             {func(in *Input) { in.Spec.JumpHost[0].ClusterIP = ptr("None") }, JumpHost, `spec.services.jumpHost[0].clusterIP: "None" is not an IP address`},
		"no label":                 {func(in *Input) { in.Spec.JumpHost[0].NodeLabels = map[string]string{"a b": "c\n"} }, JumpHost, `spec.services.jumpHost[0].nodeLabels`},
		"a range from above":       {func(in *Input) { in.Spec.LoadBalancerWorker[0].NodePortRange = airship.PortRange{Start: 9, End: 8} }, LoadBalancerWorker, "nodePortRange: 9 to 8 is not a range"},
		"no authority":             {func(in *Input) { in.Spec.LoadBalancerControlPlane[0].CASecret = "gone" }, LoadBalancerControlPlane, "loadBalancerControlPlane[0].caSecret: the Secret tenants/gone is not there"},
		"an authority without PEM": {func(in *Input) {
			in.Spec.LoadBalancerControlPlane[0].CASecret = "console"
			in.Secrets["console"]["ca.crt"] = []byte("x")
		}, LoadBalancerControlPlane, "ca.crt holds no certificate"},
		"an authority without a key":  {func(in *Input) { in.Spec.Auth[0].CASecret = "console" }, Auth, "auth[0].caSecret: the Secret tenants/console has no tls.crt"},
		"no issuer":                   {func(in *Input) { in.Spec.Auth[0].Issuer = "" }, Auth, "spec.services.auth[0].issuer: it is missing"},
		"no further settings":         {func(in *Input) { in.Spec.Auth[0].ConfigSecret = "gone" }, Auth, "auth[0].configSecret: the Secret tenants/gone is not there"},
		"a client without its secret": {func(in *Input) { delete(in.Secrets, "console") }, Auth, "auth[0].staticClients[1].secret: the Secret tenants/console is not there"},
		"a key that is none":          {func(in *Input) { in.Spec.JumpHost[0].SSHAuthorizedKeys = []string{"ssh-rsa x"} }, JumpHost, "spec.services.jumpHost[0].sshAuthorizedKeys[0]"},
		"a private key": {func(in *Input) {
			in.Spec.JumpHost[0].SSHAuthorizedKeys = []string{"-----BEGIN OPENSSH PRIVATE KEY-----"}
		}, JumpHost, "it is a private key"},
		"a key with options": {func(in *Input) {
			in.Spec.JumpHost[0].SSHAuthorizedKeys[0] = `command="ls" ` + in.Spec.JumpHost[0].SSHAuthorizedKeys[0]
		}, JumpHost, "it has options"},
		"two keys on one line": {func(in *Input) {
			in.Spec.JumpHost[0].SSHAuthorizedKeys[0] += "\n" + in.Spec.JumpHost[0].SSHAuthorizedKeys[0]
		}, JumpHost, "not one line"},
		"a CA that is no key": {func(in *Input) { in.Spec.JumpHost[0].TrustedUserCAKeys = []string{"x"} }, JumpHost, "spec.services.jumpHost[0].trustedUserCAKeys[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			in := full(t)
			c.change(&in)
			set := Render(in)
			err := set.of(t, c.kind).Err
			require.ErrorContains(t, err, c.want)
			require.NotEmpty(t, fault.HintOf(err))
			require.NotContains(t, fault.Text(err), bindPassword)
			require.Empty(t, set.of(t, c.kind).Objects)
			for _, s := range set.Services {
				if s.Kind == Auth && c.kind != Auth {
					require.NoError(t, s.Err)
				}
			}
		})
	}
}

// Two hosts may have one name in two namespaces; a service tells them apart.
func TestNamesakesAreToldApart(t *testing.T) {
	in := full(t)
	other := bmHost("cp-0", "10.0.0.7")
	other.Namespace = "metal4"
	in.Hosts[airship.RoleWorker] = append(in.Hosts[airship.RoleWorker], other)
	set := rendered(t, in)
	lb := set.of(t, LoadBalancerControlPlane)
	text := object[corev1.ConfigMap](t, lb, "ConfigMap", lb.Name+"-config").Data["haproxy.cfg"]
	require.Contains(t, text, "server cp-0.metal3 ipv4@10.0.0.1:6443\n")
	jump := set.of(t, JumpHost)
	require.Contains(t, object[corev1.ConfigMap](t, jump, "ConfigMap", jump.Name+"-config").Data["hosts"], "cp-0.metal4\t")
}

// A Service may have the second family of a cluster's two, where POD_IP is of the first.
func TestClusterIPsOfEitherFamily(t *testing.T) {
	for ip, bind := range map[string]string{"10.96.0.9": `bind "${POD_IP}:6443"`, "fd00:96::9": "bind :::6443 v4v6"} {
		in := full(t)
		in.Spec.LoadBalancerControlPlane[0].ClusterIP = &ip
		lb := rendered(t, in).of(t, LoadBalancerControlPlane)
		require.Equal(t, ip, object[corev1.Service](t, lb, "Service", lb.Name).Spec.ClusterIP)
		require.Contains(t, object[corev1.ConfigMap](t, lb, "ConfigMap", lb.Name+"-config").Data["haproxy.cfg"], bind+"\n")
	}
}

// Pods run where the spec says, and hosts are checked as it says.
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
	text := object[corev1.ConfigMap](t, lb, "ConfigMap", lb.Name+"-config").Data["haproxy.cfg"]
	require.Contains(t, text, "default-server check port 6443 inter")
	require.NotContains(t, text, "/readyz")
	lb = set.of(t, LoadBalancerWorker)
	text = object[corev1.ConfigMap](t, lb, "ConfigMap", lb.Name+"-config").Data["haproxy.cfg"]
	for port, want := range map[string]string{
		"31001": "\n    default-server check port 31001 inter", "31002": " GET uri / ", "31003": " GET uri /ok ",
	} {
		require.Contains(t, text, "use_backend hosts-"+port+" if { dst_port "+port+" }\n")
		_, backend, _ := strings.Cut(text, "\nbackend hosts-"+port+"\n")
		backend, _, _ = strings.Cut(backend, "\nbackend ")
		require.Contains(t, backend, want)
		require.Equal(t, port == "31003", strings.Contains(backend, "check-ssl"))
	}
	in.Spec.LoadBalancerWorker[0].HealthChecks[0].Port = 32000
	require.ErrorContains(t, Render(in).of(t, LoadBalancerWorker).Err, "check of port 32000")
}

// Two clusters of a namespace share no object.
func TestClustersShareNothing(t *testing.T) {
	in := full(t)
	seen := map[string]bool{}
	for _, cluster := range []string{"one", "two"} {
		in.Cluster.Name = cluster
		for _, u := range all(rendered(t, in)) {
			key := u.GetKind() + " " + u.GetName()
			require.False(t, seen[key], key)
			require.LessOrEqual(t, len(u.GetName()), 63)
			seen[key] = true
		}
	}
}

// A host that has another's address is left out, and the services go on with the others.
func TestOneHostBlocksNoService(t *testing.T) {
	in := full(t)
	named := func(namespace, name string, addresses ...string) Host {
		h := bmHost(name, addresses...)
		h.Namespace = namespace
		return h
	}
	in.Hosts[airship.RoleWorker] = []Host{
		named("a", "x", "10.0.1.1"), named("a", "x.b", "10.0.1.2"), named("b", "x", "10.0.1.3", "::ffff:10.0.1.3"),
		named("m", "10.0.0.2", "10.0.1.4"), named("5", "10.0.0", "10.0.1.5"), named("6", "10.0.0", "10.0.1.6"),
		named("m", "twin-of-cp", "10.0.0.2", "10.0.1.7"), named("m", "twin-of-x", "10.0.1.1"),
		named("m", "of-the-site", "203.0.113.1"),
	}
	set := rendered(t, in)
	jump, lb := set.of(t, JumpHost), set.of(t, LoadBalancerWorker)
	got := map[string]string{}
	for line := range strings.Lines(object[corev1.ConfigMap](t, jump, "ConfigMap", jump.Name+"-config").Data["hosts"]) {
		fields := strings.Fields(line)
		got[fmt.Sprint(fields[2:])] += fields[0] + " "
	}
	require.Equal(t, "x.a ", got["[10.0.1.1]"])
	require.Equal(t, "x.b.a ", got["[10.0.1.2]"])
	require.Equal(t, "x.b ", got["[10.0.1.3]"])
	require.Equal(t, "10.0.0.2.m ", got["[10.0.1.4]"])
	require.Equal(t, "twin-of-cp twin-of-x of-the-site ", got["[]"], "they are the cluster's, if not reached")
	require.Regexp(t, "^host-[0-9a-f]{32} $", got["[10.0.1.5]"])
	text := object[corev1.ConfigMap](t, lb, "ConfigMap", lb.Name+"-config").Data["haproxy.cfg"]
	require.Contains(t, text, "server x.a ")
	require.NotContains(t, text, "twin")
	for _, s := range []Service{jump, lb} {
		require.Len(t, s.LeftOut, 3)
		require.Contains(t, s.LeftOut[types.NamespacedName{Namespace: "m", Name: "of-the-site"}],
			"--sip-egress does not allow its address 203.0.113.1")
		require.Contains(t, s.LeftOut[types.NamespacedName{Namespace: "m", Name: "twin-of-cp"}], "it has the address 10.0.0.2, as the host metal3/cp-1 has")
	}
	require.Equal(t, all(set), all(rendered(t, Input{
		Cluster: in.Cluster, UID: in.UID, Spec: in.Spec, Hosts: in.Hosts, Secrets: in.Secrets, Kept: keep(t, set), Egress: in.Egress,
		Images: in.Images, PullSecret: in.PullSecret, Now: in.Now, Rand: in.Rand,
	})), "the same again")
}
