package main

import (
	"testing"
	"time"

	pretty "github.com/jedib0t/go-pretty/v6/table"
	"github.com/stretchr/testify/require"
)

func TestARowIsTheMedianOfItsRoundsWithTheirSpread(t *testing.T) {
	tools := []tool{{name: ourName}, {name: "crane"}}
	table := &table{cells: map[cell]*results{}}
	for _, s := range []int{9, 2, 3} {
		table.add(pull, ourName, sample{wall: time.Second, onDisk: time.Duration(s) * time.Second, memory: int64(s) << 20})
		table.add(push, ourName, sample{wall: time.Duration(s) * time.Second})
		table.add(push, beforeName, sample{wall: 6 * time.Second})
	}
	table.at(push, "crane").failed = true
	figures, found := table.times(pull, tools, false)
	require.True(t, found)
	require.Equal(t, pretty.Row{"3.00 (2.00–9.00)", none}, figures, "a pull counts with its sync")
	figures, _ = table.times(push, tools, true)
	require.Equal(t, pretty.Row{"3.00 (2.00–9.00)", "failed", "-50 %"}, figures)
	_, found = table.times(mostPush, tools, true)
	require.False(t, found)
}

func TestAToolThatIsNoneIsRefused(t *testing.T) {
	_, err := findTools(t.Context(), options{tools: []string{"regctl", "skopeo"}})
	require.ErrorContains(t, err, `no tool "skopeo"`)
}
