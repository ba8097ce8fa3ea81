package model

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/cluster"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	vcsim "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/vcenter"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	cluster.Main(m, func() {
		if shared.site != nil {
			shared.site.vc.Close()
			_ = shared.site.mirror.Close()
		}
		_ = os.RemoveAll(shared.dir)
	})
}

const (
	length   = 12              // events of a program, passes not counted
	programs = 1               // drawn where nothing else is asked for
	patience = 2 * time.Minute // of shrinking
)

// Drawn programs keep every promise. VDO_TEST_SEED draws one
// again, VDO_TEST_PROGRAMS says how many (of the seeds from 1 on), VDO_TEST_DURATION for
// how long (of fresh seeds, or of VDO_TEST_SEED and those after it), VDO_TEST_PROGRAM
// names a file with a program to run instead. VDO_TEST_WRITES has operators die after so
// many writes each, and nothing else.
func TestRandomPrograms(t *testing.T) {
	tier.Later(t, tier.Peers)
	s := newSite(t)
	if name := os.Getenv("VDO_TEST_PROGRAM"); name != "" {
		check(t, s, load(t, name), name)
		return
	}
	if each := number(t, "VDO_TEST_WRITES", 0); each > 0 {
		killedAllTheWay(t, s, int(each)) //nolint:gosec // small
		return
	}
	seed := number(t, "VDO_TEST_SEED", uint64(time.Now().UnixNano())) //nolint:gosec // after 1970
	if text := os.Getenv("VDO_TEST_DURATION"); text != "" {
		d, err := time.ParseDuration(text)
		require.NoError(t, err)
		end := time.Now().Add(d)
		for each := 1; each <= longestLife && time.Now().Before(end); each++ {
			t.Run(fmt.Sprintf("killed after each %d writes", each), func(t *testing.T) { killedAllTheWay(t, s, each) })
		}
		for ; time.Now().Before(end); seed++ {
			check(t, s, draw(seed, length), fmt.Sprint("VDO_TEST_SEED=", seed))
		}
		return
	}
	if os.Getenv("VDO_TEST_SEED") != "" {
		check(t, s, draw(seed, length), fmt.Sprint("VDO_TEST_SEED=", seed))
		return
	}
	for seed := range number(t, "VDO_TEST_PROGRAMS", programs) {
		check(t, s, draw(seed+1, length), fmt.Sprint("VDO_TEST_SEED=", seed+1))
	}
}

// An operator that dies after its writes converges. The tier all kills it after every single one,
// and amid upgrades and a removal too.
func TestKilledAfterWrites(t *testing.T) { killedAllTheWay(t, newSite(t), tier.Pick(life, 1)) }

func TestAnAPIServerThatFails(t *testing.T) { apiServerFails(t, newSite(t)) }

// Programs that once failed keep every promise.
func TestKnownPrograms(t *testing.T) {
	known, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, known)
	for _, name := range tier.Pick(known[len(known)-1:], known) {
		t.Run(name, func(t *testing.T) { check(t, newSite(t), load(t, name), name) })
	}
}

// number reads a variable of the environment.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, name)
	return n
}

func load(t *testing.T, name string) program {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	p, err := read(string(data))
	require.NoError(t, err, name)
	return p
}

// What a program is printed as, is read as the same.
func TestProgramsAreReadAsPrinted(t *testing.T) {
	for seed := range uint64(50) {
		p := draw(seed, 30)
		again, err := read(p.String())
		require.NoError(t, err)
		require.Equal(t, p, again)
	}
	for _, bad := range []string{"node: eats itself", "API server: the request fails", "at request x: node: w-1 lies", "nonsense"} {
		_, err := read(bad)
		require.Error(t, err, bad)
	}
}

// newSite returns the site that all tests share.
func newSite(t *testing.T) *site {
	t.Helper()
	if shared.site == nil {
		dir, err := os.MkdirTemp("", "vdo-model-")
		require.NoError(t, err)
		shared.dir = dir
		m, err := deliver(context.Background(), dir)
		require.NoError(t, err)
		vc, err := vcsim.Run(vcsim.Options{})
		require.NoError(t, err)
		shared.site = &site{mirror: m, vc: vc, cfg: cluster.Config(t)}
	}
	return shared.site
}

// shared is the site, and the directory of what its mirror serves.
var shared struct {
	site *site
	dir  string
}

// check runs a program, and where it fails shrinks it.
func check(t *testing.T, s *site, p program, name string) {
	t.Helper()
	ctx := context.Background()
	start := time.Now()
	w, broken, err := execute(ctx, s, p)
	require.NoError(t, err, "%s\n%s", name, p)
	if broken == nil {
		t.Logf("%s: %d events, %d requests of the operator, %d writes, %s", name, len(p), w.wire.all, len(w.wire.writes), time.Since(start).Round(time.Millisecond))
		return
	}
	fails := func(p program) bool {
		_, v, err := execute(ctx, s, p)
		return err == nil && v != nil && v.invariant == broken.invariant
	}
	small := shrink(p, time.Now().Add(patience), fails)
	w, last, err := execute(ctx, s, small)
	require.NoError(t, err)
	if last == nil { // a race that not every run has
		last = broken
	}
	t.Errorf("%s: %v\n\nthe program, shrunk:\n%s\nwhat happened:\n%s", name, last, small, w.told())
}
