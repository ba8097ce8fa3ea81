package cli

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
)

// reporter is a progress that must be ended before anything else is printed.
type reporter interface {
	run.Progress
	end()
}

// newReporter shows bars on a terminal and lines elsewhere.
func newReporter(w io.Writer, terminal, quiet bool) reporter {
	switch {
	case quiet:
		return silent{}
	case terminal:
		return &bars{out: w}
	}
	return &lines{out: w}
}

type silent struct{ run.Silent }

func (silent) end() {}

// tally counts one phase.
type tally struct {
	name         string
	items, done  int
	failed       int
	bytes, moved int64
}

// percent is how much of the phase is done: by bytes where it has any, else by items.
func (t tally) percent() int {
	switch {
	case t.bytes > 0:
		return int(t.moved * 100 / t.bytes)
	case t.items > 0:
		return t.done * 100 / t.items
	}
	return 100
}

// failed tells whether an item failed by itself: what was ended with all the rest, by a
// signal, has not failed.
func failed(err error) bool {
	return err != nil && !errors.Is(err, context.Canceled) && fault.ReasonOf(err) != fault.Interrupted
}

// lines writes a line when a phase starts, at each tenth of it, and for each failure.
type lines struct {
	mu    sync.Mutex
	out   io.Writer
	tally tally
	shown int // tenths
}

func (l *lines) Phase(name string, items int, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally, l.shown = tally{name: name, items: items, bytes: bytes}, 0
	if bytes > 0 {
		l.printf("%s: %s, %s", name, command.Plural(items, "item", "items"), size.Format(bytes))
	} else {
		l.printf("%s: %s", name, command.Plural(items, "item", "items"))
	}
}

func (l *lines) Moved(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.moved += n
	l.tenth()
}

func (l *lines) Done(item string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.done++
	if err != nil {
		l.tally.failed++
	}
	if failed(err) {
		l.printf("%s: failed: %s", l.tally.name, item)
	}
	l.tenth()
}

// tenth says how far the phase is, when another tenth of it is done. Short phases
// say nothing but that they are done.
func (l *lines) tenth() {
	now := l.tally.percent() / 10
	if now <= l.shown || now > 10 || (l.tally.bytes == 0 && now < 10) {
		return
	}
	l.shown = now
	if l.tally.bytes > 0 {
		l.printf("%s: %d%% (%s of %s)", l.tally.name, now*10, size.Format(l.tally.moved), size.Format(l.tally.bytes))
	} else {
		l.printf("%s: %d%%", l.tally.name, now*10)
	}
}

func (l *lines) Say(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.printf("%s", line)
}

func (l *lines) printf(format string, args ...any) {
	_ = command.Say(l.out, format, args...) // nobody is left to hear of it
}

func (l *lines) end() {}

// bars shows one bar for each phase.
type bars struct {
	mu        sync.Mutex
	out       io.Writer
	container *mpb.Progress
	bar       *mpb.Bar
	tally     tally
}

const barWidth = 40

func (b *bars) Phase(name string, items int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finish()
	b.tally = tally{name: name, items: items, bytes: bytes}
	if items == 0 {
		return
	}
	b.container = mpb.New(mpb.WithOutput(b.out), mpb.WithWidth(barWidth), mpb.WithAutoRefresh())
	total, counters := int64(items), decor.CountersNoUnit("%d of %d")
	if bytes > 0 {
		total, counters = bytes, decor.CountersKiloByte("% .1f of % .1f")
	}
	b.bar = b.container.AddBar(total,
		mpb.PrependDecorators(decor.Name(name, decor.WC{W: 18, C: decor.DindentRight}), decor.Percentage(decor.WC{W: 5})),
		mpb.AppendDecorators(counters, decor.Name(" "), decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO), "")),
	)
}

func (b *bars) Moved(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tally.moved += n
	if b.bar != nil && b.tally.bytes > 0 {
		b.bar.SetCurrent(b.tally.moved)
	}
}

func (b *bars) Done(item string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tally.done++
	if failed(err) {
		b.print("failed: " + item)
	}
	if b.bar != nil && b.tally.bytes == 0 {
		b.bar.SetCurrent(int64(b.tally.done))
	}
}

func (b *bars) Say(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.print(line)
}

// print writes a line above the bar.
func (b *bars) print(line string) {
	w := b.out
	if b.container != nil {
		w = b.container
	}
	_ = command.Say(w, "%s", line) // nobody is left to hear of it
}

// finish ends the bar of a phase, as far as it came.
func (b *bars) finish() {
	if b.container == nil {
		return
	}
	if !b.bar.Completed() {
		b.bar.Abort(false)
	}
	b.container.Wait()
	b.container, b.bar = nil, nil
}

func (b *bars) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.finish()
}
