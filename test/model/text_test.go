//go:build linux

package model

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program can be run again from its text, and drawn again from its seed.
func TestProgramsHaveATextAndASeed(t *testing.T) {
	verbs := map[string]bool{}
	for seed := range uint64(500) {
		p := Draw(rand.New(rand.NewPCG(seed, 1)))
		require.Equal(t, p.String(), Draw(rand.New(rand.NewPCG(seed, 1))).String())
		again, err := ParseProgram("# a comment\n\n" + p.String())
		require.NoError(t, err)
		require.Equal(t, p.String(), again.String())
		for _, s := range p {
			verbs[s.Do] = true
			verbs["fault "+s.Fault.Kind] = true
		}
	}
	for _, verb := range []string{"lock", "pull", "sign", "split", "repair", "push", "prune", "serve", "verify", "inspect"} {
		require.True(t, verbs[verb], verb)
	}
	for damage := range damages {
		require.True(t, verbs[damage], damage)
	}
	for lie := range liars {
		require.True(t, verbs["fault "+lie], lie)
	}
	_, err := ParseProgram("pull of=a")
	require.ErrorContains(t, err, `there is no "of"`)
}

// What is left of a program is what it needs to fail.
func TestShrinkLeavesWhatIsNeeded(t *testing.T) {
	p, err := ParseProgram("lock bundle=a to=l.yaml\npull bundle=b to=x.tar key=k1 with=single,replace fault=kill@up:12\nserve from=x.tar\nsign to=x.tar key=k2 fault=second\nverify from=x.tar trust=k1")
	require.NoError(t, err)
	asked := 0
	short := Shrink(p, func(p Program) bool {
		asked++
		killed := slices.IndexFunc(p, func(s Step) bool { return s.Do == "pull" && s.Fault.Kind == "kill" && s.Fault.At >= 2 })
		signed := slices.IndexFunc(p, func(s Step) bool { return s.Do == "sign" && s.Key == "k2" })
		return killed >= 0 && signed > killed
	})
	require.Equal(t, "pull bundle=a to=x.tar fault=kill@up:3\nsign to=x.tar key=k2\n", short.String())
	require.Less(t, asked, 100)
}
