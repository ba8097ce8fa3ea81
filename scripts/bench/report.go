package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	pretty "github.com/jedib0t/go-pretty/v6/table"
)

// Rows of a table.
const (
	rowPull         = "pull"
	rowResume       = "resume a pull"
	rowPush         = "push, empty registry"
	rowPushAgain    = "push, full registry"
	rowVerifiedPush = "verify and push"
	rowDeltaPull    = "delta, pull"
	rowDeltaPush    = "delta, push"
	rowVerify       = "verify"
	rowMostPull     = "pull, most memory"
	rowMostPush     = "push, most memory"
)

var rows = []string{rowPull, rowResume, rowPush, rowPushAgain, rowVerifiedPush, rowDeltaPull, rowDeltaPush, rowVerify, rowMostPull, rowMostPush}

// withSync are the rows that include the time of a sync right after the process.
var withSync = []string{rowPull, rowResume, rowDeltaPull}

// table is the results of one set over one link.
type table struct {
	set   *set
	over  string
	cells map[cell]*results
}

type cell struct{ row, tool string }

// results are the runs of one tool in one row.
type results struct {
	samples []sample
	failed  bool
}

func (t *table) at(row string, of tool) *results {
	c := cell{row, of.name}
	if t.cells[c] == nil {
		t.cells[c] = &results{}
	}
	return t.cells[c]
}

// none marks a job that a tool does not do.
const none = "–"

func (t *table) add(row string, of tool, s sample) {
	r := t.at(row, of)
	r.samples = append(r.samples, s)
	say("  %s: wall %s, on disk %s, CPU %s, %s, %s on the wire, %d requests", row,
		seconds(s.wall), seconds(s.onDisk), seconds(s.cpu), humanize.IBytes(unsigned(s.memory)), bytesText(s.wire), s.requests)
}

// counted returns the time of a row that is compared.
func counted(row string) func(sample) time.Duration {
	if slices.Contains(withSync, row) {
		return func(s sample) time.Duration { return s.onDisk }
	}
	return func(s sample) time.Duration { return s.wall }
}

// median returns the middle one of several figures; of an even number the lower of two.
func median(samples []sample, of func(sample) time.Duration) time.Duration {
	all := sorted(samples, of)
	return all[(len(all)-1)/2]
}

func sorted(samples []sample, of func(sample) time.Duration) []time.Duration {
	all := make([]time.Duration, len(samples))
	for i, s := range samples {
		all[i] = of(s)
	}
	slices.Sort(all)
	return all
}

// spread returns a median with the least and the most.
func spread(samples []sample, of func(sample) time.Duration) string {
	all := sorted(samples, of)
	return fmt.Sprintf("%s (%s–%s)", seconds(median(samples, of)), seconds(all[0]), seconds(all[len(all)-1]))
}

func (r *results) memory() int64 {
	return slices.MaxFunc(r.samples, func(a, b sample) int { return cmp.Compare(a.memory, b.memory) }).memory
}

// printGrid prints a table in Markdown; each column of figures has one unit.
func printGrid(head pretty.Row, rows []pretty.Row) {
	g := pretty.NewWriter()
	g.AppendHeader(head)
	g.AppendRows(rows)
	fmt.Printf("\n%s\n", g.RenderMarkdown())
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }

// bytesText returns a number of bytes for running text.
func bytesText(n int64) string { return humanize.Bytes(unsigned(n)) }
func unsigned(n int64) uint64  { return uint64(max(n, 0)) }
func mib(n int64) string       { return fmt.Sprintf("%d", n>>20) }

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
