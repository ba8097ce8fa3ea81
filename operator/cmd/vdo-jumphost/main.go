// Command vdo-jumphost is the jump host of a tenant cluster: it leads to the cluster's
// hosts over SSH. See package jumphost.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/jumphost/sshd"
)

var version = "unknown" // set by the linker

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := sshd.Main(ctx, version, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
