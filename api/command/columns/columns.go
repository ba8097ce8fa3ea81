// Package columns lays out text for the width of a terminal. It breaks longer lines at blanks and
// indents the rest.
//
// Prose is always folded: to the terminal's width, or to 80 columns elsewhere. Text with one row
// per line is folded on terminals only, since programs read it line by line. Tables are not folded.
// Words are never broken, since people copy digests, paths and addresses. Text between backticks, a
// command, is not broken either.
package columns

import (
	"bytes"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

const (
	// Default is the width of a terminal that does not report one.
	Default = 80
	// most is the largest width of prose: longer lines are hard to read.
	most = 100
	// least is the smallest width of text: below it indents leave no room.
	least = 40
)

// Of returns the number of columns of the terminal behind w, 0 if w is not a terminal. A writer
// around a terminal has a method Columns.
func Of(w io.Writer) int {
	switch w := w.(type) {
	case interface{ Columns() int }:
		return w.Columns()
	case interface{ Fd() uintptr }:
		columns, _, err := term.GetSize(int(w.Fd())) //nolint:gosec // a descriptor is small
		switch {
		case err != nil:
			return 0
		case columns == 0:
			return Default
		}
		return max(columns, least)
	}
	return 0
}

// Screen buffers output for a terminal of Wide columns, 0 for none. Layout in it fits the terminal.
type Screen struct {
	bytes.Buffer

	Wide int
}

// Columns returns the width of the terminal.
func (s *Screen) Columns() int { return s.Wide }

// Prose returns the width of sentences written to w.
func Prose(w io.Writer) int {
	if columns := Of(w); columns > 0 {
		return min(columns, most)
	}
	return Default
}

// Width returns the number of columns of a one-line text; colours take none.
func Width(s string) int { return text.StringWidthWithoutEscSequences(s) }

// Fold breaks the lines of a text that are wider than width at their blanks; width 0 breaks none.
// The rest of a line gets the line's indent plus hang.
func Fold(s string, width, hang int) string {
	if width <= 0 {
		return s
	}
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if Width(line) > width {
			lines[i] = fold(line, width, hang)
		}
	}
	return strings.Join(lines, "\n")
}

func fold(line string, width, hang int) string {
	words := strings.TrimLeft(line, " ")
	first := line[:len(line)-len(words)]
	return Hanging(first, first+strings.Repeat(" ", hang), words, width)
}

// Hanging returns a text in lines of a width. The prefix of its first line is first, that of the
// others is rest. Blanks between words stay, except at a break.
func Hanging(first, rest, s string, width int) string {
	var b strings.Builder
	b.WriteString(first)
	at, begun := Width(first), false
	for s != "" {
		word := strings.TrimLeft(s, " ")
		blanks := s[:len(s)-len(word)]
		word = word[:wordEnd(word)]
		s = s[len(blanks)+len(word):]
		switch {
		case word == "":
		case begun && at+len(blanks)+Width(word) > width:
			b.WriteString("\n" + rest + word)
			at = Width(rest) + Width(word)
		default:
			b.WriteString(blanks + word)
			at += len(blanks) + Width(word)
		}
		begun = true
	}
	return b.String()
}

// wordEnd returns the end of a text's first word. Text between backticks is part of the word.
func wordEnd(s string) int {
	end, quoted := -1, false
	for i := range len(s) {
		switch {
		case s[i] == '`':
			quoted = !quoted
		case s[i] == ' ' && !quoted:
			return i
		case s[i] == ' ' && end < 0:
			end = i // if no second backtick follows
		}
	}
	if quoted && end >= 0 {
		return end
	}
	return len(s)
}

// Reflow lays out a text with manual line breaks: paragraphs, and indented lists of a word and its
// meaning in two columns. Other indented text is an example and stays; a tab indents a command, as
// in the help of completions.
func Reflow(s string, width int) string {
	var out []string
	last := "" // the current line
	flush := func() {
		if hang, folds := hangOf(last); folds {
			last = Fold(last, width, hang)
		}
		if last != "" {
			out = append(out, last)
		}
		last = ""
	}
	for line := range strings.SplitSeq(s, "\n") {
		of, indent := indentOf(last), indentOf(line)
		hang, folds := hangOf(last)
		switch {
		case strings.TrimSpace(line) == "":
			flush()
			out = append(out, "")
		case line[0] == '\t':
			flush()
			out = append(out, "  "+strings.TrimLeft(line, "\t"))
		case last != "" && folds && indent == of+hang:
			last += " " + strings.TrimSpace(line)
		default:
			flush()
			last = line
		}
	}
	flush()
	return strings.Join(out, "\n")
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// hangOf returns the additional indent of the rest of a line: that of the second column, if one
// exists. It also reports whether the line may be folded.
func hangOf(line string) (hang int, folds bool) {
	item := strings.TrimLeft(line, " ")
	if item == line {
		return 0, true
	}
	word, _, ok := strings.Cut(item, "  ")
	column := item[len(word):]
	comment := strings.HasPrefix(strings.TrimLeft(column, " "), "#") // of a file, which is an example
	return len(word) + indentOf(column), ok && !comment
}
