package cli_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
)

// keyless signs a claim with a short-lived certificate of a sigstore of its own, and
// returns the layer's annotations as cosign writes them, and the trusted root.
func keyless(t *testing.T, claim []byte, subject, issuer string) (annotations map[string]string, trustedRoot []byte) {
	t.Helper()
	works, err := ca.NewVirtualSigstore()
	require.NoError(t, err)
	entity, err := works.SignAtTime(subject, issuer, claim, time.Now().Add(5*time.Minute))
	require.NoError(t, err)
	content, err := entity.SignatureContent()
	require.NoError(t, err)
	material, err := entity.VerificationContent()
	require.NoError(t, err)
	entries, err := entity.TlogEntries()
	require.NoError(t, err)
	e := entries[0].TransparencyLogEntry()
	payload := tlog.RekorPayload{
		Body: base64.StdEncoding.EncodeToString(e.GetCanonicalizedBody()), IntegratedTime: e.GetIntegratedTime(),
		LogIndex: e.GetLogIndex(), LogID: hex.EncodeToString(e.GetLogId().GetKeyId()),
	}
	promise, err := works.RekorSignPayload(payload)
	require.NoError(t, err)
	entry, err := json.Marshal(map[string]any{"SignedEntryTimestamp": promise, "Payload": payload})
	require.NoError(t, err)
	logs := works.RekorLogs()
	for id, log := range logs { // the library's stand-in has the id in hex
		log.ID, err = hex.DecodeString(id)
		require.NoError(t, err)
	}
	trusted, err := root.NewTrustedRoot(root.TrustedRootMediaType01, works.FulcioCertificateAuthorities(), nil, works.TimestampingAuthorities(), logs)
	require.NoError(t, err)
	trustedRoot, err = trusted.MarshalJSON()
	require.NoError(t, err)
	return map[string]string{
		trust.SignatureAnnotation:   base64.StdEncoding.EncodeToString(content.Signature()),
		trust.CertificateAnnotation: string(pki.Authority{Certificate: material.Certificate()}.PEM()),
		trust.LogAnnotation:         string(entry),
	}, trustedRoot
}

// A bundle that was signed keylessly is verified in the isolated site, in every
// medium that it gets to, by the trusted root of a file.
func TestKeylesslySignedBundleIsVerifiedOffline(t *testing.T) {
	w := newWorld(t, t.TempDir())
	env := os.Environ()
	for name, value := range w.env() {
		env = append(env, name+"="+value)
	}
	run := func(code int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, w.expand(args)...)
		cmd.Dir, cmd.Env = w.dir, env
		out, _ := cmd.CombinedOutput()
		require.Equal(t, code, cmd.ProcessState.ExitCode(), "%s", out)
		return string(out)
	}
	run(0, "pull", "@up", "-q", "-o", "oci:layout")
	f := forge{t, filepath.Join(w.dir, "layout")}
	bundle := f.named("bundle")
	claim := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":"x.test/y"},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, bundle.Digest)
	annotations, trustedRoot := keyless(t, claim, "release@corp.example", "https://login.corp.example")
	layer := f.put(trust.SimpleSigningMediaType, claim)
	layer.Annotations = annotations
	f.sign(bundle, layer)
	w.write(t, "trusted_root.json", trustedRoot)
	policy := func(name, subject, more string) {
		w.write(t, name, []byte("apiVersion: vdo.vmware.com/trust/v1\nkind: TrustPolicy\nkeyless:\n- id: corp\n  trustedRootFile: trusted_root.json\n"+
			"  identities:\n  - subject: "+subject+"\n    issuer: https://login.corp.example\n"+more))
	}
	policy("good.yaml", "release@corp.example", "  withoutCertificateLog: true\n")
	policy("other.yaml", "intern@corp.example", "  withoutCertificateLog: true\n")
	policy("strict.yaml", "release@corp.example", "")

	require.Contains(t, run(0, "verify", "-q", "oci:layout", "--policy", "good.yaml"), "signed by  corp\n")
	require.Contains(t, run(3, "verify", "-q", "oci:layout", "--policy", "other.yaml"), "keyless corp does not accept")
	require.Contains(t, run(3, "verify", "-q", "oci:layout", "--policy", "strict.yaml"), "signed certificate timestamp")
	far := w.mirror.Host + "/vdo/drivers:1"
	run(0, "push", "-q", "oci:layout", far, "--ca-file", "ca.crt", "--policy", "good.yaml")
	run(0, "verify", "-q", far, "--ca-file", "ca.crt", "--policy", "good.yaml")
	w.write(t, "trusted_root.json", []byte("{}"))
	require.Contains(t, run(2, "verify", "-q", "oci:layout", "--policy", "good.yaml"), "trusted root")
}
