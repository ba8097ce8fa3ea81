package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
)

// Forms of progress.
const (
	progressAuto  = "auto" // bars on a terminal, lines elsewhere
	progressLines = "lines"
	progressJSON  = "json"
)

// reporter is a progress that must be ended before anything else is printed.
type reporter interface {
	run.Progress
	end()
}

type silent struct{ run.Silent }

func (silent) end() {}

// tally counts one phase.
type tally struct {
	Phase string `json:"phase"`
	Items int    `json:"items"`
	Done  int    `json:"done"`
	Bytes int64  `json:"bytes"`
	Moved int64  `json:"moved"`
}

// percent is how much of the phase is done: by bytes where it has any, else by items.
func (t tally) percent() int {
	switch {
	case t.Bytes > 0:
		return int(t.Moved * 100 / t.Bytes)
	case t.Items > 0:
		return t.Done * 100 / t.Items
	}
	return 100
}

// view shows what is counted. One call at a time is made of it.
type view interface {
	phase(t tally) // another one has begun
	moved(t tally)
	failed(t tally, item string)
	say(line string)
	end()
}

// counter is the progress that a view shows.
type counter struct {
	mu    sync.Mutex
	view  view
	tally tally
}

func (c *counter) Phase(name string, items int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally = tally{Phase: name, Items: items, Bytes: bytes}
	c.view.phase(c.tally)
}

func (c *counter) Moved(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.Moved += n
	c.view.moved(c.tally)
}

// Done shows an item that failed by itself: what was ended with all the rest, by a signal,
// has not failed.
func (c *counter) Done(item string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.Done++
	if err != nil && !errors.Is(err, context.Canceled) && fault.ReasonOf(err) != fault.Interrupted {
		c.view.failed(c.tally, item)
	}
	c.view.moved(c.tally)
}

func (c *counter) Say(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view.say(line)
}

func (c *counter) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view.end()
}

// lines writes a line when a phase starts, at each tenth of it, and for each failure.
type lines struct {
	out   io.Writer
	shown int // tenths
}

func (l *lines) phase(t tally) {
	l.shown = 0
	text := fmt.Sprintf("%s: %s", t.Phase, command.Plural(t.Items, "item", "items"))
	if t.Bytes > 0 {
		text += ", " + size.Format(t.Bytes)
	}
	l.say(text)
}

// moved says how far the phase is, when another tenth of it is done. Short phases
// say nothing but that they are done.
func (l *lines) moved(t tally) {
	now := t.percent() / 10
	if now <= l.shown || now > 10 || (t.Bytes == 0 && now < 10) {
		return
	}
	l.shown = now
	text := fmt.Sprintf("%s: %d%%", t.Phase, now*10)
	if t.Bytes > 0 {
		text += fmt.Sprintf(" (%s of %s)", size.Format(t.Moved), size.Format(t.Bytes))
	}
	l.say(text)
}

func (l *lines) failed(t tally, item string) { l.say(t.Phase + ": failed: " + item) }

func (l *lines) say(line string) { _ = command.Say(l.out, "%s", line) } // nobody is left to hear of it

func (l *lines) end() {}

// events writes a line of JSON when a phase starts, at each percent of it, for each
// failure and each message.
type events struct {
	out   io.Writer
	shown int // percent
}

func (e *events) phase(t tally) {
	e.shown = 0
	e.write(t)
}

func (e *events) moved(t tally) {
	if now := t.percent(); now > e.shown {
		e.shown = now
		e.write(t)
	}
}

func (e *events) failed(t tally, item string) {
	e.write(map[string]string{"phase": t.Phase, "failed": item})
}

func (e *events) say(line string) { e.write(map[string]string{"message": line}) }

func (e *events) end() {}

func (e *events) write(v any) {
	encoder := json.NewEncoder(e.out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return // nobody is left to hear of it
	}
}

// report writes an error as the JSON that --format json prints, in one line.
func (e *events) report(err error) {
	var text, line bytes.Buffer
	command.Report(&text, err, true)
	if json.Compact(&line, text.Bytes()) == nil && line.Len() > 0 {
		line.WriteByte('\n')
		_, _ = e.out.Write(line.Bytes())
	}
}

// bars shows one bar for each phase.
type bars struct {
	out       io.Writer
	container *mpb.Progress
	bar       *mpb.Bar
}

const barWidth = 40

func (b *bars) phase(t tally) {
	b.end()
	if t.Items == 0 {
		return
	}
	b.container = mpb.New(mpb.WithOutput(b.out), mpb.WithWidth(barWidth), mpb.WithAutoRefresh())
	total, counters := int64(t.Items), decor.CountersNoUnit("%d of %d")
	if t.Bytes > 0 {
		total, counters = t.Bytes, decor.CountersKiloByte("% .1f of % .1f")
	}
	b.bar = b.container.AddBar(total,
		mpb.PrependDecorators(decor.Name(t.Phase, decor.WC{W: 18, C: decor.DindentRight}), decor.Percentage(decor.WC{W: 5})),
		mpb.AppendDecorators(counters, decor.Name(" "), decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO), "")),
	)
}

func (b *bars) moved(t tally) {
	switch {
	case b.bar == nil:
	case t.Bytes > 0:
		b.bar.SetCurrent(t.Moved)
	default:
		b.bar.SetCurrent(int64(t.Done))
	}
}

func (b *bars) failed(_ tally, item string) { b.say("failed: " + item) }

// say writes a line above the bar.
func (b *bars) say(line string) {
	w := b.out
	if b.container != nil {
		w = b.container
	}
	_ = command.Say(w, "%s", line) // nobody is left to hear of it
}

// end ends the bar of a phase, as far as it came.
func (b *bars) end() {
	if b.container == nil {
		return
	}
	if !b.bar.Completed() {
		b.bar.Abort(false)
	}
	b.container.Wait()
	b.container, b.bar = nil, nil
}
