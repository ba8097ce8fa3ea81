package cli_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/link"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// The network to the site's registry goes at a random byte, and comes back: the
// program says that it is not done, the tag comes last and only with all of the
// bundle, nothing is sent twice, and in the end the registry has what it would have
// without all this.
func TestPushGoesOnAfterTheNetworkWasCut(t *testing.T) {
	stored, reference := t.TempDir(), t.TempDir()
	w := newWorldOf(t, t.TempDir(), registry.Options{Dir: t.TempDir()}, registry.Options{Dir: stored, TLS: true, Auth: registry.Basic})
	random := chance(t)
	w.must(t, "keygen", "-o", "k")
	w.must(t, "pull", "@up", "-q", "--sign-key", "k.key", "-o", "whole.tar")
	undisturbed := registry.Start(t, registry.Options{Dir: reference})
	w.must(t, "push", "whole.tar", undisturbed.Host+"/vdo/drivers:1", "--plain-http", undisturbed.Host, "-q")
	all := bytesOf(undisturbed.Requests())

	l, err := link.New(w.mirror.Host, link.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	login := strings.ReplaceAll(string(w.mirror.DockerConfig()), w.mirror.Host, l.Host)
	w.write(t, "login/config.json", []byte(login))
	push := []string{"push", "whole.tar", l.Host + "/vdo/drivers:1", "--ca-file", "ca.crt", "-q", "--retries", "0"}
	// However far a push gets, the last one finds the tag, and no note that all has arrived.
	w.mirror.Fail(registry.Fault{Match: registry.Match{Method: http.MethodPut, Path: ".confirmed"}, Reset: true})
	for round := range 6 {
		after := random.Int64N(all)
		l.Cut(after)
		cmd, _, stderr := w.command(t.Context(), push...)
		err := cmd.Run()
		gone := l.Mend()
		t.Logf("round %d: after %d bytes of %d: gone %t, %v", round, after, all, gone, err)
		require.NotContains(t, stderr.String(), "panic")
		_, there := os.Stat(filepath.Join(stored, "docker/registry/v2/repositories/vdo/drivers/_manifests/tags/1"))
		if err != nil {
			require.True(t, gone || there == nil, stderr.String())
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Contains(t, []int{5, 9}, exit.ExitCode(), stderr.String())
			require.Contains(t, stderr.String(), "hint: ")
		}
		if there == nil {
			break // the rest were looks at what has arrived
		}
		require.ErrorIs(t, there, os.ErrNotExist)
	}
	w.mirror.Heal()
	w.must(t, push...)
	requireSentOnce(t, w.mirror.Requests())
	require.Equal(t, stores(t, reference), stores(t, stored))
}

// bytesOf is how many bytes went over the line, more or less.
func bytesOf(requests []registry.Request) (n int64) {
	for _, q := range requests {
		n += q.Sent + q.Received + 600 // and headers
	}
	return n
}

// noteConfig is what the note refers to that all has arrived: an empty object.
const noteConfig = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"

// requireSentOnce demands that no blob was sent once it was there, and that the
// bundle's tag came after everything that it needs. A registry may still be storing a
// blob when the line is cut: what it says it does not have is sent again.
func requireSentOnce(t *testing.T, requests []registry.Request) {
	t.Helper()
	taken, tagged := map[string]bool{}, false
	for _, q := range requests {
		switch {
		case q.Method == http.MethodHead && q.Status == http.StatusNotFound:
			delete(taken, q.Path[strings.LastIndex(q.Path, "/")+1:])
		case q.Method != http.MethodPut || q.Status != http.StatusCreated:
		case q.Digest != "":
			require.False(t, taken[q.Digest], "%s is sent again", q.Digest)
			require.True(t, !tagged || q.Digest == noteConfig, "%s comes after the tag", q.Digest)
			taken[q.Digest] = true
		case strings.HasSuffix(q.Path, "/manifests/1"):
			tagged = true
		case strings.Contains(q.Path, "/manifests/sha256:"):
			require.False(t, tagged, "%s comes after the tag", q.Path)
		}
	}
	require.True(t, tagged)
}

// stores is what a registry keeps of a repository and its blobs, below a folder:
// names only, since blobs are called by their digest, and verified as such. The note
// that all has arrived is left out: it names the host that it was left through.
func stores(t *testing.T, dir string) []string {
	t.Helper()
	root := filepath.Join(dir, "docker/registry/v2")
	notes, err := filepath.Glob(root + "/repositories/vdo/drivers/_manifests/tags/*.confirmed/current/link")
	require.NoError(t, err)
	require.Len(t, notes, 1)
	note, err := os.ReadFile(notes[0])
	require.NoError(t, err)
	var out []string
	for _, below := range []string{"blobs", "repositories/vdo/drivers/_layers", "repositories/vdo/drivers/_manifests"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, below), func(name string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.Contains(name, strings.TrimPrefix(string(note), "sha256:")) {
				out = append(out, strings.TrimPrefix(name, root))
			}
			return err
		}))
	}
	return out
}
