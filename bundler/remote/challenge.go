package remote

import (
	"net/http"
	"strings"
)

// challenge is a WWW-Authenticate header.
type challenge struct {
	scheme string // lower case; "" for none
	params map[string]string
}

// parseChallenge reads a WWW-Authenticate header (RFC 9110, section 11.6.1) of one
// scheme with its parameters. What does not parse is left out. oras' own reader is not
// exported, and the token service has to be known before oras is let near it.
func parseChallenge(header string) challenge {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(header), " ")
	c := challenge{scheme: strings.ToLower(scheme), params: map[string]string{}}
	for rest = strings.TrimLeft(rest, " \t,"); rest != ""; rest = strings.TrimLeft(rest, " \t,") {
		key, value, ok := strings.Cut(rest, "=")
		if !ok {
			break
		}
		var v string
		v, rest = cutValue(strings.TrimLeft(value, " \t"))
		c.params[strings.ToLower(strings.TrimSpace(key))] = v
	}
	return c
}

// cutValue parts a token or a quoted string from what follows it.
func cutValue(s string) (value, rest string) {
	if !strings.HasPrefix(s, `"`) {
		i := strings.IndexAny(s, ", \t")
		if i < 0 {
			return s, ""
		}
		return s[:i], s[i:]
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i < len(s) {
				b.WriteByte(s[i])
			}
		case '"':
			return b.String(), s[i+1:]
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), ""
}

// pickChallenge chooses among several headers: a token service before a password.
func pickChallenge(h http.Header) challenge {
	var picked challenge
	for _, line := range h.Values("WWW-Authenticate") {
		c := parseChallenge(line)
		if c.scheme == "bearer" || (c.scheme == "basic" && picked.scheme == "") {
			picked = c
		}
	}
	return picked
}
