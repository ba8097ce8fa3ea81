package cli

import (
	"cmp"
	"crypto/fips140"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/cli/flags"
)

// build is what `version` prints.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	FIPS140  bool   `json:"fips140"` // cryptography in FIPS 140 mode
}

// linked is the version that the linker gave, as the operator's is: one for both programs.
var linked string

// plainVersion is a version without the v of its tag.
func plainVersion(v string) string {
	if len(v) > 1 && v[0] == 'v' && v[1] >= '0' && v[1] <= '9' {
		return v[1:]
	}
	return v
}

func version() build {
	b := build{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, FIPS140: fips140.Enabled()}
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

// String is the build as `version` and --version print it.
func (b build) String() string {
	mode := ""
	if b.FIPS140 {
		mode = " FIPS 140"
	}
	of := ""
	if b.Revision != "" {
		of = " " + b.Revision
	}
	return fmt.Sprintf("vdo-bundle %s%s %s %s%s", b.Version, of, b.Go, b.Platform, mode)
}

func newVersionCommand(a *app) *cobra.Command {
	var o outputFlags
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version of this program", Args: flags.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			if o.json() {
				return writeJSON(a.out, version())
			}
			_, err := fmt.Fprintln(a.out, version())
			return err
		},
	}
	o.bindFormat(cmd)
	return cmd
}
