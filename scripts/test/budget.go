package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// total is the package of the rows that limit the sum of all others.
const total = "total"

const (
	longest  = 10.0 // limit in seconds of a test of the first tier
	slack    = 1.5  // factor on a package's seconds: machines of one kind differ by a third
	noise    = 2.0  // seconds that the check ignores
	topRows  = 20
	topTests = 30
)

// Row is the limits of a package in a tier. The row of the first tier has its lines.
type Row struct {
	Package, Tier        string
	Seconds              float64
	Planes, Lines, Tests int
}

// at is the key of a row.
type at struct{ pkg, tier string }

// Budget is test/budget.tsv.
type Budget struct {
	rows        map[at]Row
	limits      []Row   // by tier
	calibration float64 // seconds of the calibration loop on the machine of the measurement
}

func budgetFile(root string) string { return filepath.Join(root, "test", "budget.tsv") }

func readBudget(root string) (*Budget, error) {
	table, err := readTable(budgetFile(root), 6)
	if err != nil {
		return nil, err
	}
	b := &Budget{rows: map[at]Row{}}
	for _, cells := range table {
		row, err := parseRow(cells)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", budgetFile(root), strings.Join(cells, " "), err)
		}
		switch row.Package {
		case "calibration":
			b.calibration = row.Seconds
		case total:
			b.limits = append(b.limits, row)
		default:
			b.rows[at{row.Package, row.Tier}] = row
		}
	}
	return b, nil
}

func parseRow(cells []string) (Row, error) {
	seconds, err := strconv.ParseFloat(cells[2], 64)
	row := Row{Package: cells[0], Tier: cells[1], Seconds: seconds}
	errs := []error{err}
	for i, n := range []*int{&row.Planes, &row.Lines, &row.Tests} {
		*n, err = strconv.Atoi(cells[3+i])
		errs = append(errs, err)
	}
	return row, errors.Join(errs...)
}

func (r Row) String() string {
	return fmt.Sprintf("%s\t%s\t%g\t%d\t%d\t%d", r.Package, r.Tier, r.Seconds, r.Planes, r.Lines, r.Tests)
}

const budgetHead = `# CPU seconds, control planes and lines of Go that each package may take, and the limit of
# their sum in each tier. Raising one row means lowering another. make budget-update rewrites
# the rows; the limits are set by hand.
# package	tier	seconds	control planes	lines	test lines
`

func (b *Budget) write(root string) error {
	rows := slices.SortedFunc(maps.Values(b.rows), func(x, y Row) int {
		return cmp.Or(cmp.Compare(x.Package, y.Package), cmp.Compare(x.Tier, y.Tier))
	})
	text := budgetHead + Row{Package: "calibration", Tier: "-", Seconds: b.calibration}.String() + "\n"
	for _, row := range slices.Concat(b.limits, rows) {
		text += row.String() + "\n"
	}
	return os.WriteFile(budgetFile(root), []byte(text), 0o644) //nolint:gosec // a file of the checkout
}

func (b *Budget) sum(tier string) Row {
	out := Row{Package: total, Tier: tier}
	for _, r := range b.rows {
		if r.Tier == tier {
			out.Seconds += r.Seconds
			out.Planes += r.Planes
			out.Lines += r.Lines
			out.Tests += r.Tests
		}
	}
	return out
}

// checkRows compares the rows with the tree and the limits. It runs no test.
func (b *Budget) checkRows(root string) error {
	tree, err := countLines(root)
	if err != nil {
		return err
	}
	var errs []error
	for pkg, has := range tree {
		row, ok := b.rows[at{pkg, firstTier}]
		if !ok {
			errs = append(errs, fmt.Errorf("package %s has no row in test/budget.tsv", pkg))
		} else if has.Lines > row.Lines || has.Tests > row.Tests {
			errs = append(errs, fmt.Errorf("package %s has %d lines and %d test lines; its row allows %d and %d",
				pkg, has.Lines, has.Tests, row.Lines, row.Tests))
		}
	}
	for _, row := range b.rows {
		if _, ok := tree[row.Package]; !ok {
			errs = append(errs, fmt.Errorf("test/budget.tsv has a row for %s, which does not exist", row.Package))
		}
		if !slices.ContainsFunc(b.limits, func(l Row) bool { return l.Tier == row.Tier }) {
			errs = append(errs, fmt.Errorf("test/budget.tsv has no row %q for tier %s", total, row.Tier))
		}
	}
	for _, limit := range b.limits {
		sum := b.sum(limit.Tier)
		for _, c := range []struct {
			what       string
			has, limit float64
		}{
			{"CPU seconds", sum.Seconds, limit.Seconds},
			{"control planes", float64(sum.Planes), float64(limit.Planes)},
			{"lines", float64(sum.Lines), float64(limit.Lines)},
			{"test lines", float64(sum.Tests), float64(limit.Tests)},
		} {
			if c.has > c.limit {
				errs = append(errs, fmt.Errorf("the rows of tier %s add up to %g %s; the limit is %g: lower another row", limit.Tier, c.has, c.what, c.limit))
			}
		}
	}
	slices.SortFunc(errs, func(x, y error) int { return cmp.Compare(x.Error(), y.Error()) })
	if len(errs) > 0 {
		errs = append(errs, errors.New("make budget-update rewrites the rows"))
	}
	return errors.Join(errs...)
}

// over lists the packages over their rows. crowd is how much longer a test may take on the clock because others run
// beside it.
func (b *Budget) over(tier string, r result, scale, crowd float64) map[string]error {
	out := map[string]error{}
	for pkg, use := range r.Usage {
		row, ok := b.rows[at{pkg, tier}]
		switch allowed := (row.Seconds*slack + noise) * scale; {
		case !ok:
			out[pkg] = fmt.Errorf("package %s has no row for tier %s in test/budget.tsv", pkg, tier)
		case use.Seconds > allowed:
			out[pkg] = fmt.Errorf("package %s took %.0f CPU seconds; its row in test/budget.tsv allows %.0f on this machine", pkg, use.Seconds, allowed)
		case use.ControlPlanes > row.Planes:
			out[pkg] = fmt.Errorf("package %s started %d control planes; its row in test/budget.tsv allows %d", pkg, use.ControlPlanes, row.Planes)
		}
	}
	for _, t := range r.Tests {
		if limit := longest * scale * crowd; tier == firstTier && t.top() && t.Seconds > limit {
			slow := fmt.Errorf("test %s took %.0f s; a test of the first tier may take %.0f s on this machine", t, t.Seconds, limit)
			out[t.Package] = errors.Join(out[t.Package], slow)
		}
	}
	return out
}

// update writes the measured figures and the current lines into the rows.
func (b *Budget) update(root string, measured map[string]result) error {
	tree, err := countLines(root)
	if err != nil {
		return err
	}
	maps.DeleteFunc(b.rows, func(at at, _ Row) bool { _, ok := tree[at.pkg]; return !ok })
	for pkg, has := range tree {
		row := b.rows[at{pkg, firstTier}]
		b.rows[at{pkg, firstTier}] = Row{pkg, firstTier, row.Seconds, row.Planes, has.Lines, has.Tests}
	}
	if b.calibration == 0 {
		b.calibration = calibrate()
	}
	for tier, result := range measured {
		for pkg, use := range result.Usage {
			if _, ok := tree[pkg]; ok {
				row := b.rows[at{pkg, tier}]
				b.rows[at{pkg, tier}] = Row{pkg, tier, math.Ceil(use.Seconds), use.ControlPlanes, row.Lines, row.Tests}
			}
		}
	}
	return b.write(root)
}

// withoutGo are names of directories without the project's own code.
var withoutGo = []string{"bin", "dist", "testdata"}

// countLines counts the lines of Go in each package, without generated files.
func countLines(root string) (map[string]Row, error) {
	out := map[string]Row{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (name[0] == '.' || slices.Contains(withoutGo, name)):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasPrefix(name, "zz_generated."):
			return nil
		}
		data, err := os.ReadFile(path) //nolint:gosec // in the checkout
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel(root, filepath.Dir(path))
		row := out[pkg]
		if n := strings.Count(string(data), "\n"); strings.HasSuffix(name, "_test.go") {
			row.Tests += n
		} else {
			row.Lines += n
		}
		out[pkg] = row
		return err
	})
	return out, err
}

func (b *Budget) print(w io.Writer, measured map[string]result) {
	for _, tier := range slices.Sorted(maps.Keys(measured)) {
		r := measured[tier]
		used := slices.Collect(maps.Values(r.Usage))
		slices.SortFunc(used, func(x, y Usage) int { return cmp.Compare(y.Seconds, x.Seconds) })
		seconds, planes := 0.0, 0
		for _, u := range used {
			seconds, planes = seconds+u.Seconds, planes+u.ControlPlanes
		}
		fmt.Fprintf(w, "\ntier %s: %.0f CPU seconds in %.1f minutes, %d control planes, %d packages\n", tier, seconds, r.Seconds/60, planes, len(used))
		for _, limit := range b.limits {
			if limit.Tier == tier {
				fmt.Fprintf(w, "rows add up to %.0f CPU seconds; the limit is %.0f\n", b.sum(tier).Seconds, limit.Seconds)
			}
		}
		fmt.Fprintln(w, "\n  used budget planes peak MiB  package")
		for _, u := range used[:min(topRows, len(used))] {
			row := b.rows[at{u.Package, tier}]
			fmt.Fprintf(w, "%6.0f %6.0f %6d %8d  %s\n", u.Seconds, row.Seconds, u.ControlPlanes, u.PeakMiB, u.Package)
		}
		tests := slices.DeleteFunc(slices.Clone(r.Tests), func(t Test) bool { return !t.top() })
		slices.SortFunc(tests, func(x, y Test) int { return cmp.Compare(y.Seconds, x.Seconds) })
		fmt.Fprintln(w, "\n  wall  test")
		for _, t := range tests[:min(topTests, len(tests))] {
			fmt.Fprintf(w, "%6.1f  %s\n", t.Seconds, t)
		}
	}
	lines := b.sum(firstTier)
	fmt.Fprintf(w, "\nlines of Go: %d, of tests %d\n", lines.Lines, lines.Tests)
}

// calibrate returns the CPU seconds of a fixed workload on this machine: computing and, for the tests that run
// programs, starting a program, which machines do at very different costs.
func calibrate() float64 {
	before := cpuSeconds()
	for range 6 {
		_ = exec.Command("go", "version").Run()
	}
	sum := [32]byte{}
	for range 2_000_000 {
		sum = sha256.Sum256(sum[:])
	}
	return math.Round((cpuSeconds()-before)*100) / 100
}

func cpuSeconds() float64 {
	used := int64(0)
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if syscall.Getrusage(who, &r) == nil {
			used += r.Utime.Nano() + r.Stime.Nano()
		}
	}
	return time.Duration(used).Seconds()
}

// scale returns how much slower this machine is than the one of the measurement.
func (b *Budget) scale() float64 {
	if b.calibration == 0 {
		return 1
	}
	return max(1, calibrate()/b.calibration)
}

func measuredFile(root string) string { return filepath.Join(root, "bin", "test", "measured.json") }

// readMeasured returns the results of the last measured run of each tier.
func readMeasured(root string) (map[string]result, error) {
	data, err := os.ReadFile(measuredFile(root))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("nothing has been measured yet: run make test MEASURE=1")
	} else if err != nil {
		return nil, err
	}
	out := map[string]result{}
	return out, json.Unmarshal(data, &out)
}

// keepMeasured adds a run's packages to the last results of its tier.
func keepMeasured(root, tier string, r result) error {
	all, err := readMeasured(root)
	if err != nil {
		all = map[string]result{}
	}
	was, known := all[tier]
	if !known {
		was = result{Usage: map[string]Usage{}}
	}
	was.replace(r)
	if len(r.Usage)*2 > len(was.Usage) {
		was.Seconds = r.Seconds
	}
	all[tier] = was
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(measuredFile(root), data, 0o600)
}

// readTable reads a file of lines with cells between tabs. Lines that start with # are comments.
func readTable(path string, cells int) ([][]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := csv.NewReader(bytes.NewReader(data))
	r.Comma, r.Comment, r.FieldsPerRecord, r.LazyQuotes = '\t', '#', cells, true
	out, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: want %d cells between tabs: %w", path, cells, err)
	}
	return out, nil
}
