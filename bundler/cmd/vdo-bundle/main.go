// Command vdo-bundle makes, signs, checks and moves bundles of vSphere drivers.
package main

import (
	"os"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/cli"
)

var version string // set by the linker; else the module's

func main() { os.Exit(cli.Main(version, os.Args[1:])) }
