// Command vdo-bundle makes, signs, checks and moves bundles of vSphere drivers.
package main

import (
	"os"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/bundler/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
