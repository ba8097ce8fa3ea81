package trust_test

import (
	"context"
	"crypto/elliptic"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/pki"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/sigstore"
)

const (
	login = "https://login.corp.example"
	who   = "release@corp.example"
)

func policyText(rootJSON []byte, more string) string {
	return header + "keyless:\n- id: corp\n  trustedRoot: '" + string(rootJSON) + "'\n" + more
}

func identities(subject, issuer string) string {
	return fmt.Sprintf("  identities:\n  - {subject: %q, issuer: %q}\n", subject, issuer)
}

const (
	noSCT   = "  withoutCertificateLog: true\n" // the tests' authority has no certificate log
	byStamp = "  withoutTransparencyLog: true\n"
)

func keyless(t *testing.T, w sigstore.Sigstore, more string) *trust.Policy {
	t.Helper()
	return must(trust.ParsePolicy("policy.yaml", []byte(policyText(w.Root, more)), nil))(t)
}

// layered returns the evidence of one layer.
func layered(t *testing.T, mediaType string, data []byte, annotations map[string]string) []trust.Evidence {
	t.Helper()
	blobs := store{}
	layer := blobs.add(mediaType, data)
	layer.Annotations = annotations
	return blobs.evidence(t, blobs.manifest(t, layer))
}

// keylessly signs a statement, in a sigstore bundle.
func keylessly(t *testing.T, w sigstore.Sigstore, predicate string, subject image.Digest, change func(*protobundle.Bundle)) []trust.Evidence {
	t.Helper()
	b := w.SignStatement(t, sigstore.Statement(predicate, subject), who, login)
	if change != nil {
		change(b)
	}
	data := must(protojson.Marshal(b))(t)
	return layered(t, trust.BundleMediaType, data, nil)
}

func TestKeylessSignaturesOfTheNewForm(t *testing.T) {
	w, subject := sigstore.New(t), image.DigestOf([]byte("root"))
	now := time.Now().Add(24 * time.Hour) // long after the certificate
	good := identities(who, login) + noSCT
	signed := func(change func(*protobundle.Bundle)) []trust.Evidence {
		return keylessly(t, w, trust.SignPredicateType, subject, change)
	}
	noLog := func(b *protobundle.Bundle) { b.VerificationMaterial.TlogEntries = nil }
	v := must(keyless(t, w, good).Verify(subject, signed(nil), now))(t)
	require.Equal(t, []string{"corp"}, v.Keys())
	require.Equal(t, who+" by "+login, v.Signers()[0].Identity)

	for name, c := range map[string]struct {
		policy   *trust.Policy
		evidence []trust.Evidence
		want     string
	}{
		"another digest":            {keyless(t, w, good), keylessly(t, w, trust.SignPredicateType, image.DigestOf([]byte("x")), nil), "of another digest"},
		"another predicate":         {keyless(t, w, good), keylessly(t, w, "https://slsa.dev/provenance/v1", subject, nil), "accepts nothing"},
		"another subject":           {keyless(t, w, identities("x"+who, login)+noSCT), signed(nil), "does not accept"},
		"another issuer":            {keyless(t, w, identities(who, login+".evil")+noSCT), signed(nil), "does not accept"},
		"another root":              {keyless(t, sigstore.New(t), good), signed(nil), "does not accept"},
		"no certificate log":        {keyless(t, w, identities(who, login)), signed(nil), "signed certificate timestamp"},
		"revoked":                   {keyless(t, w, good+"  revoked: true\n"), signed(nil), "revoked"},
		"no transparency log":       {keyless(t, w, good), signed(noLog), "does not accept"},
		"a time stamp in its place": {keyless(t, w, good+byStamp), signed(noLog), ""},
		"neither": {keyless(t, w, good+byStamp), signed(func(b *protobundle.Bundle) {
			b.VerificationMaterial.TlogEntries, b.VerificationMaterial.TimestampVerificationData = nil, nil
		}), "does not accept"},
		"the log entry of another": {keyless(t, w, good), signed(func(b *protobundle.Bundle) {
			other := w.SignStatement(t, sigstore.Statement(trust.SignPredicateType, image.DigestOf([]byte("y"))), who, login)
			b.VerificationMaterial.TlogEntries = other.GetVerificationMaterial().GetTlogEntries()
		}), "does not accept"},
		"a certificate that is no one's": {keyless(t, w, good), signed(func(b *protobundle.Bundle) {
			other := w.SignStatement(t, []byte("{}"), who, login)
			b.VerificationMaterial.Content = other.GetVerificationMaterial().GetContent()
		}), "by another key than that of its certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			judged(c.policy.Verify(subject, c.evidence, now))(t, c.want)
		})
	}
}

// The form that cosign has written for years: a claim with annotations, and the log's
// promise.
func TestKeylessSignaturesOfTheOldForm(t *testing.T) {
	w, subject := sigstore.New(t), image.DigestOf([]byte("root"))
	now := time.Now().Add(24 * time.Hour)
	claim := sigstore.Claim(subject)
	annotations := func() map[string]string {
		a := w.SignClaim(t, claim, who, login)
		delete(a, trust.TimestampAnnotation)
		return a
	}
	p := keyless(t, w, identities(who, login)+noSCT)
	v := must(p.Verify(subject, layered(t, trust.SimpleSigningMediaType, claim, annotations()), now))(t)
	require.Equal(t, []string{"corp"}, v.Keys())

	for name, change := range map[string]func(map[string]string){
		"no log entry":        func(a map[string]string) { delete(a, trust.LogAnnotation) },
		"a damaged log entry": func(a map[string]string) { a[trust.LogAnnotation] = "{" },
		"another time": func(a map[string]string) {
			a[trust.LogAnnotation] = strings.Replace(a[trust.LogAnnotation], `"integratedTime":`, `"integratedTime":1`, 1)
		},
		"no certificate": func(a map[string]string) { delete(a, trust.CertificateAnnotation) },
	} {
		t.Run(name, func(t *testing.T) {
			changed := annotations()
			change(changed)
			_, err := p.Verify(subject, layered(t, trust.SimpleSigningMediaType, claim, changed), now)
			require.Equal(t, fault.Untrusted, fault.ReasonOf(err), "%v", err)
		})
	}
}

// In the old form cosign itself would take a certificate that is valid now without
// anybody's word for when it was used.
func TestTimeStampsOfTheOldForm(t *testing.T) {
	w, subject := sigstore.New(t), image.DigestOf([]byte("root"))
	claim := sigstore.Claim(subject)
	byLog := identities(who, login) + noSCT
	byStamp := byLog + byStamp
	verify := func(policy string, drop ...string) error {
		a := w.SignClaim(t, claim, who, login)
		for _, name := range drop {
			delete(a, name)
		}
		_, err := keyless(t, w, policy).Verify(subject, layered(t, trust.SimpleSigningMediaType, claim, a), time.Now())
		return err
	}
	require.NoError(t, verify(byStamp, trust.LogAnnotation))
	require.NoError(t, verify(byLog))
	require.NoError(t, verify(byLog, trust.TimestampAnnotation))
	requireUntrusted(t, verify(byStamp, trust.LogAnnotation, trust.TimestampAnnotation), "it has no time stamp")
	requireUntrusted(t, verify(byStamp, trust.TimestampAnnotation), "it has no time stamp")
	requireUntrusted(t, verify(byLog, trust.LogAnnotation), "does not accept")

	other := sigstore.New(t).SignClaim(t, claim, who, login)
	forged := w.SignClaim(t, claim, who, login)
	forged[trust.TimestampAnnotation] = other[trust.TimestampAnnotation]
	delete(forged, trust.LogAnnotation)
	evidence := layered(t, trust.SimpleSigningMediaType, claim, forged)
	untrusted(keyless(t, w, byStamp).Verify(subject, evidence, time.Now()))(t, "does not accept")
}

// Several identities, of which the last one signed: cosign takes no list of them.
func TestAnyOfTheIdentitiesCounts(t *testing.T) {
	w, subject := sigstore.New(t), image.DigestOf([]byte("root"))
	several := func(issuer string) *trust.Policy {
		another := fmt.Sprintf("  - {subject: %q, issuer: %q}\n", who, issuer)
		return keyless(t, w, identities("other@corp.example", login)+another+noSCT)
	}
	claim := sigstore.Claim(subject)
	newForm := keylessly(t, w, trust.SignPredicateType, subject, nil)
	oldForm := layered(t, trust.SimpleSigningMediaType, claim, w.SignClaim(t, claim, who, login))
	must(several(login).Verify(subject, newForm, time.Now()))(t)
	must(several(login).Verify(subject, oldForm, time.Now()))(t)
	// not the subject of one with the issuer of another
	untrusted(several(login+".evil").Verify(subject, newForm, time.Now()))(t, "does not accept")
}

func TestBadKeylessEntriesAreExplained(t *testing.T) {
	w := sigstore.New(t)
	for text, want := range map[string]string{
		policyText(w.Root, ""):                                              "everyone with a login would be accepted",
		policyText(w.Root, identities("", login)):                           "both issuer and subject",
		policyText(nil, identities(who, login)):                             "never fetched",
		policyText([]byte("{}"), identities(who, login)):                    "trusted root",
		policyText([]byte("x"), identities(who, login)):                     "read trusted root",
		policyText(w.Root, identities(who, login)+"  trustedRootFile: x\n"): "not both",
		policyText(w.Root, identities(who, login)) + "- id: b\n  trustedRoot: '" + string(w.Root) + "'\n" + identities(who, login): "in two entries",
	} {
		fails(trust.ParsePolicy("policy.yaml", []byte(text), nil))(t, fault.InvalidInput, want)
	}
	written(t, keyless(t, w, identities(who, login)+noSCT))
}

// everything does what this package does, with signatures of all forms.
func everything(t *testing.T) {
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
	must(trust.CheckTimestamp(stamp, []byte("x"), nil))(t)

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
