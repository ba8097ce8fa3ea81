//go:build linux

package model

import (
	"path/filepath"
	"testing"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/random"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

// binary is the real program, built once.
var binary string

func TestMain(m *testing.M) {
	toolchain.Main(m, func(dir string) { binary = filepath.Join(dir, "vdo-bundle") }, "./bundler/cmd/vdo-bundle")
}

// suite is how programs are made; sites is where they run.
func suite(sites ...*site) random.Suite[Step] {
	s := random.Suite[Step]{Draw: draw}
	for _, at := range sites {
		s.Runs = append(s.Runs, at.run)
	}
	return s
}

// Programs that are rarely drawn, and random ones, keep every promise. A change is judged by the same programs as the
// one before it.
func TestRandomPrograms(t *testing.T) {
	s := suite(newSite(t, binary), newSite(t, binary))
	for _, name := range []string{"testdata/late.txt", "testdata/prune.txt"} {
		s.CheckFile(t, name)
	}
	s.Check(t, tier.Pick[uint64](6, 80))
}
