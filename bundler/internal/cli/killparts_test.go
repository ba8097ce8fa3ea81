package cli_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/registry"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// killOnce runs vdo-bundle and kills it as soon as the files that it works on are as
// wanted. It tells whether the program was still running then.
func (w *world) killOnce(t *testing.T, wanted func() bool, args ...string) bool {
	t.Helper()
	cmd, _, stderr := w.command(t.Context(), args...)
	require.NoError(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done: // it was faster
			require.NoError(t, err, stderr.String())
			return false
		default:
		}
		if wanted() {
			killed := cmd.Process.Kill()
			if err := <-done; errors.Is(killed, os.ErrProcessDone) {
				require.NoError(t, err, stderr.String())
				return false
			}
			require.NoError(t, killed)
			return true
		}
		runtime.Gosched()
	}
}

// reaches tells that one of the files that a pattern matches has so many bytes.
func (w *world) reaches(pattern string, size int64) func() bool {
	return func() bool {
		found, err := filepath.Glob(filepath.Join(w.dir, pattern))
		if err != nil {
			return false
		}
		for _, name := range found {
			if info, err := os.Stat(name); err == nil && info.Size() >= size {
				return true
			}
		}
		return false
	}
}

// contents are the bytes of all files below a folder, by name.
func (w *world) contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	root, out := filepath.Join(w.dir, dir), map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		out[strings.TrimPrefix(name, root+"/")] = string(data)
		return err
	}))
	return out
}

// same demands the same files, without printing megabytes where they are not.
func same(t *testing.T, want, got map[string]string) {
	t.Helper()
	for name := range want {
		require.Contains(t, names(got), name)
		require.True(t, want[name] == got[name], "the bytes of %s differ", name)
	}
	require.Len(t, names(got), len(want))
}

func names(files map[string]string) []string {
	out := make([]string, 0, len(files))
	for name := range files {
		out = append(out, name)
	}
	return out
}

func (w *world) mkdir(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, os.Mkdir(filepath.Join(w.dir, name), 0o755))
	}
}

const inParts = "--volume-size=5MiB"

// While blobs arrive, while the sums and recovery parts are made, while the parts get
// their names: a pull into parts goes on from everywhere.
func TestKilledPullIntoPartsGoesOn(t *testing.T) {
	w := newKillWorld(t)
	random := chance(t)
	w.mkdir(t, "want", "got")
	w.must(t, "pull", "@up", "-q", "--lock", "lock.yaml", "-o", "want/a.tar", inParts, "--parity", "2")
	want := w.contents(t, "want")
	require.Len(t, want, 11, "eight parts, two for recovery, and the list")
	largest := slices.MaxFunc(w.upstream.Requests(), func(a, b registry.Request) int { return cmp.Compare(a.Sent, b.Sent) })
	pull := []string{"pull", "@up", "-q", "--lock", "lock.yaml", "-o", "got/a.tar", inParts, "--parity", "2", "--retries", "0"}
	for range tier.Pick(1, 2) {
		for round := range tier.Pick(2, 5) {
			var running bool
			if round < 2 {
				fault := registry.Fault{Match: registry.Match{Method: "GET", Path: "/blobs/"}, After: random.IntN(6)}
				if round == 0 {
					fault = registry.Fault{Match: registry.Match{Method: "GET", Path: largest.Path}, HoldAt: 1 + random.Int64N(largest.Sent)}
				}
				running = w.kill(t, w.upstream, fault, pull...)
				t.Logf("round %d: after %d requests, %d bytes: killed %t", round, fault.After, fault.HoldAt, running)
			} else {
				pattern, size := w.localPoint(random)
				running = w.killOnce(t, w.reaches(pattern, size), pull...)
				t.Logf("round %d: once %s has %d bytes: killed %t", round, pattern, size, running)
			}
			if !running {
				break
			}
			if _, err := os.Stat(filepath.Join(w.dir, "got/a.tar.parts")); err == nil {
				break // it had only to clean up
			}
			cmd, _, stderr := w.command(t.Context(), "inspect", "got/a.tar.parts")
			require.Error(t, cmd.Run(), "a part of a bundle looks complete")
			require.NotContains(t, stderr.String(), "panic")
		}
		w.finish(t, pull)
		got := w.contents(t, "got")
		if _, left := got["a.tar.journal"]; left { // it was killed when only that was to be removed
			w.must(t, pull...)
			got = w.contents(t, "got")
		}
		same(t, want, got)
		require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "got")))
		w.mkdir(t, "got")
	}
}

// localPoint is a point after the last byte has arrived.
func (w *world) localPoint(random *rand.Rand) (pattern string, size int64) {
	if random.IntN(2) == 0 {
		return fmt.Sprintf("got/a.tar.p00%d.partial", 1+random.IntN(2)), random.Int64N(5 << 20)
	}
	return fmt.Sprintf("got/a.tar.00%d", 1+random.IntN(8)), 0
}

// finish runs a pull to its end, where the bundle is not there yet.
func (w *world) finish(t *testing.T, pull []string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(w.dir, "got/a.tar.parts")); err != nil {
		w.goOn(t, "got/a.tar.journal", pull...)
	}
}

func TestKilledRepairGoesOn(t *testing.T) {
	w := newKillWorld(t)
	random := chance(t)
	w.mkdir(t, "got")
	w.must(t, "split", "whole.tar", inParts, "--parity", "3", "-o", "got/a.tar")
	want := w.contents(t, "got")
	parts := []string{"a.tar.001", "a.tar.002", "a.tar.003", "a.tar.004", "a.tar.005", "a.tar.006", "a.tar.007", "a.tar.008", "a.tar.p001", "a.tar.p002", "a.tar.p003"}
	for range tier.Pick(1, 4) {
		random.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		for _, name := range parts[:3] { // one is missing, one is short, one has other bytes
			require.NoError(t, os.Remove(filepath.Join(w.dir, "got", name)))
		}
		w.write(t, "got/"+parts[1], []byte(want[parts[1]][:1000]))
		w.write(t, "got/"+parts[2], []byte("X"+want[parts[2]][1:]))
		for range tier.Pick(2, 3) {
			wanted, point := w.reaches("got/*.rebuilt", 1+random.Int64N(5<<20)), "it has rebuilt some bytes"
			if random.IntN(2) == 0 { // in the middle of the renames
				wanted, point = w.reaches("got/"+parts[0], 1), parts[0]+" has its name"
			}
			running := w.killOnce(t, wanted, "repair", "got/a.tar.parts")
			t.Logf("once %s: killed %t", point, running)
			if !running {
				break
			}
		}
		w.must(t, "repair", "got/a.tar.parts")
		same(t, want, w.contents(t, "got"))
	}
}

func TestKilledSplitCanBeRunAgain(t *testing.T) {
	w := newKillWorld(t)
	random := chance(t)
	w.mkdir(t, "want", "got")
	split := func(to string) []string {
		return []string{"split", "whole.tar", inParts, "--parity", "2", "-o", to + "/a.tar", "--replace"}
	}
	w.must(t, split("want")...)
	for range tier.Pick(1, 4) {
		for range 2 {
			pattern, size := fmt.Sprintf("got/a.tar.00%d.split", 1+random.IntN(8)), random.Int64N(5<<20)
			if random.IntN(2) == 0 {
				pattern, size = fmt.Sprintf("got/a.tar.00%d", 1+random.IntN(8)), 0
			}
			running := w.killOnce(t, w.reaches(pattern, size), split("got")...)
			t.Logf("once %s has %d bytes: killed %t", pattern, size, running)
		}
		w.must(t, split("got")...)
		same(t, w.contents(t, "want"), w.contents(t, "got"))
		require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "got")))
		w.mkdir(t, "got")
	}
}
