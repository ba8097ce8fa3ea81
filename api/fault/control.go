package fault

import "unicode"

// Control reports whether a terminal would act on a character rather than show it: those
// that move its cursor, line breaks and tabs among them, and those that turn the direction
// of writing. Names and messages that others have chosen are shown without them.
func Control(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}
