// Package run holds the options of a flow: its concurrency and its progress reporter. The zero value
// runs a flow silently, with the default concurrency:
//
//	b, err := pull.Bundle(ctx, in, run.Options{Progress: lines})
//
// Flows use [Each] for repeated work. It runs all of it despite failures, so that flows report all
// independent problems together.
package run

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Progress receives the progress of work. Its methods are called concurrently.
type Progress interface {
	// Phase starts a phase of that many items and bytes (0: bytes are not counted).
	Phase(name string, items int, bytes int64)
	// Moved reports n more bytes of the phase; n is negative if bytes must move again.
	Moved(n int64)
	// Done reports a finished item of the phase, or its error.
	Done(item string, err error)
	// Say shows the user a line of progress.
	Say(line string)
	// Warn shows the user a line about the result, also where progress is not shown.
	Warn(line string)
}

// Silent is a Progress that discards everything.
type Silent struct{}

// Phase does nothing.
func (Silent) Phase(string, int, int64) {}

// Moved does nothing.
func (Silent) Moved(int64) {}

// Done does nothing.
func (Silent) Done(string, error) {}

// Say does nothing.
func (Silent) Say(string) {}

// Warn does nothing.
func (Silent) Warn(string) {}

// Warnings passes on only warnings.
type Warnings struct {
	Silent
	To Progress
}

// Warn passes a warning on.
func (w Warnings) Warn(line string) { w.To.Warn(line) }

// Options are the common options of flows.
type Options struct {
	Concurrency int      // transfers of large blobs at a time per host; 0: 6
	Progress    Progress // nil: Silent
	DryRun      bool     // pull and push write nothing, and report what they would move
}

const defaultConcurrency = 6

// Limit returns how many large items may run at a time.
func (o Options) Limit() int {
	if o.Concurrency <= 0 {
		return defaultConcurrency
	}
	return o.Concurrency
}

// Small returns how many small items may run at a time: they cost round trips, not bytes. The registry client has its
// own limit per host, which grows to this number.
func (o Options) Small() int { return min(16*o.Limit(), 128) }

// Reporter returns the progress reporter.
func (o Options) Reporter() Progress {
	if o.Progress == nil {
		return Silent{}
	}
	return o.Progress
}

// Each runs work for 0..n-1, at most limit at a time, despite failures, and returns all errors, bounded as a
// [fault.List]. Once ctx ends, it starts no further work.
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

// distinct keeps only the first error for each unreachable host, which the hints name, with the number of the others.
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

// Interrupted returns a fault with the cause of ctx's end.
func Interrupted(ctx context.Context) error {
	return &fault.Error{Reason: fault.Interrupted, Op: "interrupted", Err: context.Cause(ctx)}
}
