package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/run"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/size"
)

// Forms of progress.
const (
	progressAuto  = "auto"  // lines, unless the result is printed as JSON
	progressLines = "lines" // when a phase starts, at each tenth of it, and for each failure
	progressJSON  = "json"  // the same at each percent, and all messages
)

// reporter shows progress, where the command has that.
func (c *common) reporter() run.Progress {
	if !c.shows || c.quiet || c.json() && c.progress == progressAuto {
		return run.Silent{}
	}
	return &counter{out: c.err, asJSON: c.progress == progressJSON}
}

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

// counter writes how far a phase is.
type counter struct {
	out    io.Writer
	asJSON bool

	mu    sync.Mutex
	tally tally
	shown int // percent
}

func (c *counter) Phase(name string, items int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally, c.shown = tally{Phase: name, Items: items, Bytes: bytes}, 0
	text := fmt.Sprintf("%s: %s", name, command.Plural(items, "item", "items"))
	if bytes > 0 {
		text += ", " + size.Format(bytes)
	}
	c.write(text, c.tally)
}

func (c *counter) Moved(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.Moved += n
	c.advance()
}

// Done shows an item that failed by itself: what was ended with all the rest, by a signal,
// has not failed.
func (c *counter) Done(item string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tally.Done++
	if err != nil && !errors.Is(err, context.Canceled) && fault.ReasonOf(err) != fault.Interrupted {
		c.write(c.tally.Phase+": failed: "+item, map[string]string{"phase": c.tally.Phase, "failed": item})
	}
	c.advance()
}

func (c *counter) Say(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(line, message(line))
}

// advance says how far the phase is. As lines, short phases say nothing but that they are done.
func (c *counter) advance() {
	t, now := c.tally, c.tally.percent()
	if !c.asJSON {
		now -= now % 10
	}
	if now <= c.shown || !c.asJSON && (now > 100 || t.Bytes == 0 && now < 100) {
		return
	}
	c.shown = now
	text := fmt.Sprintf("%s: %d%%", t.Phase, now)
	if t.Bytes > 0 {
		text += fmt.Sprintf(" (%s of %s)", size.Format(t.Moved), size.Format(t.Bytes))
	}
	c.write(text, t)
}

// write writes a line, or as a line of JSON what it says. Nobody is left to hear that it fails.
func (c *counter) write(line string, event any) {
	if c.asJSON {
		writeEvent(c.out, event)
		return
	}
	_ = command.Say(c.out, "%s", line)
}

func message(line string) map[string]string { return map[string]string{"message": line} }

func writeEvent(w io.Writer, v any) {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // nobody is left to hear that it fails
}

// reportEvent writes an error as the JSON that --format json prints, in one line.
func reportEvent(w io.Writer, err error) {
	var text, line bytes.Buffer
	command.Report(&text, err, true)
	if json.Compact(&line, text.Bytes()) == nil && line.Len() > 0 {
		line.WriteByte('\n')
		_, _ = w.Write(line.Bytes())
	}
}
