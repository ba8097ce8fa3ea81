// Command toolchain builds the programs that tests and the demo need, in advance, and prints their paths. Without
// arguments it builds all that `make test` uses; with arguments, the tools named: NAME or NAME@VERSION.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/test/toolchain"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	tools := toolchain.ForTests()
	if len(os.Args) > 1 {
		tools = nil
	}
	for _, arg := range os.Args[1:] {
		name, version, _ := strings.Cut(arg, "@")
		tools = append(tools, toolchain.Tool{Name: name, Version: version})
	}
	paths, err := toolchain.Builder{Progress: os.Stderr}.Ensure(ctx, tools...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
	for _, path := range paths {
		fmt.Println(path)
	}
}
