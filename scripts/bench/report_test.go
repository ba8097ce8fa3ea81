package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	pretty "github.com/jedib0t/go-pretty/v6/table"
	"github.com/stretchr/testify/require"
)

func TestARowIsTheMedianOfItsRoundsWithTheirSpread(t *testing.T) {
	ours, crane := tool{name: ourName}, tool{name: "crane"}
	table := newTable(&set{name: "drivers", newer: &set{}}, "loopback")
	for _, s := range []int{9, 2, 3} {
		table.add(rowPull, ours, sample{wall: time.Second, onDisk: time.Duration(s) * time.Second, memory: int64(s) << 20})
		table.add(rowPush, ours, sample{wall: time.Duration(s) * time.Second})
		table.add(rowPush, tool{name: beforeName}, sample{wall: 6 * time.Second})
	}
	table.fail(rowPush, crane, errors.New("refused"))
	g := newGrid("tool")
	g.AppendRow(table.cells[cell{rowPull, ourName}].row(ourName))
	g.AppendRow(table.cells[cell{rowPush, "crane"}].row("crane"))
	require.Equal(t, []string{
		"| vdo-bundle | 1.00 (1.00–1.00) | 3.00 (2.00–9.00) | 0.00 | 9 | 0.00 | 0.00 | 0 |",
		"| crane | failed |  |  |  |  |  |  |",
	}, strings.Split(g.RenderMarkdown(), "\n")[2:])

	figures, found := table.times(rowPull, []string{ourName, "crane"}, false)
	require.True(t, found)
	require.Equal(t, pretty.Row{"3.00", none}, figures, "a pull counts with its sync")
	figures, _ = table.times(rowPush, []string{ourName, "crane"}, true)
	require.Equal(t, pretty.Row{"3.00", "failed", "-50 %"}, figures)
	_, found = table.times(rowVerify, []string{ourName, "crane"}, true)
	require.False(t, found)
}

func TestTwoRoundsAreNoMedian(t *testing.T) {
	_, err := parse([]string{"-repeat", "2"})
	require.ErrorContains(t, err, "2 rounds give no median")
}

func TestABusyMachineIsShown(t *testing.T) {
	table := newTable(&set{newer: &set{}}, "loopback")
	table.add(rowPull, tool{name: ourName}, sample{others: others{used: 0.05}})
	table.add(rowPull, tool{name: ourName}, sample{others: others{used: 0.4}})
	table.add(rowPull, tool{name: ourName}, sample{others: others{stolen: 0.05}})
	busy, runs, most := table.others()
	require.Equal(t, 2, busy)
	require.Equal(t, 3, runs)
	require.Equal(t, "others used 40 % of the processors, 5 % were stolen", most.String())
}
