package webhookcert_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render/webhookcert"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func issue(t *testing.T, at time.Time) *webhookcert.Certificate {
	c, renewed, err := webhookcert.Ensure(nil, nil, at)
	require.NoError(t, err)
	require.True(t, renewed)
	return c
}

// accepts verifies a server's certificate as the API server does: with the bundle alone, by the Service's name.
func accepts(t *testing.T, bundle []byte, server *webhookcert.Certificate, at time.Time) error {
	pair, err := tls.X509KeyPair(server.Cert, server.Key)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(bundle))
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: webhookcert.DNSName, CurrentTime: at})
	return err
}

func TestCertificateServesUntilTwoThirdsOfItsLife(t *testing.T) {
	first := issue(t, start)
	require.NoError(t, accepts(t, first.CA, first, start.Add(-23*time.Hour)), "the API server's clock is behind")

	soon := first.RenewAt().Add(-time.Second)
	kept, renewed, err := webhookcert.Ensure(first.Data(), nil, soon)
	require.NoError(t, err)
	require.False(t, renewed)
	require.Equal(t, first, kept)

	life := webhookcert.Lifetime
	require.WithinDuration(t, start.Add(life*2/3), first.RenewAt(), 24*time.Hour)
	_, renewed, err = webhookcert.Ensure(first.Data(), nil, first.RenewAt())
	require.NoError(t, err)
	require.True(t, renewed)
}

func TestRenewalKeepsPodsWithTheOldCertificateTrusted(t *testing.T) {
	first := issue(t, start)
	at := first.RenewAt()
	second, _, err := webhookcert.Ensure(first.Data(), nil, at)
	require.NoError(t, err)
	require.NoError(t, accepts(t, second.CA, first, at), "old pod, new bundle")
	require.NoError(t, accepts(t, second.CA, second, at), "new pod, new bundle")
	require.Error(t, accepts(t, first.CA, second, at), "another CA: the old bundle must not accept it")

	third, _, err := webhookcert.Ensure(second.Data(), nil, second.RenewAt())
	require.NoError(t, err)
	require.Equal(t, 2, bytes.Count(third.CA, []byte("BEGIN CERTIFICATE")), "the bundle does not grow")
	require.Error(t, accepts(t, third.CA, first, at))
}

func TestDamagedSecretIsReplacedAndNamesNoKey(t *testing.T) {
	good, other := issue(t, start), issue(t, start)
	cases := map[string]func(d map[string][]byte){
		"empty":           func(d map[string][]byte) { clear(d) },
		"no CA":           func(d map[string][]byte) { delete(d, webhookcert.KeyCA) },
		"other CA":        func(d map[string][]byte) { d[webhookcert.KeyCA] = other.CA },
		"other key":       func(d map[string][]byte) { d[webhookcert.KeyKey] = other.Key },
		"garbage":         func(d map[string][]byte) { d[webhookcert.KeyCert] = []byte("not PEM") },
		"truncated":       func(d map[string][]byte) { d[webhookcert.KeyCert] = d[webhookcert.KeyCert][:80] },
		"key as the cert": func(d map[string][]byte) { d[webhookcert.KeyCert] = good.Key },
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			data := good.Data()
			damage(data)
			_, err := webhookcert.Parse(data)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "PRIVATE")
			fresh, renewed, err := webhookcert.Ensure(data, nil, start)
			require.NoError(t, err)
			require.True(t, renewed)
			require.NoError(t, accepts(t, fresh.CA, fresh, start))
		})
	}
}

func TestCertificateDoesNotPrintItsKey(t *testing.T) {
	c := issue(t, start)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.False(t, strings.Contains(fmt.Sprintf(verb, c), "PRIVATE"), verb)
	}
}
