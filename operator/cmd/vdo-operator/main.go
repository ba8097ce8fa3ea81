// Command vdo-operator installs, upgrades and watches the vSphere drivers of the
// cluster that it runs in, or beside. See package operator.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator"
)

var version string // set by the linker

func main() {
	operator.BoundMemory()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := operator.Main(ctx, version, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
