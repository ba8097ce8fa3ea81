// Command bench compares vdo-bundle with the tools that can do parts of its job. All run as processes, over the
// same registry (the reference implementation, in this process), with the same bytes. README.md says what is
// compared and how, and has the tables that it prints.
//
// Sets: "drivers" is 40 images of 3 GB with five shared bases, "big" one layer of 2 GB, "small" 250 images of eight
// layers of 8 KiB. Each has a newer version, in which every eleventh layer is another. Links: "loopback", and
// "20ms", a relay with a round trip of 20 ms and 1 Gbit/s (package test/link), each over plain HTTP, and with TLS
// and login.
//
// Each tool first does the job once unmeasured, over loopback, so that programs, the sets and the memory that a
// virtual machine is given late are warm. Then there are three rounds: in each, every tool does all of its jobs
// before the next tool begins, and pushes what it has just pulled; each round begins with another tool.
//
// Wall is until the process ended, of some rows with a sync right after it, because vdo-bundle flushes what it says
// is done and the others do not. CPU is user and system time; memory is the highest resident size, of all rounds;
// "on the wire" are the bodies of requests and answers. Each run is told on stderr, the tables come on stdout.
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
	access             *access
}

// repeat is how many rounds there are: the least of which a median and a spread say anything.
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

// way is how registries are reached.
type way struct {
	link.Options
	tls bool // and login
}

// ways are those by name.
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
	if o.access, err = newAccess(o.dir); err != nil {
		return err
	}
	debug.SetGCPercent(400) // the registries are in this process, and should not be what is measured
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
	printSummary(tables, all)
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
