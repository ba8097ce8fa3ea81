package command

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Printable is a text as a terminal may get it. Names and messages come from registries,
// vCenters and media that others have: what would move the cursor, take lines away, turn
// the direction of writing, colour or hide what follows is shown as U+FFFD. Line breaks and
// tabs stay.
func Printable(text string) string { return strings.Map(shown, text) }

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

func shown(r rune) rune {
	if r != '\n' && r != '\t' && fault.Control(r) {
		return utf8.RuneError
	}
	return r
}
