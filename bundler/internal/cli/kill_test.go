package cli_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/images"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// newKillWorld is a world with one image of large layers, so that a run can end in
// the middle of several blobs and of the journal's steps. Its registries are on disk:
// the one in memory copies what it has at each write.
func newKillWorld(t *testing.T) *world {
	w := newWorldOf(t, t.TempDir(), registry.Options{Dir: t.TempDir()}, registry.Options{Dir: t.TempDir(), TLS: true, Auth: registry.Basic})
	images.Push(t, w.upstream, "x/cloud/ccm:v1.33.1", images.Spec{Seed: 9, Layers: []int64{20 << 20, 12 << 20, 3 << 20, 1 << 20}})
	w.must(t, "lock", "@up", "-q", "-o", "lock.yaml")
	w.must(t, "pull", "@up", "-q", "--lock", "lock.yaml", "-o", "whole.tar")
	return w
}

// chance is the random numbers of one test, the same again with their seed.
func chance(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv("VDO_TEST_SEED"); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("VDO_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // no secret
}

// kill runs vdo-bundle and kills it, without a chance to clean up, at the moment
// that a request or an answer of the registry reaches a random point. It tells
// whether the program was still running then.
func (w *world) kill(t *testing.T, reg *registry.Registry, fault registry.Fault, args ...string) bool {
	t.Helper()
	held, seen := make(chan struct{}), make(chan string, 1)
	fault.Wait, fault.Seen, fault.Times = held, seen, 1
	reg.Fail(fault)
	defer reg.Heal()
	defer close(held)
	cmd, _, stderr := w.command(t.Context(), args...)
	require.NoError(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-seen:
		require.NoError(t, cmd.Process.Kill())
		<-done
		return true
	case err := <-done: // it had less to do than that
		require.NoError(t, err, stderr.String())
		return false
	}
}

// journal reads how far each blob of a partial archive is, as the format's
// specification says: bytes, and whether it is whole.
func (w *world) journal(t *testing.T, name string) map[string]progress {
	t.Helper()
	out := map[string]progress{}
	data, err := os.ReadFile(filepath.Join(w.dir, name))
	if errors.Is(err, os.ErrNotExist) {
		return out
	}
	require.NoError(t, err)
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) == 6 && f[0] == "at" {
			n, err := strconv.ParseInt(f[3], 10, 64)
			require.NoError(t, err)
			out[f[1]] = progress{n, f[4] == f[1]}
		}
	}
	return out
}

// goOn pulls, and demands that nothing is read that the journal knows.
func (w *world) goOn(t *testing.T, journal string, pull ...string) {
	t.Helper()
	known := w.journal(t, journal)
	w.upstream.ForgetRequests()
	w.must(t, pull...)
	for _, q := range w.upstream.Requests() {
		_, hex, blob := strings.Cut(q.Path, "/blobs/sha256:")
		if p := known[hex]; blob {
			require.False(t, p.whole, "%s was whole, and is read again", hex)
			if p.offset > 0 {
				require.Regexp(t, fmt.Sprintf("^bytes=%d-[0-9]+$", p.offset), q.Range, hex)
			}
		}
	}
}

type progress struct {
	offset int64
	whole  bool
}

func TestKilledPullGoesOn(t *testing.T) {
	w := newKillWorld(t)
	random := chance(t)
	pull := []string{"pull", "@up", "-q", "--lock", "lock.yaml", "-o", "a.tar", "--retries", "0"}
	for trial := range tier.Pick(1, 2) {
		for round := range tier.Pick(2, 6) {
			blobs := registry.Match{Method: "GET", Path: "/blobs/"}
			fault := registry.Fault{Match: blobs, After: random.IntN(20)}
			if random.IntN(2) == 0 {
				fault = registry.Fault{Match: blobs, After: random.IntN(8), HoldAt: 1 + random.Int64N(12<<20)}
			}
			running := w.kill(t, w.upstream, fault, pull...)
			t.Logf("trial %d, round %d: after %d requests, %d bytes: killed %t", trial, round, fault.After, fault.HoldAt, running)
			if !running {
				break
			}
			require.NoFileExists(t, filepath.Join(w.dir, "a.tar"))
		}
		if _, err := os.Stat(filepath.Join(w.dir, "a.tar")); err != nil {
			w.goOn(t, "a.tar.journal", pull...)
		}
		require.True(t, bytes.Equal(w.read(t, "whole.tar"), w.read(t, "a.tar")), "the bytes differ")
		require.NoFileExists(t, filepath.Join(w.dir, "a.tar.partial"))
		require.NoFileExists(t, filepath.Join(w.dir, "a.tar.journal"))
		require.NoError(t, os.Remove(filepath.Join(w.dir, "a.tar")))
	}
}

// A push that is killed at any point leaves no tag on a part of a bundle, and what
// the registry has taken is not sent again.
func TestKilledPushGoesOn(t *testing.T) {
	w := newKillWorld(t)
	random := chance(t)
	for trial, chunks := range [][]string{nil, {"--chunk-size", "2MiB"}} {
		repo := fmt.Sprintf("vdo/drivers%d", trial)
		push := append([]string{"push", "whole.tar", w.mirror.Host + "/" + repo + ":1", "--ca-file", "ca.crt", "-q", "--retries", "0"}, chunks...)
		taken := map[string]bool{}
		for round := range tier.Pick(2, 5) {
			w.mirror.ForgetRequests()
			fault := registry.Fault{Match: registry.Match{Method: []string{"PUT", "POST", "PATCH", "HEAD"}[random.IntN(4)], Path: "/v2/"}, After: random.IntN(40)}
			running := w.kill(t, w.mirror, fault, push...)
			t.Logf("round %d: %s after %d: killed %t", round, fault.Match.Method, fault.After, running)
			for _, q := range w.mirror.Requests() {
				if q.Method == http.MethodPut && q.Digest != "" && q.Status == 201 {
					require.False(t, taken[q.Digest], "%s is sent again", q.Digest)
					taken[q.Digest] = true
				}
			}
			if !running {
				break
			}
			require.NoError(t, w.consistent(t, repo))
		}
		w.must(t, push...)
		require.NoError(t, w.consistent(t, repo))
		w.must(t, "pull", "@up", "-q", "--lock", "lock.yaml", "-o", "again.tar", "--replace")
		require.True(t, bytes.Equal(w.read(t, "whole.tar"), w.read(t, "again.tar")))
	}
}

// consistent demands that a repository has the whole bundle, or no tag.
func (w *world) consistent(t *testing.T, repo string) error {
	t.Helper()
	cmd, _, stderr := w.command(t.Context(), "inspect", w.mirror.Host+"/"+repo+":1", "--ca-file", "ca.crt")
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 4 && strings.Contains(stderr.String(), ":1: the registry does not have it") {
			return nil // no tag
		}
		return fmt.Errorf("%w: %s", err, stderr.String())
	}
	cmd, stdout, stderr := w.command(t.Context(), "push", "whole.tar", w.mirror.Host+"/"+repo+":1", "--ca-file", "ca.crt", "-q", "--dry-run", "--check-all", "--format", "json")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, stderr.String())
	}
	if !strings.Contains(stdout.String(), `"newItems": 0`) {
		return fmt.Errorf("the tag is there, and not all of the bundle: %s", stdout.String())
	}
	return nil
}
