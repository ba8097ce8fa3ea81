package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
)

// project is the module's path.
const project = "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator"

// run is one call of `go test`.
type run struct {
	args    []string // build and test flags
	env     []string
	pkgs    []string
	measure bool // run every test, and meter it
	out     io.Writer
}

type result struct {
	Seconds float64 // on the clock
	Tests   []Test
	Usage   map[string]Usage
}

// Test is one test, or one of its subtests.
type Test struct {
	Package, Name, Action string
	Seconds               float64 // on the clock, with the tests that ran beside it
	Skip                  string  // the reason
}

func (t Test) String() string { return t.Package + " " + t.Name }

// top reports whether it is not a subtest.
func (t Test) top() bool { return !strings.Contains(t.Name, "/") }

var errFailed = errors.New("tests failed")

// do runs the tests. It prints a line per package and the output of each test that fails.
func (r run) do(ctx context.Context) (_ result, err error) {
	args := append([]string{"test", "-json"}, r.args...)
	env := append(os.Environ(), r.env...)
	if r.measure {
		self, err := os.Executable()
		if err != nil {
			return result{}, err
		}
		dir, err := os.MkdirTemp("", "vdo-meter-")
		if err != nil {
			return result{}, err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
		args = append(args, "-exec", self+" exec")
		env = append(env, meterVariable+"="+dir)
		began := time.Now()
		out, err := r.stream(ctx, append(args, r.pkgs...), env)
		out.Seconds = time.Since(began).Seconds()
		usage, readErr := readUsage(dir)
		out.Usage = usage
		return out, errors.Join(err, readErr)
	}
	return r.stream(ctx, append(args, r.pkgs...), env)
}

func (r run) stream(ctx context.Context, args, env []string) (result, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env, cmd.Stderr = env, r.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return result{}, err
	}
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	events := &events{out: r.out, text: map[string]*strings.Builder{}}
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		events.add(lines.Bytes())
	}
	readErr := lines.Err()
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		err = errFailed
	}
	return result{Tests: events.tests}, errors.Join(err, readErr)
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// events turns the lines into the text that `go test` prints without -v.
type events struct {
	out   io.Writer
	tests []Test
	text  map[string]*strings.Builder // by package and test, of those that run
}

func (e *events) add(line []byte) {
	var ev event
	if json.Unmarshal(line, &ev) != nil {
		fmt.Fprintf(e.out, "%s\n", line)
		return
	}
	key := ev.Package + " " + ev.Test
	switch ev.Action {
	case "build-output":
		fmt.Fprint(e.out, ev.Output)
	case "output":
		if e.text[key] == nil {
			e.text[key] = &strings.Builder{}
		}
		e.text[key].WriteString(ev.Output)
	case "pass", "fail", "skip":
		if ev.Test == "" {
			e.end(ev)
			return
		}
		pkg := strings.TrimPrefix(ev.Package, project+"/")
		t := Test{Package: pkg, Name: ev.Test, Action: ev.Action, Seconds: ev.Elapsed}
		if ev.Action == "skip" {
			t.Skip = reason(e.take(key))
		}
		e.tests = append(e.tests, t)
		if text := e.take(key); ev.Action == "fail" {
			fmt.Fprint(e.out, text)
		}
	}
}

// end prints a package's own line, and its remaining output if it failed.
func (e *events) end(ev event) {
	own := e.take(ev.Package + " ")
	if ev.Action == "fail" {
		for key := range e.text {
			if strings.HasPrefix(key, ev.Package+" ") { // it ran when the package ended
				fmt.Fprint(e.out, e.take(key))
			}
		}
		fmt.Fprint(e.out, own)
		return
	}
	for line := range strings.Lines(own) {
		if strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "?  ") {
			fmt.Fprint(e.out, line)
		}
	}
}

func (e *events) take(key string) string {
	b := e.text[key]
	delete(e.text, key)
	if b == nil {
		return ""
	}
	return b.String()
}

// reason returns the message of a skipped test, without file and line.
func reason(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "===") || strings.HasPrefix(line, "---") {
			continue
		}
		if _, said, ok := strings.Cut(line, ".go:"); ok {
			if _, said, ok = strings.Cut(said, ": "); ok {
				return said
			}
		}
	}
	return "no reason given"
}

// skipped returns the tests that were skipped, sorted.
func (r result) skipped() (out []Test) {
	for _, t := range r.Tests {
		if t.Action == "skip" {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b Test) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// printSkips lists skipped tests by their reason; of later tiers it prints only the number.
func (r result) printSkips(w io.Writer) {
	byReason := map[string][]Test{}
	for _, t := range r.skipped() {
		byReason[t.Skip] = append(byReason[t.Skip], t)
	}
	if len(byReason) > 0 {
		fmt.Fprintln(w, "\nskipped tests, by reason:")
	}
	for _, why := range slices.Sorted(maps.Keys(byReason)) {
		tests := byReason[why]
		fmt.Fprintf(w, "%4d  %s\n", len(tests), why)
		for _, t := range tests {
			if !strings.HasPrefix(why, tier.Skipped) {
				fmt.Fprintf(w, "        %s\n", t)
			}
		}
	}
}

// allowed reads the committed list of tests that may skip: package, test, reason.
func allowed(root string) (map[string]string, error) {
	rows, err := readTable(filepath.Join(root, "test", "skips.tsv"), 3)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, row := range rows {
		out[row[0]+" "+row[1]] = row[2]
	}
	return out, nil
}

// checkSkips returns an error for unlisted tests that skip. The tier "all" runs all listed tests; other tiers leave
// long tests to it.
func (r result) checkSkips(root, name string) error {
	list, err := allowed(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range r.skipped() {
		switch later, ok := strings.CutPrefix(t.Skip, tier.Skipped); {
		case name == "all" && list[t.String()] == firstTier:
		case name == "all":
			errs = append(errs, fmt.Errorf("%s runs in no tier: %s", t, t.Skip))
		case ok && (later == string(tier.All) || later == string(tier.CGO)), list[t.String()] != "":
		default:
			errs = append(errs, fmt.Errorf("%s was skipped (%s) and is not in test/skips.tsv", t, t.Skip))
		}
	}
	return errors.Join(errs...)
}

// checkRan requires each test of the list that belongs to a tier to have passed.
func (r result) checkRan(root string, belongs func(reason string) bool) error {
	list, err := allowed(root)
	if err != nil {
		return err
	}
	passed := map[string]bool{}
	for _, t := range r.Tests {
		passed[t.String()] = t.Action == "pass"
	}
	var errs []error
	for _, test := range slices.Sorted(maps.Keys(list)) {
		if belongs(list[test]) && !passed[test] {
			errs = append(errs, fmt.Errorf("%s is in test/skips.tsv and did not pass", test))
		}
	}
	return errors.Join(errs...)
}
