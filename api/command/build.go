package command

import (
	"cmp"
	"crypto/fips140"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Build is the version of a program, as `version` prints it.
type Build struct {
	Program  string `json:"-"`
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	FIPS140  bool   `json:"fips140"` // cryptography in FIPS 140 mode
}

// BuildOf describes the running program. linked is the linker's version; without one it is the module's.
func BuildOf(program, linked string) Build {
	b := Build{
		Program: program, Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, FIPS140: fips140.Enabled(),
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		b.Version = cmp.Or(plainVersion(linked), b.Version)
		return b
	}
	if v := plainVersion(linked); v != "" {
		b.Version = v
	} else if v := strings.TrimPrefix(info.Main.Version, "v"); v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}

// plainVersion returns a version without the v of its tag.
func plainVersion(v string) string {
	if len(v) > 1 && v[0] == 'v' && v[1] >= '0' && v[1] <= '9' {
		return v[1:]
	}
	return v
}

// String returns the build as `version` and --version print it.
func (b Build) String() string {
	mode := ""
	if b.FIPS140 {
		mode = " FIPS 140"
	}
	of := ""
	if b.Revision != "" {
		of = " " + b.Revision
	}
	return fmt.Sprintf("%s %s%s %s %s%s", b.Program, b.Version, of, b.Go, b.Platform, mode)
}
