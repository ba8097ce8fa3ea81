package fault

import (
	"fmt"
	"strings"
	"unicode"
)

// Quote returns words as a shell reads them back, for commands in hints and for foreign names in
// hints. It quotes words with special characters of shells or unprintable ones.
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

// special reports whether a character may have a special meaning in a shell.
func special(r rune) bool {
	plain := unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_@%+=:,./-", r)
	return !plain
}

// escaped returns a word in the quotes $'…' of POSIX 2024.
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
