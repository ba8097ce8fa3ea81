package cli_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/bundle"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/image"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/trust"
)

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
