package command

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/command/columns"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Printable returns a text that is safe on a terminal, since names and messages come from foreign
// registries, vCenters and media. U+FFFD replaces characters that move the cursor, delete lines,
// change the writing direction, colour or hide text. Line breaks and tabs stay.
func Printable(text string) string { return strings.Map(shown, text) }

// Line returns a printable line.
func Line(format string, args ...any) string {
	return Printable(fmt.Sprintf(format, args...)) + "\n"
}

// hang is the indent of the rest of a line or row that is wider than the terminal.
const hang = 4

// Say writes a printable line. It is folded on terminals only, since other readers read line by line.
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
