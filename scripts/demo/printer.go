package main

import (
	"fmt"
	"io"
	"sync"
)

// printer shows headings, commands and their output.
type printer struct {
	mu sync.Mutex
	w  io.Writer
}

func (p *printer) heading(format string, args ...any) { p.say("\n== "+format, args...) }

func (p *printer) say(format string, args ...any) { _, _ = fmt.Fprintf(p, format+"\n", args...) }

// command shows a command line and returns where its output goes.
func (p *printer) command(line string) io.Writer {
	p.say("$ %s", line)
	return p
}

// Write passes output on, one writer at a time.
func (p *printer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.w.Write(b)
}
