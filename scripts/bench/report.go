package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	pretty "github.com/jedib0t/go-pretty/v6/table"
)

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

func (t *table) at(r row, tool string) *results {
	c := cell{r.name, tool}
	if t.cells[c] == nil {
		t.cells[c] = &results{}
	}
	return t.cells[c]
}

// none marks a job that a tool does not do.
const none = "–"

func (t *table) add(r row, tool string, s sample) {
	of := t.at(r, tool)
	of.samples = append(of.samples, s)
	say("  %s: wall %s, on disk %s, CPU %s, %s, %s on the wire, %d requests", r.name,
		seconds(s.wall), seconds(s.onDisk), seconds(s.cpu), humanize.IBytes(unsigned(s.memory)), bytesText(s.wire), s.requests)
}

// sorted returns the times of a row that are compared, the least first.
func (r row) sorted(samples []sample) []time.Duration {
	all := make([]time.Duration, len(samples))
	for i, s := range samples {
		if all[i] = s.wall; r.fresh {
			all[i] = s.onDisk
		}
	}
	slices.Sort(all)
	return all
}

// median returns the middle one of sorted times; of an even number the lower of two.
func median(all []time.Duration) time.Duration { return all[(len(all)-1)/2] }

// spread returns the median of sorted times, with the least and the most.
func spread(all []time.Duration) string {
	return fmt.Sprintf("%s (%s–%s)", seconds(median(all)), seconds(all[0]), seconds(all[len(all)-1]))
}

func (r *results) memory() (most int64) {
	for _, s := range r.samples {
		most = max(most, s.memory)
	}
	return most
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

// printTimes prints medians with their spread, and the change if an older vdo-bundle took part.
func printTimes(tables []*table, tools []tool) {
	change := slices.ContainsFunc(tools, func(t tool) bool { return t.name == beforeName })
	head := pretty.Row{"wall, seconds", ""}
	for _, tool := range tools {
		head = append(head, tool.name)
	}
	if change {
		head = append(head, "change")
	}
	var grid []pretty.Row
	for _, t := range tables {
		name := t.set.name + ", " + t.over
		for _, r := range rows {
			if figures, found := t.times(r, tools, change); found && !r.once {
				grid = append(grid, append(pretty.Row{name, r.name}, figures...))
				name = ""
			}
		}
	}
	printGrid(head, grid)
}

// times returns the figures of one row, and whether it has any.
func (t *table) times(r row, tools []tool, change bool) (figures pretty.Row, found bool) {
	for _, tool := range tools {
		text := none
		if of := t.at(r, tool.name); of.failed {
			text = "failed"
		} else if len(of.samples) > 0 {
			text = spread(r.sorted(of.samples))
		}
		figures, found = append(figures, text), found || text != none
	}
	if change {
		figures = append(figures, t.change(r))
	}
	return figures, found
}

// change returns how much longer this vdo-bundle takes than the one before.
func (t *table) change(r row) string {
	ours, before := r.sorted(t.at(r, ourName).samples), r.sorted(t.at(r, beforeName).samples)
	if len(ours) == 0 || len(before) == 0 {
		return ""
	}
	return fmt.Sprintf("%+.0f %%", 100*(float64(median(ours))/float64(median(before))-1))
}

// memoryBound is vdo-bundle's memory limit, with any flags.
const memoryBound = 64 << 20

// printMemory prints the highest memory of each table against the limit.
func printMemory(tables []*table) {
	bound := "bound of " + mib(memoryBound)
	head := pretty.Row{"memory of vdo-bundle, MiB", "any row above", mostPull.name, mostPush.name, bound}
	var grid []pretty.Row
	for _, t := range tables {
		var usual int64
		for _, r := range rows {
			if !r.once {
				usual = max(usual, t.at(r, ourName).memory())
			}
		}
		pull, push, verdict := t.at(mostPull, ourName).memory(), t.at(mostPush, ourName).memory(), "kept"
		if max(usual, pull, push) > memoryBound {
			verdict = "**not kept**"
		}
		grid = append(grid, pretty.Row{t.set.name + ", " + t.over, mib(usual), mib(pull), mib(push), verdict})
	}
	printGrid(head, grid)
}
