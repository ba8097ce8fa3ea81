package cli_test

import (
	"crypto/x509"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/archive"
	options "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/verify"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

// What the program signed under a time stamp is good after the certificate has ended,
// and what it signed without is not.
func TestAStampedSignatureOutlivesItsCertificate(t *testing.T) {
	w := newWorld(t, t.TempDir())
	root, timeRoot := pki.Root(t, "Corp"), pki.Root(t, "Time")
	tsa := timeRoot.Issue(t, pki.Spec{Name: "TSA", Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping}})
	signer := root.Issue(t, pki.Spec{
		Name: "signer", Email: []string{"release@corp.example"}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		NotAfter: time.Now().Add(24 * time.Hour),
	})
	w.write(t, "signer.crt", signer.PEM())
	w.write(t, "signer.key", signer.KeyPEM(t))
	certificate := []string{"--key", "signer.key", "--certificate", "signer.crt"}
	for _, name := range []string{"plain.tar", "stamped.tar"} {
		w.must(t, "pull", "@up", "-q", "-o", name)
	}
	w.must(t, append([]string{"sign", "plain.tar"}, certificate...)...)
	w.must(t, append([]string{"sign", "stamped.tar", "--timestamp-server", tsa.ServeStamps(t)}, certificate...)...)

	verify := func(name string, stamps []byte, at time.Time) error {
		a, err := trust.NewAuthority("corp", trust.AuthorityOptions{
			Roots: root.PEM(), TimestampRoots: stamps, Identities: []trust.Identity{{Email: "release@corp.example"}},
		})
		require.NoError(t, err)
		policy, err := trust.ComposePolicy(1, nil, []trust.Authority{a})
		require.NoError(t, err)
		source, err := archive.OpenFile(filepath.Join(w.dir, name))
		require.NoError(t, err)
		defer source.Close() //nolint:errcheck // only read
		_, _, err = verify.Bundle(t.Context(), source, verify.Rules{Policy: policy}, options.Options{Now: func() time.Time { return at }})
		return err
	}
	later := time.Now().Add(48 * time.Hour)
	require.NoError(t, verify("plain.tar", nil, time.Now()))
	require.NoError(t, verify("stamped.tar", nil, time.Now()))
	require.NoError(t, verify("stamped.tar", timeRoot.PEM(), later))
	for _, c := range []struct {
		name   string
		stamps []byte
		want   string
	}{
		{"plain.tar", timeRoot.PEM(), "the signature has no time stamp"},
		{"stamped.tar", nil, "corp has no time-stamping authority"},
		{"stamped.tar", root.PEM(), "no time stamp by an authority of corp"},
	} {
		err := verify(c.name, c.stamps, later)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, fault.Untrusted, fault.ReasonOf(err))
	}
}
