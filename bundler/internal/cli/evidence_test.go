package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
)

// peak runs vdo-bundle and returns its exit code, what it output, and the most memory
// that it held, in bytes.
func (w *world) peak(t *testing.T, args ...string) (code int, output string, memory int64) {
	t.Helper()
	cmd, _, stderr := w.command(t.Context(), args...)
	require.NoError(t, cmd.Start())
	// What the kernel counts for a child that has ended includes the process that it was
	// forked from: this one, which is large.
	kib := make(chan int)
	go func() { kib <- watch(cmd.Process.Pid) }()
	_ = cmd.Wait() // the code says it
	memory = int64(<-kib) << 10
	require.Positive(t, memory)
	return cmd.ProcessState.ExitCode(), stderr.String(), memory
}

// Whoever can add attachments to a bundle can add many, which are small and share what
// is large. They are counted before they are read: verify, and all that takes them
// along, refuse them and stay small.
func TestManyAttachmentsAreRefusedInLittleMemory(t *testing.T) {
	const limit = 200 << 20
	w := newWorld(t, t.TempDir())
	w.key(t, "k")
	w.must(t, "pull", "@up", "-q", "--k8s", "1.33", "--sign-key", "k.key", "-o", "oci:claims")
	require.NoError(t, os.CopyFS(filepath.Join(w.dir, "manifests-of-2MiB"), os.DirFS(filepath.Join(w.dir, "claims"))))

	claims := forge{t, filepath.Join(w.dir, "claims")}
	layer, claim := claims.signature()
	large := claims.put(layer.MediaType, append(claim[:len(claim)-1], []byte(fmt.Sprintf(`,"pad":%q}`, strings.Repeat("x", 100<<10)))...))
	large.Annotations = layer.Annotations
	root := claims.named("bundle")
	refer := func(f forge, n int, note string, layers ...ocispec.Descriptor) {
		config := f.put("application/vnd.oci.empty.v1+json", []byte("{}"))
		f.index(func(i *ocispec.Index) {
			for at := range n {
				m := ocispec.Manifest{
					MediaType: ocispec.MediaTypeImageManifest, ArtifactType: "application/x", Config: config, Layers: layers,
					Subject:     &ocispec.Descriptor{MediaType: root.MediaType, Digest: root.Digest, Size: root.Size},
					Annotations: map[string]string{"n": fmt.Sprint(at), "note": note},
				}
				m.SchemaVersion = 2
				d := f.putJSON(ocispec.MediaTypeImageManifest, m)
				d.ArtifactType = m.ArtifactType
				i.Manifests = append(i.Manifests, d)
			}
		})
	}
	refer(claims, 200, "", slices.Repeat([]ocispec.Descriptor{large}, 250)...)
	refer(forge{t, filepath.Join(w.dir, "manifests-of-2MiB")}, 40, string(bytes.Repeat([]byte("y"), 2<<20)))

	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{3, "there are more than 1024, or more than 16777216 bytes of them", []string{"verify", "oci:claims", "-q", "--key", "k.pub"}},
		{3, "there are more than 1024, or more than 16777216 bytes of them", []string{"verify", "oci:manifests-of-2MiB", "-q", "--key", "k.pub"}},
		{8, "there are more than 4096, or their manifests have more than 67108864 bytes", []string{"push", "oci:manifests-of-2MiB", w.mirror.Host + "/vdo/drivers:1", "--ca-file", "ca.crt", "-q"}},
		{8, "there are more than 4096, or their manifests have more than 67108864 bytes", []string{"mirror-config", "oci:manifests-of-2MiB", "mirror.site/vdo/drivers", "--runtime", "crio"}},
	} {
		code, output, memory := w.peak(t, c.args...)
		require.Equal(t, c.code, code, output)
		require.Contains(t, output, c.want)
		require.Less(t, memory, int64(limit), c.args)
	}
}
