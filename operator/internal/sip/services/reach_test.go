package services

import (
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

// The authorities of BMCs come from a Secret, as certificates alone; what is none stops the
// jump host, so that verification is never off for want of them.
func TestAuthoritiesOfBMCs(t *testing.T) {
	in := full(t)
	in.Spec.JumpHost[0].BMC = &airship.BMC{CASecret: "bmc-ca"}
	site := pairOf(t, pki.Root(t, "site"))
	pem, key := site["tls.crt"], site["tls.key"]
	in.Secrets["bmc-ca"] = Secret{"ca.crt": pem}
	set := rendered(t, in)
	got := files(t, set.of(t, JumpHost), map[string]Secret{"node-keys": in.Secrets["node-keys"]})
	require.Equal(t, string(pem), string(got[path.Join(jumphost.Dir, jumphost.BMCCAFile)]))
	require.NotContains(t, string(got[path.Join(jumphost.Dir, jumphost.BMCFile)]), "disableCertificateVerification")

	for name, secret := range map[string]Secret{
		"not there": nil, "no key": {"tls.crt": pem}, "empty": {"ca.crt": nil}, "no PEM": {"ca.crt": []byte("a")}, "with a key": {"ca.crt": append(slices.Clone(pem), key...)},
	} {
		delete(in.Secrets, "bmc-ca")
		if secret != nil {
			in.Secrets["bmc-ca"] = secret
		}
		s := Render(in).of(t, JumpHost)
		require.ErrorContains(t, s.Err, "spec.services.jumpHost[0].bmc.caSecret", name)
		require.NotEmpty(t, fault.HintOf(s.Err), name)
		require.Empty(t, s.Objects, name)
	}
}

// A proxy's login would be seen by who sees the SIPCluster: it is refused, and not repeated.
func TestAProxyWithALoginIsRefused(t *testing.T) {
	for _, url := range []string{"http://user:canary-5b0c@proxy.site:3128", "http://canary-5b0c@proxy.site:3128", "ftp://canary-5b0c", "http://[canary-5b0c"} {
		in := full(t)
		in.Spec.JumpHost[0].BMC = &airship.BMC{Proxy: true, ProxyURL: url}
		s := Render(in).of(t, JumpHost)
		require.ErrorContains(t, s.Err, "spec.services.jumpHost[0].bmc.proxyURL", url)
		require.NotContains(t, fault.Text(s.Err), "canary-5b0c")
		require.Empty(t, s.Objects)
	}
}

// Which address the audit lines show is the site's choice.
func TestExternalTrafficPolicyOfTheJumpHost(t *testing.T) {
	in := full(t)
	set := rendered(t, in)
	require.Empty(t, object[corev1.Service](t, set.of(t, JumpHost), "Service", Name("one", JumpHost, 0)).Spec.ExternalTrafficPolicy)
	in.Spec.JumpHost[0].ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	set = rendered(t, in)
	require.Equal(t, corev1.ServiceExternalTrafficPolicyLocal, object[corev1.Service](t, set.of(t, JumpHost), "Service", Name("one", JumpHost, 0)).Spec.ExternalTrafficPolicy)
}

// Names are looked up on OpenShift too, whose DNS pods listen on 5353.
func TestDNSOfServices(t *testing.T) {
	in := full(t)
	in.Spec.JumpHost[0].BMC = &airship.BMC{Proxy: true, ProxyURL: "http://proxy.site:3128"}
	set := rendered(t, in)
	for _, kind := range []Kind{JumpHost, Auth} {
		s := set.of(t, kind)
		open := map[string]bool{}
		for _, rule := range object[networkingv1.NetworkPolicy](t, s, "NetworkPolicy", s.Name).Spec.Egress {
			for _, p := range rule.Ports {
				open[string(*p.Protocol)+p.Port.String()] = true
			}
		}
		for _, want := range []string{"UDP53", "TCP53", "UDP5353", "TCP5353"} {
			require.True(t, open[want], "%s: %s", kind, want)
		}
	}
}
