package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// memoryBound is what vdo-bundle may take, whatever its flags are.
const memoryBound = 64 << 20

// printSummary prints what README.md holds: times of all tools side by side, what a pull
// and a push cost, and whether memory kept its bound.
func printSummary(tables []*table, tools []tool) {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.name
	}
	printTimes(tables, names)
	printCost(tables, names, rowPull)
	printCost(tables, names, rowPush)
	printMemory(tables, names)
}

// printTimes prints medians; with the change where an older vdo-bundle took part.
func printTimes(tables []*table, tools []string) {
	change := slices.Contains(tools, beforeName)
	head := "| wall, seconds | | " + strings.Join(tools, " | ") + " |"
	if change {
		head += " change |"
	}
	fmt.Printf("\n%s\n%s\n", head, strings.Repeat("|---", strings.Count(head, "|")-1)+"|")
	for _, t := range tables {
		name := t.set.name + ", " + t.over
		for _, row := range rows[:slices.Index(rows, rowMostPull)] {
			line, any := t.times(row, tools, change)
			if any {
				fmt.Printf("| %s | %s |%s\n", name, row, line)
				name = ""
			}
		}
	}
}

// times is one line of that table, and whether anything is in it.
func (t *table) times(row string, tools []string, change bool) (line string, any bool) {
	for _, tool := range tools {
		text := none
		if r := t.cells[cell{row, tool}]; r != nil && (len(r.samples) > 0 || r.failed != "") {
			any = true
			if text = r.failed; text == "" {
				text = seconds(median(r.samples, counted(row)))
			}
		}
		line += " " + text + " |"
	}
	if change {
		line += " " + t.change(row) + " |"
	}
	return line, any
}

// change is how much longer this vdo-bundle takes than the one before.
func (t *table) change(row string) string {
	ours, before := t.cells[cell{row, ourName}], t.cells[cell{row, beforeName}]
	if ours == nil || before == nil || len(ours.samples) == 0 || len(before.samples) == 0 {
		return ""
	}
	was := median(before.samples, counted(row))
	return fmt.Sprintf("%+.0f %%", 100*(float64(median(ours.samples, counted(row)))/float64(was)-1))
}

// printCost prints what a row costs over loopback.
func printCost(tables []*table, tools []string, row string) {
	fmt.Printf("\n| a %s, loopback | | CPU s | memory MiB | written MB | wire MB | requests |\n|---|---|---|---|---|---|---|\n", strings.Split(row, ",")[0])
	for _, t := range tables {
		name := t.set.name
		for _, tool := range tools {
			r := t.cells[cell{row, tool}]
			if t.over != "loopback" || r == nil || len(r.samples) == 0 {
				continue
			}
			fmt.Printf("| %s | %s | %s | %s | %s | %s | %d |\n", name, tool,
				seconds(median(r.samples, func(s sample) time.Duration { return s.cpu })), mib(r.memory()),
				mb(median(r.samples, func(s sample) int64 { return s.written })), mb(median(r.samples, func(s sample) int64 { return s.wire })),
				median(r.samples, func(s sample) int { return s.requests }))
			name = ""
		}
	}
}

// printMemory prints the most of each table against the bound.
func printMemory(tables []*table, tools []string) {
	if !slices.Contains(tools, ourName) {
		return
	}
	fmt.Printf("\n| memory of vdo-bundle, MiB | any row above | %s | %s | bound of %s |\n|---|---|---|---|---|\n", rowMostPull, rowMostPush, mib(memoryBound))
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
		fmt.Printf("| %s, %s | %s | %s | %s | %s |\n", t.set.name, t.over, mib(usual), mib(pull), mib(push), verdict)
	}
}
