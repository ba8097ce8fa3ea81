package vdoctl

import (
	"fmt"
	"io"
	"os"

	"github.com/mattn/go-isatty"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
)

// progress tells what is waited for: on a terminal in one line that is written over,
// elsewhere a line for each thing that is new.
type progress struct {
	w        io.Writer
	terminal bool
	last     string
}

func (a *app) progress() *progress {
	f, ok := a.err.(*os.File)
	return &progress{w: a.err, terminal: ok && isatty.IsTerminal(f.Fd())}
}

// show says what is waited for now.
func (p *progress) show(text string) {
	if text == p.last {
		return
	}
	p.last = text
	if p.terminal {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", cut(command.Printable(text), columns.Prose(p.w)-1))
		return
	}
	_ = command.Say(p.w, "%s", text)
}

// done says what has come about, in a line that stays.
func (p *progress) done(text string) {
	p.end()
	_ = command.Say(p.w, "%s", text)
}

// end takes the line away.
func (p *progress) end() {
	if p.terminal && p.last != "" {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	}
	p.last = ""
}

// cut shortens a text to one line of so many letters.
func cut(text string, most int) string {
	letters := []rune(text)
	for i, r := range letters {
		if r == '\n' {
			letters[i] = ' '
		}
	}
	if len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return string(letters)
}
