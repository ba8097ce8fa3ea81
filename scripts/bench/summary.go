package main

import (
	"fmt"
	"slices"

	pretty "github.com/jedib0t/go-pretty/v6/table"
)

// memoryBound is vdo-bundle's memory limit, with any flags.
const memoryBound = 64 << 20

// printSummary prints the tables for README.md: times of all tools side by side, and memory against its limit.
func printSummary(tables []*table, tools []tool) {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.name
	}
	printTimes(tables, names)
	printMemory(tables, names)
}

// printTimes prints medians with their spread, and the change if an older vdo-bundle took part.
func printTimes(tables []*table, tools []string) {
	change := slices.Contains(tools, beforeName)
	head := pretty.Row{"wall, seconds", ""}
	for _, tool := range tools {
		head = append(head, tool)
	}
	if change {
		head = append(head, "change")
	}
	var grid []pretty.Row
	for _, t := range tables {
		name := t.set.name + ", " + t.over
		for _, row := range rows[:slices.Index(rows, rowMostPull)] {
			if figures, found := t.times(row, tools, change); found {
				grid = append(grid, append(pretty.Row{name, row}, figures...))
				name = ""
			}
		}
	}
	printGrid(head, grid)
}

// times returns the figures of one row, and whether it has any.
func (t *table) times(row string, tools []string, change bool) (figures pretty.Row, found bool) {
	for _, tool := range tools {
		text := none
		if r := t.cells[cell{row, tool}]; r != nil && (len(r.samples) > 0 || r.failed) {
			found = true
			if text = "failed"; !r.failed {
				text = spread(r.samples, counted(row))
			}
		}
		figures = append(figures, text)
	}
	if change {
		figures = append(figures, t.change(row))
	}
	return figures, found
}

// change returns how much longer this vdo-bundle takes than the one before.
func (t *table) change(row string) string {
	ours, before := t.cells[cell{row, ourName}], t.cells[cell{row, beforeName}]
	if ours == nil || before == nil || len(ours.samples) == 0 || len(before.samples) == 0 {
		return ""
	}
	was := median(before.samples, counted(row))
	return fmt.Sprintf("%+.0f %%", 100*(float64(median(ours.samples, counted(row)))/float64(was)-1))
}

// printMemory prints the highest memory of each table against the limit.
func printMemory(tables []*table, tools []string) {
	if !slices.Contains(tools, ourName) {
		return
	}
	bound := "bound of " + mib(memoryBound)
	head := pretty.Row{"memory of vdo-bundle, MiB", "any row above", rowMostPull, rowMostPush, bound}
	var grid []pretty.Row
	for _, t := range tables {
		var usual, pull, push int64
		for _, row := range rows {
			r := t.cells[cell{row, ourName}]
			switch {
			case r == nil || len(r.samples) == 0:
			case row == rowMostPull:
				pull = r.memory()
			case row == rowMostPush:
				push = r.memory()
			default:
				usual = max(usual, r.memory())
			}
		}
		verdict := "kept"
		if max(usual, pull, push) > memoryBound {
			verdict = "**not kept**"
		}
		grid = append(grid, pretty.Row{t.set.name + ", " + t.over, mib(usual), mib(pull), mib(push), verdict})
	}
	printGrid(head, grid)
}
