package main

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/mattn/go-isatty"
)

// printer shows headings, commands and their output, in colour on a terminal.
type printer struct {
	mu     sync.Mutex
	w      io.Writer
	colour bool
}

func newPrinter(f *os.File) *printer { return &printer{w: f, colour: isatty.IsTerminal(f.Fd())} }

func (p *printer) styled(code, text string) string {
	if !p.colour {
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
