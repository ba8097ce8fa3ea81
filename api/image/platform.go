package image

import (
	"fmt"
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
func (p *Platform) UnmarshalText(text []byte) error {
	parsed, err := ParsePlatform(string(text))
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}
