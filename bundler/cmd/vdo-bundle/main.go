// Command vdo-bundle makes, signs, checks and moves bundles of vSphere drivers.
package main

import (
	"os"
	"runtime/debug"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/cli"
)

var version string // set by the linker; else the module's

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(40 << 20) // with the program itself less than 64 MiB, on a busy machine too
	}
	os.Exit(cli.Main(version, os.Args[1:]))
}
