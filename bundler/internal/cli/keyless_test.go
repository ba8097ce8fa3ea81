package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/sigstore"
)

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
	works := sigstore.New(t)
	claim := sigstore.Claim(image.MustDigest(bundle.Digest.String()))
	layer := f.put(trust.SimpleSigningMediaType, claim)
	layer.Annotations = works.SignClaim(t, claim, "release@corp.example", "https://login.corp.example")
	f.sign(bundle, layer)
	w.write(t, "trusted_root.json", works.Root)
	policy := func(name, subject, more string) {
		w.write(t, name, []byte("apiVersion: vdo.vmware.com/trust/v1\nkind: TrustPolicy\nkeyless:\n- id: corp\n  trustedRootFile: trusted_root.json\n"+
			"  identities:\n  - subject: "+subject+"\n    issuer: https://login.corp.example\n"+more))
	}
	policy("good.yaml", "release@corp.example", "  withoutCertificateLog: true\n")
	policy("other.yaml", "intern@corp.example", "  withoutCertificateLog: true\n")
	policy("strict.yaml", "release@corp.example", "")

	require.Contains(t, run(0, "verify", "-q", "oci:layout", "--policy", "good.yaml"), "signed by  corp\n")
	require.Contains(t, run(3, "verify", "-q", "oci:layout", "--policy", "other.yaml"), "keyless corp does not accept")
	require.Contains(t, run(3, "verify", "-q", "oci:layout", "--policy", "strict.yaml"), "embedded SCT")
	far := w.mirror.Host + "/vdo/drivers:1"
	run(0, "push", "-q", "oci:layout", far, "--ca-file", "ca.crt", "--policy", "good.yaml")
	run(0, "verify", "-q", far, "--ca-file", "ca.crt", "--policy", "good.yaml")
	w.write(t, "trusted_root.json", []byte("{}"))
	require.Contains(t, run(2, "verify", "-q", "oci:layout", "--policy", "good.yaml"), "trusted root")
}
