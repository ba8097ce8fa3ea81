// Command vdoctl checks and shows the vSphere drivers of a cluster, from a workstation.
// Installed as kubectl-vdo it is `kubectl vdo`.
package main

import (
	"os"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/vdoctl"
)

var version string // set by the linker; else it is that of the module

func main() { os.Exit(vdoctl.Main(version, os.Args)) }
