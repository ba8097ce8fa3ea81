package trust_test

import (
	"context"
	"crypto/elliptic"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/sigstore"
)

// everything does what this package does, with signatures of all forms.
func everything(t *testing.T) {
	t.Helper()
	private, blobs, root := newECDSA(t, elliptic.P256()), store{}, subject("root")
	s := signer(t, private)
	p := policy(t, 1, key(t, "release", s))
	classic := blobs.keep(sign(t, s, root, nil))
	referrer := blobs.manifest(t, blobs.add(trust.BundleMediaType,
		bundleOf(t, private, "application/vnd.in-toto+json", statement(trust.SignPredicateType, root))))
	must(p.Verify(root, blobs.evidence(t, classic, referrer), now))(t)
	untrusted(p.Verify(subject("other"), blobs.evidence(t, classic, referrer), now))(t)

	o := newOffice(t)
	must(certificates(t, 1, o.ca(t)).Verify(root, o.certified(t, store{}, o.leaf, nil), now))(t)
	stamp := pki.Root(t, "Time").Issue(t, stamping).Stamp(t, []byte("x"), now)
	must(trust.CheckTimestamp(stamp, []byte("x"), trust.TimestampRoots{}))(t)

	w := sigstore.New(t)
	good := identities(who, login) + noSCT
	claim := sigstore.Claim(root)
	for form, evidence := range map[string][]trust.Evidence{
		"bundle": keylessly(t, w, trust.SignPredicateType, root, nil),
		"claim":  layered(t, trust.SimpleSigningMediaType, claim, w.SignClaim(t, claim, who, login)),
	} {
		_, err := keyless(t, w, good).Verify(root, evidence, time.Now())
		require.NoError(t, err, form)
		logged := keyless(t, w, identities(who, login)) // with a certificate log
		untrusted(logged.Verify(root, evidence, time.Now()))(t, "does not accept")
		untrusted(keyless(t, sigstore.New(t), good).Verify(root, evidence, time.Now()))(t, "does not accept")
	}
	bare := w.SignClaim(t, claim, who, login) // what cosign would look up in the log
	delete(bare, trust.LogAnnotation)
	evidence := layered(t, trust.SimpleSigningMediaType, claim, bare)
	untrusted(keyless(t, w, good).Verify(root, evidence, time.Now()))(t, "does not accept")
}

// Cosign and its libraries take much from the environment and the home folder when they
// are programs. Here they change nothing, from the start of the process on: not which
// roots count, and no one is asked that they name.
func TestNothingIsFetchedWhateverTheEnvironmentSays(t *testing.T) {
	if os.Getenv("VDO_TEST_OFFLINE") != "" {
		dial := func(context.Context, string, string) (net.Conn, error) {
			err := errors.New("this package dialled")
			t.Error(err)
			return nil, err
		}
		http.DefaultTransport.(*http.Transport).DialContext = dial //nolint:forcetypeassert // a process of its own
		net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: dial}
		everything(t)
		return
	}
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	asked := make(chan struct{}, 1)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
			select {
			case asked <- struct{}{}:
			default:
			}
		}
	}()
	home, url := t.TempDir(), "http://"+listener.Addr().String()
	other := filepath.Join(t.TempDir(), "other.pem")
	require.NoError(t, os.WriteFile(other, pki.Root(t, "other").PEM(), 0o600))
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"VDO_TEST_OFFLINE=1", "PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_CACHE_HOME=" + home, "XDG_CONFIG_HOME=" + home, "TMPDIR=" + t.TempDir()}
	for _, name := range []string{
		"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "TUF_MIRROR", "SIGSTORE_REKOR_URL", "SIGSTORE_FULCIO_URL", "SIGSTORE_OIDC_ISSUER",
		"COSIGN_REKOR_URL", "COSIGN_FULCIO_URL", "COSIGN_TIMESTAMP_SERVER_URL", "BUILDKITE_AGENT_ENDPOINT", "VAULT_ADDR",
	} {
		cmd.Env = append(cmd.Env, name+"="+url)
	}
	for _, name := range []string{
		"SIGSTORE_ROOT_FILE", "SIGSTORE_REKOR_PUBLIC_KEY", "SIGSTORE_CT_LOG_PUBLIC_KEY_FILE", "SIGSTORE_TSA_CERTIFICATE_FILE", "TUF_ROOT_JSON",
	} {
		cmd.Env = append(cmd.Env, name+"="+other)
	}
	cmd.Env = append(cmd.Env, "TUF_ROOT="+filepath.Join(home, "tuf"), "SIGSTORE_NO_CACHE=true", "COSIGN_EXPERIMENTAL=1", "COSIGN_OCI_EXPERIMENTAL=1",
		"COSIGN_REPOSITORY="+listener.Addr().String()+"/x", "SIGSTORE_TRUST_REKOR_API_PUBLIC_KEY=1", "COSIGN_MAX_ATTACHMENT_SIZE=1", "COSIGN_DOCKER_MEDIA_TYPES=1", "COSIGN_PASSWORD=x")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
	require.NoError(t, listener.Close())
	require.Empty(t, asked, "somebody was asked")
	written := must(os.ReadDir(home))(t)
	require.Empty(t, written, "something was written below the home folder")
}
