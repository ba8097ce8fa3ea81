//go:build linux

package model

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

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

// A program can be run again from its text, and drawn again from its seed.
func TestProgramsHaveATextAndASeed(t *testing.T) {
	programs := suite()
	verbs := map[string]bool{}
	for seed := range uint64(500) {
		p := programs.Drawn(seed)
		require.Equal(t, p, programs.Drawn(seed))
		again, err := programs.Read("# a comment\n\n" + p.String())
		require.NoError(t, err)
		require.Equal(t, p.String(), again.String())
		for _, s := range p {
			verbs[s.Do] = true
			verbs["fault "+s.Fault.Kind] = true
		}
	}
	for _, verb := range []string{"pull", "sign", "split", "repair", "push", "prune", "verify"} {
		require.True(t, verbs[verb], verb)
	}
	for damage := range damages {
		require.True(t, verbs[damage], damage)
	}
	for lie := range liars {
		require.True(t, verbs["fault "+lie], lie)
	}
	_, err := programs.Read(`{"do":"pull","of":"a"}`)
	require.ErrorContains(t, err, `unknown field "of"`)
}

// What is left of a program is what it needs to fail.
func TestShrinkLeavesWhatIsNeeded(t *testing.T) {
	asked := 0
	short := random.Suite[int]{}.Shrink(random.Program[int]{1, 2, 3, 4, 5, 6, 7, 8, 9}, func(p random.Program[int]) bool {
		asked++
		return slices.Contains(p, 3) && slices.Contains(p, 8)
	})
	require.Equal(t, random.Program[int]{3, 8}, short)
	require.Less(t, asked, 25)
}
