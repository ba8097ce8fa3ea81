package main

import (
	"errors"
	"testing"
	"time"

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
	require.Equal(t, "| vdo-bundle | 1.00 (1.00–1.00) | 3.00 (2.00–9.00) | 0.00 | 9 | 0.00 | 0.00 | 0 |", table.cells[cell{rowPull, ourName}].line(ourName))

	line, any := table.times(rowPull, []string{ourName, "crane"}, false)
	require.True(t, any)
	require.Equal(t, " 3.00 | – |", line, "a pull counts with its sync")
	line, _ = table.times(rowPush, []string{ourName, "crane"}, true)
	require.Equal(t, " 3.00 | failed | -50 % |", line)
	_, any = table.times(rowVerify, []string{ourName, "crane"}, true)
	require.False(t, any)
}

func TestTwoRoundsAreNoMedian(t *testing.T) {
	_, err := parse([]string{"-repeat", "2"})
	require.ErrorContains(t, err, "2 rounds give no median")
}

func TestABusyMachineIsSaid(t *testing.T) {
	table := newTable(&set{newer: &set{}}, "loopback")
	table.add(rowPull, tool{name: ourName}, sample{others: others{used: 0.05}})
	table.add(rowPull, tool{name: ourName}, sample{others: others{used: 0.4}})
	table.add(rowPull, tool{name: ourName}, sample{others: others{stolen: 0.05}})
	busy, runs, most := table.others()
	require.Equal(t, 2, busy)
	require.Equal(t, 3, runs)
	require.Equal(t, "others used 40 % of the processors, 5 % were stolen", most.String())
}
