// Command bench compares vdo-bundle with the tools that can do parts of its job:
// crane and regctl, built from their modules in scripts/tools, and skopeo, oras and
// others where they are on PATH. All run as processes, over the same registry (the
// reference implementation, in this process), with the same bytes.
//
//	go run ./scripts/bench                       everything, at full size
//	VDO_BENCH_SCALE=0.1 go run ./scripts/bench   a tenth of the bytes and images
//	go run ./scripts/bench -sets small -links 20ms -tools vdo-bundle,crane
//
// Sets: "drivers" is 40 images of 3 GB with five shared bases, "big" one layer of
// 2 GB, "small" 250 images of eight layers of 8 KiB. Links: "loopback", and "20ms",
// a relay with a round trip of 20 ms and 1 Gbit/s (package test/link).
//
// Each set has a newer version, in which every eleventh layer is another. The delta
// rows pull what the older one lacks, and push it into a registry that has that one:
// vdo-bundle by way of a file that holds the difference, the others by way of a
// folder that holds both. A dash is a job that a tool does not do.
//
// The peers are given an advantage: the images are one index in one repository, so
// that one process of theirs copies all of them with all that they can do at a
// time; vdo-bundle reads every image from a repository of its own. The registries keep
// their content in memory, where there is room: their own flushes are not measured.
//
// The tables go to standard output as Markdown, what is going on to standard error.
// Wall is until the process ended; "on disk" adds the time of a sync right after
// it, because vdo-bundle flushes what it says is done and the others do not. CPU is
// user and system time; memory is the highest resident size; "written" is what the
// process gave to the disk; "wire" is the bodies of requests and answers.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/link"
)

type options struct {
	scale              float64
	sets, links, tools []string
	dir, registryDir   string
	repeat             int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	scale := 1.0
	if s := os.Getenv("VDO_BENCH_SCALE"); s != "" {
		var err error
		if scale, err = strconv.ParseFloat(s, 64); err != nil {
			return o, fmt.Errorf("VDO_BENCH_SCALE %q is no number", s)
		}
	}
	fl := flag.NewFlagSet("bench", flag.ContinueOnError)
	fl.Float64Var(&o.scale, "scale", scale, "size of the sets: 1 is full size (VDO_BENCH_SCALE)")
	sets := fl.String("sets", "drivers,big,small", "sets to move")
	links := fl.String("links", "loopback,20ms", "links to move them over")
	tools := fl.String("tools", "", "tools to run (default: all that are there)")
	fl.StringVar(&o.dir, "dir", "", "folder for the data; the disk that is measured (default: the system's temporary one)")
	fl.StringVar(&o.registryDir, "registry-dir", "", "folder for the registries' content (default: in memory, where /dev/shm has room, else -dir)")
	fl.IntVar(&o.repeat, "repeat", 1, "how often each is run; the fastest run counts")
	if err := fl.Parse(args); err != nil {
		return o, err
	}
	if o.scale <= 0 || o.scale > 10 {
		return o, fmt.Errorf("scale %v is not between 0 and 10", o.scale)
	}
	o.sets, o.links = strings.Split(*sets, ","), strings.Split(*links, ",")
	if *tools != "" {
		o.tools = strings.Split(*tools, ",")
	}
	return o, nil
}

// speeds are the links by name.
var speeds = map[string]link.Options{
	"loopback": {},
	"20ms":     {RoundTrip: 20 * time.Millisecond, BitsPerSecond: 1e9},
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	for _, name := range o.links {
		if _, ok := speeds[name]; !ok {
			return fmt.Errorf("there is no link %q", name)
		}
	}
	if o.dir, err = os.MkdirTemp(o.dir, "vdo-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir) //nolint:errcheck // scratch
	if o.registryDir == "" {
		o.registryDir = memoryDir(o)
	}
	if o.registryDir, err = os.MkdirTemp(o.registryDir, "vdo-bench-registry-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.registryDir) //nolint:errcheck // scratch
	debug.SetGCPercent(400)           // the registries are in this process, and should not be what is measured
	all, err := findTools(ctx, o.dir)
	if err != nil {
		return err
	}
	if o.tools != nil {
		all = slices.DeleteFunc(all, func(t tool) bool { return !slices.Contains(o.tools, t.name) })
	}
	printHead(o, all)
	before, err := measureLimits(o.dir)
	if err != nil {
		return err
	}
	for _, name := range o.sets {
		if err := runSet(ctx, o, name, all); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	after, err := measureLimits(o.dir)
	if err != nil {
		return err
	}
	printLimits(before, after)
	return nil
}

// memoryDir is a file system in memory, where it holds two registries full of the
// largest set; else the folder that is measured. A registry that flushes every small
// file to the disk that the tools write to would be measured with them.
func memoryDir(o options) string {
	const shm, need = "/dev/shm", 10e9
	var s unix.Statfs_t
	if err := unix.Statfs(shm, &s); err != nil || float64(s.Bavail)*float64(s.Bsize) < need*o.scale {
		return o.dir
	}
	return shm
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
