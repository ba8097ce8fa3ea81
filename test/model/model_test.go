//go:build linux

package model

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/random"
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

// suite is how programs are made; sites is where they run.
func suite(sites ...*site) random.Suite[Step] {
	s := random.Suite[Step]{Draw: draw, Parse: ParseStep, Simpler: Step.simpler}
	for _, at := range sites {
		s.Runs = append(s.Runs, at.run)
	}
	return s
}

// Random programs keep every promise. A change is judged by the same programs as the one
// before it.
func TestRandomPrograms(t *testing.T) {
	suite(newSite(t, binary), newSite(t, binary)).Check(t, tier.Pick[uint64](6, 80))
}
