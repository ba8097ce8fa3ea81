package fault

import (
	"fmt"
	"strings"
	"unicode"
)

// Quote writes words as a shell takes them back: for hints that are commands, and for
// names in hints, which others may have chosen. What a shell would take for more than
// text, or a terminal would not show, is quoted.
func Quote(words ...string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = quote(w)
	}
	return strings.Join(out, " ")
}

func quote(word string) string {
	switch {
	case strings.ContainsFunc(word, func(r rune) bool { return !unicode.IsPrint(r) }):
		return escaped(word)
	case word == "" || strings.ContainsFunc(word, special):
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// special reports whether a shell may take a character for more than itself.
func special(r rune) bool {
	plain := unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_@%+=:,./-", r)
	return !plain
}

// escaped writes a word in the quotes $'…' of POSIX 2024.
func escaped(word string) string {
	var b strings.Builder
	b.WriteString("$'")
	for _, c := range []byte(word) {
		switch {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + "'"
}
