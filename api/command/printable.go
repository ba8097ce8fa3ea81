package command

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// coloured are the colours that programs here give words, each alone: bold, red, green, yellow, and
// none. Others could hide a text, such as black on black.
var coloured = regexp.MustCompile("\x1b\\[(0|1|31|32|33)m")

// Printable is a text as a terminal may get it. Names and messages come from registries,
// vCenters and media that others have: what would move the cursor, take lines away or turn
// the direction of writing or hide what follows is shown as U+FFFD. Line breaks, tabs and the
// colours of the programs here stay.
func Printable(text string) string {
	if !strings.ContainsFunc(text, moves) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	at := 0
	for _, colour := range coloured.FindAllStringIndex(text, -1) {
		b.WriteString(strings.Map(shown, text[at:colour[0]]))
		b.WriteString(text[colour[0]:colour[1]])
		at = colour[1]
	}
	b.WriteString(strings.Map(shown, text[at:]))
	return b.String()
}

// Line is a printable line.
func Line(format string, args ...any) string {
	return Printable(fmt.Sprintf(format, args...)) + "\n"
}

// hang is how far the rest of a line or of a row is indented that is wider than the terminal.
const hang = 4

// Say writes a printable line. On a terminal it is folded at its width; elsewhere it stays one,
// for what reads line by line.
func Say(w io.Writer, format string, args ...any) error {
	_, err := io.WriteString(w, columns.Fold(Line(format, args...), columns.Of(w), hang))
	return err
}

func moves(r rune) bool {
	return r != '\n' && r != '\t' && fault.Control(r)
}

func shown(r rune) rune {
	if moves(r) {
		return utf8.RuneError
	}
	return r
}
