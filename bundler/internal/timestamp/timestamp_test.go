package timestamp_test

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/timestamp"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/remote"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

var signature = []byte("a signature")

// office is a time-stamping authority below a root.
func office(t *testing.T) (root, tsa pki.Authority) {
	t.Helper()
	root = pki.Root(t, "Time Root")
	return root, root.Issue(t, pki.Spec{Name: "TSA", Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping}})
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func roots(t *testing.T, of pki.Authority) trust.TimestampRoots {
	t.Helper()
	r, err := trust.ParseTimestampRoots("tsa.crt", of.PEM())
	require.NoError(t, err)
	return r
}

// ask asks an authority once.
func ask(t *testing.T, address string) ([]byte, error) {
	t.Helper()
	u, err := timestamp.ParseURL(address)
	require.NoError(t, err)
	client, err := remote.NewClient(remote.Options{Attempts: 1, Hosts: map[string]remote.HostOptions{u.Host: {PlainHTTP: true}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return (&timestamp.Authority{URL: u, Client: client}).Stamp(t.Context(), signature)
}

func TestAStampIsOfTheSignatureAndByTheAuthority(t *testing.T) {
	root, tsa := office(t)
	url := serve(t, tsa.Stamps(nil))
	answer, err := ask(t, url)
	require.NoError(t, err)
	stamp, err := trust.CheckTimestamp(answer, signature, roots(t, root))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), stamp.Time, time.Hour)
	_, err = trust.CheckTimestamp(answer, []byte("another"), roots(t, root))
	require.ErrorContains(t, err, "hashed messages don't match")
}

// A real authority of other make: openssl's.
func TestOpenSSLsStamps(t *testing.T) {
	openssl := toolchain.Installed(t, "openssl")
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), openssl, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "openssl.cnf"), []byte(`[req]
distinguished_name = dn
prompt = no
[dn]
CN = OpenSSL Time
[ca]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign
[leaf]
basicConstraints = CA:FALSE
extendedKeyUsage = critical,timeStamping
[tsa]
default_tsa = stamping
[stamping]
serial = serial
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256, sha512
accuracy = secs:1
ess_cert_id_alg = sha256
ess_cert_id_chain = yes
`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "serial"), []byte("01\n"), 0o600))
	run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "root.key", "-out", "root.crt", "-config", "openssl.cnf", "-extensions", "ca", "-days", "30")
	run("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "tsa.key", "-out", "tsa.csr", "-config", "openssl.cnf", "-subj", "/CN=OpenSSL TSA")
	run("x509", "-req", "-in", "tsa.csr", "-CA", "root.crt", "-CAkey", "root.key", "-CAcreateserial", "-out", "tsa.crt", "-extfile", "openssl.cnf", "-extensions", "leaf", "-days", "30")
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
	root, err := os.ReadFile(filepath.Join(dir, "root.crt"))
	require.NoError(t, err)
	known, err := trust.ParseTimestampRoots("root.crt", root)
	require.NoError(t, err)
	answer, err := ask(t, url)
	require.NoError(t, err)
	_, err = trust.CheckTimestamp(answer, signature, known)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "answer.tsr"), answer, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "signature"), signature, 0o600))
	run("ts", "-verify", "-data", "signature", "-in", "answer.tsr", "-CAfile", "root.crt")
}

func TestBadAnswersAreNotTaken(t *testing.T) {
	root, tsa := office(t)
	mixed := root.Issue(t, pki.Spec{Name: "mixed", Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping, x509.ExtKeyUsageCodeSigning}})
	criticallyMixed := root.Issue(t, pki.Spec{Name: "mixed", Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping, x509.ExtKeyUsageCodeSigning}, CriticalUsage: true})
	reply := func(body []byte) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/timestamp-reply")
			_, _ = w.Write(body)
		})
	}
	rejected, err := asn1.Marshal(struct {
		Status struct {
			Status int
			Text   []string
		}
	}{struct {
		Status int
		Text   []string
	}{2, []string{"go away"}}})
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		server http.Handler
		reason fault.Reason
		want   string
	}{
		{"another nonce", tsa.Stamps(func(s *pki.Stamp) { s.Nonce = big.NewInt(5) }), fault.Corrupt, "the nonce is not the one that was sent"},
		{"no nonce", tsa.Stamps(func(s *pki.Stamp) { s.Nonce = nil }), fault.Corrupt, "the nonce is not the one that was sent"},
		{"an answer of before", reply(tsa.Stamp(t, signature, time.Now())), fault.Corrupt, "the nonce is not the one that was sent"},
		{"another imprint", tsa.Stamps(func(s *pki.Stamp) { s.Digest = make([]byte, 32) }), fault.Corrupt, "hashed messages don't match"},
		{"without its certificate", tsa.Stamps(func(s *pki.Stamp) { s.Certificates = nil }), fault.Corrupt, "its answer does not hold: "},
		{"a certificate for other things", mixed.Stamps(nil), fault.Corrupt, "certificate must set EKU to critical"},
		{"a certificate for other things that marks them critical", criticallyMixed.Stamps(nil), fault.Corrupt, "certificate has 2 extended key usages, expected only one"},
		{"an authority's certificate", root.Stamps(nil), fault.Corrupt, "its answer does not hold: "},
		{"rejected", reply(rejected), fault.Corrupt, "it is a refusal, without a time stamp"},
		{"HTML", reply([]byte("<html>canary</html>")), fault.Corrupt, "it is not an answer of a time-stamping authority"},
		{"nothing", reply(nil), fault.Corrupt, "it is not an answer of a time-stamping authority"},
		{"noise", reply([]byte("0\x82\xff\xff hello")), fault.Corrupt, "it is not an answer of a time-stamping authority"},
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
	for text, want := range map[string]string{"hello": "not a PEM block", "": "none of its certificates is self-signed"} {
		_, err := trust.ParseTimestampRoots("tsa.crt", []byte(text))
		require.ErrorContains(t, err, "read time-stamp roots tsa.crt: ")
		require.ErrorContains(t, err, want)
	}
}
