// Package run holds the options of a flow: its concurrency and its progress. The zero value
// runs a flow silently, with the default concurrency:
//
//	b, err := pull.Bundle(ctx, in, run.Options{Progress: &run.Progress{Out: os.Stderr}})
//
// Flows use [Each] for repeated work. It runs all of it despite failures, so that flows report all
// independent problems together.
package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
)

// Progress writes the progress of work, for people or programs; nil discards it. Its methods are called concurrently.
type Progress struct {
	Out      io.Writer
	JSON     bool // each line is a JSON object
	WarnOnly bool // only warnings are written

	mu    sync.Mutex
	tally tally
	shown int // percent
}

type tally struct {
	Phase string `json:"phase"`
	Items int    `json:"items"`
	Done  int    `json:"done"`
	Bytes int64  `json:"bytes"`
	Moved int64  `json:"moved"`
}

// percent returns the progress: by bytes if the phase has any, else by items.
func (t tally) percent() int {
	switch {
	case t.Bytes > 0:
		return int(t.Moved * 100 / t.Bytes)
	case t.Items > 0:
		return t.Done * 100 / t.Items
	}
	return 100
}

// Warnings returns a progress that writes only warnings.
func (p *Progress) Warnings() *Progress {
	if p == nil {
		return nil
	}
	return &Progress{Out: p.Out, JSON: p.JSON, WarnOnly: true}
}

// lock reports whether progress is written; if so, the caller unlocks it.
func (p *Progress) lock() bool {
	if p == nil || p.WarnOnly {
		return false
	}
	p.mu.Lock()
	return true
}

// Phase starts a phase of that many items and bytes (0: bytes are not counted).
func (p *Progress) Phase(name string, items int, bytes int64) {
	if !p.lock() {
		return
	}
	defer p.mu.Unlock()
	p.tally, p.shown = tally{Phase: name, Items: items, Bytes: bytes}, 0
	text := fmt.Sprintf("%s: %s", name, command.Plural(items, "item", "items"))
	if bytes > 0 {
		text += ", " + size.Format(bytes)
	}
	p.write(text, p.tally)
}

// Moved reports n more bytes of the phase; n is negative if bytes must move again.
func (p *Progress) Moved(n int64) {
	if !p.lock() {
		return
	}
	defer p.mu.Unlock()
	p.tally.Moved += n
	p.advance()
}

// Done reports a finished item of the phase, or its error, unless a signal caused that.
func (p *Progress) Done(item string, err error) {
	if !p.lock() {
		return
	}
	defer p.mu.Unlock()
	if err == nil { // a phase with a failure does not end with 100%
		p.tally.Done++
	} else if !errors.Is(err, context.Canceled) && fault.ReasonOf(err) != fault.Interrupted {
		p.write(p.tally.Phase+": failed: "+item, map[string]string{"phase": p.tally.Phase, "failed": item})
	}
	p.advance()
}

// Say writes a line of progress.
func (p *Progress) Say(format string, args ...any) {
	if p != nil && !p.WarnOnly {
		p.Warn(format, args...)
	}
}

// Warn writes a line about the result, also where progress is not written.
func (p *Progress) Warn(format string, args ...any) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	p.write(line, map[string]string{"message": line})
}

// advance writes the progress. In line form, short phases write only 100%.
func (p *Progress) advance() {
	t, now := p.tally, p.tally.percent()
	if !p.JSON {
		now -= now % 10
	}
	if now <= p.shown || !p.JSON && (now > 100 || t.Bytes == 0 && now < 100) {
		return
	}
	p.shown = now
	text := fmt.Sprintf("%s: %d%%", t.Phase, now)
	if t.Bytes > 0 {
		text += fmt.Sprintf(" (%s of %s)", size.Format(t.Moved), size.Format(t.Bytes))
	}
	p.write(text, t)
}

// write writes a line, or the event as JSON. It ignores errors, which would go to the same stream.
func (p *Progress) write(line string, event any) {
	if !p.JSON {
		_ = command.Say(p.Out, "%s", line)
		return
	}
	encoder := json.NewEncoder(p.Out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(event) //nolint:errchkjson // a failed write has no reader
}

// Options are the common options of flows.
type Options struct {
	Concurrency int // transfers of large blobs at a time per host; 0: 6
	Progress    *Progress
	DryRun      bool // pull and push write nothing, and report what they would move
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

type repeated struct{ error }

// Repeated marks the cause of a fault whose hint says all: other faults with the same hint only repeat it.
func Repeated(cause error) error { return repeated{cause} }

// repeats reports whether other errors with the same hints only repeat this one. Those of a host name it.
func repeats(err error) bool {
	_, is := errors.AsType[repeated](err)
	reason := fault.Gravest(err)
	return is || reason == fault.Unreachable || reason == fault.CertificateInvalid
}

// distinct keeps only the first of errors that repeat it, with the number of the others.
func distinct(errs []error) (out []error) {
	first, others := map[string]int{}, map[int]int{}
	for _, err := range errs {
		if err != nil && repeats(err) {
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
