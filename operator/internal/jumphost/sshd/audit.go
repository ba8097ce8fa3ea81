package sshd

import (
	"io"
	"log/slog"
	"strings"
	"unicode"
)

// maxShort bounds what is quoted of a client's, in characters.
const maxShort = 100

// newAudit writes one JSON object a line: time, msg and what it is about.
func newAudit(w io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, nil))
}

// refused tells what a client was refused. Whoever tries without end gets few lines, and
// their number when it goes.
func (s *Server) refused(c *connection, what string, about ...any) {
	if !c.refusals.Allow() {
		c.swallow.Add(1)
		return
	}
	s.audit.Warn(what, append(c.who(), about...)...)
}

// short is a client's word on one line.
func short(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
	if r := []rune(text); len(r) > maxShort {
		return string(r[:maxShort]) + "…"
	}
	return text
}
