package certificate_test

import (
	"encoding/pem"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/certificate"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

func TestPublicHasCertificatesAlone(t *testing.T) {
	a, b := pki.Root(t, "a"), pki.Root(t, "b")
	key, err := certificate.EncodeKey(a.Key)
	require.NoError(t, err)
	one, two := certificate.Encode(a.Certificate.Raw), certificate.Encode(b.Certificate.Raw)
	both := slices.Concat(one, two)
	withHeader := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"Word": "s3cret"}, Bytes: a.Certificate.Raw})

	for name, data := range map[string][]byte{
		"two":               both,
		"text around":       slices.Concat([]byte("# s3cret\n"), one, []byte("\ns3cret\n"), two, []byte("s3cret")),
		"a header of a PEM": slices.Concat(withHeader, two),
	} {
		got, err := certificate.Public(data)
		require.NoError(t, err, name)
		require.Equal(t, string(both), string(got), name)
	}
	for name, data := range map[string][]byte{
		"a key behind": slices.Concat(one, key),
		"a key before": slices.Concat(key, one),
		"half a key":   slices.Concat(one, key[:60]),
		"a key's end":  slices.Concat(one, key[60:]),
		"another kind": slices.Concat(one, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte("x")})),
		"a broken one": slices.Concat(one, []byte("-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n")),
		"no DER":       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}),
		"nothing":      nil,
		"no PEM":       []byte("x"),
	} {
		got, err := certificate.Public(data)
		require.Error(t, err, name)
		require.Empty(t, got, name)
		require.Error(t, must.Err(certificate.Parse(data)), name)
	}
	require.ErrorIs(t, must.Err(certificate.Public(slices.Concat(one, key))), certificate.ErrHasKey)
}
