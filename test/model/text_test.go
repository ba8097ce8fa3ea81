//go:build linux

package model

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

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
	programs := suite()
	p, err := programs.Read(`
{"do":"mirror","n":1}
{"do":"pull","bundle":"b","to":"x.tar","key":"k1","with":["single","replace"],"fault":{"kind":"kill","on":"up","at":12}}
{"do":"flip","to":"x.tar"}
{"do":"sign","to":"x.tar","key":"k2","fault":{"kind":"second"}}
{"do":"verify","from":"x.tar","trust":"k1"}`)
	require.NoError(t, err)
	asked := 0
	short := programs.Shrink(p, func(p Program) bool {
		asked++
		killed := slices.IndexFunc(p, func(s Step) bool { return s.Do == "pull" && s.Fault.Kind == "kill" && s.Fault.At >= 2 })
		signed := slices.IndexFunc(p, func(s Step) bool { return s.Do == "sign" && s.Key == "k2" })
		return killed >= 0 && signed > killed
	})
	require.Equal(t, Program{p[1], p[3]}, short)
	require.Less(t, asked, 100)
}
