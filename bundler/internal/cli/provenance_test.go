package cli_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/mirror"
)

// statementOf returns the layer of the one attestation, and the statement inside.
func (f forge) statementOf() (layer ocispec.Descriptor, statement map[string]any) {
	f.t.Helper()
	var m ocispec.Manifest
	require.NoError(f.t, json.Unmarshal(f.read(f.named(".att")), &m))
	var envelope struct{ Payload []byte }
	require.NoError(f.t, json.Unmarshal(f.read(m.Layers[0]), &envelope))
	require.NoError(f.t, json.Unmarshal(envelope.Payload, &statement))
	return m.Layers[0], statement
}

// attest puts a statement that a key has signed under the tag of a root.
func (f forge) attest(by *trust.Signer, root ocispec.Descriptor, predicate any) {
	f.t.Helper()
	data, err := json.Marshal(predicate)
	require.NoError(f.t, err)
	signed, err := by.Attest(image.MustDigest(root.Digest.String()), "", "https://slsa.dev/provenance/v1", data, nil)
	require.NoError(f.t, err)
	var m ocispec.Manifest
	require.NoError(f.t, json.Unmarshal(signed.Manifest, &m))
	f.put(m.Layers[0].MediaType, signed.Blobs[1].Data)
	f.attach(root, ".att", m.Layers[0])
}

// TestAttackersProvenanceIsRefused changes the statement of how a bundle was built.
// Where it is demanded, verify refuses each change; where not, it says that there is
// nothing to rely on; and never does a statement change whether the bundle is good.
func TestAttackersProvenanceIsRefused(t *testing.T) {
	w := newWorld(t, t.TempDir())
	env := os.Environ()
	for name, value := range w.env() {
		env = append(env, name+"="+value)
	}
	run := func(t *testing.T, code int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, w.expand(args)...)
		cmd.Dir, cmd.Env = w.dir, env
		out, _ := cmd.CombinedOutput()
		require.Equal(t, code, cmd.ProcessState.ExitCode(), "%s", out)
		return string(out)
	}
	_, public := mirror.NewKey(t)
	mallory, _ := mirror.NewKey(t)
	w.write(t, "first.pub", []byte(public))
	run(t, 0, "keygen", "-o", "signer")
	signer, err := trust.LoadSigner("signer.key", readFile(t, w.dir, "signer.key"), func() ([]byte, error) { return []byte(w.env()["COSIGN_PASSWORD"]), nil })
	require.NoError(t, err)
	run(t, 0, "pull", "@up", "-q", "--k8s", "1.33", "--sign-key", "signer.key", "--signature-format", "simple", "--provenance", "-o", "oci:older")
	run(t, 0, "pull", "@up", "-q", "--sign-key", "signer.key", "--signature-format", "simple", "--provenance", "-o", "oci:today")
	older := forge{t, filepath.Join(w.dir, "older")}
	oldLayer, oldStatement := older.statementOf()
	_, statement := forge{t, filepath.Join(w.dir, "today")}.statementOf()
	predicate := func(change func(definition, parameters map[string]any)) any {
		var out map[string]any
		data, err := json.Marshal(statement["predicate"])
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &out))
		definition := out["buildDefinition"].(map[string]any)                 //nolint:forcetypeassert // a test's own
		change(definition, definition["externalParameters"].(map[string]any)) //nolint:forcetypeassert // a test's own
		return out
	}

	for name, attack := range map[string]struct {
		change func(f forge, root ocispec.Descriptor)
		want   string
	}{
		"stripped": {func(f forge, _ ocispec.Descriptor) {
			f.index(func(i *ocispec.Index) { i.Manifests = withoutName(i.Manifests, ".att") })
		}, "there is no statement of how it was built"},
		"that of another bundle": {func(f forge, root ocispec.Descriptor) {
			f.put(oldLayer.MediaType, older.read(oldLayer))
			f.attach(root, ".att", oldLayer)
		}, "of another digest, " + older.named("bundle").Digest.String()},
		"that of another bundle, with the subject made to fit": {func(f forge, root ocispec.Descriptor) {
			f.attach(root, ".att", f.rewritten(oldLayer, older.read(oldLayer), older.named("bundle").Digest.Encoded(), root.Digest.Encoded()))
		}, "by none of these keys"},
		"with another word in it": {func(f forge, root ocispec.Descriptor) {
			layer, _ := f.statementOf()
			f.attach(root, ".att", f.rewritten(layer, f.read(layer), "upstreamVerified\":false", "upstreamVerified\":true"))
		}, "by none of these keys"},
		"by the attacker": {func(f forge, root ocispec.Descriptor) {
			f.attest(mallory, root, statement["predicate"])
		}, "by none of these keys"},
		"by the attacker, under the signer's certificate": {func(f forge, root ocispec.Descriptor) {
			f.attest(mallory, root, statement["predicate"])
			var m ocispec.Manifest
			require.NoError(t, json.Unmarshal(f.read(f.named(".att")), &m))
			m.Layers[0].Annotations["dev.sigstore.cosign/certificate"] = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
			f.attach(root, ".att", m.Layers[0])
		}, "with a damaged certificate"},
		"the bundle's signature called a statement": {func(f forge, root ocispec.Descriptor) {
			layer, _ := f.signature()
			layer.MediaType = trust.EnvelopeMediaType
			f.attach(root, ".att", layer)
		}, "of a payload of type \"\""},
		"a statement of another kind called one": {func(f forge, root ocispec.Descriptor) {
			signed, err := signer.Attest(image.MustDigest(root.Digest.String()), "", "https://spdx.dev/Document", []byte("{}"), nil)
			require.NoError(t, err)
			var m ocispec.Manifest
			require.NoError(t, json.Unmarshal(signed.Manifest, &m))
			f.put(m.Layers[0].MediaType, signed.Blobs[1].Data)
			m.Layers[0].Annotations[trust.PredicateAnnotation] = "https://slsa.dev/provenance/v1"
			f.attach(root, ".att", m.Layers[0])
		}, "there is no statement of how it was built"},
		"the signer's statement about another lock": {func(f forge, root ocispec.Descriptor) {
			f.attest(signer, root, oldStatement["predicate"])
		}, "the statement does not describe this bundle: its lock: expected sha256:"},
		"the signer's statement that leaves an image out": {func(f forge, root ocispec.Descriptor) {
			f.attest(signer, root, predicate(func(d, _ map[string]any) {
				all := d["resolvedDependencies"].([]any) //nolint:forcetypeassert // a test's own
				d["resolvedDependencies"] = all[:len(all)-1]
			}))
		}, "it does not name "},
		"the signer's statement of one image more": {func(f forge, root ocispec.Descriptor) {
			f.attest(signer, root, predicate(func(d, _ map[string]any) {
				d["resolvedDependencies"] = append(d["resolvedDependencies"].([]any), map[string]any{"name": "evil", "digest": map[string]any{"sha256": "00"}}) //nolint:forcetypeassert // a test's own
			}))
		}, `it names "evil sha256:00", which the bundle does not have`},
		"the signer's statement of another build": {func(f forge, root ocispec.Descriptor) {
			f.attest(signer, root, predicate(func(d, _ map[string]any) { d["buildType"] = "https://else.example" }))
		}, `it is of a build of type "https://else.example"`},
		"the signer's statement of other releases": {func(f forge, root ocispec.Descriptor) {
			f.attest(signer, root, predicate(func(_, p map[string]any) { p["releases"] = []string{"csi@9.9.9"} }))
		}, "it lists other releases"},
		"the signer's statement of another serial": {func(f forge, root ocispec.Descriptor) {
			f.attest(signer, root, predicate(func(_, p map[string]any) { p["matrixSerial"] = 99 }))
		}, "its matrix has the serial 99, that of the bundle 7"},
		"the signer's statement about nothing": {func(f forge, root ocispec.Descriptor) {
			f.attest(signer, root, []int{1})
		}, "it cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "forged")))
			require.NoError(t, os.CopyFS(filepath.Join(w.dir, "forged"), os.DirFS(filepath.Join(w.dir, "today"))))
			require.Contains(t, run(t, 0, "verify", "-q", "oci:forged", "--key", "signer.pub", "--provenance"), "provenance  signed by signer.pub: built by vdo-bundle ")
			f := forge{t, filepath.Join(w.dir, "forged")}
			attack.change(f, f.named("bundle"))
			out := run(t, 3, "verify", "-q", "oci:forged", "--key", "signer.pub", "--provenance")
			require.Contains(t, out, "error: verify provenance "+f.named("bundle").Digest.String()+": ")
			require.Contains(t, out, attack.want)
			out = run(t, 0, "verify", "-q", "oci:forged", "--key", "signer.pub")
			require.NotContains(t, out, "provenance  signed by")
			if !strings.HasPrefix(attack.want, "there is no statement") {
				require.Contains(t, out, "provenance  not verified: ")
				require.Contains(t, out, attack.want)
			}
			require.Contains(t, run(t, 3, "verify", "-q", "oci:forged", "--key", "first.pub", "--provenance"), "by none of these keys")
		})
	}
}

// Of several builds the newest counts by its own time, wherever it stands in the list.
func TestTheNewestBuildCounts(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.key(t, "signer")
	signed := []string{"--sign-key", "signer.key", "--signature-format", "simple", "--provenance"}
	w.must(t, append([]string{"pull", "@up", "-q", "-o", "oci:b"}, signed...)...)
	password := func() ([]byte, error) { return []byte(w.env()["COSIGN_PASSWORD"]), nil }
	signer, err := trust.LoadSigner("signer.key", w.read(t, "signer.key"), password)
	require.NoError(t, err)
	f := forge{t, filepath.Join(w.dir, "b")}
	_, statement := f.statementOf()
	data, err := json.Marshal(statement["predicate"])
	require.NoError(t, err)
	var first string
	require.NoError(t, json.Unmarshal(data, &struct {
		RunDetails struct{ Metadata struct{ StartedOn *string } }
	}{struct{ Metadata struct{ StartedOn *string } }{struct{ StartedOn *string }{&first}}}))
	root := f.named("bundle")
	for _, started := range []string{"2000-01-01T00:00:00Z", "2099-01-01T00:00:00Z", "2001-01-01T00:00:00Z"} {
		var m ocispec.Manifest
		require.NoError(t, json.Unmarshal(f.read(f.named(".att")), &m))
		changed := bytes.ReplaceAll(data, []byte(first), []byte(started))
		subject := image.MustDigest(root.Digest.String())
		signed, err := signer.Attest(subject, "", "https://slsa.dev/provenance/v1", changed, nil)
		require.NoError(t, err)
		var added ocispec.Manifest
		require.NoError(t, json.Unmarshal(signed.Manifest, &added))
		f.put(added.Layers[0].MediaType, signed.Blobs[1].Data)
		f.attach(root, ".att", append(m.Layers, added.Layers[0])...)
	}
	out := w.must(t, "verify", "-q", "oci:b", "--key", "signer.pub", "--provenance")
	require.Contains(t, out, `started "2099-01-01`)
}

// rewritten puts an envelope whose statement has a text replaced, under the signature
// that it had.
func (f forge) rewritten(layer ocispec.Descriptor, envelope []byte, from, to string) ocispec.Descriptor {
	f.t.Helper()
	var e map[string]any
	require.NoError(f.t, json.Unmarshal(envelope, &e))
	payload, err := base64.StdEncoding.DecodeString(e["payload"].(string)) //nolint:forcetypeassert // a test's own
	require.NoError(f.t, err)
	require.Contains(f.t, string(payload), from)
	e["payload"] = bytes.ReplaceAll(payload, []byte(from), []byte(to))
	d := f.putJSON(layer.MediaType, e)
	d.Annotations = layer.Annotations
	return d
}

func readFile(t *testing.T, elem ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	require.NoError(t, err)
	return data
}
