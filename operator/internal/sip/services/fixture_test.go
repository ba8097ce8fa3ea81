package services

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/certificate"
)

// Words that must be in Secrets alone. Each has what a careless writer would break on.
const (
	clientSecret = `client"$HOME\{{.Secret}}é`
	bindPassword = `bind$PATH"'\pw: #x`
	password     = "correct horse"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// passwordHash is of password. It is made once: that takes long on purpose.
var passwordHash = sync.OnceValue(func() []byte {
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	if err != nil {
		panic(err)
	}
	return hash
})

func digested(kind Kind) (string, error) {
	return fmt.Sprintf("mirror.site/vdo@sha256:%064d", len(kind)), nil
}

// input is what services are made of, with Secrets.
type input struct {
	Input
	Secrets map[airship.SecretName]Secret
}

type Set []Service

// renewAt is when the certificate of the login is to be renewed.
func (s Set) renewAt(t testing.TB) time.Time {
	cert, err := certificate.Parse(keep(t, s)[Name("one", Auth, 0)+"-tls"]["tls.crt"])
	require.NoError(t, err)
	return cert.NotAfter.Add(-renewBefore)
}

func (in input) render() Set {
	in.Secret = func(name airship.SecretName) (Secret, error) { return in.Secrets[name], nil }
	return Render(in.Input)
}

func full(t testing.TB) input {
	in := Input{
		Cluster: types.NamespacedName{Namespace: "tenants", Name: "one"},
		Spec: airship.Services{
			LoadBalancerControlPlane: []airship.LoadBalancerControlPlane{{NodePort: 30443}},
			LoadBalancerWorker:       []airship.LoadBalancerWorker{{NodePortRange: airship.PortRange{Start: 31000, End: 31009}}},
			JumpHost: []airship.JumpHost{{
				NodePort: 30022, BMC: &airship.BMC{}, NodeSSHPrivateKeys: "node-keys",
				SSHAuthorizedKeys: []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE0IuIJYGZJxOCxWkqgqS5jTmJ5n2f7dRlVYqP7mJtZ2 alice"},
			}},
			Auth: []airship.Auth{{NodePort: 30556, Issuer: "https://login.tenant.site:30556", ConfigSecret: "dex"}},
		},
		Hosts: map[airship.Role][]Host{
			airship.RoleControlPlane: {bmHost("cp-0", "10.0.0.1"), bmHost("cp-1", "10.0.0.2", "fd00::2")},
			airship.RoleWorker:       {bmHost("w-0", "10.0.1.1")},
		},
		APIServers: []netip.AddrPort{
			netip.MustParseAddrPort("10.96.0.1:443"), netip.MustParseAddrPort("10.0.0.250:6443"),
		},
		Egress: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")},
		Images: digested, PullSecret: []byte(`{"auths":{"mirror.site":{"auth":"cHVsbDpwYXNz"}}}`),
		OutOfReach: func(a netip.Addr) bool { return !a.IsPrivate() },
		Now:        start,
	}
	return input{Input: in, Secrets: map[airship.SecretName]Secret{"dex": settingsOfDex(clientSecret)}}
}

// settingsOfDex have a client with that secret.
func settingsOfDex(client string) Secret {
	return Secret{"config.yaml": fmt.Appendf(nil, `
staticClients:
  - {id: kubectl, name: kubectl, public: true}
  - {id: console, name: console, secret: '%s', redirectURIs: ["https://console.site/callback"]}
enablePasswordDB: true
staticPasswords: [{email: alice@tenant.site, username: alice, userID: "1", hash: '%s'}]
connectors:
  - type: ldap
    id: ldap
    name: LDAP
    config:
      host: ldap.site:1636
      bindDN: cn=dex,dc=site
      bindPW: 'bind$PATH"''\pw: #x'
      userSearch: {baseDN: "ou=people,dc=site", username: uid}
`, client, passwordHash())}
}

func bmHost(name string, addresses ...string) Host {
	h := Host{Namespace: "metal3", Name: name}
	for _, a := range addresses {
		if h.Addresses == nil {
			h.Addresses = map[string][]netip.Addr{}
		}
		h.Addresses[""] = append(h.Addresses[""], netip.MustParseAddr(a))
	}
	return h
}

func rendered(t testing.TB, in input) Set {
	set := in.render()
	for _, s := range set {
		require.NoError(t, s.Err, s.Name)
	}
	return set
}

func (s Set) of(t testing.TB, kind Kind) Service {
	i := slices.IndexFunc(s, func(one Service) bool { return one.Kind == kind })
	require.GreaterOrEqual(t, i, 0, kind)
	return s[i]
}

func object[T any](t testing.TB, s Service, kind, name string) T {
	i := slices.IndexFunc(s.Objects, func(u *unstructured.Unstructured) bool {
		return u.GetKind() == kind && u.GetName() == name
	})
	require.GreaterOrEqual(t, i, 0, "%s has no %s %s", s.Name, kind, name)
	var out T
	convert := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation
	require.NoError(t, convert(s.Objects[i].Object, &out, true))
	return out
}

func (s Service) deployment(t testing.TB) appsv1.Deployment {
	return object[appsv1.Deployment](t, s, "Deployment", s.Name)
}

func (s Service) policy(t testing.TB) networkingv1.NetworkPolicy {
	return object[networkingv1.NetworkPolicy](t, s, "NetworkPolicy", s.Name)
}

func (s Service) config(t testing.TB) map[string]string {
	return object[corev1.ConfigMap](t, s, "ConfigMap", s.Name+"-config").Data
}

// keep returns the Secrets that a pass has left on the cluster.
func keep(t testing.TB, set Set) map[string]Secret {
	kept := map[string]Secret{}
	for _, s := range set {
		for _, u := range s.Objects {
			if u.GetKind() == "Secret" {
				kept[u.GetName()] = object[corev1.Secret](t, s, "Secret", u.GetName()).Data
			}
		}
	}
	return kept
}

func all(set Set) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, s := range set {
		out = append(out, s.Objects...)
	}
	return out
}
