package matrix

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Each of these functions reads one scalar.

func line(s string) (string, error) { return s, nil }

func exactly(want string) func(string) (string, error) {
	return func(s string) (string, error) {
		if s != want {
			return "", fmt.Errorf("is %q, and this format is %q", short(s), want)
		}
		return s, nil
	}
}

func positive[T ~int64 | ~uint64](maximum T) func(string) (T, error) {
	return func(s string) (T, error) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 1 || T(n) > maximum || strconv.FormatInt(n, 10) != s {
			return 0, fmt.Errorf("%q is not a whole number from 1 to %d", short(s), maximum)
		}
		return T(n), nil
	}
}

func boolean(s string) (bool, error) {
	if s != "true" && s != "false" {
		return false, fmt.Errorf("%q is neither true nor false", short(s))
	}
	return s == "true", nil
}

func instant(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || !strings.HasSuffix(s, "Z") {
		return time.Time{}, fmt.Errorf("%q is not a time in UTC: write it as 2026-09-01T00:00:00Z", short(s))
	}
	return t.UTC(), nil
}

func releaseVersion(s string) (Version, error) {
	v, err := ParseVersion(s)
	switch {
	case err != nil:
		return v, err
	case v.v.Metadata() != "":
		return Version{}, fmt.Errorf("%q has build metadata, which does not tell releases apart: leave out +%s", s, v.v.Metadata())
	case v.String() != s:
		return Version{}, fmt.Errorf("%q has a leading v: write %s", s, v)
	}
	return v, nil
}

func parseState(s string) (State, error) {
	if !State(s).Valid() {
		return "", unknown("state", s, States())
	}
	return State(s), nil
}

func parsePart(s string) (Part, error) {
	if !slices.Contains(parts(), Part(s)) {
		return "", unknown("part", s, parts())
	}
	return Part(s), nil
}

var fileNameText = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,200}$`)

func fileName(s string) (string, error) {
	if !fileNameText.MatchString(s) {
		return "", fmt.Errorf("%q is not a base name of a file: use letters, digits, dots, dashes and underscores", short(s))
	}
	return s, nil
}

func address(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" || u.User != nil || u.Fragment != "" || len(s) > 2048 {
		return "", fmt.Errorf("%q is not an http or https address of a file", short(s))
	}
	return s, nil
}

var sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)

func sha256Text(s string) (string, error) {
	if !sha256Hex.MatchString(s) {
		return "", fmt.Errorf("%q is not a sha256: it has 64 hexadecimal digits in lower case, as sha256sum prints them", short(s))
	}
	return s, nil
}

var imageReference = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,500}$`)

func imageText(s string) (string, error) {
	if !imageReference.MatchString(s) {
		return "", fmt.Errorf("%q is not an image reference", short(s))
	}
	return s, nil
}

// pinnedImage refuses what an override is there to replace: a reference that
// does not say which image it means.
func pinnedImage(s string) (string, error) {
	name, err := imageText(s)
	if err != nil {
		return "", err
	}
	if strings.Contains(name, "@") {
		return name, nil
	}
	_, tag, found := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if !found || tag == "" || tag == "latest" {
		return "", fmt.Errorf("%q has neither a fixed tag nor a digest", short(s))
	}
	return name, nil
}

// unknown is the error of a word that is none of a few.
func unknown[T ~string](what, got string, known []T) error {
	words := each(known, func(k T) string { return string(k) })
	return fmt.Errorf("%q is not a %s: it is one of %s", short(got), what, strings.Join(words, ", "))
}
