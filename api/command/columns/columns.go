// Package columns lays text out for the terminal that it is shown on: lines that are longer
// than it is wide are broken at blanks, and what follows is indented.
//
// Prose is folded wherever it goes, at 80 columns where it does not go to a terminal. All that
// has one row for a line is folded on terminals alone: programs read it line by line. Tables are
// not folded. Words are never broken: digests, paths and addresses are copied. Neither
// is what stands between backticks, a command.
package columns

import (
	"bytes"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

const (
	// Default is how wide a terminal is that does not tell.
	Default = 80
	// most is how wide prose is at most: longer lines are hard to read.
	most = 100
	// least is how narrow text is made at most: below that indents leave nothing.
	least = 40
)

// Of returns how many columns the terminal has that w leads to, 0 where it leads to none. A
// writer that is not the terminal itself says so by a method Columns.
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

// Screen is what will be written to a terminal of so many columns, 0 for none: what is laid out in
// it fits there.
type Screen struct {
	bytes.Buffer

	Wide int
}

// Columns is how wide the terminal is.
func (s *Screen) Columns() int { return s.Wide }

// Prose returns how wide text in sentences is that is written to w.
func Prose(w io.Writer) int {
	if columns := Of(w); columns > 0 {
		return min(columns, most)
	}
	return Default
}

// Width is how many columns a text of one line takes; colours take none.
func Width(s string) int { return text.StringWidthWithoutEscSequences(s) }

// Fold breaks the lines of a text that are wider than width at their blanks; width 0 breaks none.
// What follows is indented by as much as the line was, and by hang besides.
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

// Hanging is a text in lines of a width, of which the first begins with one prefix and the others
// with another. Blanks between words stay, but for those where it is broken.
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

// wordEnd is where the first word of a text ends, of which backticks are a part with all between
// them.
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

// Reflow lays out a text whose lines were broken by hand: paragraphs, and lists of two columns,
// which are indented, "  word  what it means". What else is indented is an example, and stays;
// what is indented by a tab, as in the help of completions, is a command.
func Reflow(s string, width int) string {
	var out []string
	last := "" // the line that is gathered
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

// hangOf is how far the rest of a line is indented beyond the line: as the second column is, where
// there is one; and whether the line may be folded.
func hangOf(line string) (hang int, folds bool) {
	item := strings.TrimLeft(line, " ")
	if item == line {
		return 0, true
	}
	word, _, ok := strings.Cut(item, "  ")
	column := item[len(word):]
	comment := strings.HasPrefix(strings.TrimLeft(column, " "), "#") // a file's, which is an example
	return len(word) + indentOf(column), ok && !comment
}
