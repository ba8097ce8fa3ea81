package cli_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

func issue(ts *testscript.TestScript, _ bool, args []string) {
	t := of(ts).t
	days, err := strconv.Atoi(args[2])
	ts.Check(err)
	root := pki.Root(t, args[0]+" root")
	issuing := root.Issue(t, pki.Spec{Name: args[0] + " issuing", CA: true})
	began := time.Now().Add(-time.Duration(days) * 24 * time.Hour)
	signer := issuing.Issue(t, pki.Spec{
		Name: args[0], Email: []string{args[1]}, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		NotBefore: began.Add(-time.Hour), NotAfter: began.Add(24 * time.Hour),
	})
	for name, data := range map[string][]byte{
		"-root.crt": root.PEM(), "-issuing.crt": issuing.PEM(), ".crt": signer.PEM(), ".key": signer.KeyPEM(),
	} {
		ts.Check(os.WriteFile(ts.MkAbs(args[0]+name), data, 0o600))
	}
}

// startTSA starts a time-stamping authority; it ends with the script.
func startTSA(ts *testscript.TestScript, _ bool, args []string) {
	t := of(ts).t
	root := pki.Root(t, args[0]+" root")
	leaf := root.Issue(t, pki.Spec{Name: args[0], Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping}})
	handler := leaf.Stamps(nil)
	switch strings.Join(args[1:], " ") {
	case "":
	case "away":
		handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	default:
		ts.Fatalf("tsa: %v", args)
	}
	server := httptest.NewServer(handler)
	ts.Defer(server.Close)
	ts.Setenv("TSA", server.URL)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+"-root.crt"), root.PEM(), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+"-chain.crt"), append(leaf.PEM(), root.PEM()...), 0o600))
}

func digests(ts *testscript.TestScript, _ bool, args []string) {
	lock, err := bundle.ParseLock(args[1], []byte(ts.ReadFile(args[1])))
	ts.Check(err)
	for _, i := range lock.Images {
		switch {
		case strings.Contains(i.Reference.String(), "/ccm:"):
			ts.Setenv("CCM", args[0]+"@"+i.Digest.String())
		case strings.Contains(i.Reference.String(), "/driver:"):
			ts.Setenv("DRIVER", args[0]+"@"+i.Digest.String())
			index, _ := i.Index()
			ts.Setenv("INDEX", index.String())
		}
	}
}

// statement reads what cosign verify-attestation printed and makes the statement
// inside, indented, the output to look at.
func statement(ts *testscript.TestScript, _ bool, args []string) {
	var envelope struct{ Payload []byte }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &envelope))
	var text bytes.Buffer
	ts.Check(json.Indent(&text, envelope.Payload, "", "  "))
	ts.Check(os.WriteFile(ts.MkAbs("statement.json"), text.Bytes(), 0o600))
	ts.Check(ts.Exec("cat", ts.MkAbs("statement.json")))
}
