package cli_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
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

// Of several builds the newest counts by its own time, wherever it stands in the list; and it
// has to describe the bundle.
func TestTheNewestBuildCounts(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.key(t, "signer")
	w.must(t, "pull", "@up", "-q", "-o", "oci:b", "--sign-key", "signer.key", "--signature-format", "simple", "--provenance")
	signer := must(trust.LoadSigner("signer.key", w.read(t, "signer.key"), nil))(t)
	f := forge{t, filepath.Join(w.dir, "b")}
	var m ocispec.Manifest
	var envelope struct{ Payload []byte }
	var statement struct{ Predicate json.RawMessage }
	var predicate struct {
		RunDetails struct{ Metadata struct{ StartedOn string } }
	}
	require.NoError(t, json.Unmarshal(f.read(f.named(".att")), &m))
	require.NoError(t, json.Unmarshal(f.read(m.Layers[0]), &envelope))
	require.NoError(t, json.Unmarshal(envelope.Payload, &statement))
	require.NoError(t, json.Unmarshal(statement.Predicate, &predicate))
	root := f.named("bundle")
	add := func(from, to string) {
		changed := bytes.ReplaceAll(statement.Predicate, []byte(from), []byte(to))
		signed, err := signer.Attest(image.MustDigest(root.Digest.String()), "", "https://slsa.dev/provenance/v1", changed, bundle.Referrer{})
		require.NoError(t, err)
		var added ocispec.Manifest
		require.NoError(t, json.Unmarshal(signed.Node.Data, &added))
		for _, b := range signed.Blobs {
			f.put(b.MediaType, b.Data)
		}
		require.NoError(t, json.Unmarshal(f.read(f.named(".att")), &m))
		f.attach(root, ".att", append(m.Layers, added.Layers[0])...)
	}
	started := predicate.RunDetails.Metadata.StartedOn
	for _, at := range []string{"2000-01-01T00:00:00Z", "2098-01-01T00:00:00Z", "2001-01-01T00:00:00Z"} {
		add(started, at)
	}
	require.Contains(t, w.must(t, "verify", "-q", "oci:b", "--key", "signer.pub", "--provenance"), `started "2098-01-01`)

	statement.Predicate = bytes.ReplaceAll(statement.Predicate, []byte(started), []byte("2099-01-01T00:00:00Z"))
	add("bundle/pull/v1", "bundle/else/v1")
	said := w.ends(t, 3, "verify", "-q", "oci:b", "--key", "signer.pub", "--provenance")
	require.Contains(t, said, "error: verify provenance "+root.Digest.String()+": the statement does not describe this bundle: it is of a build of type")
	require.Contains(t, w.must(t, "verify", "-q", "oci:b", "--key", "signer.pub"), "provenance  not verified: ")
}
