// Package run says how a flow is run: how many things it does at a time, and who hears how
// far it is. Its zero value runs a flow silently, with the
// usual number of transfers:
//
//	b, err := pull.Bundle(ctx, in, run.Options{Progress: lines})
//
// What a flow does many of, it does by [Each]: all of it, whatever fails, so that all
// independent problems are reported together.
package run

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Progress hears how long work goes on. Its methods are called concurrently.
type Progress interface {
	// Phase starts a phase of so many items and bytes (0: not counted in bytes).
	Phase(name string, items int, bytes int64)
	// Moved says that n more bytes of the phase are done; n is negative where bytes
	// have to be moved again.
	Moved(n int64)
	// Done says that an item of the phase is done, or why it is not.
	Done(item string, err error)
	// Say gives the user a line to read.
	Say(line string)
}

// Silent is a Progress that no one hears.
type Silent struct{}

// Phase does nothing.
func (Silent) Phase(string, int, int64) {}

// Moved does nothing.
func (Silent) Moved(int64) {}

// Done does nothing.
func (Silent) Done(string, error) {}

// Say does nothing.
func (Silent) Say(string) {}

// Options are common to the flows.
type Options struct {
	Concurrency int      // transfers of large blobs at a time for each host; 0: 6
	Progress    Progress // nil: Silent
	DryRun      bool     // pull and push write nothing, and tell what they would move
}

const defaultConcurrency = 6

// Limit is how many large things may be under way at a time.
func (o Options) Limit() int {
	if o.Concurrency <= 0 {
		return defaultConcurrency
	}
	return o.Concurrency
}

// Small is how many small things may be under way at a time: they cost round trips,
// not bytes. The host's own limit, which grows to this many, is the registry
// client's.
func (o Options) Small() int { return min(16*o.Limit(), 128) }

// Reporter returns who hears of progress.
func (o Options) Reporter() Progress {
	if o.Progress == nil {
		return Silent{}
	}
	return o.Progress
}

// Each runs work for 0..n-1, at most limit at a time, all of it whatever fails,
// and returns all errors, bounded as a [fault.List]; but once ctx is done it starts no more.
func Each(ctx context.Context, limit, n int, work func(i int) error) error {
	errs := make([]error, n)
	var group errgroup.Group
	group.SetLimit(limit)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			errs[i] = work(i)
			return nil
		})
	}
	_ = group.Wait() // every error is in errs
	if ctx.Err() != nil {
		return Interrupted(ctx)
	}
	var failed fault.List
	for _, err := range distinct(errs) {
		failed.Add(err)
	}
	return failed.Join("", "")
}

// distinct leaves, of the errors of hosts that cannot be reached, the first of each host, which the hints
// name, with the number of the others.
func distinct(errs []error) (out []error) {
	first, others := map[string]int{}, map[int]int{}
	for _, err := range errs {
		if fault.Gravest(err) == fault.Unreachable {
			hosts := ""
			for _, f := range fault.All(err) {
				hosts += f.Hint + "\n"
			}
			if n, seen := first[hosts]; seen {
				others[n]++
				continue
			}
			first[hosts] = len(out)
		}
		out = append(out, err)
	}
	for n, count := range others {
		out[n] = fmt.Errorf("%w (and %d more that failed alike)", out[n], count)
	}
	return out
}

// Interrupted says that ctx was done, and why.
func Interrupted(ctx context.Context) error {
	return &fault.Error{Reason: fault.Interrupted, Op: "interrupted", Err: context.Cause(ctx)}
}
