//go:build linux

package model

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// binary is the real program, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	debug.SetGCPercent(400) // of the registries in this process: a tenth of the processor's time, under the race detector
	if binary = os.Getenv("VDO_BUNDLE"); binary != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "vdo-model")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // scratch
	binary = filepath.Join(dir, "vdo-bundle")
	if err := toolchain.Programs(context.Background(), dir, "./bundler/cmd/vdo-bundle"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
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

// Random programs keep every promise. VDO_TEST_SEED draws the same again,
// VDO_TEST_PROGRAMS says how many, VDO_TEST_DURATION for how long; VDO_TEST_PROGRAM
// names a file with one program to run instead, as often as VDO_TEST_PROGRAMS says.
func TestRandomPrograms(t *testing.T) {
	if name := os.Getenv("VDO_TEST_PROGRAM"); name != "" {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		p, err := ParseProgram(string(text))
		require.NoError(t, err)
		s := newSite(t, binary)
		for range number(t, "VDO_TEST_PROGRAMS", 1) {
			require.NoError(t, s.run(p))
		}
		return
	}
	fresh := uint64(22) // a change is judged by the same programs as the one before it
	if os.Getenv("VDO_TEST_DURATION") != "" {
		fresh = rand.Uint64()
	}
	seed := number(t, "VDO_TEST_SEED", fresh)
	count := number(t, "VDO_TEST_PROGRAMS", tier.Pick[uint64](6, 80))
	var end time.Time
	if text := os.Getenv("VDO_TEST_DURATION"); text != "" {
		d, err := time.ParseDuration(text)
		require.NoError(t, err)
		end, count = time.Now().Add(d), 1<<62
	}
	t.Logf("VDO_TEST_SEED=%d", seed)
	var next sync.Mutex
	n := uint64(0)
	const workers = 2
	var wg sync.WaitGroup
	for range workers {
		s := newSite(t, binary)
		wg.Go(func() {
			for {
				next.Lock()
				i := n
				n++
				next.Unlock()
				if i >= count || !end.IsZero() && time.Now().After(end) || t.Failed() && end.IsZero() && os.Getenv("VDO_TEST_ALL") == "" {
					return
				}
				p := Draw(rand.New(rand.NewPCG(seed, i)))
				if err := s.run(p); err != nil {
					report(t, s, i, p, err)
				}
			}
		})
	}
	wg.Wait()
}

// report shrinks what failed, and prints it.
func report(t *testing.T, s *site, i uint64, p Program, err error) {
	var broken *Broken
	if !errors.As(err, &broken) {
		t.Errorf("program %d: %v\n%s", i, err, p)
		return
	}
	end := time.Now().Add(time.Duration(number(t, "VDO_TEST_SHRINK", 60)) * time.Second)
	last := broken
	short := Shrink(p, func(p Program) bool {
		for range 2 { // where it takes luck
			var again *Broken
			if time.Now().Before(end) && errors.As(s.run(p), &again) && again.Rule == broken.Rule && again.Step.Do == broken.Step.Do {
				last = again
				return true
			}
		}
		return false
	})
	t.Errorf("program %d breaks a promise; the shortest that does:\n\n%s\n%v\n\nall of it:\n\n%s", i, short, last, p)
}
