package main

import (
	"testing"
	"time"

	pretty "github.com/jedib0t/go-pretty/v6/table"
	"github.com/stretchr/testify/require"
)

func TestARowIsTheMedianOfItsRoundsWithTheirSpread(t *testing.T) {
	ours, crane := tool{name: ourName}, tool{name: "crane"}
	table := &table{cells: map[cell]*results{}}
	for _, s := range []int{9, 2, 3} {
		table.add(rowPull, ours, sample{wall: time.Second, onDisk: time.Duration(s) * time.Second, memory: int64(s) << 20})
		table.add(rowPush, ours, sample{wall: time.Duration(s) * time.Second})
		table.add(rowPush, tool{name: beforeName}, sample{wall: 6 * time.Second})
	}
	table.at(rowPush, crane).failed = true
	figures, found := table.times(rowPull, []string{ourName, "crane"}, false)
	require.True(t, found)
	require.Equal(t, pretty.Row{"3.00 (2.00–9.00)", none}, figures, "a pull counts with its sync")
	figures, _ = table.times(rowPush, []string{ourName, "crane"}, true)
	require.Equal(t, pretty.Row{"3.00 (2.00–9.00)", "failed", "-50 %"}, figures)
	_, found = table.times(rowVerify, []string{ourName, "crane"}, true)
	require.False(t, found)
}

func TestAToolThatIsNoneIsRefused(t *testing.T) {
	_, err := findTools(t.Context(), options{tools: []string{"regctl", "skopeo"}})
	require.ErrorContains(t, err, `no tool "skopeo"`)
}
