package matrix

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// maxVersionText bounds every version text.
const maxVersionText = 128

// Version is a semantic version of a driver, of Kubernetes or of vSphere.
// The zero value is no version.
type Version struct{ v *semver.Version }

// ParseVersion reads a strict semantic version, with or without a leading v.
func ParseVersion(s string) (Version, error) {
	if len(s) > maxVersionText {
		return Version{}, fmt.Errorf("a version of %d characters is too long", len(s))
	}
	v, err := semver.StrictNewVersion(strings.TrimPrefix(s, "v"))
	if err != nil {
		return Version{}, fmt.Errorf("%q is not a semantic version: write it as MAJOR.MINOR.PATCH", s)
	}
	return Version{v}, nil
}

// triple returns the version of three numbers.
func triple(major, minor, patch uint64) Version {
	return Version{semver.New(major, minor, patch, "", "")}
}

// IsZero reports whether the version is none.
func (v Version) IsZero() bool { return v.v == nil }

// String returns the version without a leading v, or "".
func (v Version) String() string {
	if v.v == nil {
		return ""
	}
	return v.v.String()
}

// Compare orders by precedence as semver.org defines it, without build metadata. No version comes
// before every version.
func (v Version) Compare(w Version) int {
	switch {
	case v.v == nil && w.v == nil:
		return 0
	case v.v == nil:
		return -1
	case w.v == nil:
		return 1
	}
	return v.v.Compare(w.v)
}

// LessThan reports whether v comes before w.
func (v Version) LessThan(w Version) bool { return v.Compare(w) < 0 }

// Equal reports whether neither comes before the other.
func (v Version) Equal(w Version) bool { return v.Compare(w) == 0 }

// Minor returns the major and minor number.
func (v Version) Minor() Minor {
	if v.v == nil {
		return Minor{}
	}
	return Minor{Major: v.v.Major(), Minor: v.v.Minor()}
}

// IsPrerelease reports whether the version is a pre-release.
func (v Version) IsPrerelease() bool { return v.v != nil && v.v.Prerelease() != "" }

// MarshalText returns String.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText is ParseVersion; empty text is the zero value.
func (v *Version) UnmarshalText(text []byte) error { return unmarshal(v, text, ParseVersion) }

func unmarshal[T any](to *T, text []byte, parse func(string) (T, error)) (err error) {
	if *to = *new(T); len(text) > 0 {
		*to, err = parse(string(text))
	}
	return err
}

// Minor is a Kubernetes minor version such as 1.33. The zero value is none.
type Minor struct{ Major, Minor uint64 }

var minorText = regexp.MustCompile(`^v?(\d{1,9})\.(\d{1,9})$`)

// ParseMinor reads "1.33".
func ParseMinor(s string) (Minor, error) {
	m := minorText.FindStringSubmatch(s)
	if m == nil {
		return Minor{}, fmt.Errorf("%q is not a minor version: write it as MAJOR.MINOR, such as 1.33", s)
	}
	return Minor{Major: number(m[1]), Minor: number(m[2])}, nil
}

// isWrongRange matches the rest of a range whose last version is wrong, or hidden behind a suffix of the first.
var isWrongRange = regexp.MustCompile(`^[0-9]+(\.|$)|v[0-9]+\.[0-9]`)

// ParseMinors reads one minor, "1.33", or a range, "1.32-1.34", of at most a hundred. It uses the
// minor of a longer version, "v1.33.4+k3s1".
func ParseMinors(s string) ([]Minor, error) {
	first, last, _ := strings.Cut(s, "-")
	from, err := ParseKubernetes(first)
	to, lastErr := ParseKubernetes(last)
	if err != nil || lastErr != nil { // one version, and a dash may begin its suffix
		if isWrongRange.MatchString(last) {
			return nil, fmt.Errorf("%q is no range of minors: write it as 1.32-1.34", s)
		}
		if from, err = ParseKubernetes(s); err != nil {
			return nil, err
		}
		to = from
	}
	a, b := from.Minor(), to.Minor()
	if a.Major != b.Major || b.Minor < a.Minor || b.Minor-a.Minor >= maxMinors {
		return nil, fmt.Errorf("not an ascending range of at most %d minors", maxMinors)
	}
	var out []Minor
	for m := a; m.Compare(b) <= 0; m = m.Next() {
		out = append(out, m)
	}
	return out, nil
}

// number reads digits whose count a pattern has bounded.
func number(digits string) uint64 {
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0 // not reached: at most nine digits, or none
	}
	return n
}

// IsZero reports whether the minor is none.
func (m Minor) IsZero() bool { return m == Minor{} }

// String returns "1.33", or "".
func (m Minor) String() string {
	if m.IsZero() {
		return ""
	}
	return fmt.Sprintf("%d.%d", m.Major, m.Minor)
}

// Compare orders minors; none comes first.
func (m Minor) Compare(n Minor) int {
	return cmp.Or(cmp.Compare(m.Major, n.Major), cmp.Compare(m.Minor, n.Minor))
}

// Next returns the next minor.
func (m Minor) Next() Minor { return Minor{Major: m.Major, Minor: m.Minor + 1} }

// MarshalText returns String.
func (m Minor) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is ParseMinor; empty text is the zero value.
func (m *Minor) UnmarshalText(text []byte) error { return unmarshal(m, text, ParseMinor) }

// Ceiling is an inclusive maximum that covers all versions with the same beginning. 8 covers 8.x.y,
// 8.0 covers 8.0.x, 8.0.1 covers only itself. The zero value is no maximum.
type Ceiling struct {
	numbers [3]uint64
	given   int // how many of the numbers are written: 0 to 3
}

var ceilingText = regexp.MustCompile(`^(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?$`)

// ParseCeiling reads one to three numbers separated by dots.
func ParseCeiling(s string) (Ceiling, error) {
	m := ceilingText.FindStringSubmatch(s)
	if m == nil {
		return Ceiling{}, fmt.Errorf("%q is not an upper bound: write one to three numbers, such as 8, 8.0 or 8.0.3", s)
	}
	var c Ceiling
	for i, digits := range m[1:] {
		if digits != "" {
			c.numbers[i], c.given = number(digits), i+1
		}
	}
	return c, nil
}

// IsZero reports whether the bound is none.
func (c Ceiling) IsZero() bool { return c.given == 0 }

// String returns the bound as written, or "".
func (c Ceiling) String() string {
	parts := make([]string, c.given)
	for i := range parts {
		parts[i] = strconv.FormatUint(c.numbers[i], 10)
	}
	return strings.Join(parts, ".")
}

// Covers reports whether v is at or below the bound.
func (c Ceiling) Covers(v Version) bool {
	return c.IsZero() || v.LessThan(c.after())
}

// after returns the first version above the bound.
func (c Ceiling) after() Version {
	n := c.numbers
	n[c.given-1]++
	return triple(n[0], n[1], n[2])
}

// MarshalText returns String.
func (c Ceiling) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is ParseCeiling; empty text is the zero value.
func (c *Ceiling) UnmarshalText(text []byte) error { return unmarshal(c, text, ParseCeiling) }

var kubernetesText = regexp.MustCompile(`^v?(\d{1,9})\.(\d{1,9})\+?(?:\.(\d{1,9})(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.+_-]*)?)?$`)

// ParseKubernetes reads a Kubernetes version as API servers and people write it: 1.33, 1.33+,
// v1.33.4, v1.33.4+k3s1, v1.33.4-gke.100, v1.34.0-rc.1. It drops a distribution's suffix and keeps
// a pre-release (alpha, beta, rc).
func ParseKubernetes(s string) (Version, error) {
	m := kubernetesText.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil || len(s) > maxVersionText {
		return Version{}, fmt.Errorf("%.*q is not a Kubernetes version: write it as 1.33 or v1.33.4", maxVersionText, s)
	}
	v := triple(number(m[1]), number(m[2]), number(m[3]))
	if !isPrerelease(m[4]) {
		return v, nil
	}
	if pre, err := v.v.SetPrerelease(strings.TrimPrefix(m[4], "-")); err == nil {
		return Version{&pre}, nil
	}
	return v, nil
}

// isPrerelease tells Kubernetes' own pre-releases from a distribution's suffix.
func isPrerelease(suffix string) bool {
	return strings.HasPrefix(suffix, "-alpha") || strings.HasPrefix(suffix, "-beta") || strings.HasPrefix(suffix, "-rc")
}

var (
	vSphereDotted = regexp.MustCompile(`^v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?:\.\d{1,9})?$`)
	vSphereUpdate = regexp.MustCompile(`^v?(\d{1,9})\.(\d{1,9})(?:\.0)? ?[uU](?:pdate ?)?(\d{1,3})[a-z]?$`)
)

// ParseVSphere reads a vSphere version as vCenters and people write it: 8.0,
// 8.0.3, 8.0.3.00500, 8.0U3, 8.0 U3b, "8.0 Update 3".
func ParseVSphere(s string) (Version, error) {
	text := strings.TrimSpace(s)
	m := vSphereDotted.FindStringSubmatch(text)
	if m == nil {
		m = vSphereUpdate.FindStringSubmatch(text)
	}
	if m == nil {
		return Version{}, fmt.Errorf("%.*q is not a vSphere version: write it as 8.0.3 or 8.0U3", maxVersionText, s)
	}
	return triple(number(m[1]), number(m[2]), number(m[3])), nil
}

// ParseReleaseID reads "csi@3.5.1".
func ParseReleaseID(s string) (ReleaseID, error) {
	return parseID(s, "is not a release: write it as DRIVER@VERSION, such as csi@3.5.1", ParseDriver)
}

func parseID(s, isNone string, parseDriver func(string) (Driver, error)) (id ReleaseID, err error) {
	driver, version, found := strings.Cut(s, "@")
	if !found {
		return id, fmt.Errorf("%.*q %s", maxVersionText, s, isNone)
	}
	if id.Driver, err = parseDriver(driver); err == nil {
		id.Version, err = ParseVersion(version)
	}
	if err != nil {
		return ReleaseID{}, err
	}
	return id, nil
}

// String returns "csi@3.5.1".
func (id ReleaseID) String() string { return string(id.Driver) + "@" + id.Version.String() }

// Discouraged says that a release is withdrawn or deprecated, and why; "" if it is neither.
func (id ReleaseID) Discouraged(s State, reason string) string {
	if s != Withdrawn && s != Deprecated {
		return ""
	}
	return id.String() + " is " + string(s) + ": " + reason
}

// Compare orders by driver in installation order, then by version. It is 0 for the same text only:
// two builds of a version are two releases.
func (id ReleaseID) Compare(other ReleaseID) int {
	return cmp.Or(
		cmp.Compare(id.Driver.order(), other.Driver.order()),
		cmp.Compare(id.Driver, other.Driver),
		id.Version.Compare(other.Version),
		cmp.Compare(id.Version.String(), other.Version.String()),
	)
}
