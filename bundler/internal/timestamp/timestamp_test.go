package timestamp_test

import (
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/timestamp"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/must"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

var signature = []byte("a signature")

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// ask asks an authority once.
func ask(t *testing.T, address string) ([]byte, error) {
	u := must.Have(timestamp.ParseURL(address))(t)
	client, err := remote.NewClient(remote.Options{Attempts: 1, Hosts: map[string]remote.HostOptions{u.Host: {PlainHTTP: true}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return (&timestamp.Authority{URL: u, Client: client}).Stamp(t.Context(), signature)
}

// stamping is what a certificate of an authority is for.
var stamping = []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping}

// A real authority of other make: openssl's.
func TestOpenSSLsStamps(t *testing.T) {
	openssl := toolchain.Installed(t, "openssl")
	dir := t.TempDir()
	write := func(name string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	root := pki.Root(t, "Time Root")
	tsa := root.Issue(t, pki.Spec{Name: "OpenSSL TSA", Usage: stamping})
	write("openssl.cnf", []byte(`[tsa]
default_tsa = stamping
[stamping]
serial = serial
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256, sha512
accuracy = secs:1
ess_cert_id_alg = sha256
ess_cert_id_chain = yes
`))
	write("serial", []byte("01\n"))
	write("root.crt", root.PEM())
	write("tsa.crt", tsa.PEM())
	write("tsa.key", tsa.KeyPEM())
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err == nil && r.Header.Get("Content-Type") != "application/timestamp-query" {
			err = errors.New("no query")
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "query.tsq"), query, 0o600)
		}
		cmd := exec.CommandContext(r.Context(), openssl, "ts", "-reply", "-queryfile", "query.tsq", "-inkey", "tsa.key", "-signer", "tsa.crt",
			"-chain", "root.crt", "-config", "openssl.cnf", "-section", "stamping")
		cmd.Dir = dir
		answer, runErr := cmd.Output()
		if err := errors.Join(err, runErr); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/timestamp-reply")
		_, _ = w.Write(answer)
	}))
	known := must.Have(trust.ParseTimestampRoots("root.crt", root.PEM()))(t)
	answer := must.Have(ask(t, url))(t)
	must.Have(trust.CheckTimestamp(answer, signature, known))(t)
	write("answer.tsr", answer)
	write("signature", signature)
	cmd := exec.CommandContext(t.Context(), openssl, "ts", "-verify", "-data", "signature", "-in", "answer.tsr", "-CAfile", "root.crt")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestBadAnswersAreNotTaken(t *testing.T) {
	tsa := pki.Root(t, "Time Root").Issue(t, pki.Spec{Name: "TSA", Usage: stamping})
	reply := func(body []byte) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/timestamp-reply")
			_, _ = w.Write(body)
		})
	}
	rejected := []byte("0\x050\x03\x02\x01\x02") // with the status 2, and no token
	for _, c := range []struct {
		name   string
		server http.Handler
		reason fault.Reason
		want   string
	}{
		{"another nonce", tsa.Stamps(func(s *pki.Stamp) { s.Nonce = big.NewInt(5) }), fault.Corrupt, "the nonce is not the one that was sent"},
		{"no nonce", tsa.Stamps(func(s *pki.Stamp) { s.Nonce = nil }), fault.Corrupt, "the nonce is not the one that was sent"},
		{"another imprint", tsa.Stamps(func(s *pki.Stamp) { s.Digest = make([]byte, 32) }), fault.Corrupt, "hashed messages don't match"},
		{"rejected", reply(rejected), fault.Corrupt, "it is a refusal, without a time stamp"},
		{"HTML", reply([]byte("<html>canary</html>")), fault.Corrupt, "it is not an answer of a time-stamping authority"},
		{"huge", reply(make([]byte, 1<<20)), fault.Corrupt, "it is longer than 65536 bytes"},
		{"a login wanted", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "canary", http.StatusUnauthorized)
		}), fault.Unauthorized, "401 Unauthorized"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := serve(t, c.server)
			_, err := ask(t, url+"/stamp?key=canary")
			require.Error(t, err)
			require.Contains(t, err.Error(), "ask for a time stamp at "+url+"/stamp: ")
			require.Contains(t, err.Error(), c.want)
			require.Equal(t, c.reason, fault.ReasonOf(err))
			require.Contains(t, fault.HintOf(err), "use another")
			require.NotContains(t, fault.Text(err), "canary")
		})
	}
}

func TestBadAddressesAreExplained(t *testing.T) {
	for url, want := range map[string]string{
		"":                                "it is not a URL of http or https",
		"tsa.example":                     "it is not a URL of http or https",
		"ftp://tsa.example/":              "it is not a URL of http or https",
		"https://":                        "it is not a URL of http or https",
		"http://a b/":                     "it is not a URL of http or https",
		"https://me:canary@tsa.example/x": "use time-stamping authority https://tsa.example/x: there is a login in it",
	} {
		_, err := timestamp.ParseURL(url)
		require.ErrorContains(t, err, want, url)
		require.Equal(t, fault.InvalidInput, fault.ReasonOf(err))
		require.NotContains(t, fault.Text(err), "canary")
	}
	_, err := trust.ParseTimestampRoots("tsa.crt", nil)
	require.ErrorContains(t, err, "read time-stamp roots tsa.crt: none of its certificates is self-signed")
}
