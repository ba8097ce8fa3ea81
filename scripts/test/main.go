// Command test runs the project's tests in tiers and holds their cost against a budget.
//
//	test [-tier first|race|upstream|peers|all] [-measure] [-strict] [PACKAGE ...]
//	test budget          show the usage of the last measured runs
//	test budget-update   write that usage and the current lines into test/budget.tsv
//	test check           compare test/budget.tsv with the tree, without a test
//	test exec BINARY …   run a test binary and record its usage; for `go test -exec`
//
// The first tier needs only Go and git. test/skips.tsv lists the tests that it skips because a program, or upstream's
// own files, are missing. The tiers upstream and peers run the tests of that list.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/tier"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

const firstTier = "first"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := dispatch(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func dispatch(ctx context.Context, args []string) (int, error) {
	root := toolchain.Root()
	switch cmp.Or(append(args, "")[0], "-") {
	case "exec":
		return meter(args[1:])
	case "budget":
		budget, measured, err := readBoth(root)
		if err != nil {
			return 0, err
		}
		budget.print(os.Stdout, measured)
		return 0, nil
	case "budget-update":
		budget, measured, err := readBoth(root)
		if budget == nil {
			return 0, err
		}
		return 0, budget.update(root, measured)
	case "check":
		budget, err := readBudget(root)
		if err != nil {
			return 0, err
		}
		return 0, budget.checkRows(root)
	default:
		return 0, tests(ctx, root, args)
	}
}

func readBoth(root string) (*Budget, map[string]result, error) {
	budget, err := readBudget(root)
	if err != nil {
		return nil, nil, err
	}
	measured, err := readMeasured(root)
	return budget, measured, err
}

type plan struct {
	tools    []toolchain.Tool // to build first
	open     []tier.Tier      // later tiers that run
	race     bool
	timeout  string
	packages []string // below the module; none for all
	listed   func(reason string) bool
}

// plans returns the tiers. The peers are built only for tiers that need them.
func plans() map[string]plan {
	base := toolchain.ForTests()
	all := slices.Concat(base, toolchain.Peers())
	isUpstream := func(reason string) bool { return reason == string(tier.Upstream) }
	isProgram := func(reason string) bool { return !isUpstream(reason) && reason != firstTier }
	return map[string]plan{
		firstTier:  {tools: base, timeout: "12m"},
		"race":     {tools: base, timeout: "20m", race: true, packages: concurrent},
		"upstream": {tools: base, timeout: "20m", open: []tier.Tier{tier.Upstream}, listed: isUpstream},
		"peers":    {tools: all, timeout: "20m", open: []tier.Tier{tier.Peers}, listed: isProgram},
		"all": {
			tools: all, timeout: "60m", race: true,
			open: []tier.Tier{tier.All, tier.Peers, tier.Upstream, tier.CGO},
		},
	}
}

// concurrent are the packages that start their own goroutines.
var concurrent = []string{
	"bundler/remote", "bundler/internal/archive", "bundler/internal/mover",
	"bundler/internal/serve", "operator/internal/cluster", "operator/internal/logins",
	"operator/internal/store", "operator/internal/metrics", "operator/internal/controller/inspection",
	"operator/internal/controller/driverbundle", "operator/internal/controller/vspherecloudconfig",
}

func tests(ctx context.Context, root string, args []string) error {
	flags := flag.NewFlagSet("test", flag.ExitOnError)
	name := flags.String("tier", firstTier, "`tier` of tests to run")
	measure := flags.Bool("measure", false, "run every test, meter it, and compare it with test/budget.tsv")
	strict := flags.Bool("strict", false, "refuse skipped tests that test/skips.tsv does not list")
	extra := flags.String("flags", "", "further `flags` of go test")
	_ = flags.Parse(args) // it exits
	plan, ok := plans()[*name]
	if !ok {
		return fmt.Errorf("no tier %q: want one of %v", *name, slices.Sorted(maps.Keys(plans())))
	}
	budget, err := readBudget(root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, "bin", "test"), 0o755); err != nil {
		return err
	}
	env, err := plan.prepare(ctx, root)
	if err != nil {
		return err
	}
	r := run{env: env, measure: *measure, out: os.Stdout}
	if err := plan.choose(ctx, root, budget, *name, flags.Args(), &r); err != nil {
		return err
	}
	r.args = append(append(plan.args(), strings.Fields(*extra)...), r.args...)
	got, err := r.do(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil && *measure {
		err = budget.hold(ctx, *name, r, &got)
	}
	errs := []error{err}
	got.printSkips(os.Stdout)
	if *measure {
		errs = append(errs, keepMeasured(root, *name, got))
	}
	if *strict || *name == "all" {
		errs = append(errs, got.checkSkips(root, *name))
		if plan.listed != nil && len(flags.Args()) == 0 {
			errs = append(errs, got.checkRan(root, plan.listed))
		}
	}
	return errors.Join(errs...)
}

// crowd is how much longer a test may take beside concurrent packages.
const crowd = 4

// hold compares a run with the budget. A package over its row runs again alone first.
func (b *Budget) hold(ctx context.Context, tier string, r run, got *result) error {
	scale := b.scale()
	over := b.over(tier, *got, scale, crowd)
	why := errors.Join(slices.Collect(maps.Values(over))...)
	if len(over) == 0 || len(over) > 12 {
		return why
	}
	r.pkgs = nil
	for pkg := range over {
		if _, ok := b.rows[at{pkg, tier}]; !ok {
			return why
		}
		r.pkgs = append(r.pkgs, "./"+pkg)
	}
	r.args = append(r.args, "-p=1")
	fmt.Fprintf(r.out, "%v\nrunning again alone: %s\n", why, strings.Join(r.pkgs, " "))
	again, err := r.do(ctx)
	if err != nil {
		return err
	}
	got.replace(again)
	return errors.Join(slices.Collect(maps.Values(b.over(tier, again, scale, slack)))...)
}

// replace replaces the packages of r that o has.
func (r *result) replace(o result) {
	r.Tests = slices.DeleteFunc(r.Tests, func(t Test) bool { _, ok := o.Usage[t.Package]; return ok })
	r.Tests = append(r.Tests, o.Tests...)
	maps.Copy(r.Usage, o.Usage)
}

// prepare builds the tools of the tier and returns the environment of its tests.
func (p plan) prepare(ctx context.Context, root string) ([]string, error) {
	builder := toolchain.Builder{Progress: os.Stderr, Race: p.race && len(p.packages) == 0}
	if _, err := builder.Ensure(ctx, p.tools...); err != nil {
		return nil, err
	}
	dir := filepath.Join(root, "bin", "test")
	if builder.Race {
		dir += "-race"
	}
	if err := builder.Project(ctx, dir, toolchain.Prepared...); err != nil {
		return nil, err
	}
	cgo := "0"
	if p.race {
		cgo = "1"
	}
	var open []string
	for _, t := range p.open {
		open = append(open, string(t))
	}
	env := []string{
		"CGO_ENABLED=" + cgo, tier.Variable + "=" + strings.Join(open, ","),
		toolchain.ProgramsVariable + "=" + dir,
	}
	return env, nil
}

// args returns the arguments of `go test`. The build flags are the Makefile's, so that both share one cache.
func (p plan) args() []string {
	tags := toolchain.BuildTags
	if slices.Contains(p.open, tier.CGO) {
		tags += ",pkcs11"
	}
	args := []string{
		// Go's cache does not track the inputs of a TestMain, such as the programs that the tests run.
		"-count=1",
		"-trimpath", "-tags=" + tags, "-ldflags=-w", "-vet=off", "-timeout=" + p.timeout,
		"-p=" + cmp.Or(os.Getenv("TEST_PROCS"), strconv.Itoa(runtime.NumCPU())),
	}
	if p.race {
		args = append(args, "-race")
	}
	if len(p.open) == 0 {
		args = append(args, "-short")
	}
	return args
}

// choose selects the packages of a run, the costliest first. If the tier has tests in test/skips.tsv, it selects
// those tests.
func (p plan) choose(ctx context.Context, root string, budget *Budget, tier string, named []string, r *run) (err error) {
	if p.listed != nil {
		return p.chooseListed(root, named, r)
	}
	if len(named) == 0 {
		for _, pkg := range p.packages {
			named = append(named, "./"+pkg)
		}
	}
	if r.pkgs, err = packages(ctx, named); err != nil {
		return err
	}
	slices.SortStableFunc(r.pkgs, func(a, b string) int {
		x, y := strings.TrimPrefix(a, project+"/"), strings.TrimPrefix(b, project+"/")
		return cmp.Compare(budget.rows[at{y, tier}].Seconds, budget.rows[at{x, tier}].Seconds)
	})
	return nil
}

func (p plan) chooseListed(root string, named []string, r *run) error {
	rows, err := readTable(filepath.Join(root, "test", "skips.tsv"), 3)
	if err != nil {
		return err
	}
	var names []string
	for _, row := range rows {
		if pkg := "./" + row[0]; p.listed(row[2]) && (len(named) == 0 || slices.Contains(named, pkg)) {
			top, _, _ := strings.Cut(row[1], "/")
			names, r.pkgs = append(names, regexp.QuoteMeta(top)), append(r.pkgs, pkg)
		}
	}
	slices.Sort(names)
	slices.Sort(r.pkgs)
	r.pkgs = slices.Compact(r.pkgs)
	r.args = []string{"-run=^(" + strings.Join(slices.Compact(names), "|") + ")$"}
	r.env = append(r.env, "CI=true") // a missing program fails
	return nil
}

// packages lists the packages with tests.
func packages(ctx context.Context, patterns []string) ([]string, error) {
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	const withTests = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-f", withTests}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	return strings.Fields(string(out)), nil
}
