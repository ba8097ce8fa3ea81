package fault

import "unicode"

// Control reports whether a terminal would act on a character instead of showing it. These are characters
// that move the cursor, including line breaks and tabs, and those that change the writing direction.
func Control(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}
