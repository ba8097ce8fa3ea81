package services

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/certificate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

// served is what the login serves, and what its clients are given to trust.
func served(t *testing.T, set Set) (cert *x509.Certificate, secret Secret, trusted string) {
	t.Helper()
	login := set.of(t, Auth)
	secret = object[corev1.Secret](t, login, "Secret", login.Name+"-tls").Data
	cert, _, err := certificate.Pair(secret["tls.crt"], secret["tls.key"])
	require.NoError(t, err)
	return cert, secret, object[corev1.ConfigMap](t, login, "ConfigMap", login.Name+"-trust").Data["ca.crt"]
}

// accepted tells whether a client that trusts these takes what is served.
func accepted(t *testing.T, chain []byte, trusted, host string, now time.Time) error {
	t.Helper()
	roots, rest := x509.NewCertPool(), x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(trusted)))
	cert, err := certificate.Parse(chain)
	require.NoError(t, err)
	rest.AppendCertsFromPEM(chain)
	_, err = cert.Verify(x509.VerifyOptions{Roots: roots, Intermediates: rest, DNSName: host, CurrentTime: now})
	return err
}

// The tenant's API server is told once what to trust: certificates are renewed below the
// same authority, in time, and kept until then.
func TestCertificatesAreRenewedBelowOneAuthority(t *testing.T) {
	in := full(t)
	set := rendered(t, in)
	first, _, trusted := served(t, set)
	require.NoError(t, accepted(t, keep(t, set)[Name("one", Auth, 0)+"-tls"]["tls.crt"], trusted, "login.tenant.site", start))
	for range 6 {
		in.Kept, in.Now = keep(t, set), set.renewAt().Add(-time.Second)
		same, _, _ := served(t, rendered(t, in))
		require.Equal(t, first.Raw, same.Raw, "it is kept until it is to be renewed")
		require.Less(t, 20*24*time.Hour, first.NotAfter.Sub(set.renewAt()), "there is time for a renewal that fails")

		in.Now = set.renewAt()
		set = rendered(t, in)
		next, secret, still := served(t, set)
		require.NotEqual(t, first.Raw, next.Raw)
		require.Equal(t, trusted, still)
		require.NoError(t, accepted(t, secret["tls.crt"], trusted, "login.tenant.site", in.Now))
		require.True(t, set.renewAt().After(in.Now))
		first = next
	}
	in.Kept = keep(t, set)
	in.Spec.Auth[0].Issuer = "https://[fd00::7]:30556"
	_, secret, still := served(t, rendered(t, in))
	require.Equal(t, trusted, still)
	require.NoError(t, accepted(t, secret["tls.crt"], still, "fd00::7", in.Now), "another issuer has another certificate")
}

// What is kept and damaged, or was put there by somebody, is made anew.
func TestWhatIsKeptIsChecked(t *testing.T) {
	in := full(t)
	set := rendered(t, in)
	name := Name("one", Auth, 0)
	_, _, trusted := served(t, set)
	stranger := pki.Root(t, "stranger").Issue(t, pki.Spec{Name: "x", DNS: []string{"login.tenant.site"}, NotBefore: start.Add(-time.Hour), NotAfter: start.AddDate(1, 0, 0)})
	for what, damage := range map[string]func(map[string]Secret){
		"nothing is kept": func(k map[string]Secret) { delete(k, name+"-tls") },
		"another's key":   func(k map[string]Secret) { k[name+"-tls"]["tls.key"] = k[name+"-ca"]["tls.key"] },
		"a stranger's leaf": func(k map[string]Secret) {
			k[name+"-tls"] = pairOf(t, stranger)
			k[name+"-tls"]["ca.crt"] = []byte(trusted)
		},
		"another trust": func(k map[string]Secret) { k[name+"-tls"]["ca.crt"] = []byte("x") },
	} {
		in.Kept = keep(t, set)
		damage(in.Kept)
		_, secret, still := served(t, rendered(t, in))
		require.Equal(t, trusted, still, what)
		require.NoError(t, accepted(t, secret["tls.crt"], trusted, "login.tenant.site", start), what)
	}
	in.Kept = keep(t, set)
	in.Kept[name+"-ca"] = pairOf(t, stranger) // not an authority
	_, secret, still := served(t, rendered(t, in))
	require.NotEqual(t, trusted, still)
	require.NoError(t, accepted(t, secret["tls.crt"], still, "login.tenant.site", start))
}

// The site's own authority, a root or one below it, issues what is served, which does not outlive it.
func TestTheSitesAuthorityIssues(t *testing.T) {
	root, end := pki.Root(t, "site"), start.Add(24*time.Hour)
	for name, authority := range map[string]pki.Authority{
		"a root": root, "one below a root": root.Issue(t, pki.Spec{Name: "tenants", CA: true}),
		"one that ends": root.Issue(t, pki.Spec{Name: "x", CA: true, NotAfter: end}),
	} {
		in := full(t)
		in.Spec.Auth[0].CASecret = "site"
		in.Secrets["site"] = pairOf(t, authority)
		set := rendered(t, in)
		cert, secret, trusted := served(t, set)
		require.NoError(t, accepted(t, secret["tls.crt"], trusted, "login.tenant.site", start), name)
		require.NoError(t, accepted(t, secret["tls.crt"], string(pairOf(t, root)["tls.crt"]), "login.tenant.site", start), name)
		require.Equal(t, name == "one that ends", cert.NotAfter.Equal(end))
		for _, u := range set.of(t, Auth).Objects {
			require.NotEqual(t, Name("one", Auth, 0)+"-ca", u.GetName(), "none is made")
		}
		in.Kept = keep(t, set)
		require.Equal(t, all(set), all(rendered(t, in)), name)
	}
}

func TestAuthoritiesThatCannotIssueAreRefused(t *testing.T) {
	root := pki.Root(t, "site")
	for name, secret := range map[string]Secret{
		"not an authority": pairOf(t, root.Issue(t, pki.Spec{Name: "x"})),
		"expired":          pairOf(t, root.Issue(t, pki.Spec{Name: "x", CA: true, NotAfter: start})),
		"not yet":          pairOf(t, root.Issue(t, pki.Spec{Name: "x", CA: true, NotBefore: start.Add(time.Second)})),
		"another's key":    {"tls.crt": pairOf(t, root)["tls.crt"], "tls.key": pairOf(t, pki.Root(t, "y"))["tls.key"]},
		"no PEM":           {"tls.crt": []byte("x"), "tls.key": []byte("y")},
	} {
		in := full(t)
		in.Spec.Auth[0].CASecret = "site"
		in.Secrets["site"] = secret
		err := in.render().of(t, Auth).Err
		require.ErrorContains(t, err, "spec.services.auth[0].caSecret", name)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err), name)
		require.NotContains(t, fault.Text(err), "PRIVATE", name)
	}
}

func pairOf(t *testing.T, a pki.Authority) Secret {
	t.Helper()
	key, err := certificate.EncodeKey(a.Key)
	require.NoError(t, err)
	return Secret{"tls.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate.Raw}), "tls.key": key}
}

// A private key beside a certificate is in no ConfigMap, wherever it came from.
func TestKeysBesideCertificatesAreNotPublished(t *testing.T) {
	combined := func(s Secret) []byte { return slices.Concat(s["tls.crt"], s["tls.key"]) }
	site := pairOf(t, pki.Root(t, "site"))
	in := full(t)
	in.Secrets["site"] = Secret{"tls.crt": combined(site), "tls.key": site["tls.key"], "ca.crt": combined(site)}
	in.Spec.Auth[0].CASecret, in.Spec.LoadBalancerControlPlane[0].CASecret = "site", "site"
	set := in.render()
	for _, kind := range []Kind{Auth, LoadBalancerControlPlane} {
		s := set.of(t, kind)
		require.Empty(t, s.Objects, kind)
		require.ErrorContains(t, s.Err, "take the key out", kind)
		require.NotContains(t, fault.Text(s.Err), "PRIVATE", kind)
	}

	in = full(t)
	in.Spec.LoadBalancerControlPlane[0].CASecret = "site"
	in.Secrets["site"] = Secret{"ca.crt": slices.Concat([]byte("# a remark\n"), site["tls.crt"])}
	lb := rendered(t, in).of(t, LoadBalancerControlPlane)
	require.Equal(t, string(site["tls.crt"]), lb.config(t)["ca.crt"])
}
