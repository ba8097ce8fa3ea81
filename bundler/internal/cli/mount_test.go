package cli_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
)

// Where the registry mounts, no byte of the base goes over the line: neither out of
// the named repository, nor out of those that --layout paths made.
func TestBaseOfADeltaIsMounted(t *testing.T) {
	stored := t.TempDir()
	w := newWorldOf(t, t.TempDir(), registry.Options{}, registry.Options{Dir: stored, TLS: true, Auth: registry.Token})
	w.must(t, "lock", "@up", "-q", "--release", "csi@3.5.1", "-o", "old.yaml")
	w.must(t, "lock", "@up", "-q", "--release", "csi@3.5.1", "--release", "cpi@1.34.0", "-o", "new.yaml")
	w.must(t, "keygen", "-o", "k")
	w.must(t, "pull", "@up", "-q", "--lock", "old.yaml", "-o", "old.tar")
	w.must(t, "pull", "@up", "-q", "--lock", "new.yaml", "--base", "old.tar", "--sign-key", "k.key", "-o", "delta.tar")
	drivers := w.mirror.Host + "/vdo/drivers"
	w.must(t, "push", "old.tar", drivers+":1", "--ca-file", "ca.crt", "-q", "--layout", "paths")

	push := func(to string, more ...string) {
		t.Helper()
		w.mirror.ForgetRequests()
		args := []string{"push", "delta.tar", to, "--ca-file", "ca.crt", "-q", "--format", "json"}
		out := w.must(t, append(args, more...)...)
		info := must(os.Stat(filepath.Join(w.dir, "delta.tar")))(t)
		var sent int64
		for _, q := range w.mirror.Requests() {
			require.False(t, q.Method == http.MethodGet && strings.Contains(q.Path, "/blobs/"), "%s is read", q.Path)
			sent += q.Received
		}
		require.Less(t, sent, info.Size()+10_000, "only the delta is sent") // and the note that all arrived
		var told struct{ Moved int64 }
		require.NoError(t, json.Unmarshal([]byte(out), &told))
		require.Less(t, told.Moved, info.Size())
		w.must(t, "verify", to, "--key", "k.pub", "--ca-file", "ca.crt", "-q")
	}
	push(w.mirror.Host+"/vdo/next:2", "--mount-from", drivers)

	// The bundle's own repository has lost its layers; the images beside it have them.
	require.NoError(t, os.RemoveAll(filepath.Join(stored, "docker/registry/v2/repositories/vdo/drivers/_layers")))
	push(drivers + ":2")
}
