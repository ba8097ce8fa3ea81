package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
)

// printer shows headings, commands and their output, in colour on a terminal.
type printer struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	shown    bool      // a line of progress is on the terminal
	last     time.Time // that one was printed where there is no terminal
}

func newPrinter(f *os.File) *printer { return &printer{w: f, terminal: isatty.IsTerminal(f.Fd())} }

func (p *printer) styled(code, text string) string {
	if !p.terminal {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p *printer) heading(format string, args ...any) {
	p.write("\n" + p.styled("1;34", "== "+fmt.Sprintf(format, args...)) + "\n")
}

func (p *printer) say(format string, args ...any) { p.write(fmt.Sprintf(format, args...) + "\n") }

// command shows a command line and returns where its output goes.
func (p *printer) command(line string) io.Writer {
	p.write(p.styled("1", "$ "+line) + "\n")
	return p
}

func (p *printer) write(text string) { _, _ = p.Write([]byte(text)) }

// Write passes output on, one writer at a time.
func (p *printer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.w.Write(b)
}

// progressEvery is how often there is a line of progress where it cannot be
// written over.
const progressEvery = 30 * time.Second

// progress shows how far something is, in one line.
func (p *printer) progress(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.terminal:
		p.shown = true
		_, _ = io.WriteString(p.w, "\r\x1b[K"+text)
	case time.Since(p.last) >= progressEvery:
		p.last = time.Now()
		_, _ = io.WriteString(p.w, text+"\n")
	}
}

// endProgress takes the line of progress away.
func (p *printer) endProgress() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
	p.shown, p.last = false, time.Time{}
}
