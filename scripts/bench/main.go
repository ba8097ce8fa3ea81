// Command bench compares vdo-bundle with tools that do parts of its job. All run as processes, over the same registry
// (the reference implementation, in this process), with the same bytes. README.md describes the comparison, and has
// the tables that it prints.
//
// The set "drivers" is 40 images of 3 GB with five shared bases. The set "big" is one layer of 2 GB. The set "small"
// is 250 images of eight layers of 8 KiB. Each has a newer version, in which every eleventh layer differs. The links
// are "loopback", and "20ms", a relay with a round trip of 20 ms and 1 Gbit/s (package test/link). Each link is used
// with plain HTTP, and with TLS and login.
//
// Each tool first does the job once unmeasured, over loopback, to warm up programs, sets and a virtual machine's
// memory. Three rounds follow. In each, every tool does all of its jobs before the next tool begins, and pushes the
// bundle that it just pulled. Each round begins with another tool.
//
// Wall is the time until the process ended. In some rows it includes a sync right after it, since only vdo-bundle
// flushes its results. CPU is user and system time; memory is the highest resident size of all rounds; "on the wire"
// are the bodies of requests and answers. It reports each run on stderr, and prints the tables on stdout.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/link"
)

type options struct {
	scale              float64
	sets, links, tools []string
	dir, registryDir   string
	against            string // another vdo-bundle
}

// repeat is the number of rounds: the fewest with a useful median and spread.
const repeat = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	fl := flag.NewFlagSet("bench", flag.ContinueOnError)
	fl.Float64Var(&o.scale, "scale", 1, "size of the sets: 1 is full size")
	sets := fl.String("sets", "drivers,big,small", "sets to move")
	links := fl.String("links", "loopback,20ms,loopback-tls,20ms-tls", "links to move them over")
	tools := fl.String("tools", "", "tools to run (default: all that are there)")
	fl.StringVar(&o.against, "against", "", "another vdo-bundle, measured in the same rounds as the tool \"before\"")
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

type way struct {
	link.Options
	tls bool // and login
}

var ways = map[string]way{
	"loopback":     {},
	"20ms":         {Options: far},
	"loopback-tls": {tls: true},
	"20ms-tls":     {Options: far, tls: true},
}

var far = link.Options{RoundTrip: 20 * time.Millisecond, BitsPerSecond: 1e9}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	for _, name := range o.links {
		if _, ok := ways[name]; !ok {
			return fmt.Errorf("there is no link %q", name)
		}
	}
	if o.dir, err = os.MkdirTemp("", "vdo-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir) //nolint:errcheck // scratch
	if o.registryDir, err = os.MkdirTemp(memoryDir(o), "vdo-bench-registry-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.registryDir) //nolint:errcheck // scratch
	debug.SetGCPercent(400)           // to keep the registries, in this process, out of the figures
	all, err := findTools(ctx, o)
	if err != nil {
		return err
	}
	today := time.Now().UTC().Format(time.DateOnly)
	fmt.Printf("Scale %v, %d rounds, %d cores, %s.\n", o.scale, repeat, runtime.GOMAXPROCS(0), today)
	var tables []*table
	for _, name := range o.sets {
		of, err := runSet(ctx, o, name, all)
		if err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		tables = append(tables, of...)
	}
	printTimes(tables, all)
	printMemory(tables)
	return nil
}

// memoryDir returns a file system in memory if it holds two registries full of the largest set; else the measured
// directory. There, a registry that flushes every small file would slow the tools on the same disk.
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
