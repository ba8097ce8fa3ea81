package image

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
)

// Platform is an operating system and a processor: linux/amd64, linux/arm/v7.
// The zero value stands for all platforms of an image.
type Platform struct{ OS, Architecture, Variant string }

// ParsePlatform reads OS/ARCH[/VARIANT], or "all" for the zero value.
func ParsePlatform(s string) (Platform, error) {
	if s == "all" {
		return Platform{}, nil
	}
	parts := strings.Split(s, "/")
	ok := len(parts) == 2 || len(parts) == 3
	for _, p := range parts {
		ok = ok && p != "" && strings.Trim(p, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
	}
	if !ok {
		return Platform{}, &fault.Error{
			Reason: fault.InvalidInput, Op: "parse platform", Subject: fmt.Sprintf("%q", s),
			Hint: "write it as OS/ARCH such as linux/amd64, or all",
		}
	}
	p := Platform{OS: parts[0], Architecture: parts[1]}
	if len(parts) == 3 {
		p.Variant = parts[2]
	}
	return p, nil
}

// ParsePlatforms reads platforms, sorted and each once; all stands alone.
func ParsePlatforms(texts []string) ([]Platform, error) {
	var out []Platform
	for _, s := range texts {
		p, err := ParsePlatform(s)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Platform) int { return strings.Compare(a.String(), b.String()) })
	out = slices.Compact(out)
	if len(out) == 0 || len(out) > 1 && slices.Contains(out, Platform{}) {
		return nil, fault.Errorf(fault.InvalidInput, "parse platforms", fmt.Sprintf("%q", strings.Join(texts, ",")),
			"write all, or a list such as linux/amd64,linux/arm64", "all stands alone")
	}
	return out, nil
}

// Is reports whether the platform matches a wanted one: any variant if that names none.
func (p Platform) Is(wanted Platform) bool {
	if wanted.Variant == "" {
		p.Variant = ""
	}
	return p == wanted
}

// JoinPlatforms returns the platforms as a list for people.
func JoinPlatforms(platforms []Platform) string {
	names := make([]string, len(platforms))
	for n, p := range platforms {
		names[n] = p.String()
	}
	return strings.Join(names, ", ")
}

// String returns OS/ARCH[/VARIANT], or "all".
func (p Platform) String() string {
	switch {
	case p == Platform{}:
		return "all"
	case p.Variant == "":
		return p.OS + "/" + p.Architecture
	}
	return p.OS + "/" + p.Architecture + "/" + p.Variant
}

// MarshalText returns String.
func (p Platform) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is ParsePlatform.
func (p *Platform) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePlatform(string(text))
	return err
}
