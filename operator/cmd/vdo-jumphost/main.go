// Command vdo-jumphost is the entrypoint of the jump host's image. See package jumphost.
package main

import (
	"os"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost"
)

func main() { os.Exit(jumphost.Main(os.Args[1:], os.Stdout, os.Stderr)) }
